/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/config.h"

#include "core/err.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ini.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#define TEXT(section_, key_, field, standard_, help_)                                              \
    {                                                                                              \
        .section = section_, .key = key_, .standard = standard_, .unit = "", .help = help_,        \
        .type = SL_MON_CONFIG_TEXT, .offset = offsetof(struct sl_mon_config, field),               \
        .cap = sizeof(((struct sl_mon_config *)0)->field)                                          \
    }
#define NUMBER(section_, key_, field, standard_, unit_, least_, most_, help_)                      \
    {                                                                                              \
        .section = section_, .key = key_, .standard = standard_, .unit = unit_, .help = help_,     \
        .type = SL_MON_CONFIG_NUMBER, .offset = offsetof(struct sl_mon_config, field),             \
        .least = least_, .most = most_                                                             \
    }
#define WANTED(section_, key_, field, standard_, help_)                                            \
    {                                                                                              \
        .section = section_, .key = key_, .standard = standard_, .unit = "", .help = help_,        \
        .type = SL_MON_CONFIG_WANTED, .offset = offsetof(struct sl_mon_config, field)              \
    }
#define MODE(section_, key_, field, standard_, help_)                                              \
    {                                                                                              \
        .section = section_, .key = key_, .standard = standard_, .unit = "", .help = help_,        \
        .type = SL_MON_CONFIG_MODE, .offset = offsetof(struct sl_mon_config, field)                \
    }
#define ADDRESS(section_, key_, field, standard_, help_)                                           \
    {                                                                                              \
        .section = section_, .key = key_, .standard = standard_, .unit = "", .help = help_,        \
        .type = SL_MON_CONFIG_ADDRESS, .offset = offsetof(struct sl_mon_config, field),            \
        .cap = sizeof(((struct sl_mon_config *)0)->field)                                          \
    }
#define CHOICE(section_, key_, field, words_, standard_, help_)                                    \
    {                                                                                              \
        .section = section_, .key = key_, .standard = standard_, .unit = "", .help = help_,        \
        .words = words_, .type = SL_MON_CONFIG_CHOICE,                                             \
        .offset = offsetof(struct sl_mon_config, field)                                            \
    }

