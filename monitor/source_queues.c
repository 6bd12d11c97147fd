/* SPDX-License-Identifier: Apache-2.0 */
/* Source: transmit queues of network interfaces, by rtnetlink and sysfs (monitor/queue.h). */
#include "monitor/netlink_list.h"
#include "monitor/queue.h"
#include "monitor/source.h"

#include "core/err.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <libmnl/libmnl.h>
#include <limits.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define TEXT_MAX (64u << 10)    /* of /proc/net/softnet_stat */
#define FILES_MAX 512           /* of queues, two descriptors each at most */
#define SCAN_NS (10 * SL_MON_S) /* between looks for new ones */

/* A queue of a driver, in sysfs. */
struct files {
    unsigned ifindex, queue;
    int inflight, timeouts; /* -1: it has none */
};

struct name {
    unsigned ifindex;
    char name[IF_NAMESIZE]; /* "": it is not watched */
};

struct source {
    struct sl_source_host host;
    struct sl_mon_queues *queues;
    struct sl_mon_netlink netlink;
    int softnet;         /* -1: there is none */
    int flags;           /* a socket to ask for interfaces' flags; -1: there is none */
    uint64_t scanned_ns; /* 0: look again */
    struct files files[FILES_MAX];
    struct name names[SL_MON_QUEUE_NETIFS_MAX];
    unsigned file_count, name_count;
    bool has_softnet;
    uint64_t softnet_last[2], softnet_totals[2]; /* dropped, squeezed */
    char text[TEXT_MAX];
};

/* ---- names ---- */

static bool is_ignored(const struct source *source, const char *name)
{
    return strcmp(name, "lo") == 0 || sl_mon_config_ignores(source->host.config, name);
}

/* NULL: it is not watched. Names are asked for once in a while. */
static const char *name_of(struct source *source, unsigned ifindex)
{
    struct name *name = &source->names[source->name_count];

    for (unsigned i = 0; i < source->name_count; i++)
        if (source->names[i].ifindex == ifindex)
            return source->names[i].name[0] != '\0' ? source->names[i].name : NULL;
    if (source->name_count == SL_MON_QUEUE_NETIFS_MAX)
        return NULL;
    name->ifindex = ifindex;
    if (if_indextoname(ifindex, name->name) == NULL || is_ignored(source, name->name))
        name->name[0] = '\0';
    source->name_count++;
    return name->name[0] != '\0' ? name->name : NULL;
}

/* ---- sysfs ---- */

static int open_in(int folder, const char *path)
{
    return openat(folder, path, O_RDONLY | O_CLOEXEC);
}

static bool read_number(int fd, uint64_t *out)
{
    char text[32], *end;
    ssize_t len = fd < 0 ? -1 : pread(fd, text, sizeof(text) - 1, 0);

    if (len <= 0 || text[0] < '0' || text[0] > '9')
        return false;
    text[len] = '\0';
    *out = strtoull(text, &end, 10);
    return *end == '\n' || *end == '\0';
}

static void scan_queue(struct source *source, int folder, const char *name, unsigned ifindex)
{
    struct files *files = &source->files[source->file_count];
    char path[NAME_MAX + 48];
    unsigned queue;
    char end;

    if (source->file_count == FILES_MAX || sscanf(name, "tx-%3u%c", &queue, &end) != 1)
        return;
    *files = (struct files){.ifindex = ifindex, .queue = queue};
    snprintf(path, sizeof(path), "%s/byte_queue_limits/inflight", name);
    files->inflight = open_in(folder, path);
    snprintf(path, sizeof(path), "%s/tx_timeout", name);
    files->timeouts = open_in(folder, path);
    if (files->inflight >= 0 || files->timeouts >= 0)
        source->file_count++;
}

/* The tree may be that of another network namespace: an interface's number says which it is. */
static void scan_netif(struct source *source, const struct name *netif)
{
    char path[2 * SL_MON_PATH];
    uint64_t ifindex;
    int folder, fd;
    DIR *dir;

    snprintf(path, sizeof(path), "%s/%s", source->host.config->net_root, netif->name);
    folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        return;
    fd = open_in(folder, "ifindex");
    dir = read_number(fd, &ifindex) && ifindex == netif->ifindex
              ? fdopendir(openat(folder, "queues", O_RDONLY | O_DIRECTORY | O_CLOEXEC))
              : NULL;
    if (fd >= 0)
        close(fd);
    close(folder);
    if (dir == NULL)
        return;
    for (const struct dirent *at = readdir(dir); at != NULL; at = readdir(dir))
        scan_queue(source, dirfd(dir), at->d_name, netif->ifindex);
    closedir(dir);
}

static void close_files(struct source *source)
{
    for (unsigned i = 0; i < source->file_count; i++) {
        if (source->files[i].inflight >= 0)
            close(source->files[i].inflight);
        if (source->files[i].timeouts >= 0)
            close(source->files[i].timeouts);
    }
    source->file_count = 0;
}

