/* SPDX-License-Identifier: Apache-2.0 */
/* The table of SLUICE_* variables and the parsing of their values. */
#include "core/config.h"

#include "core/err.h"
#include "core/log.h"
#include "core/path_list.h"
#include "core/port_range.h"

#include <ctype.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define PREFIX "SLUICE_"
#define AT(field) offsetof(struct sl_config, field)
#define TEXT(name, field, value, help)                                                             \
    {                                                                                              \
        name, AT(field), SL_CONFIG_TEXT, value, "", 0, 0, help                                     \
    }
#define INT(name, field, value, unit, min, max, help)                                              \
    {                                                                                              \
        name, AT(field), SL_CONFIG_INT, value, unit, min, max, help                                \
    }
#define BYTES(name, field, value, min, max, help)                                                  \
    {                                                                                              \
        name, AT(field), SL_CONFIG_BYTES, value, "bytes", min, max, help                           \
    }
#define SWITCH(name, field, value, help)                                                           \
    {                                                                                              \
        name, AT(field), SL_CONFIG_SWITCH, value, "", -1, 1, help                                  \
    }
#define CHECKED(name, field, value, check, help)                                                   \
    {                                                                                              \
        name, AT(field), SL_CONFIG_TEXT, value, "", 0, 0, help, NULL, 0, check                     \
    }
#define CHOICE(name, field, value, choices, help)                                                  \
    {                                                                                              \
        name, AT(field), SL_CONFIG_TEXT, value, "", 0, 0, help, choices                            \
    }
#define BYTES_OR_0(name, field, value, least, max, help)                                           \
    {                                                                                              \
        name, AT(field), SL_CONFIG_BYTES, value, "bytes", 0, max, help, NULL, least                \
    }

#define KIB INT64_C(1024)
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)
#define DAY_MS INT64_C(86400000)
#define SHM_LEAST (8 * KIB) /* a page for each half */

static int check_port_range(const char *text)
{
    struct sl_port_range range;

    return sl_port_range_parse(text, &range);
}

