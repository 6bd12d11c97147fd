/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the state page of this process, hands out its records and takes it away at the end. */
#include "core/state_page.h"

#include "core/err.h"
#include "core/fork.h"
#include "core/seqlock.h"
#include "core/state_file.h"

#include <sluice/types.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SECTIONS 9
#define PATHS_STEP 64 /* records of paths that get their memory together */

struct page {
    struct sl_state_header header;
    struct sl_state_section sections[SECTIONS];
    struct sl_state_process process;
    _Alignas(64) struct sl_state_comm comms[SL_STATE_COMMS];
    struct sl_state_op ops[SL_STATE_OPS];
    struct sl_state_shape shapes[SL_STATE_SHAPES];
    struct sl_state_error errors[SL_STATE_ERRORS];
    struct sl_event_ring events;
    struct sl_state_call calls[SL_STATE_CALLS];
    /* The last, a hole in the file until they are taken: a process with many peers has thousands of
     * paths, and one with shared memory alone has none. The table's count says how far there is
     * memory. */
    struct sl_state_path paths[SL_STATE_PATHS_MAX];
};

/* The taken records: private, so that no other process can change it. */
static _Atomic bool comms_taken[SL_STATE_COMMS], ops_taken[SL_STATE_OPS],
    paths_taken[SL_STATE_PATHS_MAX], shapes_taken[SL_STATE_SHAPES], errors_taken[SL_STATE_ERRORS];

static const struct table {
    size_t offset, record_bytes;
    size_t put_bytes; /* what sl_state_put() writes, from the record's begin on */
    int count;
    _Atomic bool *taken; /* NULL: it has one owner */
} tables[] = {
#define ROWS(field, type) offsetof(struct page, field), sizeof(struct type)
    [SL_STATE_PROCESS] = {ROWS(process, sl_state_process), sizeof(struct sl_state_process), 1,
                          NULL},
    [SL_STATE_COMM] = {ROWS(comms, sl_state_comm), offsetof(struct sl_state_comm, calls),
                       SL_STATE_COMMS, comms_taken},
    [SL_STATE_OP] = {ROWS(ops, sl_state_op), sizeof(struct sl_state_op), SL_STATE_OPS, ops_taken},
    [SL_STATE_PATH] = {ROWS(paths, sl_state_path), sizeof(struct sl_state_path), SL_STATE_PATHS_MAX,
                       paths_taken},
    [SL_STATE_SHAPE] = {ROWS(shapes, sl_state_shape), sizeof(struct sl_state_shape),
                        SL_STATE_SHAPES, shapes_taken},
    [SL_STATE_EVENT] = {ROWS(events.slots, sl_event_record), 0, SL_EVENT_RING, NULL},
    [SL_STATE_EVENT_ROW] = {ROWS(events.rows, sl_event_row), 0, SL_EVENT_KINDS_MAX, NULL},
    [SL_STATE_ERROR] = {ROWS(errors, sl_state_error), sizeof(struct sl_state_error),
                        SL_STATE_ERRORS, errors_taken},
    [SL_STATE_CALL] = {ROWS(calls, sl_state_call), sizeof(struct sl_state_call), SL_STATE_CALLS,
                       NULL},
#undef ROWS
};

_Static_assert(SL_ARRAY_LEN(tables) == SECTIONS + 1, "a section for each kind");
_Static_assert(SL_STATE_PATHS_MAX % PATHS_STEP == 0, "the last step ends with the page");

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct page *_Atomic page;
static struct sl_state_process self; /* as it stands on the page */
static struct sl_state_file file = {.fd = -1};
static _Atomic int paths_backed; /* as the table counts them */
static _Atomic uint64_t calls_added;

static struct page *now(void)
{
    return atomic_load_explicit(&page, memory_order_acquire);
}

static void *record_at(struct page *at, enum sl_state_kind kind, int place)
{
    return (char *)at + tables[kind].offset + (size_t)place * tables[kind].record_bytes;
}

/* ---- the process ---- */

/* Field 22 of /proc/self/stat, behind a name that may hold anything. */
static uint64_t start_ticks(void)
{
    char text[1024], *at;
    FILE *in = fopen("/proc/self/stat", "re");
    size_t len = in != NULL ? fread(text, 1, sizeof(text) - 1, in) : 0;

    if (in != NULL)
        fclose(in);
    text[len] = '\0';
    at = strrchr(text, ')');
    for (int field = 2; at != NULL && field < 22; field++)
        at = strchr(at + 1, ' ');
    return at != NULL ? strtoull(at, NULL, 10) : 0;
}

