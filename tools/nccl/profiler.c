/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The profiler tables: NCCL's events into shared memory (events.h), if SLUICE_NCCL_PROFILE asks for
 * it.
 *
 * NCCL calls from its users' threads, its progress threads and from inside plugins, stops what it
 * has stopped before and speaks of events that are long over. So a handle is no pointer but a slot
 * and its turn, checked against a fixed pool, and nothing here waits, allocates or fails on the
 * way.
 */
#include "core/clock.h"
#include "core/config.h"
#include "core/err.h"
#include "core/log.h"
#include "core/seqlock.h"
#include "core/state_page.h"
#include "tools/nccl/abi_profiler_v4.h"
#include "tools/nccl/abi_profiler_v5.h"
#include "tools/nccl/config.h"
#include "tools/nccl/events.h"
#include "tools/nccl/profiler.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define NAME "Sluice"
#define EXPORT __attribute__((visibility("default")))
#define SLOT_BITS 12
#define TRIES 32 /* polls for a free slot */

static_assert(SL_NCCL_EVENTS_SLOTS == 1 << SLOT_BITS, "a handle's low bits name the slot");

typedef enum sl_nccl_result result;

extern char **environ;

/* The file of this process, while a communicator is profiled. */
static struct {
    pthread_mutex_t lock;
    unsigned users;
    struct sl_nccl_events *_Atomic file;
    struct sl_nccl_event_record *slots, *ring;
    uint64_t ring_count;
    void *base; /* of the mapping, also of the last one */
    size_t bytes;
    bool keep;
    char path[96];
    _Atomic uint32_t cursor;
    _Atomic uint64_t p2p_seq[SL_NCCL_EVENTS_COMMS];
} shared = {.lock = PTHREAD_MUTEX_INITIALIZER};

static uint64_t now(void)
{
    return sl_now(&sl_clock_monotonic);
}

/* ---- the file ---- */

/* "steps,keep" → a mask. 0: off. */
static int read_setting(const char *text, int *mask, bool *keep)
{
    static const struct {
        const char *word;
        int mask;
    } words[] = {
        {"off", 0},
        {"ops", SL_NCCL_PROFILE_COLL | SL_NCCL_PROFILE_P2P | SL_NCCL_PROFILE_PROXY_OP},
        {"steps", SL_NCCL_PROFILE_COLL | SL_NCCL_PROFILE_P2P | SL_NCCL_PROFILE_PROXY_OP |
                      SL_NCCL_PROFILE_PROXY_STEP},
        {"kernels", SL_NCCL_PROFILE_COLL | SL_NCCL_PROFILE_P2P | SL_NCCL_PROFILE_PROXY_OP |
                        SL_NCCL_PROFILE_PROXY_STEP | SL_NCCL_PROFILE_KERNEL_CH},
    };

    *mask = 0;
    *keep = false;
    while (*text != '\0') {
        size_t len = strcspn(text, ","), i = 0;

        while (i < SL_ARRAY_LEN(words) &&
               (strlen(words[i].word) != len || memcmp(words[i].word, text, len) != 0))
            i++;
        if (i < SL_ARRAY_LEN(words))
            *mask = words[i].mask;
        else if (len == 4 && memcmp(text, "keep", 4) == 0)
            *keep = true;
        else
            return sl_fail(
                -EINVAL,
                "SLUICE_NCCL_PROFILE has '%.*s', but must be off, ops, steps or kernels, and keep",
                (int)len, text);
        text += len + (text[len] == ',');
    }
    return 0;
}

/* At the place of the last one: NCCL may speak of an event when all communicators are gone, and
 * must not fall into a hole. fd -1: private memory. */
static void *map_at(size_t bytes, int fd)
{
    if (shared.bytes != bytes && shared.bytes != 0) { /* another size was set meanwhile */
        munmap(shared.base, shared.bytes);
        shared.base = NULL;
    }
    return mmap(shared.base, bytes, PROT_READ | PROT_WRITE,
                (fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS) |
                    (shared.base != NULL ? MAP_FIXED : 0),
                fd, 0);
}

