/* SPDX-License-Identifier: Apache-2.0 */
/* Who does what since when, who failed first, and a word on crashes. */
#include "tools/nccl-driver/watch.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define RETIRED_MOST 256

struct shared *watch_shared;
static _Thread_local struct doing *here;
static _Thread_local int my_rank = -1;
static _Thread_local enum watch_role my_role;
/* The thread's own account: two contexts of a rank share its seat. */
static _Thread_local uint64_t my_since_ns;
static _Thread_local const char *my_call;
static struct {
    uintptr_t start, end;
} retired[RETIRED_MOST];
static atomic_uint retired_count;
static const char *const role_names[ROLES] = {"", ", service thread", ", progress thread"};

uint64_t watch_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void watch_sit(int rank, enum watch_role role)
{
    my_rank = rank;
    my_role = role;
    here = &watch_shared->seats[rank].doing[role];
    watch_about(-1, -1);
}

void watch_about(int comm, long message)
{
    atomic_store_explicit(&here->comm, comm, memory_order_relaxed);
    atomic_store_explicit(&here->message, message, memory_order_relaxed);
}

static void begin(const char *call, int is_wait)
{
    my_since_ns = watch_now();
    my_call = call;
    atomic_store_explicit(&here->since_ns, my_since_ns, memory_order_relaxed);
    atomic_store_explicit(&here->is_wait, is_wait, memory_order_relaxed);
    atomic_store_explicit(&here->call, call, memory_order_release);
}

void watch_enter(const char *call)
{
    begin(call, 0);
}

void watch_leave(bool limited)
{
    uint64_t took = watch_now() - my_since_ns;

    if (limited && took > watch_shared->call_ns)
        watch_fail("%s took %llu ms: it may not block", my_call, (unsigned long long)(took / MS));
    my_call = NULL;
    atomic_store_explicit(&here->call, NULL, memory_order_release);
}

void watch_wait(const char *what)
{
    begin(what, 1);
}

bool watch_over(uint64_t deadline_ns)
{
    uint64_t limit = deadline_ns != 0 ? deadline_ns : watch_shared->deadline_ns;
    uint64_t took = watch_now() - my_since_ns;

    if (atomic_load(&watch_shared->stop))
        return true;
    if (took < limit)
        return false;
    watch_fail("not there after %llu ms", (unsigned long long)(took / MS));
    return true;
}

void watch_where(int rank, char *text, size_t cap)
{
    size_t used = (size_t)snprintf(text, cap, "rank %d", rank);

    for (int r = ROLES - 1; r >= 0; r--) {
        struct doing *d = &watch_shared->seats[rank].doing[r];
        const char *call = atomic_load_explicit(&d->call, memory_order_acquire);
        int comm = atomic_load(&d->comm);
        long message = atomic_load(&d->message);

        if (call == NULL || used >= cap)
            continue;
        used += (size_t)snprintf(text + used, cap - used, "%s in `%s`", role_names[r], call);
        if (comm >= 0 && used < cap)
            used += (size_t)snprintf(text + used, cap - used, " of comm %d", comm);
        if (message >= 0 && used < cap)
            used += (size_t)snprintf(text + used, cap - used, " message %ld", message);
    }
}

bool watch_stuck(int rank, char *text, size_t cap)
{
    struct seat *seat = &watch_shared->seats[rank];
    uint64_t now = watch_now();

    for (int r = 0; r < ROLES; r++) {
        struct doing *d = &seat->doing[r];
        const char *call = atomic_load_explicit(&d->call, memory_order_acquire);
        uint64_t since = atomic_load(&d->since_ns);

        /* Closing may linger; still, nothing may hold a thread for ever. */
        if (call == NULL || atomic_load(&d->is_wait) || now < since ||
            now - since < watch_shared->call_ns + watch_shared->deadline_ns)
            continue;
        snprintf(text, cap, "rank %d%s: %s of comm %d has not returned for %llu ms", rank,
                 role_names[r], call, atomic_load(&d->comm),
                 (unsigned long long)((now - since) / MS));
        return true;
    }
    return false;
}