const struct sl_config_row sl_config_rows[] = {
    INT("RANK", rank, "-1", "rank", -1, 1 << 20,
        "This rank. -1: taken from the launcher (torchrun, Slurm, Open MPI, MPICH, PMIx)."),
    INT("SIZE", size, "-1", "ranks", -1, 1 << 20, "Number of ranks. -1: taken from the launcher."),
    INT("LOCAL_RANK", local_rank, "-1", "rank", -1, 1 << 20,
        "This rank among those of its host. -1: taken from the launcher or counted."),
    TEXT("ROOT", root, "",
         "host:port (or [v6]:port) where rank 0 listens and the others meet it. Empty: taken from "
         "the "
         "launcher."),
    TEXT("JOB", job, "",
         "Name of the job; a rank of another job is refused. Empty: the launcher's."),
    TEXT(
        "SECRET", secret, "",
        "Shared secret; proves that a rank belongs to the job and is never sent itself. Empty: the "
        "launcher's, where it gives one."),
    SWITCH("REQUIRE_SECRET", require_secret, "off",
           "on: ranks that have no secret refuse to meet. Otherwise those of one host compare "
           "their users, and "
           "those of several are warned."),
    CHOICE("LAUNCHER", launcher, "auto", "auto none sluice torchrun pmi pmix openmpi slurm",
           "Which launcher to believe."),
    TEXT(
        "HOST_ID", host_id, "",
        "Ranks with the same text count as one host (shared memory is possible among them). Empty: "
        "kernel boot id and network namespace."),
    TEXT("INTERFACE", interface, "",
         "Network interfaces for addresses of this rank: names, prefixes ending in *, CIDR ranges, "
         "each with ! to exclude, separated by commas. Empty: the route to the peer."),
    CHECKED("PORT_RANGE", port_range, "", check_port_range,
            "low-high: TCP ports that may be listened on. Empty: any."),

    TEXT("TRANSPORT", transport, "auto",
         "Transports that may be used, the preferred one first. Each pair of ranks takes the first "
         "that reaches. auto: shm,verbs,tcp, as far as this build has them."),
    TEXT("ALGO", algo, "",
         "Forces algorithms: NAME for every collective that has it, or COLLECTIVE:NAME, separated "
         "by "
         "commas. Empty: the cost model chooses. See sluice-bench --list."),
    INT("TIMEOUT_MS", timeout_ms, "30000", "ms", 1, DAY_MS,
        "An operation that makes no progress for this long ends with -ETIMEDOUT and a report."),
    INT("CONNECT_TIMEOUT_MS", connect_timeout_ms, "30000", "ms", 1, DAY_MS,
        "How long ranks wait for each other when a communicator is made."),
    INT("SPIN_US", spin_us, "-1", "us", -1, 10000000,
        "How long a waiting rank polls before it sleeps. -1: by ranks of this host against cores."),
    CHOICE("PROGRESS", progress, "caller", "caller thread",
           "Who moves operations on: caller (inside test and wait; RDMA paths are mended between "
           "them, too) or thread (one per "
           "communicator)."),
    INT("INFLIGHT_MAX", inflight_max, "64", "operations", 1, 65536,
        "Most collectives in flight on one communicator; more get -EAGAIN."),
    BYTES("CHUNK_BYTES", chunk_bytes, "0", 0, GIB,
          "Size of the pieces that large messages are cut into. 0: chosen."),
    CHOICE("TUNE", tune, "auto", "auto measure off",
           "Link costs for the choice of algorithms: auto (measured until jobs agree, and cached), "
           "measure (always), off (built-in)."),
    TEXT("TUNE_DIR", tune_dir, "",
         "Where measured link costs are cached. Empty: $XDG_CACHE_HOME/sluice or ~/.cache/sluice."),
    TEXT("KERNEL", kernel, "auto", "Reduction kernels: auto, avx512, avx2, neon or c."),
    TEXT("LOG", log, "warn",
         "Log level: error, warn, info, debug or trace; AREA:LEVEL for one area; separated by "
         "commas."),
    SWITCH(
        "BIND", bind, "auto",
        "Ranks that sluice-bench -n starts keep to a core each: auto and on, when there are enough "
        "cores; off."),
    CHOICE("PRELOAD", preload, "on", "on off report",
           "What libsluice-preload.so does with a program's MPI, gloo and NCCL collectives: on "
           "(takes those "
           "that it can), off (none) or report (on, and a line about it at exit)."),
    INT("PRELOAD_MPI_EARLY_CALLS", preload_mpi_early_calls, "32", "calls", 0, INT64_MAX,
        "Under libsluice-preload.so: calls of each MPI communicator, but for MPI_COMM_WORLD, that "
        "MPI does itself "
        "before they are taken, as making ready for it takes milliseconds."),
    SWITCH("PRELOAD_EXACT", preload_exact, "on",
           "libsluice-preload.so adds up what gloo would have in gloo's own order, so that results "
           "are the "
           "same to the last bit as without it: on; off (large reductions are faster)."),
    TEXT("PRELOAD_NCCL", preload_nccl, "",
         "NCCL collectives that libsluice-preload.so takes: all, or allreduce, reduce, "
         "reduce_scatter, "
         "all_gather, broadcast, all_to_all, gather, scatter, each with sizes in bytes if wanted "
         "(allreduce:1M-64M), separated by commas. Empty: none. The same on all ranks."),
    SWITCH("STATUS_SIGNAL", status_signal, "auto",
           "Print what every pending operation waits for on SIGUSR1: on, off, auto (on in "
           "sluice-bench, "
           "off in other programs)."),

    BYTES_OR_0("SHM_RING_BYTES", shm_ring_bytes, "0", SHM_LEAST, GIB,
               "Ring of a pair of ranks in shared memory, each way. 0: by number of ranks."),
    BYTES_OR_0(
        "SHM_WINDOW_BYTES", shm_window_bytes, "0", SHM_LEAST, GIB,
        "Staging memory that a rank shares with the ranks of its host. 0: by number of ranks."),
    BYTES("SHM_STREAM_MIN_BYTES", shm_stream_min_bytes, "-1", -1, INT64_MAX,
          "Results of at least this size are written past the caches. -1: by the size of the last "
          "cache."),
    SWITCH("SHM_READ", shm_read, "auto",
           "Read peers' memory by process_vm_readv: auto (where a trial read works and measures "
           "better), on, off."),

    INT("TCP_CONNECTIONS", tcp_connections, "0", "connections", 0, 128,
        "TCP connections to each peer. 0: chosen."),
    CHOICE("TCP_ENGINE", tcp_engine, "auto", "auto uring epoll",
           "How sockets are moved on: by io_uring or by epoll; auto: the first that works, "
           "measured best first."),
    TEXT("TCP_CONGESTION", tcp_congestion, "auto",
         "Congestion control of our sockets, a name of net.ipv4.tcp_available_congestion_control; "
         "auto: cubic where there is one; system: the kernel's default."),
    SWITCH(
        "TCP_CRC", tcp_crc, "auto",
        "CRC32C over every frame: auto is on, except on connections that do not leave the host."),
    SWITCH("TCP_TLS", tcp_tls, "off",
           "TLS 1.3 on all TCP connections between ranks, with keys made of the job's secret: on "
           "or off, the same on "
           "all ranks. Needs a secret, and OpenSSL 3 where it runs."),
    CHOICE(
        "TCP_TLS_CIPHER", tcp_tls_cipher, "auto", "auto aes128 aes256 chacha20",
        "Cipher of TLS: auto (AES-128-GCM or ChaCha20-Poly1305, as the processors of both ends "
        "like), aes128, aes256 "
        "(AES-256-GCM, with SHA-384), chacha20. Ranks that name different ones refuse each other."),
    CHOICE("TCP_TLS_RECORDS", tcp_tls_records, "user", "user kernel auto",
           "Who makes the records of TLS: user (this process), kernel (refused where the kernel "
           "cannot), auto (the kernel "
           "where it can). Each rank for itself."),
    BYTES("TCP_SOCKET_BYTES", tcp_socket_bytes, "0", 0, GIB,
          "Socket buffer size. 0: the kernel's own tuning."),
    BYTES("TCP_STRIPE_BYTES", tcp_stripe_bytes, "0", 0, GIB,
          "Messages are dealt over the connections in pieces of this size. 0: chosen."),

    TEXT("VERBS_DEVICES", verbs_devices, "",
         "RDMA devices and ports that may be used: names such as mlx5_0 or mlx5_0:1, prefixes "
         "ending in "
         "*, each with ^ to exclude, separated by commas. Empty: every active port."),
    INT("VERBS_GID_INDEX", verbs_gid_index, "-1", "index", -1, 255,
        "GID of every port, by index. -1: chosen by type, address family and subnet."),
    CHOICE("VERBS_GID_FAMILY", verbs_gid_family, "auto", "auto ipv4 ipv6",
           "Addresses to choose GIDs from: auto (IPv4 first), ipv4 or ipv6."),
    CHECKED("VERBS_PATHS", verbs_paths, "auto", sl_path_list_check,
            "Paths of each connection: LOCAL>REMOTE[/LABEL][@PORT] by number of rail, with a flow "
            "label in hex "
            "and a port of the bond that a rail may be, separated by commas (0>0/c0de,1>1/beef@2). "
            "auto: each "
            "rail to the peer's of the same number."),
    INT("VERBS_PATHS_PER_RAIL", verbs_paths_per_rail, "0", "paths", 0, 8,
        "Queue pairs between a pair of rails, each with a flow label of its own. 0: one, or one "
        "for each port "
        "of a bond."),
    INT("VERBS_TRAFFIC_CLASS", verbs_traffic_class, "0", "", 0, 255,
        "Traffic class of RoCE packets: DSCP * 4. Choose the one for which the switches have PFC "
        "or ECN."),
    INT("VERBS_SERVICE_LEVEL", verbs_service_level, "0", "", 0, 15, "Service level of packets."),
    {"VERBS_MTU", AT(verbs_mtu), SL_CONFIG_INT, "0", "bytes", 0, 4096,
     "Largest packet. 0: what both ports have active.", "0 256 512 1024 2048 4096"},
    INT("VERBS_TIMEOUT", verbs_timeout, "14", "", 1, 31,
        "How long a NIC waits for an acknowledgement: 4.096 us * 2^value (14: 67 ms)."),
    INT("VERBS_RETRY_COUNT", verbs_retry_count, "6", "times", 0, 7,
        "How often a NIC repeats before it gives a path up. 7 means for ever to some."),
    INT("VERBS_RNR_TIMER", verbs_rnr_timer, "6", "", 0, 31,
        "How long a NIC waits when the peer had no receive posted, by the InfiniBand table (6: 80 "
        "us)."),
    SWITCH("VERBS_RESERVE", verbs_reserve, "auto",
           "on: a connection keeps to the first rail that has a path and holds the others in "
           "reserve; off: it "
           "spreads over all. auto: off, but on under NCCL, which spreads its connections over "
           "devices itself."),
    BYTES("VERBS_EAGER_BYTES", verbs_eager_bytes, "4096", 256, 64 * KIB,
          "Messages up to this size are copied through receive buffers; longer ones are written in "
          "place."),
    BYTES("VERBS_PIECE_BYTES", verbs_piece_bytes, "0", 0, GIB,
          "Messages are dealt over the paths in pieces of this size. 0: chosen."),
    BYTES("VERBS_STAGING_BYTES", verbs_staging_bytes, "16M", 64 * KIB, 64 * GIB,
          "Registered memory of an interface that messages pass through when their own is not "
          "registered, or "
          "is reduced into."),
    INT("VERBS_PATH_WAIT_MS", verbs_path_wait_ms, "10000", "ms", 1, DAY_MS,
        "How long a connection without any path waits for one to return."),
    CHOICE("VERBS_FALLBACK", verbs_fallback, "off", "off tcp",
           "What a connection without any path does meanwhile: off (waits) or tcp (continues over "
           "TCP)."),
    SWITCH("VERBS_SRQ", verbs_srq, "auto",
           "Receive buffers of all connections in one queue: on (and the device must have such "
           "queues), off (each "
           "path has its own: some 400 KiB), auto (on where the device has them)."),
    SWITCH("VERBS_RELAXED_ORDERING", verbs_relaxed_ordering, "auto",
           "Let PCIe reorder writes into registered memory: auto and on, where the device offers "
           "it; off."),
    SWITCH("VERBS_FORK", verbs_fork, "auto",
           "Prepare registered memory for fork(): auto (only where the kernel does not do it by "
           "itself), "
           "on, off."),

    SWITCH("NCCL_GPU", nccl_gpu, "auto",
           "Offer NCCL to move GPU memory without a copy through the host: auto and on, where RDMA "
           "devices take it; "
           "then connections are made over RDMA only; off."),
    TEXT("NCCL_PROFILE", nccl_profile, "off",
         "What the NCCL plugin writes of NCCL's work to /dev/shm/sluice-nccl-PID-RANK: off, ops "
         "(operations), "
         "steps (and what each step of the network waits for), kernels (and GPU times); with ,keep "
         "the file "
         "stays when the job ends well."),
    INT("NCCL_PROFILE_EVENTS", nccl_profile_events, "16384", "events", 64, 1 << 24,
        "How many finished events that file holds: the oldest give way."),
    TEXT("NCCL_ENV_FILE", nccl_env_file, "",
         "File of NCCL's settings, NAME=VALUE in lines, that libnccl-env-sluice.so gives to NCCL. "
         "Empty: "
         "/etc/sluice/nccl.env, if there is one."),
    TEXT("NCCL_TUNER", nccl_tuner, "",
         "Rules for NCCL's choice of algorithms, separated by ';', or @FILE with one per line: "
         "FUNCTION[:MIN-MAX]=ALGO/PROTO[,channels=N][,chunk=SIZE], each of the first four may be "
         "*. The "
         "first that fits counts. Empty: NCCL chooses."),
};
const size_t sl_config_row_count = SL_ARRAY_LEN(sl_config_rows);