/* In the order of struct sl_nccl_events. */
static void fill_sections(struct sl_nccl_events *file, uint32_t ring_count)
{
    struct sl_state_section *section = file->sections;
    uint64_t slots_at = sizeof(*file);

    *section++ = (struct sl_state_section){.kind = SL_STATE_PROCESS,
                                           .record_bytes = sizeof(file->process),
                                           .count = 1,
                                           .offset = offsetof(struct sl_nccl_events, process)};
    *section++ = (struct sl_state_section){.kind = SL_STATE_NCCL,
                                           .record_bytes = sizeof(file->head),
                                           .count = 1,
                                           .offset = offsetof(struct sl_nccl_events, head)};
    *section++ = (struct sl_state_section){.kind = SL_STATE_NCCL_COMM,
                                           .record_bytes = sizeof(file->comm[0]),
                                           .count = SL_NCCL_EVENTS_COMMS,
                                           .offset = offsetof(struct sl_nccl_events, comm)};
    *section++ = (struct sl_state_section){.kind = SL_STATE_NCCL_OPEN,
                                           .record_bytes = sizeof(struct sl_nccl_event_record),
                                           .count = SL_NCCL_EVENTS_SLOTS,
                                           .offset = slots_at};
    *section = (struct sl_state_section){
        .kind = SL_STATE_NCCL_OVER,
        .record_bytes = sizeof(struct sl_nccl_event_record),
        .count = ring_count,
        .offset = slots_at + SL_NCCL_EVENTS_SLOTS * sizeof(struct sl_nccl_event_record)};
}

static void file_fill(struct sl_nccl_events *file, size_t bytes, const char *job, int rank,
                      int ranks, uint32_t ring_count)
{
    sl_state_describe(job, rank, ranks, &file->process);
    file->process.turn = 2;
    file->head = (struct sl_nccl_event_head){.turn = 2, .start_ns = file->process.made_ns};
    fill_sections(file, ring_count);
    file->header = (struct sl_state_header){.version = SL_STATE_VERSION,
                                            .header_bytes = sizeof(file->header),
                                            .section_bytes = sizeof(file->sections[0]),
                                            .section_count = SL_NCCL_EVENTS_SECTIONS,
                                            .file_bytes = bytes};
    atomic_thread_fence(memory_order_release);
    /* Last: a reader may be waiting for it. */
    memcpy(file->header.magic, SL_STATE_MAGIC, sizeof(file->header.magic));
}

static int file_open(const char *job, int rank, int ranks, uint64_t ring_count)
{
    size_t bytes = sizeof(struct sl_nccl_events) +
                   (SL_NCCL_EVENTS_SLOTS + ring_count) * sizeof(struct sl_nccl_event_record);
    struct sl_nccl_events *file;
    int fd;

    snprintf(shared.path, sizeof(shared.path), SL_NCCL_EVENTS_PATH "-%d-%d", (int)getpid(), rank);
    unlink(shared.path); /* of a process of that number that is gone */
    fd = open(shared.path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0 || posix_fallocate(fd, 0, (off_t)bytes) != 0) {
        int err = sl_fail(errno != 0 ? -errno : -ENOSPC, "%s cannot be made: %s", shared.path,
                          sluice_strerror(-errno));

        if (fd >= 0)
            close(fd);
        return err;
    }
    file = map_at(bytes, fd);
    close(fd);
    if (file == MAP_FAILED) {
        unlink(shared.path);
        return sl_fail(-ENOMEM, "%s cannot be mapped", shared.path);
    }
    file_fill(file, bytes, job, rank, ranks, (uint32_t)ring_count);
    shared.slots = (struct sl_nccl_event_record *)(file + 1);
    shared.ring = shared.slots + SL_NCCL_EVENTS_SLOTS;
    shared.ring_count = ring_count;
    shared.base = file;
    shared.bytes = bytes;
    atomic_store_explicit(&shared.file, file, memory_order_release);
    return 0;
}

static void file_close(void)
{
    atomic_store(&shared.file, NULL);
    if (!shared.keep)
        unlink(shared.path);
    map_at(shared.bytes, -1);
}

/* ---- communicators ---- */

/* The context for NCCL: a place in the table, plus 1. */
static void *context_of(unsigned place)
{
    return (void *)(uintptr_t)(place + 1);
}

/* A place that was never used, or that of the communicator that ended first. */
static struct sl_nccl_event_comm *comm_place(struct sl_nccl_events *file)
{
    struct sl_nccl_event_comm *ended = NULL;