void sl_state_describe(const char *job, int rank, int size, struct sl_state_process *out)
{
    struct stat space = {0};

    *out = (struct sl_state_process){.pid = (int32_t)getpid(),
                                     .uid = geteuid(),
                                     .start_ticks = start_ticks(),
                                     .made_ns = sl_now(&sl_clock_monotonic),
                                     .made_wall_s = sl_wall_s(),
                                     .life = sl_fork_life(),
                                     .rank = rank,
                                     .size = size};
    if (stat("/proc/self/ns/pid", &space) == 0)
        out->pid_space = space.st_ino;
    if (gethostname(out->host, sizeof(out->host) - 1) != 0)
        out->host[0] = '\0';
    snprintf(out->program, sizeof(out->program), "%s", program_invocation_short_name);
    snprintf(out->version, sizeof(out->version), "%d.%d.%d", SLUICE_VERSION_MAJOR,
             SLUICE_VERSION_MINOR, SLUICE_VERSION_PATCH);
    snprintf(out->job, sizeof(out->job), "%.*s", (int)sizeof(out->job) - 1, job);
}

/* ---- making it ---- */

/* In a child: the page is its parent's, and not mapped. */
static void forget(void)
{
    atomic_store(&page, NULL);
    file = (struct sl_state_file){.fd = -1};
    atomic_store(&paths_backed, 0);
    atomic_store(&calls_added, 0);
    for (unsigned kind = 1; kind <= SECTIONS; kind++)
        for (int i = 0; tables[kind].taken != NULL && i < tables[kind].count; i++)
            atomic_store(&tables[kind].taken[i], false);
    pthread_mutex_init(&lock, NULL);
}

static void fill(struct page *fresh)
{
    fresh->header = (struct sl_state_header){.version = SL_STATE_VERSION,
                                             .header_bytes = sizeof(fresh->header),
                                             .section_bytes = sizeof(fresh->sections[0]),
                                             .section_count = SECTIONS,
                                             .file_bytes = sizeof(*fresh)};
    memcpy(fresh->header.magic, SL_STATE_MAGIC, sizeof(fresh->header.magic));
    for (uint32_t kind = 1; kind <= SECTIONS; kind++)
        fresh->sections[kind - 1] =
            (struct sl_state_section){.kind = kind,
                                      .record_bytes = (uint32_t)tables[kind].record_bytes,
                                      .count = (uint32_t)tables[kind].count,
                                      .offset = tables[kind].offset};
    fresh->sections[SL_STATE_PATH - 1].count = 0;
    sl_event_ring_init(&fresh->events);
}

static void make(const struct sl_config *config, int rank, int size)
{
    struct page *fresh;

    if (sl_state_file_open(sizeof(*fresh), offsetof(struct page, paths), &file) != 0)
        return;
    fresh = mmap(NULL, sizeof(*fresh), PROT_READ | PROT_WRITE, MAP_SHARED, file.fd, 0);
    if (fresh == MAP_FAILED) {
        sl_state_file_close(&file, false);
        return;
    }
    sl_fork_hides(fresh, sizeof(*fresh));
    sl_fork_closes(file.fd);
    sl_fork_on_child(forget);
    sl_state_describe(config->job, rank, size, &self);
    fill(fresh);
    atomic_store_explicit(&page, fresh, memory_order_release);
    sl_state_put(SL_STATE_PROCESS, 0, &self);
    sl_state_file_publish(&file);
    sl_state_file_clean_sometimes();
}

void sl_state_open(const struct sl_config *config, int rank, int size)
{
    if (config->state == SL_PUBLISH_OFF)
        return;
    pthread_mutex_lock(&lock);
    if (now() == NULL)
        make(config, rank, size);
    if (now() != NULL && config->state == SL_PUBLISH_KEEP && (self.flags & SL_STATE_KEPT) == 0) {
        self.flags |= SL_STATE_KEPT;
        sl_state_put(SL_STATE_PROCESS, 0, &self);
    }
    pthread_mutex_unlock(&lock);
}

/* At exit, and before this shared object is unmapped. Not in a child that a bare clone() made.
 * The page stays mapped: other threads may still be at it. */
static void __attribute__((destructor)) leave(void)
{
    if (now() == NULL || !sl_fork_same(self.life) || self.pid != (int32_t)getpid())
        return;
    self.flags |= SL_STATE_ENDED;
    sl_state_put(SL_STATE_PROCESS, 0, &self);
    sl_state_file_close(&file, (self.flags & SL_STATE_KEPT) != 0);
}