const struct sl_mon_config_row sl_mon_config_rows[] = {
    TEXT("store", "path", store_path, "/var/lib/sluiced/state.db",
         "The file of transitions and conditions."),
    NUMBER("store", "transitions", store_transitions, "100000", "", 100, 10000000,
           "So many are kept; the oldest give way."),
    NUMBER("store", "bytes", store_bytes, "67108864", "bytes", 262144, INT64_C(1) << 40,
           "The file gets no larger."),
    TEXT("output", "events", events_path, "-",
         "Transitions as lines of JSON: a file, - for standard output (the journal), or nothing."),
    TEXT("output", "textfile", textfile_path, "",
         "Metrics as a file, written anew each period: for node_exporter's textfile collector "
         "(a name that ends in .prom). Nothing: none."),
    WANTED("output", "node_names", node_names, "off",
           "Counters of RDMA ports also as node_infiniband_..., for dashboards of node_exporter."),
    TEXT("output", "bundle", bundle_path, "",
         "What the agent is told, and what it makes of that, for sluicectl replay. Nothing: none."),
    NUMBER("output", "bundle_bytes", bundle_bytes, "268435456", "bytes", 65536, INT64_C(1) << 40,
           "Nothing more is recorded once it is so long."),
    CHOICE("isolate", "plug", isolate_plug, "none exec slurm kubernetes", "none",
           "Who takes this node out of service for a fatal verdict, and brings it back."),
    CHOICE("isolate", "mode", isolate_mode, "shadow act", "shadow",
           "shadow: it is only told and kept what would be done."),
    TEXT("isolate", "classes", isolate_classes, "",
         "Classes of verdicts, such as NICDegraded, that take the node out beside the fatal ones; "
         "between commas."),
    NUMBER(
        "isolate", "hold_s", isolate_hold_s, "600", "s", -1, 604800,
        "All these verdicts closed for so long, and the node is brought back; -1: by people only."),
    NUMBER("isolate", "share_percent", isolate_share_percent, "10", "percent", 0, 100,
           "With slurm and kubernetes: no node goes where so many of all nodes are out."),
    NUMBER("isolate", "least_nodes", isolate_least_nodes, "1", "", 0, 100000,
           "So many may be out, whatever their share is."),
    NUMBER("isolate", "times", isolate_times, "3", "", 1, 32,
           "This node is taken out so often within window_s at most."),
    NUMBER("isolate", "window_s", isolate_window_s, "86400", "s", 1, 31536000, "See times."),
    NUMBER("isolate", "timeout_ms", isolate_timeout_ms, "30000", "ms", 100, 600000,
           "An attempt that takes longer is killed, and repeated later."),
    TEXT("isolate", "node", isolate_node, "",
         "This node's name for Slurm or Kubernetes. Nothing: the host's name; with kubernetes, "
         "$NODE_NAME."),
    TEXT("isolate", "command", isolate_command, "",
         "With exec: the program and its first arguments. It gets: out or back, the node, and a "
         "key that is the same however often it is called for one action."),
    TEXT("isolate", "slurm_bin", isolate_slurm_bin, "",
         "Where scontrol and sinfo are. Nothing: in PATH."),
    TEXT("isolate", "api", isolate_api, "",
         "Of Kubernetes: https://HOST:PORT. Nothing: as a pod is told it."),
    TEXT("isolate", "token", isolate_token, "/var/run/secrets/kubernetes.io/serviceaccount/token",
         "The file of the bearer token, read anew each time. Nothing: none."),
    TEXT("isolate", "ca", isolate_ca, "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt",
         "The file of the certificates that the API's own must be signed by."),
    CHOICE(
        "steer", "mode", steer_mode, "off shadow act", "off",
        "act: ranks of this host are told to send by other ports than those that are bad; shadow: "
        "it is only told and counted."),
    TEXT("steer", "checks", steer_checks,
         "packet_loss,rank_paths,receive_errors,symbol_errors,link_recovery,link_flap,link_speed",
         "Checks of RDMA ports that count, between commas. link_speed lowers the port's weight to "
         "what is left of it, all others have it avoided."),
    NUMBER("steer", "ports", steer_ports, "1", "", 1, 63,
           "So many are avoided at once at most, and never the last one."),
    NUMBER("steer", "rest_s", steer_rest_s, "60", "s", 1, 86400,
           "Without evidence for so long, and a port that is avoided is tried again; twice as long "
           "each time that it was too early."),
    NUMBER("steer", "trial_s", steer_trial_s, "30", "s", 1, 86400,
           "It carries well for so long, and it is used as before."),
    NUMBER("steer", "trial_weight", steer_trial_weight, "10", "", 1, 99,
           "What it carries meanwhile, against 100 of the others."),
    TEXT("steer", "table", steer_table, "/run/sluiced/paths",
         "The path table for ranks, in a folder that is root's; SLUICE_PATHS_AGENT says to ranks "
         "where it is."),
    WANTED("probe", "echo", probe_echo, "off", "Answers probes of other agents, over UDP."),
    ADDRESS("probe", "listen", probe_listen, "0.0.0.0:9495", "Where it is asked."),
    TEXT("probe", "secret", probe_secret, "",
         "The file of a text of 16 bytes or more that all agents share; needed to ask and to "
         "answer."),
    NUMBER("probe", "rate", probe_rate, "10000", "", 1, 1000000,
           "Packets that are answered in a second at most; more are lost to who asks."),
    WANTED("probe", "rdma", probe_rdma, "auto",
           "auto: with echo, also those over RDMA, by a process that opens the devices while "
           "somebody probes."),
    TEXT("probe", "verbs_library", probe_library, "libibverbs.so.1",
         "The library of RDMA devices, opened by who asks and who answers."),
    WANTED("probe", "http", probe_http, "off",
           "on: who may read over HTTP may also ask for probes there."),
    NUMBER("sources", "period_ms", period_ms, "1000", "ms", 100, 60000,
           "Time between readings of counters."),
    NUMBER("sources", "subjects", subjects, "4096", "", 16, 65536,
           "Ports, devices and processes that are watched at most."),
    WANTED("sources", "link", link, "on", "Network interfaces, by rtnetlink."),
    TEXT("sources", "link_ignore", link_ignore, "veth,docker,br-,virbr,cali,cni,flannel,tap",
         "Interfaces that are not watched: how their names begin, between commas."),
    WANTED("sources", "rdma", rdma, "on", "RDMA ports, in sysfs."),
    TEXT("sources", "rdma_root", rdma_root, "/sys/class/infiniband", "Where they are."),
    WANTED("sources", "kmsg", kmsg, "on", "The kernel's log."),
    TEXT("sources", "kmsg_path", kmsg_path, "/dev/kmsg", "Where it is."),
    WANTED("sources", "tcp", tcp, "auto", "TCP connections to other hosts, by inet_diag."),
    WANTED("sources", "queues", queues, "auto", "Queues of network interfaces, by rtnetlink."),
    TEXT("sources", "net_root", net_root, "/sys/class/net", "Where network interfaces are."),
    WANTED("sources", "pcie", pcie, "auto", "PCIe links of NICs and GPUs, in sysfs."),
    TEXT("sources", "pci_root", pci_root, "/sys/bus/pci/devices", "Where they are."),
    WANTED("sources", "rdma_resources", rdma_resources, "auto",
           "Queue pairs of RDMA devices, by RDMA netlink."),
    WANTED("sources", "rdma_events", rdma_events, "auto",
           "Events of RDMA devices, by a process that opens them; on: also those in software."),
    WANTED("sources", "gpu", gpu, "auto", "GPUs, by NVML in a process of its own."),
    TEXT("sources", "nvml_library", nvml_library, "libnvidia-ml.so.1", "NVML's library."),
    WANTED("sources", "ranks", ranks, "on", "Processes that are ranks, and those named below."),
    TEXT("sources", "ranks_cgroup", ranks_cgroup, "",
         "Processes in these cgroups are watched, too: how the paths begin, between commas."),
    TEXT("sources", "ranks_command", ranks_command, "",
         "And those with one of these words in the command line, between commas."),
    TEXT("sources", "ranks_proc", ranks_proc, "/proc", "Where processes are."),
    TEXT("sources", "ranks_shm", ranks_shm, "/dev/shm", "Where state pages are."),
    TEXT("sources", "ranks_cgroups", ranks_cgroups, "/sys/fs/cgroup", "Where cgroups are."),
    WANTED("sources", "sluice", sluice, "on", "What ranks tell of themselves: their state pages."),
    WANTED("sources", "bpf_tcp", bpf_tcp, "auto",
           "TCP's retransmits, zero windows, resets and damage, and dropped packets, by BPF."),
    WANTED("sources", "bpf_queue", bpf_queue, "auto",
           "Transmit queues of network interfaces, by BPF."),
    WANTED("sources", "bpf_sched", bpf_sched, "auto",
           "How long the processes that are watched wait for a processor, by BPF."),
    WANTED("sources", "bpf_rdma", bpf_rdma, "auto", "RDMA queue pairs and events, by BPF."),
    TEXT("api", "socket", api_socket, "/run/sluiced/api.sock",
         "The unix socket that sluicectl asks. Nothing: none."),
    MODE("api", "mode", api_mode, "0660", "Who may ask: the permissions of that socket."),
    TEXT("api", "group", api_group, "",
         "Its group, whose members may also acknowledge and clear. Nothing: the agent's own."),
    ADDRESS("api", "http", api_http, "",
            "Where /metrics and the rest are answered over HTTP, to read only, such as "
            "127.0.0.1:9494. Nothing: nowhere."),
    TEXT("mqtt", "broker", mqtt_broker, "",
         "HOST:PORT of an MQTT 5 broker: the agent publishes there what it observes, and sluiced "
         "--cluster reads it. Nothing: none."),
    TEXT("mqtt", "prefix", mqtt_prefix, "sluice", "How all topics begin."),
    TEXT("mqtt", "node", mqtt_node, "",
         "This node's name for the cluster. Nothing: the host's name."),
    TEXT("mqtt", "user", mqtt_user, "", "The user's name for the broker. Nothing: none."),
    TEXT("mqtt", "password_file", mqtt_password_file, "",
         "A file whose first line is the password."),
    TEXT("mqtt", "ca", mqtt_ca, "",
         "The file of the certificates that the broker's own must be signed by; TLS is used. "
         "Nothing: no TLS."),
    TEXT("mqtt", "cert", mqtt_cert, "",
         "The file of this client's own certificate, if it has one."),
    TEXT("mqtt", "key", mqtt_key, "", "And that of its key."),
    NUMBER("mqtt", "period_ms", mqtt_period_ms, "2000", "ms", 100, 600000,
           "What has changed is published at most so often."),
    NUMBER("mqtt", "refresh_s", mqtt_refresh_s, "10", "s", 1, 3600,
           "And how the node is, changed or not, so often."),
    NUMBER("mqtt", "keepalive_s", mqtt_keepalive_s, "15", "s", 5, 3600,
           "Silent for one and a half times so long, and the broker says that the node is dead."),
    ADDRESS("cluster", "http", cluster_http, "127.0.0.1:9495",
            "With --cluster: where the page and its API are answered, to read only."),
    TEXT("cluster", "members", cluster_members, "",
         "With --cluster: agents that are asked over HTTP, between blanks: file:PATH, dns:NAME, "
         "srv:NAME, slurm:PARTITION (slurm: alone: all), kubernetes:NAMESPACE/SERVICE."),
    NUMBER("cluster", "port", cluster_port, "9494", "", 1, 65535,
           "The agents' port, where members do not tell one."),
    NUMBER("cluster", "members_s", cluster_members_s, "60", "s", 1, 86400,
           "Time between looks at who the members are."),
    NUMBER("cluster", "period_ms", cluster_period_ms, "2000", "ms", 100, 600000,
           "Time between questions to an agent."),
    NUMBER("cluster", "timeout_ms", cluster_timeout_ms, "5000", "ms", 100, 60000,
           "An answer that takes longer is given up."),
    NUMBER("cluster", "silent_s", cluster_silent_s, "35", "s", 1, 86400,
           "A node that nothing was heard of for so long is silent. More than [mqtt] refresh_s."),
    NUMBER("cluster", "stall_s", cluster_stall_s, "30", "s", 1, 86400,
           "An operation of a job that takes longer is a hang."),
    NUMBER("cluster", "confirm_s", cluster_confirm_s, "3", "s", 0, 3600,
           "What the rules say counts when they have said it for so long."),
    NUMBER("cluster", "nodes", cluster_nodes, "20000", "", 1, 100000,
           "Nodes that are kept at most."),
    NUMBER("cluster", "bytes", cluster_bytes, "1073741824", "bytes", 1048576, 68719476736,
           "Memory for what nodes said, at most."),
    TEXT("cluster", "command", cluster_command, "",
         "A program and its first arguments, called for each verdict with its id, class, object, "
         "node, job, and \"opened\", \"isolate\" or \"closed\". One instance runs it; needs [mqtt] "
         "broker."),
    NUMBER("cluster", "false_isolations", cluster_false_isolations, "100",
           "of a million healthy nodes, a day", 0, 1000000,
           "So many may be taken out wrongly: how sure a verdict has to be to say that its node is "
           "to be isolated."),
    TEXT("cluster", "history", cluster_history, "",
         "A file of the faults that nodes had (docs/diagnosis-verdicts.md): who failed before is "
         "likelier. Read again when it changes. Nothing: none."),
    TEXT("cluster", "cases", cluster_cases, "/var/lib/sluiced-cluster/cases",
         "The folder for what led to each verdict, a file each, for sluicectl explain and replay. "
         "Nothing: none are kept."),
    NUMBER("cluster", "cases_count", cluster_cases_count, "1024", "", 1, 65536,
           "Of these files at most; the oldest give way."),
    NUMBER("cluster", "cases_bytes", cluster_cases_bytes, "1073741824", "bytes", 1048576,
           1099511627776, "And their bytes, at most; a single one has a quarter of that."),
    TEXT("cluster", "instance", cluster_instance, "",
         "This instance's name. Nothing: the host's name and the process' number."),
};