    for (unsigned i = 0; i < SL_NCCL_EVENTS_COMMS; i++) {
        struct sl_nccl_event_comm *comm = &file->comm[i];

        if (atomic_load(&comm->turn) == 0)
            return comm;
        if (atomic_load(&comm->lives) == 0 && (ended == NULL || comm->start_ns < ended->start_ns))
            ended = comm;
    }
    return ended;
}

static int comm_add(const char *name, uint64_t id, int nodes, int ranks, int rank, unsigned *out)
{
    struct sl_nccl_events *file = atomic_load(&shared.file);
    struct sl_nccl_event_comm *comm = comm_place(file);

    if (comm == NULL)
        return sl_fail(-ENOSPC, "%d communicators are profiled already", SL_NCCL_EVENTS_COMMS);
    sl_seq_write_begin(&comm->turn);
    comm->rank = rank;
    comm->ranks = ranks;
    comm->nodes = nodes;
    comm->id = id;
    comm->start_ns = now();
    atomic_store_explicit(&comm->calls, 0, memory_order_relaxed);
    snprintf(comm->name, sizeof(comm->name), "%s", name != NULL ? name : "");
    atomic_store_explicit(&comm->lives, 1, memory_order_relaxed);
    sl_seq_write_end(&comm->turn);
    *out = (unsigned)(comm - file->comm);
    return 0;
}

static int comm_open(const char *name, uint64_t id, int nodes, int ranks, int rank, int *mask,
                     void **ctx)
{
    struct sl_config config;
    bool keep = false;
    unsigned place = 0;
    int err = sl_nccl_start(&config, environ);

    *mask = 0;
    if (err == 0)
        err = read_setting(sl_nccl_config(&config)->profile, mask, &keep);
    if (err != 0 || *mask == 0)
        return err;
    if (shared.users == 0) {
        shared.keep = keep;
        err = file_open(config.job, rank, ranks, (uint64_t)sl_nccl_config(&config)->profile_events);
    }
    if (err == 0)
        err = comm_add(name, id, nodes, ranks, rank, &place);
    if (err != 0) {
        if (shared.users == 0 && atomic_load(&shared.file) != NULL)
            file_close();
        *mask = 0;
        return err;
    }
    shared.users++;
    *ctx = context_of(place);
    sl_info("nccl", "events of communicator %016llx go to %s", (unsigned long long)id, shared.path);
    return 0;
}

static result open_any(void **ctx, uint64_t id, int *mask, const char *name, int nodes, int ranks,
                       int rank)
{
    int err;

    *ctx = NULL;
    pthread_mutex_lock(&shared.lock);
    err = comm_open(name, id, nodes, ranks, rank, mask, ctx);
    pthread_mutex_unlock(&shared.lock);
    if (err != 0)
        sl_warn("nccl", "nothing is profiled: %s", sluice_last_error());
    return SL_NCCL_SUCCESS; /* a job does not end for want of a profile */
}

static result finalize(void *ctx)
{
    pthread_mutex_lock(&shared.lock);
    if (ctx != NULL && shared.users > 0) {
        atomic_store(&atomic_load(&shared.file)->comm[(uintptr_t)ctx - 1].lives, 0);
        if (--shared.users == 0)
            file_close();
    }
    pthread_mutex_unlock(&shared.lock);
    return SL_NCCL_SUCCESS;
}

/* ---- events ---- */

static void *handle_of(unsigned slot, uint64_t turn)
{
    return (void *)(uintptr_t)(turn << SLOT_BITS | slot);
}

/* The slot of an event that is going on, or NULL. */
static struct sl_nccl_event_record *slot_of(const void *handle)
{
    uintptr_t value = (uintptr_t)handle;
    struct sl_nccl_events *file = atomic_load_explicit(&shared.file, memory_order_acquire);

    if (value == 0 || file == NULL)
        return NULL;
    struct sl_nccl_event_record *slot = &shared.slots[value & (SL_NCCL_EVENTS_SLOTS - 1)];

    if (sl_nccl_slot_turn(atomic_load_explicit(&slot->turn, memory_order_relaxed)) !=
        value >> SLOT_BITS) {
        atomic_fetch_add_explicit(&file->head.late, 1, memory_order_relaxed);
        return NULL;
    }
    return slot;
}

/* Takes a slot and copies the record into it. NULL: none was free, or it is of no kind that is
 * kept. */
