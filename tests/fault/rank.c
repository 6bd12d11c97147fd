/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a rank in a fault run: checked collectives until something happens, then a clean
 * end. */
#include "tests/fault/fault.h"

#include "core/rng.h"

#include <sluice/sluice.h>

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define COUNT_MAX 60000
#define INFLIGHT 3
#define PATTERN 0xa5
#define GIVE_UP_NS (NS_PER_MS * (3 * TIMEOUT_MS + 2 * SLACK_MS))

enum what { ALLREDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, ALL_TO_ALL, BARRIER, WHAT_COUNT };

/* One collective under way. Values are small whole numbers: every order of adding is exact. */
struct call {
    enum what what;
    size_t count;
    bool floats;
    int root;
    uint32_t number;
    uint32_t *in, *out; /* RANKS_MAX * COUNT_MAX elements of 4 bytes */
    struct sluice_req *req;
};

struct rank {
    struct fault_run *run;
    struct rank_report *report;
    struct sluice_comm *comm;
    int me, size;
    struct sl_rng draw; /* the same on all ranks */
    uint32_t calls;
    struct call call[INFLIGHT];
};

uint64_t now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

static void complain(struct rank *r, const char *what, const struct call *call)
{
    if (r->report->complaint[0] == '\0')
        snprintf(r->report->complaint, sizeof(r->report->complaint),
                 "%s (collective %d, %zu elements)", what, call != NULL ? (int)call->what : -1,
                 call != NULL ? call->count : 0);
}

/* ---- collectives ---- */

static int value(uint32_t number, int rank, size_t i)
{
    return (int)((i + number * 13 + (uint32_t)rank * 7) % 101);
}

static uint32_t bits(const struct call *call, int number)
{
    union {
        float f;
        uint32_t u;
    } both = {.f = (float)number};

    return call->floats ? both.u : (uint32_t)number;
}

static int sum_of(const struct rank *r, const struct call *call, size_t i)
{
    int sum = 0;

    for (int rank = 0; rank < r->size; rank++)
        sum += value(call->number, rank, i);
    return sum;
}

static size_t in_count(const struct rank *r, const struct call *call)
{
    return call->what == REDUCE_SCATTER || call->what == ALL_TO_ALL ? call->count * (size_t)r->size
                                                                    : call->count;
}

static size_t out_count(const struct rank *r, const struct call *call)
{
    return call->what == BARRIER                                  ? 0
           : call->what == ALL_GATHER || call->what == ALL_TO_ALL ? call->count * (size_t)r->size
                                                                  : call->count;
}

static int expected(const struct rank *r, const struct call *call, size_t i)
{
    size_t own = (size_t)r->me * call->count;

    switch (call->what) {
    case ALLREDUCE: return sum_of(r, call, i);
    case REDUCE_SCATTER: return sum_of(r, call, own + i);
    case ALL_GATHER: return value(call->number, (int)(i / call->count), i % call->count);
    case BROADCAST: return value(call->number, call->root, i);
    case ALL_TO_ALL: return value(call->number, (int)(i / call->count), own + i % call->count);
    default: return 0;
    }
}

static void check_result(struct rank *r, const struct call *call)
{
    for (size_t i = 0, n = out_count(r, call); i < n; i++)
        if (call->out[i] != bits(call, expected(r, call, i))) {
            complain(r, "a collective ended well with a wrong element", call);
            return;
        }
}

static int start(struct rank *r, struct call *call)
{
    enum sluice_dtype dtype;

    call->what = (enum what)sl_rng_below(&r->draw, WHAT_COUNT);
    call->count = 1 + sl_rng_below(&r->draw, UINT64_C(1) << sl_rng_below(&r->draw, 16));
    if (call->count > COUNT_MAX)
        call->count = COUNT_MAX;
    call->floats = sl_rng_chance(&r->draw, 2);
    call->root = (int)sl_rng_below(&r->draw, (uint64_t)r->size);
    call->number = r->calls++;
    call->req = NULL;
    dtype = call->floats ? SLUICE_F32 : SLUICE_I32;
    for (size_t i = 0, n = in_count(r, call); i < n; i++)
        call->in[i] = bits(call, value(call->number, r->me, i));
    memset(call->out, PATTERN, out_count(r, call) * sizeof(*call->out));
    switch (call->what) {
    case ALLREDUCE:
        return sluice_allreduce(r->comm, call->in, call->out, call->count, dtype, SLUICE_SUM,
                                &call->req);
    case REDUCE_SCATTER:
        return sluice_reduce_scatter(r->comm, call->in, call->out, call->count, dtype, SLUICE_SUM,
                                     &call->req);
    case ALL_GATHER:
        return sluice_all_gather(r->comm, call->in, call->out, call->count, dtype, &call->req);
    case BROADCAST:
        return sluice_broadcast(r->comm, call->in, call->out, call->count, dtype, call->root,
                                &call->req);
    case ALL_TO_ALL:
        return sluice_all_to_all(r->comm, call->in, call->out, call->count, dtype, &call->req);
    default: return sluice_barrier(r->comm, &call->req);
    }
}