const unsigned sl_mon_config_row_count = SL_ARRAY_LEN(sl_mon_config_rows);

/* ---- one value ---- */

static int set_text(const struct sl_mon_config_row *row, const char *value, char *field)
{
    if (strlen(value) >= row->cap)
        return sl_fail(-EINVAL, "%s is longer than %zu bytes", row->key, row->cap - 1);
    strcpy(field, value);
    return 0;
}

static int set_number(const struct sl_mon_config_row *row, const char *value, int64_t *field)
{
    char *end;

    errno = 0;
    long long number = strtoll(value, &end, 10);

    if (end == value || *end != '\0' || errno != 0)
        return sl_fail(-EINVAL, "%s is to be a number, and is '%s'", row->key, value);
    if (number < row->least || number > row->most)
        return sl_fail(-EINVAL, "%s is to be from %lld to %lld%s%s, and is %lld", row->key,
                       (long long)row->least, (long long)row->most, row->unit[0] != '\0' ? " " : "",
                       row->unit, number);
    *field = number;
    return 0;
}

static int set_wanted(const struct sl_mon_config_row *row, const char *value,
                      enum sl_mon_wanted *field)
{
    static const char *const words[] = {
        [SL_MON_OFF] = "off", [SL_MON_AUTO] = "auto", [SL_MON_ON] = "on"};