static void *begin(struct sl_nccl_event_record *record)
{
    struct sl_nccl_events *file = atomic_load_explicit(&shared.file, memory_order_acquire);

    if (file == NULL || record->type == 0)
        return NULL;
    if (record->type == SL_NCCL_EVENT_COLL)
        atomic_fetch_add_explicit(&file->comm[record->comm].calls, 1, memory_order_relaxed);
    for (unsigned i = 0; i < TRIES; i++) {
        unsigned at = atomic_fetch_add_explicit(&shared.cursor, 1, memory_order_relaxed) %
                      SL_NCCL_EVENTS_SLOTS;
        struct sl_nccl_event_record *slot = &shared.slots[at];
        uint64_t word;

        if (!sl_nccl_slot_take(slot, &word))
            continue;
        void *handle = handle_of(at, sl_nccl_slot_turn(word));

        record->id = (uint64_t)(uintptr_t)handle;
        record->start_ns = record->state_ns = now();
        sl_nccl_record_copy(slot, record);
        sl_nccl_slot_written(slot, word);
        return handle;
    }
    atomic_fetch_add_explicit(&file->head.dropped, 1, memory_order_relaxed);
    return NULL;
}

static void into_ring(struct sl_nccl_events *file, const struct sl_nccl_event_record *record)
{
    uint64_t number = atomic_fetch_add_explicit(&file->head.written, 1, memory_order_relaxed);

    sl_nccl_record_put(&shared.ring[number % shared.ring_count], number + 1, record);
}

/* The one of a step's three waits that a state belongs to. -1: none. */
static int wait_of(uint8_t state)
{
    switch (state) {
    case SL_NCCL_STATE_SEND_GPU_WAIT:
    case SL_NCCL_STATE_RECV_GPU_WAIT:
    case SL_NCCL_STATE_RECV_FLUSH_WAIT: return 0;
    case SL_NCCL_STATE_SEND_PEER_WAIT: return 1;
    case SL_NCCL_STATE_SEND_WAIT:
    case SL_NCCL_STATE_RECV_WAIT: return 2;
    default: return -1;
    }
}

static void leave_state(struct sl_nccl_event_record *record, uint64_t at)
{
    int wait = record->type == SL_NCCL_EVENT_PROXY_STEP ? wait_of(record->state) : -1;

    if (wait >= 0 && at > record->state_ns)
        record->step.wait_ns[wait] += at - record->state_ns;
}

static result stop(void *handle)
{
    struct sl_nccl_event_record *slot = slot_of(handle), record;
    struct sl_nccl_events *file = atomic_load_explicit(&shared.file, memory_order_acquire);

    if (slot == NULL || !sl_nccl_slot_give(slot, (uintptr_t)handle >> SLOT_BITS, &record))
        return SL_NCCL_SUCCESS;
    record.stop_ns = now();
    leave_state(&record, record.stop_ns);
    into_ring(file, &record);
    return SL_NCCL_SUCCESS;
}

/* A figure by itself: a copy of the slot has the one before or this one. */
static void set_figure(uint64_t *figure, uint64_t to)
{
    __atomic_store_n(figure, to, __ATOMIC_RELAXED);
}

/* Changes the state and its time together. Another thread's change at the same time goes ahead of
 * ours: NCCL tells of an event by one thread. */
static void change_state(struct sl_nccl_event_record *slot, uint64_t turn, uint8_t to)
{
    struct sl_nccl_event_record record;
    uint64_t word, at = now();

    if (!sl_nccl_slot_change(slot, turn, &word))
        return;
    sl_nccl_record_copy(&record, slot);
    leave_state(&record, at);
    record.state = to;
    record.state_ns = at;
    sl_nccl_record_copy(slot, &record);
    sl_nccl_slot_written(slot, word);
}

