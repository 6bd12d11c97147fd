/* SPDX-License-Identifier: Apache-2.0 */
/* The machine with weak memory: see machine.h. */
#include "tests/model/machine.h"

#include "core/err.h"
#include "core/rng.h"

#include <linux/membarrier.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>

#define THREADS 4          /* thread 0 is the story's begin and end */
#define PLACES 160         /* atomic locations of an execution */
#define STORES 96          /* ... and stores to one */
#define CHOICES 2000       /* of an execution */
#define STEPS_PER_SWITCH 6 /* on average, where executions are drawn by chance */
#define STACK_BYTES (64u << 10)
#define TURN_STEPS 24  /* a thread that spins gives way */
#define STEPS_MAX 2000 /* ... and one that spins for ever is a failure */
#define STALE_MAX                                                                                  \
    4 /* so often a thread may see other than the last store to a place: in the end it shows */

/* What a thread may still see, and what has happened before it. */
struct view {
    uint16_t oldest[PLACES]; /* store of each place */
    uint16_t clock[THREADS]; /* what each thread had done */
};

struct store {
    uint64_t value;
    struct view carried;
};

struct place {
    uintptr_t addr; /* 0: overwritten by a plain store, so no place any more */
    unsigned size, count;
};

struct fiber {
    ucontext_t context;
    struct view now;       /* its view */
    struct view fenced;    /* what relaxed stores carry: the view at the last release fence */
    struct view pending;   /* what an acquire fence takes over: carried by what relaxed loads saw */
    uint8_t stale[PLACES]; /* loads that returned other than the last store */
    bool ended;
};

/* Who accessed a byte of shared memory last, by clock; 0: nobody. */
struct shadow {
    uint16_t read[THREADS], write[THREADS], atomic_read[THREADS], atomic_write[THREADS];
};

uint8_t model_shared[MODEL_SHARED_BYTES] __attribute__((aligned(128)));
char model_why[256];
unsigned model_wakes;

static struct place places[PLACES];
static struct store stores[PLACES][STORES];
static unsigned place_count;
static struct shadow shadows[MODEL_SHARED_BYTES];
static unsigned shadow_end; /* bytes of it that were used */
static struct fiber fibers[THREADS];
static char stacks[THREADS][STACK_BYTES] __attribute__((aligned(64)));
static ucontext_t outside;
static struct view total; /* of sequentially consistent accesses and fences */
static unsigned running, turn_steps, steps, switches_left;
static bool inside; /* an execution is under way: accesses count */
static void (*const *bodies)(void);

/* Choices: the way through the tree of executions. */
static struct {
    uint16_t taken, of;
} trail[CHOICES];
static unsigned trail_at, trail_len;
static bool by_chance;
static struct sl_rng rng;

void model_fail(const char *format, ...)
{
    va_list args;

    if (model_why[0] != '\0')
        return;
    va_start(args, format);
    vsnprintf(model_why, sizeof(model_why), format, args);
    va_end(args);
}

static unsigned choose(unsigned of)
{
    if (of < 2)
        return 0;
    if (by_chance)
        return (unsigned)sl_rng_below(&rng, of);
    sl_assert(trail_at < CHOICES);
    if (trail_at == trail_len) {
        trail[trail_len].taken = 0;
        trail[trail_len++].of = (uint16_t)of;
    }
    return trail[trail_at++].taken;
}

/* The next way through the tree; false: that was the last. */
static bool next_trail(void)
{
    while (trail_len > 0 && trail[trail_len - 1].taken + 1 == trail[trail_len - 1].of)
        trail_len--;
    if (trail_len == 0)
        return false;
    trail[trail_len - 1].taken++;
    return true;
}

/* ---- views ---- */

static void join_stores(struct view *to, const struct view *from)
{
    for (unsigned i = 0; i < place_count; i++)
        if (to->oldest[i] < from->oldest[i])
            to->oldest[i] = from->oldest[i];
}

static void join(struct view *to, const struct view *from)
{
    join_stores(to, from);
    for (unsigned i = 0; i < THREADS; i++)
        if (to->clock[i] < from->clock[i])
            to->clock[i] = from->clock[i];
}

/* ---- turns ---- */

