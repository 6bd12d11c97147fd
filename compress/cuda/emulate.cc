// SPDX-License-Identifier: Apache-2.0
/* Runs the threads of a block as fibers on one thread of the host; where a test asks for it,
 * several blocks at once, each on a thread of its own. */
#include "compress/cuda/emulate.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define FIBERS_TOLD 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FIBERS_TOLD 1
#endif
#endif
#ifdef FIBERS_TOLD
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>

/* The address sanitizer must know which stack it looks at. */
static void switching(void **mine, const void *to, size_t len)
{
    __sanitizer_start_switch_fiber(mine, to, len);
}
static void switched(void *mine, const void **from, size_t *len)
{
    __sanitizer_finish_switch_fiber(mine, from, len);
}
static void stack_is_new(void *stack, size_t len)
{
    __asan_unpoison_memory_region(stack, len); /* of the last block's thread */
}
#else
static void switching(void **, const void *, size_t)
{
}
static void switched(void *, const void **, size_t *)
{
}
static void stack_is_new(void *, size_t)
{
}
#endif

#define THREADS_MAX 1024
#define WARPS_MAX (THREADS_MAX / 32)
#define AT_ONCE_MAX 160
#define STACK_BYTES ((size_t)64 << 10)

enum waits { RUNS, IN_WARP, IN_BLOCK, DONE };

struct fiber {
    ucontext_t context;
    char *stack;
    enum waits waits;
    unsigned meeting;  /* how often it met its warp */
    uint32_t given[2]; /* by turns: a sibling may still read the last one */
    void *fake_stack;
};

/* Of the block that this thread runs. */
static __thread struct fiber *fibers, *self;
static __thread ucontext_t home;
static __thread void *home_fake_stack;
static __thread const void *home_stack;
static __thread size_t home_stack_bytes;
static __thread unsigned warp_arrived[WARPS_MAX], block_arrived;
static __thread unsigned live; /* threads of the block */
static __thread uint32_t order_seed = 1;
__thread struct sl_emu_id sl_emu_thread, sl_emu_block;

/* Of the grid. */
static sl_emu_kernel running;
static const struct sl_gpu_args *running_args;
static unsigned at_once = 1, next_block, begun, threads_of_block;
struct sl_emu_id sl_emu_grid;
static struct sl_emu_named *kernels;

sl_emu_named::sl_emu_named(const char *name_, sl_emu_kernel kernel_)
    : name(name_), kernel(kernel_), next(kernels)
{
    kernels = this;
}

sl_emu_kernel sl_emu_find(const char *name)
{
    for (const sl_emu_named *k = kernels; k != NULL; k = k->next)
        if (strcmp(k->name, name) == 0)
            return k->kernel;
    return NULL;
}

static void die(const char *what)
{
    fprintf(stderr, "emulated block %u, thread %u: %s\n", sl_emu_block.x, sl_emu_thread.x, what);
    abort();
}

/* ---- changing places ---- */

static void enter(struct fiber *to)
{
    self = to;
    sl_emu_thread.x = (unsigned)(to - fibers);
    switching(&home_fake_stack, to->stack, STACK_BYTES);
    swapcontext(&home, &to->context);
    switched(home_fake_stack, NULL, NULL);
}

static void leave(enum waits why)
{
    struct fiber *me = self;

    me->waits = why;
    switching(why == DONE ? NULL : &me->fake_stack, home_stack, home_stack_bytes);
    swapcontext(&me->context, &home);
    switched(me->fake_stack, &home_stack, &home_stack_bytes);
}

static void fiber_main(void)
{
    switched(NULL, &home_stack, &home_stack_bytes);
    running(running_args);
    leave(DONE);
}

/* ---- meetings ---- */

static unsigned lanes_of(unsigned warp)
{
    return live - warp * 32 < 32 ? live - warp * 32 : 32;
}

/* Returns which of given[] was filled: all lanes have filled it. */
static unsigned meet_warp(uint32_t value)
{
    unsigned warp = sl_emu_thread.x / 32, turn = self->meeting++ & 1;

    self->given[turn] = value;
    if (++warp_arrived[warp] < lanes_of(warp)) {
        leave(IN_WARP);
        return turn;
    }
    warp_arrived[warp] = 0;
    if (at_once > 1)
        sched_yield(); /* whoever it waits for may be on another block */
    for (unsigned i = 0; i < lanes_of(warp); i++) {
        struct fiber *f = &fibers[warp * 32 + i];

        if (f != self && (f->waits != IN_WARP || f->meeting != self->meeting))
            die("the threads of its warp are elsewhere");
        f->waits = RUNS;
    }
    return turn;
}

uint32_t sl_emu_exchange(uint32_t value, unsigned from)
{
    unsigned warp = sl_emu_thread.x / 32 * 32, turn = meet_warp(value);

    return fibers[warp + from].given[turn];
}

