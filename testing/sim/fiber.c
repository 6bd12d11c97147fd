/* SPDX-License-Identifier: Apache-2.0 */
/* A stack of its own for the code of each simulated rank, so that blocking code can give others a
 * turn. */
#include "testing/sim/net.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

#define STACK_BYTES (512u << 10)
#define GUARD_BYTES 4096u

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define switch_begin(save, bottom, size) __sanitizer_start_switch_fiber(save, bottom, size)
#define switch_end(save, bottom, size) __sanitizer_finish_switch_fiber(save, bottom, size)
#define stack_forget(stack) __asan_unpoison_memory_region(stack, STACK_BYTES)
/* Where a size is told, it forgets at every switch, in two system calls, what it knows of the
 * stack. */
#define stack_hide(context) ((context)->uc_stack.ss_size = 0)
#else
#define switch_begin(save, bottom, size) ((void)(save), (void)(bottom), (void)(size))
#define switch_end(save, bottom, size) ((void)(save), (void)(bottom), (void)(size))
#define stack_forget(stack) ((void)(stack))
#define stack_hide(context) ((void)(context))
#endif

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#define thread_current() __tsan_get_current_fiber()
#define thread_create() __tsan_create_fiber(0)
#define thread_destroy(t) __tsan_destroy_fiber(t)
#define thread_switch(t) __tsan_switch_to_fiber(t, 0)
#else
#define thread_current() NULL
#define thread_create() NULL
#define thread_destroy(t) ((void)(t))
#define thread_switch(t) ((void)(t))
#endif

struct sl_sim_fiber {
    ucontext_t inside, outside;
    void (*main)(void *arg);
    void *arg;
    char *stack;
    void *fake_inside, *fake_outside;     /* the address sanitizer's */
    void *thread_inside, *thread_outside; /* the thread sanitizer's */
    const void *outer_bottom;
    size_t outer_size;
    bool ended;
};

static void trampoline(unsigned high, unsigned low)
{
    struct sl_sim_fiber *f = (struct sl_sim_fiber *)((uintptr_t)high << 32 | low);

    switch_end(NULL, &f->outer_bottom, &f->outer_size);
    f->main(f->arg);
    f->ended = true;
    switch_begin(NULL, f->outer_bottom, f->outer_size);
    thread_switch(f->thread_outside);
    swapcontext(&f->inside, &f->outside);
}

/* Apart, since getcontext() may return twice as far as the compiler knows. */
static void prepare(struct sl_sim_fiber *f)
{
    getcontext(&f->inside);
    f->inside.uc_stack.ss_sp = f->stack;
    f->inside.uc_stack.ss_size = STACK_BYTES;
    f->inside.uc_link = NULL;
    makecontext(&f->inside, (void (*)(void))trampoline, 2, (unsigned)((uintptr_t)f >> 32),
                (unsigned)(uintptr_t)f);
    stack_hide(&f->inside);
}

struct sl_sim_fiber *sl_sim_fiber_create(void (*main)(void *arg), void *arg)
{
    struct sl_sim_fiber *f = calloc(1, sizeof(*f));

    if (f == NULL)
        return NULL;
    f->stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (f->stack == MAP_FAILED) {
        free(f);
        return NULL;
    }
    /* A stack that overflows must stop the run, not change a neighbour. */
    mprotect(f->stack, GUARD_BYTES, PROT_NONE);
    f->main = main;
    f->arg = arg;
    f->thread_inside = thread_create();
    prepare(f);
    return f;
}

void sl_sim_fiber_destroy(struct sl_sim_fiber *f)
{
    if (f == NULL)
        return;
    thread_destroy(f->thread_inside);
    stack_forget(f->stack); /* other memory may come to lie there */
    munmap(f->stack, STACK_BYTES);
    free(f);
}

void sl_sim_fiber_enter(struct sl_sim_fiber *f)
{
    sl_assert(!f->ended);
    f->thread_outside = thread_current();
    switch_begin(&f->fake_outside, f->stack, STACK_BYTES);
    thread_switch(f->thread_inside);
    swapcontext(&f->outside, &f->inside);
    switch_end(f->fake_outside, NULL, NULL);
}

void sl_sim_fiber_leave(struct sl_sim_fiber *f)
{
    switch_begin(&f->fake_inside, f->outer_bottom, f->outer_size);
    thread_switch(f->thread_outside);
    swapcontext(&f->inside, &f->outside);
    switch_end(f->fake_inside, &f->outer_bottom, &f->outer_size);
}