/* Is called with every poll while a peer has not asked for a step: then only counts. */
static result state(void *handle, enum sl_nccl_profile_state to, union sl_nccl_profile_args *args)
{
    struct sl_nccl_event_record *slot = slot_of(handle);

    if (slot == NULL)
        return SL_NCCL_SUCCESS;
    if (slot->type == SL_NCCL_EVENT_KERNEL_CH || slot->type == SL_NCCL_EVENT_KERNEL_PHASE) {
        if (args != NULL && (to == SL_NCCL_STATE_KERNEL_STOP || to == SL_NCCL_STATE_PHASE_STOP))
            set_figure(&slot->kernel.gpu_stop_ns, args->kernel_ch.gpu_ns);
        return SL_NCCL_SUCCESS;
    }
    if (slot->type == SL_NCCL_EVENT_PROXY_STEP) {
        if (to == SL_NCCL_STATE_SEND_PEER_WAIT)
            set_figure(&slot->step.polls, slot->step.polls + 1);
        if (args != NULL && args->proxy_step.bytes != 0)
            set_figure(&slot->step.bytes, args->proxy_step.bytes);
    }
    if (slot->state != (uint8_t)to)
        change_state(slot, (uintptr_t)handle >> SLOT_BITS, (uint8_t)to);
    return SL_NCCL_SUCCESS;
}

static void copy_text(char *out, size_t cap, const char *text)
{
    snprintf(out, cap, "%s", text != NULL ? text : "");
}

#define TEXT(field, text) copy_text(field, sizeof(field), text)

static void describe_step(struct sl_nccl_event_record *record, int step)
{
    const struct sl_nccl_event_record *op = slot_of((const void *)(uintptr_t)record->parent);

    record->type = SL_NCCL_EVENT_PROXY_STEP;
    record->step.step = step;
    record->step.is_send = op != NULL && op->type == SL_NCCL_EVENT_PROXY_OP && op->proxy.is_send;
}

/* The members that matter have the same names in all versions. */
#define DESCRIBE(record, what)                                                                     \
    (record)->parent = (uint64_t)(uintptr_t)(what)->parent;                                        \
    (record)->rank = (what)->rank;                                                                 \
    switch ((what)->type) {                                                                        \
    case SL_NCCL_PROFILE_COLL:                                                                     \
        (record)->type = SL_NCCL_EVENT_COLL;                                                       \
        (record)->op.seq = (what)->coll.seq;                                                       \
        (record)->op.count = (what)->coll.count;                                                   \
        (record)->op.root = (what)->coll.root;                                                     \
        (record)->op.channels = (what)->coll.channels;                                             \
        TEXT((record)->op.func, (what)->coll.func);                                                \
        TEXT((record)->op.datatype, (what)->coll.datatype);                                        \
        TEXT((record)->op.algo, (what)->coll.algo);                                                \
        TEXT((record)->op.proto, (what)->coll.proto);                                              \
        break;                                                                                     \
    case SL_NCCL_PROFILE_P2P:                                                                      \
        (record)->type = SL_NCCL_EVENT_P2P;                                                        \
        (record)->op.seq =                                                                         \
            atomic_fetch_add_explicit(&shared.p2p_seq[(record)->comm], 1, memory_order_relaxed);   \
        (record)->op.count = (what)->p2p.count;                                                    \
        (record)->op.root = (what)->p2p.peer;                                                      \
        (record)->op.channels = (what)->p2p.channels;                                              \
        TEXT((record)->op.func, (what)->p2p.func);                                                 \
        TEXT((record)->op.datatype, (what)->p2p.datatype);                                         \
        break;                                                                                     \
    case SL_NCCL_PROFILE_PROXY_OP:                                                                 \
        (record)->type = SL_NCCL_EVENT_PROXY_OP;                                                   \
        (record)->proxy.pid = (what)->proxy_op.pid;                                                \
        (record)->proxy.channel = (what)->proxy_op.channel;                                        \
        (record)->proxy.peer = (what)->proxy_op.peer;                                              \
        (record)->proxy.steps = (what)->proxy_op.steps;                                            \
        (record)->proxy.chunk_bytes = (what)->proxy_op.chunk_bytes;                                \
        (record)->proxy.is_send = (what)->proxy_op.is_send;                                        \
        if ((record)->proxy.pid != getpid()) /* a handle of that process means nothing here */     \
            (record)->parent = 0;                                                                  \
        break;                                                                                     \
    case SL_NCCL_PROFILE_PROXY_STEP: describe_step(record, (what)->proxy_step.step); break;        \
    case SL_NCCL_PROFILE_KERNEL_CH:                                                                \
        (record)->type = SL_NCCL_EVENT_KERNEL_CH;                                                  \
        (record)->kernel.channel = (what)->kernel_ch.channel;                                      \
        (record)->kernel.gpu_start_ns = (what)->kernel_ch.gpu_ns;                                  \
        break;                                                                                     \
    default: break;                                                                                \
    }