    for (unsigned i = 0; i < SL_ARRAY_LEN(words); i++)
        if (strcmp(value, words[i]) == 0) {
            *field = (enum sl_mon_wanted)i;
            return 0;
        }
    return sl_fail(-EINVAL, "%s is to be on, auto or off, and is '%s'", row->key, value);
}

static int set_mode(const struct sl_mon_config_row *row, const char *value, int64_t *field)
{
    size_t len = strspn(value, "01234567");

    if (len == 0 || len > 4 || value[len] != '\0' || strtol(value, NULL, 8) > 0777)
        return sl_fail(-EINVAL, "%s is to be permissions, as 0660, and is '%s'", row->key, value);
    *field = strtol(value, NULL, 8);
    return 0;
}

bool sl_mon_config_ignores(const struct sl_mon_config *config, const char *netif)
{
    for (const char *at = config->link_ignore; *at != '\0'; at += *at == ',') {
        size_t len = strcspn(at, ",");

        if (len > 0 && strncmp(netif, at, len) == 0)
            return true;
        at += len;
    }
    return false;
}

bool sl_mon_address(const char *text, struct sockaddr_storage *out, socklen_t *len)
{
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)(void *)out;
    struct sockaddr_in *four = (struct sockaddr_in *)(void *)out;
    const char *colon = strrchr(text, ':');
    char host[64], *end;
    long port;

    if (colon == NULL || colon - text >= (ptrdiff_t)sizeof(host) || colon[1] < '0' ||
        colon[1] > '9')
        return false;
    port = strtol(colon + 1, &end, 10);
    if (*end != '\0' || port > 65535)
        return false;
    memset(out, 0, sizeof(*out));
    snprintf(host, sizeof(host), "%.*s", (int)(colon - text), text);
    if (host[0] == '[' && host[strlen(host) - 1] == ']') {
        host[strlen(host) - 1] = '\0';
        six->sin6_family = AF_INET6;
        six->sin6_port = htons((uint16_t)port);
        *len = sizeof(*six);
        return inet_pton(AF_INET6, host + 1, &six->sin6_addr) == 1;
    }
    four->sin_family = AF_INET;
    four->sin_port = htons((uint16_t)port);
    *len = sizeof(*four);
    return inet_pton(AF_INET, host, &four->sin_addr) == 1;
}