static void note_error(struct rank *r, int err)
{
    if (r->report->code != 0)
        return;
    r->report->code = err;
    snprintf(r->report->text, sizeof(r->report->text), "%s", sluice_last_error());
    atomic_store(&r->report->ended_ns, now_ns());
}

/* ---- faults that a rank does to itself ---- */

static void *hurt(void *arg)
{
    struct rank *r = arg;
    struct timespec pause = {.tv_nsec = 100000};

    while (atomic_load(&r->run->fire) == 0)
        nanosleep(&pause, NULL);
    if (r->run->kind == FAULT_ABORT)
        sluice_comm_abort(r->comm);
    else
        fault_sockets(r->run);
    /* Nobody is so far ahead. */
    atomic_store(&r->run->last_round, r->report->rounds + UNHARMED_ROUNDS);
    return NULL;
}

/* ---- the end ---- */

/* The state page is the process's, and stays when its communicators go. */
static bool is_page(const char *file)
{
    return strstr(file, "/dev/shm/#") != NULL || strstr(file, "memfd:sluice-state") != NULL;
}

/* EAL and what it watches stay, too: of ports, sockets and the memory they share are counted. */
static bool is_eals(const char *file)
{
    return strstr(file, "socket:") == NULL && strstr(file, "memif") == NULL;
}

/* A memif server's, which listens as long as the process lives. */
static bool is_server(int fd)
{
    struct sockaddr_un address;
    socklen_t len = sizeof(address), flag_len = sizeof(int);
    int listens = 0;

    return getsockname(fd, (struct sockaddr *)&address, &len) == 0 &&
           address.sun_family == AF_UNIX &&
           getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &flag_len) == 0 && listens != 0;
}

static int count_fds(bool has_ports)
{
    DIR *dir = opendir("/proc/self/fd");
    int count = 0;

    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        char file[128] = "";

        if (readlinkat(dirfd(dir), entry->d_name, file, sizeof(file) - 1) < 0)
            continue; /* "." */
        count +=
            !is_page(file) && !(has_ports && (is_eals(file) || is_server(atoi(entry->d_name))));
    }
    if (dir != NULL)
        closedir(dir);
    return count;
}

/* A port's driver closes connections on a thread of its own, after up to 50 ms. */
static bool are_closed(bool has_ports, int fds)
{
    struct timespec pause = {.tv_nsec = 5000000};

    for (int tries = has_ports ? 400 : 0; tries > 0 && count_fds(has_ports) != fds; tries--)
        nanosleep(&pause, NULL);
    return count_fds(has_ports) == fds;
}

/* Memory of files that come from a communicator: shared segments, windows, rings of the kernel. */
static int count_maps(bool has_ports)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    int count = 0;

    while (maps != NULL && fgets(line, sizeof(line), maps) != NULL)
        count += !is_page(line) && !(has_ports && is_eals(line)) &&
                 (strstr(line, "memfd:") != NULL || strstr(line, "anon_inode") != NULL ||
                  strstr(line, "/dev/shm") != NULL);
    if (maps != NULL)
        fclose(maps);
    return count;
}

static void fill(struct rank *r)
{
    for (int i = 0; i < INFLIGHT; i++) {
        memset(r->call[i].in, PATTERN, RANKS_MAX * COUNT_MAX * sizeof(uint32_t));
        memset(r->call[i].out, PATTERN, RANKS_MAX * COUNT_MAX * sizeof(uint32_t));
    }
}

static void check_untouched(struct rank *r)
{
    for (int i = 0; i < INFLIGHT; i++)
        for (size_t k = 0; k < (size_t)RANKS_MAX * COUNT_MAX; k++)
            if (r->call[i].in[k] != 0xa5a5a5a5 || r->call[i].out[k] != 0xa5a5a5a5) {
                complain(r, "memory was written after its request had ended", &r->call[i]);
                return;
            }
}

/* All requests have ended. Their memory is ours again, and stays so. */
static void leave(struct rank *r, bool destroyed)
{
    struct timespec while_late = {.tv_nsec =
                                      3000000}; /* for writes that come late, if there are any */

    fill(r);
    nanosleep(&while_late, NULL);
    check_untouched(r);
    for (int i = 0; i < INFLIGHT; i++)
        sluice_req_free(r->call[i].req);
    if (!destroyed)
        sluice_comm_destroy(r->comm);
    nanosleep(&while_late, NULL);
    check_untouched(r);
}

/* ---- rounds ---- */

static void finish_round(struct rank *r, int started)
{
    for (int i = 0; i < started; i++) {
        struct call *call = &r->call[i];

        if (call->req == NULL)
            continue;
        int err = sluice_wait(call->req);

        if (err == 0)
            check_result(r, call);
        else
            note_error(r, err);
        if (r->report->code == 0) {
            sluice_req_free(call->req);
            call->req = NULL;
        }
    }
}