/* Returns false if this rank has said something before. */
static bool note(atomic_int *flag, const char *fmt, va_list args)
{
    struct seat *seat = &watch_shared->seats[my_rank];
    const char *call = my_call;
    int none = 0, comm = atomic_load(&here->comm);
    long message = atomic_load(&here->message);
    size_t used;

    if (!atomic_compare_exchange_strong(flag, &none, 1))
        return false;
    used =
        (size_t)snprintf(seat->text, sizeof(seat->text), "rank %d%s", my_rank, role_names[my_role]);
    if (comm >= 0)
        used += (size_t)snprintf(seat->text + used, sizeof(seat->text) - used, ", comm %d", comm);
    if (message >= 0)
        used += (size_t)snprintf(seat->text + used, sizeof(seat->text) - used, ", message %ld",
                                 message);
    if (call != NULL)
        used += (size_t)snprintf(seat->text + used, sizeof(seat->text) - used, ", in `%s`", call);
    used += (size_t)snprintf(seat->text + used, sizeof(seat->text) - used, ": ");
    vsnprintf(seat->text + used, sizeof(seat->text) - used, fmt, args);
    return true;
}

/* A thread of the plugin speaks for the first rank of its process. */
static void find_seat(void)
{
    int rank = 0;

    while (rank < RANKS_MOST - 1 && atomic_load(&watch_shared->seats[rank].pid) != getpid())
        rank++;
    my_rank = rank;
    here = &watch_shared->seats[rank].doing[ROLE_MAIN];
}

int watch_fail(const char *fmt, ...)
{
    va_list args;

    if (here == NULL)
        find_seat();
    va_start(args, fmt);
    /* Who stops because another failed has nothing to add. */
    if (!atomic_load(&watch_shared->stop))
        note(&watch_shared->seats[my_rank].failed, fmt, args);
    va_end(args);
    atomic_store(&watch_shared->stop, 1);
    return -1;
}

int watch_skip(const char *fmt, ...)
{
    struct seat *seat = &watch_shared->seats[my_rank];
    va_list args;

    va_start(args, fmt);
    if (!atomic_exchange(&seat->skipped, 1))
        vsnprintf(seat->text, sizeof(seat->text), fmt, args);
    va_end(args);
    return 0;
}

bool watch_failed(void)
{
    return atomic_load(&watch_shared->stop) != 0;
}

void watch_figure(const char *what, uint64_t bytes, unsigned in_flight, double value)
{
    struct figure *f;

    if (watch_shared->figure_count == FIGURES_MOST)
        return;
    f = &watch_shared->figures[watch_shared->figure_count++];
    snprintf(f->what, sizeof(f->what), "%s", what);
    f->bytes = bytes;
    f->in_flight = in_flight;
    f->value = value;
}

void watch_retire(const void *start, size_t len)
{
    unsigned at = atomic_fetch_add(&retired_count, 1) % RETIRED_MOST;

    retired[at].start = (uintptr_t)start;
    retired[at].end = (uintptr_t)start + len;
}

static void on_signal(int signal, siginfo_t *info, void *context)
{
    uintptr_t at = (uintptr_t)info->si_addr;
    const char *what = "";
    unsigned count = atomic_load(&retired_count);

    for (unsigned i = 0; i < count && i < RETIRED_MOST; i++)
        if (signal == SIGSEGV && at >= retired[i].start && at < retired[i].end)
            what = ", which was deregistered and freed";
    watch_fail("signal %d (%s) at address %p%s", signal, strsignal(signal), info->si_addr, what);
    _exit(99);
}

void watch_signals(void)
{
    static const int signals[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL};
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESETHAND};

    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
        sigaction(signals[i], &action, NULL);
    signal(SIGPIPE, SIG_DFL); /* a plugin must not raise it: NCCL's users have no handler */
}