static void switch_to(unsigned next)
{
    unsigned before = running;

    running = next;
    turn_steps = 0;
    if (next != before)
        swapcontext(&fibers[before].context, &fibers[next].context);
}

static unsigned others(unsigned out[THREADS])
{
    unsigned count = 0;

    for (unsigned i = 1; i < THREADS; i++) {
        unsigned t = 1 + (running - 1 + i) % (THREADS - 1);

        if (t != running && bodies[t - 1] != NULL && !fibers[t].ended)
            out[count++] = t;
    }
    return count;
}

/* Before each step: maybe it is another thread's turn. */
static void step(void)
{
    unsigned other[THREADS], count, pick;

    if (running == 0)
        return;
    if (++steps > STEPS_MAX) {
        model_fail("a thread waits for ever");
        setcontext(&outside);
    }
    count = others(other);
    if (count == 0)
        return;
    if (++turn_steps > TURN_STEPS) {
        switch_to(other[0]);
    } else if (switches_left > 0) {
        /* By chance not at once, or all switches would be among the first steps. */
        pick = by_chance && sl_rng_below(&rng, STEPS_PER_SWITCH) != 0 ? 0 : choose(count + 1);
        if (pick > 0) {
            switches_left--;
            switch_to(other[pick - 1]);
        }
    }
}

int model_yield(void)
{
    unsigned other[THREADS];

    if (inside && running != 0 && others(other) > 0)
        switch_to(other[0]);
    return 0;
}

static void live(unsigned self)
{
    unsigned other[THREADS], count;

    step();
    bodies[self - 1]();
    fibers[self].ended = true;
    count = others(other);
    if (count == 0)
        setcontext(&outside);
    running = other[choose(count)];
    turn_steps = 0;
    setcontext(&fibers[running].context);
}

/* ---- plain memory ---- */

static void race(const char *what, uintptr_t addr, unsigned other)
{
    model_fail("data race: thread %u's %s of byte %zu of the shared memory is not ordered after "
               "thread %u's",
               running, what, (size_t)(addr - (uintptr_t)model_shared), other);
}

enum kind { READ, WRITE, ATOMIC_READ, ATOMIC_WRITE };

static void watch_byte(struct shadow *s, enum kind kind, uintptr_t addr)
{
    static const char *const names[] = {"read", "write", "atomic read", "atomic write"};
    struct view *now = &fibers[running].now;
    uint16_t *mine = kind == READ          ? s->read
                     : kind == WRITE       ? s->write
                     : kind == ATOMIC_READ ? s->atomic_read
                                           : s->atomic_write;

    for (unsigned t = 0; t < THREADS; t++) {
        bool unordered = s->write[t] > now->clock[t];

        if (kind == READ || kind == WRITE)
            unordered |= s->atomic_write[t] > now->clock[t];
        if (kind == WRITE || kind == ATOMIC_WRITE)
            unordered |= s->read[t] > now->clock[t];
        if (kind == WRITE)
            unordered |= s->atomic_read[t] > now->clock[t];
        if (t != running && unordered)
            race(names[kind], addr, t);
    }
    mine[running] = now->clock[running];
}

static void watch(const volatile void *p, size_t len, enum kind kind)
{
    uintptr_t addr = (uintptr_t)p, base = (uintptr_t)model_shared;

    if (!inside || addr < base || addr >= base + MODEL_SHARED_BYTES)
        return;
    for (size_t i = 0; i < len; i++)
        watch_byte(&shadows[addr - base + i], kind, addr + i);
    if (addr - base + len > shadow_end)
        shadow_end = (unsigned)(addr - base + len);
}

/* A plain store ends the history of what it covers: whoever reads it then must be ordered after
 * it. */
static void forget_places(uintptr_t addr, size_t len)
{
    for (unsigned i = 0; i < place_count; i++)
        if (places[i].addr != 0 && places[i].addr < addr + len &&
            addr < places[i].addr + places[i].size)
            places[i].addr = 0;
}

static void plain(const volatile void *p, size_t len, bool write)
{
    if (!inside)
        return;
    watch(p, len, write ? WRITE : READ);
    if (write)
        forget_places((uintptr_t)p, len);
}