static int set_address(const struct sl_mon_config_row *row, const char *value, char *field)
{
    struct sockaddr_storage address;
    socklen_t len;

    if (value[0] != '\0' && !sl_mon_address(value, &address, &len))
        return sl_fail(-EINVAL, "%s is to be an address and a port, as 127.0.0.1:9494, and is '%s'",
                       row->key, value);
    return set_text(row, value, field);
}

static int set_choice(const struct sl_mon_config_row *row, const char *value, int *field)
{
    size_t len = strlen(value);
    int place = 0;

    for (const char *at = row->words; *at != '\0'; place++) {
        size_t has = strcspn(at, " ");

        if (has == len && strncmp(at, value, len) == 0) {
            *field = place;
            return 0;
        }
        at += has + strspn(at + has, " ");
    }
    return sl_fail(-EINVAL, "%s is to be one of: %s; and is '%s'", row->key, row->words, value);
}

static int set(const struct sl_mon_config_row *row, const char *value, struct sl_mon_config *out)
{
    void *field = (char *)out + row->offset;

    switch (row->type) {
    case SL_MON_CONFIG_TEXT: return set_text(row, value, field);
    case SL_MON_CONFIG_NUMBER: return set_number(row, value, field);
    case SL_MON_CONFIG_MODE: return set_mode(row, value, field);
    case SL_MON_CONFIG_ADDRESS: return set_address(row, value, field);
    case SL_MON_CONFIG_CHOICE: return set_choice(row, value, field);
    default: return set_wanted(row, value, field);
    }
}

void sl_mon_config_defaults(struct sl_mon_config *out)
{
    *out = (struct sl_mon_config){.period_ms = 0};
    for (unsigned i = 0; i < sl_mon_config_row_count; i++)
        if (set(&sl_mon_config_rows[i], sl_mon_config_rows[i].standard, out) != 0)
            sl_assert(!"a default is out of its own range");
}