static void read_files(struct source *source)
{
    for (unsigned i = 0; i < source->file_count; i++) {
        const struct files *files = &source->files[i];
        struct sl_mon_tx tx;

        tx.has_inflight = read_number(files->inflight, &tx.inflight);
        tx.has_timeouts = read_number(files->timeouts, &tx.timeouts);
        if (!tx.has_inflight && !tx.has_timeouts)
            source->scanned_ns = 0; /* the interface is gone */
        sl_mon_queues_tx(source->queues, files->ifindex, files->queue, &tx);
    }
}

static void read_softnet(struct source *source)
{
    ssize_t len = source->softnet < 0
                      ? -1
                      : pread(source->softnet, source->text, sizeof(source->text) - 1, 0);
    uint64_t sum[2] = {0}, line[2];

    if (len <= 0)
        return;
    source->text[len] = '\0';
    for (const char *at = source->text; *at != '\0'; at += *at == '\n') {
        if (sl_mon_softnet_parse(at, &line[0], &line[1]))
            for (unsigned i = 0; i < 2; i++)
                sum[i] += line[i];
        at += strcspn(at, "\n");
    }
    for (unsigned i = 0; i < 2; i++) {
        if (source->has_softnet && sum[i] > source->softnet_last[i])
            source->softnet_totals[i] += sum[i] - source->softnet_last[i];
        source->softnet_last[i] = sum[i];
    }
    source->has_softnet = true;
}

/* ---- rtnetlink ---- */

/* What cannot be asked is taken for good. */
static bool is_down(const struct source *source, const char *name)
{
    struct ifreq request = {.ifr_flags = 0};

    snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", name);
    return ioctl(source->flags, SIOCGIFFLAGS, &request) == 0 &&
           (request.ifr_flags & IFF_RUNNING) == 0;
}

static bool take_message(void *arg, const struct nlmsghdr *message, size_t len)
{
    struct source *source = arg;
    struct sl_mon_qdisc qdisc;
    struct sl_mon_sent sent;
    const char *name;

    if (sl_mon_sent_parse(message, len, &sent)) {
        name = name_of(source, sent.ifindex);
        if (name != NULL) {
            sent.is_down = is_down(source, name);
            sl_mon_queues_netif(source->queues, name, &sent);
        }
    } else if (sl_mon_qdisc_parse(message, len, &qdisc)) {
        sl_mon_queues_qdisc(source->queues, &qdisc);
    }
    return true;
}

static int ask(struct source *source, uint16_t type, const void *header, size_t size)
{
    char bytes[128] __attribute__((aligned(8)));
    struct nlmsghdr *message = mnl_nlmsg_put_header(bytes);
    int err;

    message->nlmsg_type = type;
    memcpy(mnl_nlmsg_put_extra_header(message, size), header, size);
    err = sl_mon_netlink_list(&source->netlink, message, take_message, source);
    return err == 0 ? 0
                    : sl_fail(err, "rtnetlink does not list %s: %s",
                              type == RTM_GETSTATS ? "what interfaces sent" : "queues",
                              sluice_strerror(err));
}

static int tick(void *arg)
{
    static const struct if_stats_msg stats = {
        .family = AF_UNSPEC, .filter_mask = IFLA_STATS_FILTER_BIT(IFLA_STATS_LINK_64)};
    static const struct tcmsg qdiscs = {.tcm_family = AF_UNSPEC};
    struct source *source = arg;
    uint64_t now_ns = sl_mon_time(source->host.mon)->mono_ns;
    bool scan = source->scanned_ns == 0 || now_ns - source->scanned_ns >= SCAN_NS;
    int err;

    if (scan) {
        close_files(source);
        source->name_count = 0;
    }
    sl_mon_queues_begin(source->queues);
    err = ask(source, RTM_GETSTATS, &stats, sizeof(stats));
    if (err == 0)
        err = ask(source, RTM_GETQDISC, &qdiscs, sizeof(qdiscs));
    if (err == 0 && scan) {
        source->scanned_ns = now_ns;
        for (unsigned i = 0; i < source->name_count; i++)
            if (source->names[i].name[0] != '\0')
                scan_netif(source, &source->names[i]);
    }
    read_files(source);
    sl_mon_queues_end(source->queues);
    read_softnet(source);
    return err;
}

/* ---- its life ---- */

static void close_source(void *arg)
{
    struct source *source = arg;

    sl_mon_netlink_close(&source->netlink);
    close_files(source);
    if (source->softnet >= 0)
        close(source->softnet);
    source->softnet = -1;
    if (source->flags >= 0)
        close(source->flags);
    source->flags = -1;
}