void *model_memcpy(void *dst, const void *src, size_t len)
{
    plain(src, len, false);
    plain(dst, len, true);
    return memcpy(dst, src, len);
}

/* ---- atomic memory ---- */

static uint64_t memory_read(const volatile void *p, unsigned size)
{
    uint64_t value = 0;

    memcpy(&value, (const void *)(uintptr_t)p, size);
    return value;
}

static struct place *find_place(const volatile void *p)
{
    for (unsigned i = 0; i < place_count; i++)
        if (places[i].addr == (uintptr_t)p)
            return &places[i];
    return NULL;
}

/* What was there before all stores. */
static struct place *make_place(const volatile void *p, unsigned size)
{
    struct place *place = find_place(p);

    if (place != NULL)
        return place;
    sl_assert(place_count < PLACES);
    place = &places[place_count++];
    *place = (struct place){(uintptr_t)p, size, 1};
    memset(&stores[place - places][0], 0, sizeof(struct store));
    stores[place - places][0].value = memory_read(p, size);
    return place;
}

static bool acquires(int order)
{
    return order == memory_order_acquire || order == memory_order_acq_rel ||
           order == memory_order_seq_cst || order == memory_order_consume;
}

static bool releases(int order)
{
    return order == memory_order_release || order == memory_order_acq_rel ||
           order == memory_order_seq_cst;
}

static uint64_t see(struct place *place, unsigned index, int order)
{
    unsigned at = (unsigned)(place - places);
    struct fiber *self = &fibers[running];

    self->now.oldest[at] = (uint16_t)index;
    join(acquires(order) ? &self->now : &self->pending, &stores[at][index].carried);
    return stores[at][index].value;
}

static uint64_t load(const volatile void *p, unsigned size, int order)
{
    struct place *place;
    unsigned at, oldest, back;

    if (!inside)
        return memory_read(p, size);
    step();
    watch(p, size, ATOMIC_READ);
    place = find_place(p);
    if (place == NULL)
        return memory_read(p, size);
    at = (unsigned)(place - places);
    oldest = fibers[running].now.oldest[at];
    if (order == memory_order_seq_cst && oldest < total.oldest[at])
        oldest = total.oldest[at];
    if (fibers[running].stale[at] == STALE_MAX)
        oldest = place->count - 1;
    back = choose(place->count - oldest);
    fibers[running].stale[at] += back > 0;
    return see(place, place->count - 1 - back, order);
}

/* After the last store there is, which is what carries on a release sequence. */
static void append(struct place *place, uint64_t value, int order, bool modifies)
{
    unsigned at = (unsigned)(place - places);
    struct fiber *self = &fibers[running];
    struct store *s = &stores[at][place->count];

    sl_assert(place->count < STORES);
    self->now.oldest[at] = (uint16_t)place->count;
    s->value = value;
    s->carried = releases(order) ? self->now : self->fenced;
    s->carried.oldest[at] = (uint16_t)place->count;
    if (modifies)
        join(&s->carried, &stores[at][place->count - 1].carried);
    if (order == memory_order_seq_cst)
        total.oldest[at] = (uint16_t)place->count;
    place->count++;
    self->now.clock[running]++;
}

static void store(volatile void *p, unsigned size, uint64_t value, int order)
{
    if (inside) {
        step();
        watch(p, size, ATOMIC_WRITE);
        append(make_place(p, size), value, order, false);
    }
    memcpy((void *)(uintptr_t)p, &value, size);
}

/* Reads the last store; change: writes value after it. */
static uint64_t modify_begin(volatile void *p, unsigned size, int order)
{
    struct place *place;

    if (!inside)
        return memory_read(p, size);
    step();
    watch(p, size, ATOMIC_READ);
    watch(p, size, ATOMIC_WRITE);
    place = make_place(p, size);
    return see(place, place->count - 1, order);
}

static void modify_end(volatile void *p, unsigned size, uint64_t value, int order)
{
    if (inside)
        append(make_place(p, size), value, order, true);
    memcpy((void *)(uintptr_t)p, &value, size);
}