uint32_t sl_emu_ballot(int value)
{
    unsigned warp = sl_emu_thread.x / 32, turn = meet_warp(value != 0);
    uint32_t all = 0;

    for (unsigned i = 0; i < lanes_of(warp); i++)
        all |= fibers[warp * 32 + i].given[turn] << i;
    return all;
}

uint32_t sl_emu_warp_max(uint32_t value)
{
    unsigned warp = sl_emu_thread.x / 32, turn = meet_warp(value);
    uint32_t most = 0;

    for (unsigned i = 0; i < lanes_of(warp); i++) {
        uint32_t one = fibers[warp * 32 + i].given[turn];

        most = one > most ? one : most;
    }
    return most;
}

uint32_t sl_emu_warp_sum(uint32_t value)
{
    unsigned warp = sl_emu_thread.x / 32, turn = meet_warp(value);
    uint32_t sum = 0;

    for (unsigned i = 0; i < lanes_of(warp); i++)
        sum += fibers[warp * 32 + i].given[turn];
    return sum;
}

/* The first block waits until others have begun, and some more: they look back further than they
 * can see. */
static void come_late(void)
{
    unsigned others = at_once < sl_emu_grid.x ? at_once : sl_emu_grid.x;

    while (__atomic_load_n(&begun, __ATOMIC_SEQ_CST) < others)
        usleep(1000);
    usleep(20000);
}

void sl_emu_barrier(void)
{
    if (++block_arrived < live) {
        leave(IN_BLOCK);
        return;
    }
    block_arrived = 0;
    if (at_once > 1 && sl_emu_block.x == 0 && self->meeting == 0)
        come_late();
    for (unsigned i = 0; i < live; i++) {
        if (&fibers[i] != self && fibers[i].waits != IN_BLOCK)
            die("a thread of its block is elsewhere");
        fibers[i].waits = RUNS;
    }
}

/* ---- a grid ---- */

static void start(struct fiber *f)
{
    if (f->stack == NULL) {
        f->stack = (char *)mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
        if (f->stack == MAP_FAILED)
            die("there is no memory for its stack");
    }
    stack_is_new(f->stack, STACK_BYTES);
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = f->stack;
    f->context.uc_stack.ss_size = STACK_BYTES;
    f->context.uc_link = NULL;
    makecontext(&f->context, fiber_main, 0);
    f->waits = RUNS;
    f->meeting = 0;
    f->fake_stack = NULL;
}

static void run_block(unsigned threads)
{
    unsigned done = 0;

    live = threads;
    block_arrived = 0;
    memset(warp_arrived, 0, sizeof(warp_arrived));
    for (unsigned i = 0; i < threads; i++)
        start(&fibers[i]);
    while (done < threads) {
        bool moved = false;
        unsigned from;

        order_seed = order_seed * 1664525 + 1013904223;
        from = (order_seed >> 8) % threads;
        for (unsigned i = 0; i < threads; i++) {
            struct fiber *f =
                &fibers[((order_seed & 1) != 0 ? from + i : from + threads - i) % threads];

            if (f->waits != RUNS)
                continue;
            moved = true;
            enter(f);
            done += f->waits == DONE;
        }
        if (!moved)
            die("all wait for threads that have ended");
    }
}

static void run_blocks(void)
{
    unsigned b;

    if (fibers == NULL)
        fibers = (struct fiber *)calloc(THREADS_MAX, sizeof(*fibers));
    if (fibers == NULL)
        die("there is no memory for its threads");
    while ((b = __atomic_fetch_add(&next_block, 1, __ATOMIC_SEQ_CST)) < sl_emu_grid.x) {
        sl_emu_block.x = b;
        order_seed += b;
        __atomic_fetch_add(&begun, 1, __ATOMIC_SEQ_CST);
        run_block(threads_of_block);
    }
}

static void *other_main(void *)
{
    run_blocks();
    for (unsigned i = 0; i < THREADS_MAX; i++)
        if (fibers[i].stack != NULL)
            munmap(fibers[i].stack, STACK_BYTES);
    free(fibers);
    return NULL;
}

void sl_emu_at_once(unsigned blocks)
{
    at_once = blocks == 0 ? 1 : blocks > AT_ONCE_MAX ? AT_ONCE_MAX : blocks;
}

void sl_emu_run(sl_emu_kernel kernel, unsigned blocks, unsigned threads,
                const struct sl_gpu_args *args)
{
    pthread_t others[AT_ONCE_MAX];
    unsigned count = at_once < blocks ? at_once : blocks;

    if (threads == 0 || threads > THREADS_MAX)
        die("no such number of threads");
    running = kernel;
    running_args = args;
    sl_emu_grid.x = blocks;
    threads_of_block = threads;
    next_block = begun = 0;
    for (unsigned i = 1; i < count; i++)
        if (pthread_create(&others[i], NULL, other_main, NULL) != 0)
            die("there is no thread for it");
    run_blocks();
    for (unsigned i = 1; i < count; i++)
        pthread_join(others[i], NULL);
}