static void note_stall(struct rank *r, uint64_t took_ns)
{
    if (atomic_load(&r->run->fired_ns) != 0 && took_ns > r->report->stall_ns)
        r->report->stall_ns = took_ns;
}

/* Returns false when the communicator was destroyed on purpose. */
static bool run_rounds(struct rank *r)
{
    struct fault_run *run = r->run;
    bool unharmed = fault_harms_nobody(run);
    uint64_t end = now_ns() + GIVE_UP_NS;

    while (r->report->code == 0) {
        int want = 1 + (int)sl_rng_below(&r->draw, INFLIGHT), started = 0;
        uint64_t began = now_ns();

        for (; started < want && r->report->code == 0; started++) {
            int err = start(r, &r->call[started]);

            if (err != 0)
                note_error(r, err);
        }
        if (run->kind == FAULT_DESTROY && run->victim == r->me && atomic_load(&run->fire) != 0) {
            sluice_comm_destroy(r->comm);
            finish_round(r, started);
            atomic_store(&r->report->ended_ns, now_ns());
            return false;
        }
        finish_round(r, started);
        r->report->rounds++;
        note_stall(r, now_ns() - began);
        atomic_store(&r->report->running, 1);
        if (unharmed && r->report->rounds == atomic_load(&run->last_round))
            break;
        if (now_ns() > end) {
            complain(r, "nothing happened to this rank", NULL);
            break;
        }
    }
    if (r->report->code == 0)
        atomic_store(&r->report->ended_ns, now_ns());
    return true;
}

static void set_environment(const struct fault_run *run, int rank)
{
    char text[64];

    setenv("SLUICE_TRANSPORT", run->transport->transport, 1);
    setenv("SLUICE_TCP_ENGINE", run->transport->engine, 1);
    if (fault_has_ports(run))
        fault_ports(run, rank);
    setenv("SLUICE_LAUNCHER", "none", 1);
    setenv("SLUICE_TUNE", "off", 1);
    setenv("SLUICE_LOG", "error", 1);
    setenv("SLUICE_JOB", "fault", 1);
    setenv("SLUICE_SECRET", "of the test", 1);
    setenv("SLUICE_INTERFACE", "lo", 1);
    snprintf(text, sizeof(text), "%d", TIMEOUT_MS);
    setenv("SLUICE_TIMEOUT_MS", text, 1);
    setenv("SLUICE_CONNECT_TIMEOUT_MS", "10000", 1);
    snprintf(text, sizeof(text), "127.0.0.1:%d", run->port);
    setenv("SLUICE_ROOT", text, 1);
    snprintf(text, sizeof(text), "%d", rank);
    setenv("SLUICE_RANK", text, 1);
    snprintf(text, sizeof(text), "%d", run->ranks);
    setenv("SLUICE_SIZE", text, 1);
}

_Noreturn void rank_main(struct fault_run *run, int rank)
{
    struct rank r = {.run = run, .report = &run->report[rank], .me = rank, .size = run->ranks};
    bool hurts = run->victim == rank && (run->kind == FAULT_ABORT || run->kind == FAULT_RESET ||
                                         run->kind == FAULT_LINK || run->kind == FAULT_GONE);
    pthread_t thread;

    if (run->kind == FAULT_HALF && run->victim == rank && seteuid(CUT_UID) != 0)
        complain(&r, "the user id could not be changed", NULL);
    set_environment(run, rank);
    sl_rng_init(&r.draw, run->seed);
    for (int i = 0; i < INFLIGHT; i++) {
        r.call[i].in = malloc(RANKS_MAX * COUNT_MAX * sizeof(uint32_t));
        r.call[i].out = malloc(RANKS_MAX * COUNT_MAX * sizeof(uint32_t));
        if (r.call[i].in == NULL || r.call[i].out == NULL)
            abort();
    }
    bool has_ports = fault_has_ports(run);
    int fds = count_fds(has_ports), maps = count_maps(has_ports),
        err = sluice_comm_from_env(&r.comm);

    if (err != 0) {
        note_error(&r, err);
        complain(&r, "the start failed", NULL);
        _exit(1);
    }
    if (hurts)
        pthread_create(&thread, NULL, hurt, &r);
    bool destroyed = !run_rounds(&r);

    if (hurts) {
        atomic_store(&run->fire, 1);
        pthread_join(thread, NULL);
    }
    leave(&r, destroyed);
    if (!are_closed(has_ports, fds))
        complain(&r, "descriptors were left open", NULL);
    if (count_maps(has_ports) != maps)
        complain(&r, "shared memory was left mapped", NULL);
    if (has_ports) /* whose sockets lose their names at the end of the process */
        exit(r.report->complaint[0] != '\0');
    _exit(r.report->complaint[0] != '\0');
}