/* ---- records ---- */

/* More records of paths than these. The file has its size already, so a reader that opened it
 * before finds the table as sound as one that comes later. */
static bool back_paths(struct page *at, int had)
{
    bool more = true;

    pthread_mutex_lock(&lock);
    if (atomic_load(&paths_backed) == had) {
        more = had < SL_STATE_PATHS_MAX &&
               sl_state_file_back(&file,
                                  offsetof(struct page, paths) + (size_t)had * sizeof(at->paths[0]),
                                  PATHS_STEP * sizeof(at->paths[0]));
        if (more) {
            atomic_store(&paths_backed, had + PATHS_STEP);
            __atomic_store_n(&at->sections[SL_STATE_PATH - 1].count, (uint32_t)(had + PATHS_STEP),
                             __ATOMIC_RELEASE);
        }
    }
    pthread_mutex_unlock(&lock);
    return more;
}

int sl_state_take(enum sl_state_kind kind)
{
    const struct table *table = &tables[kind];
    struct page *at = now();
    int count;

    if (at == NULL)
        return -1;
    do {
        count = kind == SL_STATE_PATH ? atomic_load(&paths_backed) : table->count;
        for (int i = 0; i < count; i++) {
            bool no = false;

            if (!atomic_load_explicit(&table->taken[i], memory_order_relaxed) &&
                atomic_compare_exchange_strong(&table->taken[i], &no, true))
                return i;
        }
    } while (kind == SL_STATE_PATH && back_paths(at, count));
    return -1;
}

void sl_state_left_out(enum sl_state_kind kind, int more)
{
    struct page *at = now();

    if (at != NULL)
        atomic_fetch_add_explicit(&at->sections[kind - 1].left_out, (uint64_t)(int64_t)more,
                                  memory_order_relaxed);
}

/* From the second word on, word by word: a reader in this process may be at it too. */
static void write_words(void *record, const void *words, size_t bytes)
{
    _Atomic uint64_t *turn = record;
    uint64_t *out = record;
    const uint64_t *in = words;

    sl_seq_write_begin(turn);
    for (size_t i = 1; i < bytes / sizeof(*out); i++)
        __atomic_store_n(&out[i], in[i], __ATOMIC_RELAXED);
    sl_seq_write_end(turn);
}

void sl_state_put(enum sl_state_kind kind, int place, const void *record)
{
    struct page *at = now();

    if (at != NULL)
        write_words(record_at(at, kind, place), record, tables[kind].put_bytes);
}

void sl_state_give(enum sl_state_kind kind, int place)
{
    static const uint64_t nobody[2];
    struct page *at = now();

    if (at == NULL || place < 0)
        return;
    write_words(record_at(at, kind, place), nobody, sizeof(nobody));
    atomic_store_explicit(&tables[kind].taken[place], false, memory_order_release);
}

/* The record is this thread's while its turn is odd. Where another thread, a lap behind or ahead,
 * has it, the call is not told. */
void sl_state_add_call(const struct sl_state_call *call)
{
    struct page *at = now();
    uint64_t number = atomic_fetch_add_explicit(&calls_added, 1, memory_order_relaxed), turn;
    const uint64_t *in = (const uint64_t *)call;
    _Atomic uint64_t *out;

    if (at == NULL)
        return;
    out = (_Atomic uint64_t *)&at->calls[number % SL_STATE_CALLS];
    turn = atomic_load_explicit(out, memory_order_relaxed);
    if (turn % 2 != 0 || turn > 2 * number ||
        !atomic_compare_exchange_strong_explicit(out, &turn, 2 * number + 1, memory_order_acquire,
                                                 memory_order_relaxed))
        return;
    atomic_thread_fence(memory_order_release);
    for (size_t i = 1; i < sizeof(*call) / sizeof(*in); i++)
        atomic_store_explicit(&out[i], in[i], memory_order_relaxed);
    atomic_store_explicit(out, 2 * number + 2, memory_order_release);
}

struct sl_state_comm *sl_state_comm_at(int place)
{
    return &now()->comms[place];
}

uint64_t sl_state_number(void)
{
    uint64_t number;

    pthread_mutex_lock(&lock);
    number = ++self.comms_made;
    sl_state_put(SL_STATE_PROCESS, 0, &self);
    pthread_mutex_unlock(&lock);
    return number;
}

struct sl_event_ring *sl_state_events(void)
{
    struct page *at = now();

    return at != NULL ? &at->events : NULL;
}

const void *sl_state_memory(size_t *bytes)
{
    *bytes = sizeof(struct page);
    return now();
}