int sl_parse_bytes(const char *text, int64_t *out)
{
    char *end;
    double value, unit = 1;

    errno = 0;
    value = strtod(text, &end);
    if (end == text || errno != 0 || !(value >= 0))
        return -EINVAL;
    switch (tolower((unsigned char)*end)) {
    case 'k': unit = (double)KIB, end++; break;
    case 'm': unit = (double)MIB, end++; break;
    case 'g': unit = (double)GIB, end++; break;
    default: break;
    }
    if (unit > 1 && (*end == 'i' || *end == 'I'))
        end++;
    if (*end == 'b' || *end == 'B')
        end++;
    if (*end != '\0' || value * unit >= 9.2e18)
        return -EINVAL;
    *out = (int64_t)(value * unit);
    return 0;
}

/* -1 stands for "chosen" in a row whose least value it is. */
static int parse_row_bytes(const struct sl_config_row *row, const char *text, int64_t *out)
{
    if (row->min == -1 && strcmp(text, "-1") == 0) {
        *out = -1;
        return 0;
    }
    return sl_parse_bytes(text, out);
}

static int parse_int(const char *text, int64_t *out)
{
    char *end;

    errno = 0;
    *out = strtoll(text, &end, 10);
    return end == text || *end != '\0' || errno != 0 ? -EINVAL : 0;
}

