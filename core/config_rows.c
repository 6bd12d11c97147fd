/* SPDX-License-Identifier: Apache-2.0 */
/* The variables of the engine itself: identity, place and behaviour of a rank. */
#include "core/config.h"

#include "core/err.h"
#include "core/port_range.h"

#define AT(field) offsetof(struct sl_config, field)
#define SHM_LEAST (8 * SL_KIB) /* a page for each half */

static int check_port_range(const char *text)
{
    struct sl_port_range range;

    return sl_port_range_parse(text, &range);
}

static const struct sl_config_row rows[] = {
    SL_ROW_INT("RANK", rank, "-1", "rank", -1, 1 << 20,
               "This rank. -1: taken from the launcher (torchrun, Slurm, Open MPI, MPICH, PMIx)."),
    SL_ROW_INT("SIZE", size, "-1", "ranks", -1, 1 << 20,
               "Number of ranks. -1: taken from the launcher."),
    SL_ROW_INT("LOCAL_RANK", local_rank, "-1", "rank", -1, 1 << 20,
               "This rank among those of its host. -1: taken from the launcher or counted."),
    SL_ROW_INT("LOCAL_SIZE", local_size, "-1", "ranks", -1, 1 << 20,
               "Number of ranks of this host. -1: taken from the launcher or counted."),
    SL_ROW_TEXT(
        "ROOT", root, "",
        "host:port (or [v6]:port) where rank 0 listens and the others meet it. Empty: taken from "
        "the launcher."),
    SL_ROW_TEXT("JOB", job, "",
                "Name of the job; a rank of another job is refused. Empty: the launcher's."),
    SL_ROW_TEXT(
        "SECRET", secret, "",
        "Shared secret; proves that a rank belongs to the job and is never sent itself. Empty: the "
        "launcher's, where it gives one."),
    SL_ROW_SWITCH(
        "REQUIRE_SECRET", require_secret, "off",
        "on: ranks that have no secret refuse to meet. Otherwise those of one host compare their "
        "users, and those of several are warned."),
    SL_ROW_CHOICE("LAUNCHER", launcher, "auto", "auto none sluice torchrun pmi pmix openmpi slurm",
                  "Which launcher to believe."),
    SL_ROW_TEXT(
        "HOST_ID", host_id, "",
        "Ranks with the same text count as one host (shared memory is possible among them). Empty: "
        "kernel boot id and network namespace."),
    SL_ROW_TEXT(
        "INTERFACE", interface, "",
        "Network interfaces for addresses of this rank: names, prefixes ending in *, CIDR ranges, "
        "each with ! to exclude, separated by commas. Empty: the route to the peer."),
    SL_ROW_CHECKED("PORT_RANGE", port_range, "", check_port_range,
                   "low-high: TCP ports that may be listened on. Empty: any."),
    SL_ROW_TEXT(
        "TRANSPORT", transport, "auto",
        "Transports that may be used, the preferred one first. Each pair of ranks takes the first "
        "that reaches. auto: all that are here, in the order of sluice-bench --list."),
    SL_ROW_TEXT("MODULES_DIR", modules_dir, "",
                "Folder whose files sluice-NAME.so are loaded as further transports, once for the "
                "process, at its start. Empty: the folder sluice beside the library."),
    SL_ROW_TEXT("ALGO", algo, "",
                "Forces algorithms: NAME for every collective that has it, or COLLECTIVE:NAME, "
                "separated by commas. Empty: the cost model chooses. See sluice-bench --list."),
    SL_ROW_TEXT(
        "COMPRESS", compress, "",
        "Codec that sends fewer bytes for calls of f32, bf16 and f16, and its parameters: "
        "bq8:min=1M. Calls that it would make slower go as they are, unless it has when=always. "
        "Results change where it is lossy, on all ranks alike. Empty: none. See "
        "sluice/compress.h."),
    SL_ROW_INT(
        "TIMEOUT_MS", timeout_ms, "30000", "ms", 1, SL_DAY_MS,
        "An operation that makes no progress for this long ends with -ETIMEDOUT and a report."),
    SL_ROW_INT("CONNECT_TIMEOUT_MS", connect_timeout_ms, "30000", "ms", 1, SL_DAY_MS,
               "How long ranks wait for each other when a communicator is made."),
    SL_ROW_INT(
        "SPIN_US", spin_us, "-1", "us", -1, 10000000,
        "How long a waiting rank polls before it sleeps. -1: by ranks of this host against cores."),
    SL_ROW_CHOICE("PROGRESS", progress, "caller", "caller thread",
                  "Who moves operations on: caller (inside test and wait; RDMA paths are mended "
                  "between them, too) or thread (one per communicator)."),
    SL_ROW_INT("INFLIGHT_MAX", inflight_max, "64", "operations", 1, 65536,
               "Most collectives in flight on one communicator; more get -EAGAIN."),
    SL_ROW_BYTES("CHUNK_BYTES", chunk_bytes, "0", 0, SL_GIB,
                 "Size of the pieces that large messages are cut into. 0: chosen."),
    SL_ROW_INT(
        "LINK_WEIGHT", link_weight, "1000", "thousandths", 1, 1000,
        "What this rank's links between hosts deliver, in thousandths of what the best rank's "
        "do: 875 with 7 of 8 NICs. Ranks with less sum less of a vector."),
    SL_ROW_CHOICE(
        "TUNE", tune, "auto", "auto measure off",
        "Link costs for the choice of algorithms: auto (measured until jobs agree, and cached), "
        "measure (always), off (built-in)."),
    SL_ROW_TEXT(
        "TUNE_DIR", tune_dir, "",
        "Where measured link costs are cached. Empty: $XDG_CACHE_HOME/sluice or ~/.cache/sluice."),
    SL_ROW_TEXT("PATHS_TABLE", paths_table, "auto",
                "File in which a planner says, while the job runs, by which paths to send "
                "(sluicectl(1)). auto: /dev/shm/sluice-paths.UID; off: none is looked for."),
    SL_ROW_TEXT("PATHS_AGENT", paths_agent, "auto",
                "File in which the node agent says the same of what it found broken (sluiced(8)). "
                "auto: /run/sluiced/paths; off: none is looked for."),
    SL_ROW_CHOICE("KERNEL", kernel, "auto", "auto avx512 avx2 neon c",
                  "Reduction kernels. auto: the fastest that runs here."),
    SL_ROW_TEXT(
        "LOG", log, "warn",
        "Log level: error, warn, info, debug or trace; AREA:LEVEL for one area; separated by "
        "commas."),
    SL_ROW_CHOICE(
        "STATE", state, "on", "on off keep",
        "Publish what this process does in /dev/shm/sluice.UID.PID.0, for sluice-bench --status "
        "and monitors: on (gone when the process ends well), off, keep (stays)."),
    SL_ROW_SWITCH("STATUS_SIGNAL", status_signal, "auto",
                  "Print what every pending operation waits for on SIGUSR1: on, off, auto (on in "
                  "sluice-bench, off in other programs)."),
    SL_ROW_BYTES_OR_0(
        "SHM_WINDOW_BYTES", shm_window_bytes, "0", SHM_LEAST, SL_GIB,
        "Staging memory that a rank shares with the ranks of its host, for each communicator. "
        "0: by number of ranks."),
    SL_ROW_BYTES(
        "SHM_STREAM_MIN_BYTES", shm_stream_min_bytes, "-1", -1, INT64_MAX,
        "Results of at least this size are written past the caches. -1: by the size of the last "
        "cache."),
    SL_ROW_SWITCH(
        "TCP_TLS", tcp_tls, "off",
        "TLS 1.3 on all TCP connections between ranks, with keys made of the job's secret: on or "
        "off, the same on all ranks. Needs a secret, and OpenSSL 3 where it runs."),
};

struct sl_config_section sl_config_common = {
    .area = "", .rows = rows, .row_count = SL_ARRAY_LEN(rows), .registered = true};

const char *sl_tune_name(enum sl_tune tune)
{
    static const char *const names[] = {"auto", "measure", "off"};

    return names[tune];
}

const char *sl_launcher_name(enum sl_launcher launcher)
{
    static const char *const names[] = {"auto", "none", "sluice",  "torchrun",
                                        "pmi",  "pmix", "openmpi", "slurm"};

    return names[launcher];
}