static void fence_of(struct fiber *f, int order)
{
    if (acquires(order))
        join(&f->now, &f->pending);
    if (order == memory_order_seq_cst) {
        join_stores(&f->now, &total);
        join_stores(&total, &f->now);
    }
    if (releases(order))
        f->fenced = f->now;
}

static void fence(int order)
{
    if (!inside)
        return;
    step();
    fence_of(&fibers[running], order);
    fibers[running].now.clock[running]++;
}

long model_syscall(long number, ...)
{
    va_list args;
    int command;

    va_start(args, number);
    command = va_arg(args, int);
    va_end(args);
    sl_assert(number == SYS_membarrier);
    if (command != MEMBARRIER_CMD_GLOBAL_EXPEDITED)
        return 0;
    step();
    for (unsigned i = 0; i < 2 * THREADS; i++)
        fence_of(&fibers[i % THREADS], memory_order_seq_cst);
    return 0;
}

int model_eventfd_write(int fd, uint64_t value)
{
    (void)fd, (void)value;
    model_wakes++;
    return 0;
}

void model_copy_words(void *dst, const void *src, size_t len)
{
    uintptr_t base = (uintptr_t)model_shared;
    bool to_shared = (uintptr_t)dst - base < MODEL_SHARED_BYTES;

    for (size_t at = 0; at < len; at += 8) {
        uint64_t word;

        if (to_shared) {
            memcpy(&word, (const char *)src + at, 8);
            store((char *)dst + at, 8, word, memory_order_relaxed);
        } else {
            word = load((const char *)src + at, 8, memory_order_relaxed);
            memcpy((char *)dst + at, &word, 8);
        }
    }
}

/* ---- executions ---- */

static void reset(unsigned switches)
{
    memset(model_shared, 0, sizeof(model_shared));
    memset(shadows, 0, shadow_end * sizeof(shadows[0]));
    memset(&total, 0, sizeof(total));
    for (unsigned i = 0; i < THREADS; i++) {
        memset(&fibers[i].now, 0, sizeof(struct view));
        memset(&fibers[i].fenced, 0, sizeof(struct view));
        memset(&fibers[i].pending, 0, sizeof(struct view));
        fibers[i].now.clock[i] = 1;
        memset(fibers[i].stale, 0, sizeof(fibers[i].stale));
        fibers[i].ended = false;
    }
    shadow_end = place_count = running = turn_steps = steps = 0;
    switches_left = switches;
    trail_at = 0;
    model_wakes = 0;
}

static void run_threads(void)
{
    volatile bool back = false;

    for (unsigned t = 1; t < THREADS; t++) {
        getcontext(&fibers[t].context);
        fibers[t].context.uc_stack.ss_sp = stacks[t];
        fibers[t].context.uc_stack.ss_size = STACK_BYTES;
        fibers[t].context.uc_link = NULL;
        makecontext(&fibers[t].context, (void (*)(void))live, 1, t);
        fibers[t].now = fibers[0].now;
        fibers[t].now.clock[t] = 1;
    }
    getcontext(&outside);
    if (!back) {
        back = true;
        running = 1;
        setcontext(&fibers[1].context);
    }
    /* All that threads did is behind the end. */
    running = 0;
    for (unsigned t = 1; t < THREADS; t++)
        join(&fibers[0].now, &fibers[t].now);
}

static void execute(const struct model_story *story, unsigned switches)
{
    reset(switches);
    bodies = story->thread;
    inside = true;
    story->begin();
    fibers[0].now.clock[0]++;
    run_threads();
    if (story->end != NULL && model_why[0] == '\0')
        story->end();
    inside = false;
}

long model_run(const struct model_story *story, unsigned switches, long limit)
{
    long count = 0;

    model_why[0] = '\0';
    trail_len = 0;
    by_chance = false;
    sl_rng_init(&rng, 1);
    do {
        execute(story, switches);
        count++;
        if (model_why[0] != '\0')
            return -count;
        by_chance = by_chance || count > limit / 2;
    } while (count < limit && (by_chance || next_trail()));
    return count;
}

/* ---- what the compiler calls ---- */