/* What people write for on and off. */
static const char *plain_word(const char *text)
{
    static const char *const words[][2] = {{"0", "off"}, {"no", "off"}, {"false", "off"},
                                           {"1", "on"},  {"yes", "on"}, {"true", "on"}};

    for (size_t i = 0; i < SL_ARRAY_LEN(words); i++)
        if (strcasecmp(words[i][0], text) == 0)
            return words[i][1];
    return text;
}

static int parse_switch(const char *text, int64_t *out)
{
    static const char *const words[] = {"auto", "off", "on"}; /* from SL_AUTO, -1, to SL_ON */

    for (size_t i = 0; i < SL_ARRAY_LEN(words); i++) {
        if (strcasecmp(words[i], plain_word(text)) == 0) {
            *out = (int64_t)i - 1;
            return 0;
        }
    }
    return -EINVAL;
}

/* The choice that text names, or NULL. *len: its length. */
static const char *find_choice(const char *choices, const char *text, size_t *len)
{
    for (; *choices != '\0'; choices += *len + (choices[*len] == ' ')) {
        *len = strcspn(choices, " ");
        if (strlen(text) == *len && strncasecmp(choices, text, *len) == 0)
            return choices;
    }
    return NULL;
}

static int refuse_choice(const struct sl_config_row *row, const char *value)
{
    char list[256];
    size_t len = 0;

    for (const char *c = row->choices; *c != '\0' && len + 2 < sizeof(list); c++) {
        list[len++] = *c == ' ' ? ',' : *c;
        if (*c == ' ')
            list[len++] = ' ';
    }
    list[len] = '\0';
    return sl_fail(-EINVAL, PREFIX "%s is '%s', but must be one of %s", row->name, value, list);
}