static int open_source(void *arg)
{
    struct source *source = arg;
    int err = sl_mon_netlink_open(&source->netlink, NETLINK_ROUTE);

    if (err != 0)
        err = sl_fail(err, "rtnetlink cannot be had: %s", sluice_strerror(err));
    source->flags = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    source->softnet = open("/proc/net/softnet_stat", O_RDONLY | O_CLOEXEC);
    source->scanned_ns = 0;
    source->has_softnet = false;
    if (err == 0)
        err = tick(source);
    if (err != 0)
        close_source(source);
    return err;
}

static void destroy(void *arg)
{
    struct source *source = arg;

    sl_mon_queues_destroy(source->queues);
    free(source);
}

static int create(const struct sl_source_host *host, void **out)
{
    struct source *source = calloc(1, sizeof(*source));
    int err;

    if (source == NULL)
        return sl_fail(-ENOMEM, "no memory for the interfaces' queues");
    source->host = *host;
    source->softnet = source->flags = -1;
    err = sl_mon_queues_create(host->mon, &source->queues);
    if (err != 0) {
        free(source);
        return err;
    }
    *out = source;
    return 0;
}

/* ---- what others ask ---- */

static uint64_t backlog(const struct sl_mon_queue_view *view)
{
    return view->backlog;
}

static uint64_t drops(const struct sl_mon_queue_view *view)
{
    return view->drops;
}

static uint64_t requeues(const struct sl_mon_queue_view *view)
{
    return view->requeues;
}

static uint64_t timeouts(const struct sl_mon_queue_view *view)
{
    return view->timeouts;
}

static void metrics(void *arg, enum sl_mon_format format, FILE *out)
{
    static const struct {
        const char *name, *type, *unit, *end, *help;
        uint64_t (*number)(const struct sl_mon_queue_view *view);
    } families[] = {
        {"sluice_queue_backlog_bytes", "gauge", "bytes", "", "What waits to be sent.", backlog},
        {"sluice_queue_drops", "counter", "", "_total", "Packets that a queue threw away.", drops},
        {"sluice_queue_requeues", "counter", "", "_total",
         "Packets that the driver did not take at first.", requeues},
        {"sluice_queue_timeouts", "counter", "", "_total",
         "Times that the kernel gave up waiting for a transmit queue.", timeouts},
    };
    const struct source *source = arg;
    struct sl_mon_queue_view view;

    for (unsigned f = 0; f < SL_ARRAY_LEN(families); f++) {
        char name[64];

        snprintf(name, sizeof(name), "%s%s", families[f].name, families[f].end);
        sl_mon_metrics_family(format, out, families[f].name, families[f].type, families[f].unit,
                              families[f].help);
        for (unsigned i = 0; sl_mon_queues_view(source->queues, i, &view); i++) {
            if (view.name[0] == '\0')
                continue;
            sl_mon_metrics_open(out, name, "device", view.name);
            sl_mon_metrics_number(out, families[f].number(&view));
        }
    }
    sl_mon_metrics_family(format, out, "sluice_softnet_dropped", "counter", "",
                          "Packets that came while a processor's queue was full.");
    fprintf(out, "sluice_softnet_dropped_total %llu\n",
            (unsigned long long)source->softnet_totals[0]);
    sl_mon_metrics_family(format, out, "sluice_softnet_squeezed", "counter", "",
                          "Times that a processor had no time left for packets that had come.");
    fprintf(out, "sluice_softnet_squeezed_total %llu\n",
            (unsigned long long)source->softnet_totals[1]);
}

static void json(void *arg, struct json_object *out)
{
    const struct source *source = arg;
    struct json_object *netifs = json_object_new_array();
    struct sl_mon_queue_view view;

    for (unsigned i = 0; sl_mon_queues_view(source->queues, i, &view); i++) {
        struct json_object *netif;

        if (view.name[0] == '\0')
            continue;
        netif = json_object_new_object();
        json_object_object_add(netif, "name", json_object_new_string(view.name));
        json_object_object_add(netif, "backlog_bytes",
                               json_object_new_int64((int64_t)view.backlog));
        json_object_object_add(netif, "drops", json_object_new_int64((int64_t)view.drops));
        json_object_object_add(netif, "timeouts", json_object_new_int64((int64_t)view.timeouts));
        json_object_array_add(netifs, netif);
    }
    json_object_object_add(out, "interfaces", netifs);
}

const struct sl_source_class sl_source_queues = {.name = "queues",
                                                 .how = "rtnetlink",
                                                 .wanted = offsetof(struct sl_mon_config, queues),
                                                 .period_ns = SL_MON_S * 9 / 10,
                                                 .create = create,
                                                 .destroy = destroy,
                                                 .open = open_source,
                                                 .close = close_source,
                                                 .tick = tick,
                                                 .metrics = metrics,
                                                 .json = json};