/* Of a communicator of ours. False: it is none. */
static bool blank(void *ctx, void **event, struct sl_nccl_event_record *record)
{
    unsigned place = (unsigned)((uintptr_t)ctx - 1);

    *event = NULL;
    *record = (struct sl_nccl_event_record){.comm = (uint16_t)place};
    return place < SL_NCCL_EVENTS_COMMS;
}

static result start_v4(void *ctx, void **event, struct sl_nccl_profile_event_v4 *what)
{
    struct sl_nccl_event_record record;

    if (blank(ctx, event, &record)) {
        DESCRIBE(&record, what)
        *event = begin(&record);
    }
    return SL_NCCL_SUCCESS;
}

static void describe(struct sl_nccl_event_record *record,
                     const struct sl_nccl_profile_event_v5 *what)
{
    DESCRIBE(record, what)
}

/* And v6: of what it adds nothing is kept. */
static result start_v5(void *ctx, void **event, struct sl_nccl_profile_event_v5 *what)
{
    struct sl_nccl_event_record record;

    if (blank(ctx, event, &record)) {
        describe(&record, what);
        *event = begin(&record);
    }
    return SL_NCCL_SUCCESS;
}

/* What came with v7. */
static void describe_more(struct sl_nccl_event_record *record,
                          const struct sl_nccl_profile_event_v5 *what)
{
    if (what->type == SL_NCCL_PROFILE_COLL) {
        record->op.tag = what->coll.tag;
        record->op.symmetric = what->coll.symmetric;
    } else if (what->type == SL_NCCL_PROFILE_P2P) {
        record->op.tag = what->p2p.tag;
    } else if (what->type == SL_NCCL_PROFILE_KERNEL_PHASE) {
        record->type = SL_NCCL_EVENT_KERNEL_PHASE;
        record->kernel.channel = what->kernel_phase.channel;
        record->kernel.phase = what->kernel_phase.phase;
        record->kernel.gpu_start_ns = what->kernel_phase.gpu_ns;
    }
}

static result start_v7(void *ctx, void **event, struct sl_nccl_profile_event_v5 *what)
{
    struct sl_nccl_event_record record;

    if (blank(ctx, event, &record)) {
        describe(&record, what);
        describe_more(&record, what);
        *event = begin(&record);
    }
    return SL_NCCL_SUCCESS;
}

static result init_v4(void **ctx, int *mask, const char *comm_name, uint64_t comm_id, int nodes,
                      int ranks, int rank, sl_nccl_logger *logger)
{
    (void)logger; /* the network plugin's own lines go there; the two are loaded together */
    return open_any(ctx, comm_id, mask, comm_name, nodes, ranks, rank);
}

static result init_v5(void **ctx, uint64_t comm_id, int *mask, const char *comm_name, int nodes,
                      int ranks, int rank, sl_nccl_logger *logger)
{
    (void)logger;
    return open_any(ctx, comm_id, mask, comm_name, nodes, ranks, rank);
}

/* Kernels in phases, where kernels are asked for. */
static result init_v7(void **ctx, uint64_t comm_id, int *mask, const char *comm_name, int nodes,
                      int ranks, int rank, sl_nccl_logger *logger)
{
    result rc = init_v5(ctx, comm_id, mask, comm_name, nodes, ranks, rank, logger);

    if ((*mask & SL_NCCL_PROFILE_KERNEL_CH) != 0)
        *mask |= SL_NCCL_PROFILE_KERNEL_PHASE;
    return rc;
}

const char *sl_nccl_profile_path(void)
{
    return shared.path;
}

#define TABLE(version, table, init_fn, start_fn)                                                   \
    extern const struct sl_nccl_profiler_##table ncclProfiler_##version;                           \
    EXPORT const struct sl_nccl_profiler_##table ncclProfiler_##version = {                        \
        .name = NAME,                                                                              \
        .init = init_fn,                                                                           \
        .start = start_fn,                                                                         \
        .stop = stop,                                                                              \
        .state = state,                                                                            \
        .finalize = finalize,                                                                      \
    }

TABLE(v4, v4, init_v4, start_v4);
TABLE(v5, v5, init_v5, start_v5);
TABLE(v6, v5, init_v5, start_v5);
TABLE(v7, v5, init_v7, start_v7);