static int set_text(const struct sl_config_row *row, char *field, const char *value)
{
    size_t len = strlen(value);

    if (row->choices != NULL) {
        const char *choice = find_choice(row->choices, value, &len);

        choice = choice != NULL ? choice : find_choice(row->choices, plain_word(value), &len);
        if (choice == NULL)
            return refuse_choice(row, value);
        value = choice;
    }
    if (len >= SL_TEXT_MAX)
        return sl_fail(-EINVAL, PREFIX "%s is longer than %d bytes", row->name, SL_TEXT_MAX - 1);
    int err = row->check != NULL ? row->check(value) : 0;

    if (err != 0)
        return err;
    memcpy(field, value, len);
    field[len] = '\0';
    return 0;
}

static int set_number(const struct sl_config_row *row, int64_t *field, const char *value)
{
    int64_t number = 0;
    size_t len;

    if (row->choices != NULL && find_choice(row->choices, value, &len) == NULL)
        return refuse_choice(row, value);
    int err = row->type == SL_CONFIG_INT     ? parse_int(value, &number)
              : row->type == SL_CONFIG_BYTES ? parse_row_bytes(row, value, &number)
                                             : parse_switch(value, &number);

    if (err != 0)
        return sl_fail(-EINVAL, PREFIX "%s is '%s', but must be %s", row->name, value,
                       row->type == SL_CONFIG_INT     ? "a whole number"
                       : row->type == SL_CONFIG_BYTES ? "a size such as 65536, 64k or 1M"
                                                      : "on, off or auto");
    if (number < row->min || number > row->max)
        return sl_fail(-EINVAL, PREFIX "%s is %lld, but must be from %lld to %lld", row->name,
                       (long long)number, (long long)row->min, (long long)row->max);
    if (number > 0 && number < row->least)
        return sl_fail(-EINVAL, PREFIX "%s is %lld, but must be 0 or from %lld to %lld", row->name,
                       (long long)number, (long long)row->least, (long long)row->max);
    *field = number;
    return 0;
}