/* ---- a file ---- */

struct reading {
    struct sl_mon_config config;
    FILE *file;
    bool seen[SL_ARRAY_LEN(sl_mon_config_rows)];
    int line, failed_line;
    bool failed;
};

/* The library says where the first error is, and whose it is: a line's, or what a line says. */
static char *next_line(char *out, int cap, void *stream)
{
    struct reading *reading = stream;

    reading->line++;
    return fgets(out, cap, reading->file);
}

static int refuse(struct reading *reading)
{
    reading->failed = true;
    reading->failed_line = reading->line;
    return 0;
}

static int on_value(void *arg, const char *section, const char *key, const char *value)
{
    struct reading *reading = arg;
    bool has_section = false;

    if (reading->failed)
        return 1; /* the first error is the one that is told */
    for (unsigned i = 0; i < sl_mon_config_row_count; i++) {
        const struct sl_mon_config_row *row = &sl_mon_config_rows[i];

        if (strcmp(row->section, section) != 0)
            continue;
        has_section = true;
        if (strcmp(row->key, key) != 0)
            continue;
        if (reading->seen[i]) {
            sl_fail(-EINVAL, "%s is said twice", key);
            return refuse(reading);
        }
        reading->seen[i] = true;
        return set(row, value, &reading->config) == 0 ? 1 : refuse(reading);
    }
    if (!has_section)
        sl_fail(-EINVAL, "there is no section [%s]", section);
    else
        sl_fail(-EINVAL, "there is no key '%s' in [%s]", key, section);
    return refuse(reading);
}

int sl_mon_config_read(FILE *file, const char *name, struct sl_mon_config *out)
{
    struct reading reading;
    char why[256];

    memset(&reading, 0, sizeof(reading));
    reading.file = file;
    sl_mon_config_defaults(&reading.config);
    int line = ini_parse_stream(next_line, &reading, on_value, &reading);

    if (line < 0)
        return sl_fail(-EIO, "%s cannot be read", name);
    if (line > 0) {
        snprintf(why, sizeof(why), "%s",
                 reading.failed && reading.failed_line == line
                     ? sluice_last_error()
                     : "this is no line of a section, and no key = value");
        return sl_fail(-EINVAL, "%s:%d: %s", name, line, why);
    }
    *out = reading.config;
    return 0;
}

int sl_mon_config_load(const char *path, struct sl_mon_config *out)
{
    FILE *file = fopen(path, "re");
    int err;

    if (file == NULL)
        return sl_fail(-errno, "%s cannot be opened: %s", path, sluice_strerror(-errno));
    err = sl_mon_config_read(file, path, out);
    fclose(file);
    return err;
}

void sl_mon_config_word(const struct sl_mon_config_row *row, const struct sl_mon_config *config,
                        char out[SL_MON_WORD])
{
    int place = *(const int *)(const void *)((const char *)config + row->offset);
    const char *at = row->words;

    sl_assert(row->type == SL_MON_CONFIG_CHOICE);
    for (; place > 0; place--) {
        at += strcspn(at, " ");
        at += strspn(at, " ");
    }
    snprintf(out, SL_MON_WORD, "%.*s", (int)strcspn(at, " "), at);
}

void sl_mon_config_print(FILE *out)
{
    const char *section = "";

    for (unsigned i = 0; i < sl_mon_config_row_count; i++) {
        const struct sl_mon_config_row *row = &sl_mon_config_rows[i];

        if (strcmp(section, row->section) != 0)
            fprintf(out, "%s[%s]\n", i == 0 ? "" : "\n", row->section);
        section = row->section;
        fprintf(out, "# %s\n", row->help);
        if (row->type == SL_MON_CONFIG_WANTED)
            fprintf(out, "# on; off; auto: where it can be had, and its absence is no alarm.\n");
        if (row->type == SL_MON_CONFIG_CHOICE)
            fprintf(out, "# One of: %s.\n", row->words);
        if (row->type == SL_MON_CONFIG_NUMBER)
            fprintf(out, "# From %lld to %lld%s%s.\n", (long long)row->least, (long long)row->most,
                    row->unit[0] != '\0' ? " " : "", row->unit);
        fprintf(out, "#%s = %s\n", row->key, row->standard);
    }
}