#define PLAIN(size)                                                                                \
    void __tsan_read##size(void *p);                                                               \
    void __tsan_read##size(void *p)                                                                \
    {                                                                                              \
        plain(p, size, false);                                                                     \
    }                                                                                              \
    void __tsan_write##size(void *p);                                                              \
    void __tsan_write##size(void *p)                                                               \
    {                                                                                              \
        plain(p, size, true);                                                                      \
    }                                                                                              \
    void __tsan_unaligned_read##size(void *p);                                                     \
    void __tsan_unaligned_read##size(void *p)                                                      \
    {                                                                                              \
        plain(p, size, false);                                                                     \
    }                                                                                              \
    void __tsan_unaligned_write##size(void *p);                                                    \
    void __tsan_unaligned_write##size(void *p)                                                     \
    {                                                                                              \
        plain(p, size, true);                                                                      \
    }
PLAIN(1)
PLAIN(2)
PLAIN(4)
PLAIN(8)
PLAIN(16)

void __tsan_read_range(void *p, size_t len);
void __tsan_read_range(void *p, size_t len)
{
    plain(p, len, false);
}

void __tsan_write_range(void *p, size_t len);
void __tsan_write_range(void *p, size_t len)
{
    plain(p, len, true);
}

void __tsan_init(void);
void __tsan_init(void)
{
}

void __tsan_func_entry(void *pc);
void __tsan_func_entry(void *pc)
{
    (void)pc;
}

void __tsan_func_exit(void *pc);
void __tsan_func_exit(void *pc)
{
    (void)pc;
}

#define MODIFY(bits, name, result)                                                                 \
    uint##bits##_t __tsan_atomic##bits##_##name(volatile uint##bits##_t *p, uint##bits##_t value,  \
                                                int order);                                        \
    uint##bits##_t __tsan_atomic##bits##_##name(volatile uint##bits##_t *p, uint##bits##_t value,  \
                                                int order)                                         \
    {                                                                                              \
        uint##bits##_t old = (uint##bits##_t)modify_begin(p, bits / 8, order);                     \
                                                                                                   \
        modify_end(p, bits / 8, (uint##bits##_t)(result), order);                                  \
        return old;                                                                                \
    }

#define ATOMIC(bits)                                                                               \
    uint##bits##_t __tsan_atomic##bits##_load(const volatile uint##bits##_t *p, int order);        \
    uint##bits##_t __tsan_atomic##bits##_load(const volatile uint##bits##_t *p, int order)         \
    {                                                                                              \
        return (uint##bits##_t)load(p, bits / 8, order);                                           \
    }                                                                                              \
    void __tsan_atomic##bits##_store(volatile uint##bits##_t *p, uint##bits##_t value, int order); \
    void __tsan_atomic##bits##_store(volatile uint##bits##_t *p, uint##bits##_t value, int order)  \
    {                                                                                              \
        store(p, bits / 8, value, order);                                                          \
    }                                                                                              \
    int __tsan_atomic##bits##_compare_exchange_strong(volatile uint##bits##_t *p,                  \
                                                      uint##bits##_t *expected,                    \
                                                      uint##bits##_t value, int order, int fail);  \
    int __tsan_atomic##bits##_compare_exchange_strong(volatile uint##bits##_t *p,                  \
                                                      uint##bits##_t *expected,                    \
                                                      uint##bits##_t value, int order, int fail)   \
    {                                                                                              \
        uint##bits##_t old = (uint##bits##_t)modify_begin(p, bits / 8, order);                     \
                                                                                                   \
        (void)fail;                                                                                \
        if (old != *expected) {                                                                    \
            *expected = old;                                                                       \
            return 0;                                                                              \
        }                                                                                          \
        modify_end(p, bits / 8, value, order);                                                     \
        return 1;                                                                                  \
    }                                                                                              \
    MODIFY(bits, exchange, value)                                                                  \
    MODIFY(bits, fetch_add, old + value)                                                           \
    MODIFY(bits, fetch_sub, old - value)
ATOMIC(8)
ATOMIC(16)
ATOMIC(32)
ATOMIC(64)

void __tsan_atomic_thread_fence(int order);
void __tsan_atomic_thread_fence(int order)
{
    fence(order);
}

void __tsan_atomic_signal_fence(int order);
void __tsan_atomic_signal_fence(int order)
{
    (void)order;
}