static int set_row(struct sl_config *config, const struct sl_config_row *row, const char *value)
{
    void *field = (char *)config + row->offset;

    return row->type == SL_CONFIG_TEXT ? set_text(row, field, value)
                                       : set_number(row, field, value);
}

/* Levenshtein distance, for names of at most 63 bytes. */
static unsigned distance(const char *a, const char *b)
{
    unsigned row[64], len = (unsigned)strnlen(b, 63);

    for (unsigned j = 0; j <= len; j++)
        row[j] = j;
    for (unsigned i = 0; a[i] != '\0'; i++) {
        unsigned diagonal = row[0];

        row[0] = i + 1;
        for (unsigned j = 0; j < len; j++) {
            unsigned keep = row[j + 1];
            unsigned best = diagonal + (a[i] != b[j]);

            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (keep + 1 < best)
                best = keep + 1;
            row[j + 1] = best;
            diagonal = keep;
        }
    }
    return row[len];
}

static const char *nearest_name(const char *name)
{
    const char *best = sl_config_rows[0].name;
    unsigned best_distance = ~0u;

    for (size_t i = 0; i < sl_config_row_count; i++) {
        unsigned d = distance(name, sl_config_rows[i].name);

        if (d < best_distance) {
            best_distance = d;
            best = sl_config_rows[i].name;
        }
    }
    return best;
}

void sl_config_defaults(struct sl_config *config)
{
    memset(config, 0, sizeof(*config));
    for (size_t i = 0; i < sl_config_row_count; i++)
        sl_assert(set_row(config, &sl_config_rows[i], sl_config_rows[i].value) == 0);
}

int sl_config_set(struct sl_config *config, const char *name, const char *value)
{
    for (size_t i = 0; i < sl_config_row_count; i++)
        if (strcmp(sl_config_rows[i].name, name) == 0)
            return set_row(config, &sl_config_rows[i], value);
    return sl_fail(-ENOENT, "there is no variable " PREFIX "%s; the nearest is " PREFIX "%s", name,
                   nearest_name(name));
}

static int set_from_entry(struct sl_config *config, const char *entry)
{
    const char *equals = strchr(entry, '=');
    char name[64];

    if (equals == NULL || (size_t)(equals - entry) >= sizeof(name))
        return 0;
    memcpy(name, entry, (size_t)(equals - entry));
    name[equals - entry] = '\0';
    if (equals[1] == '\0')
        return 0; /* set but empty means the default, as in most tools */
    return sl_config_set(config, name, equals + 1);
}

/* Once for a process, and for those that it forks: the environment is read again for each
 * communicator. */
static bool is_news(const char *entry)
{
    static _Atomic uint32_t warned[32];
    uint32_t hash = 2166136261u; /* FNV-1a */

    for (; *entry != '\0' && *entry != '='; entry++)
        hash = (hash ^ (unsigned char)*entry) * 16777619u;
    hash |= 1; /* 0 stands for nothing */
    for (size_t i = 0; i < SL_ARRAY_LEN(warned); i++) {
        uint32_t none = 0;

        if (atomic_compare_exchange_strong(&warned[i], &none, hash))
            return true;
        if (none == hash)
            return false;
    }
    return true;
}

int sl_config_from_env(struct sl_config *config, char *const *envp)
{
    sl_config_defaults(config);
    for (; envp != NULL && *envp != NULL; envp++) {
        if (strncmp(*envp, PREFIX, strlen(PREFIX)) != 0)
            continue;
        int err = set_from_entry(config, *envp + strlen(PREFIX));

        if (err == -ENOENT && is_news(*envp))
            sl_warn("config", "%s", sluice_last_error());
        if (err != 0 && err != -ENOENT)
            return err;
    }
    return 0;
}
