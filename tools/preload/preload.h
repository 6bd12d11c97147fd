/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What libsluice-preload.so and its modules say to each other.
 *
 * The shim itself (frame.c, enter_*.c) is small and needs libc only, as every process of a job maps
 * it, shells included. It exports the calls that may be taken over. The first call of a family
 * (MPI, gloo, NCCL) decides where all of that family go: to the originals, or to a module,
 * libsluice-preload-<name>.so beside the shim, which holds the engine and is opened then.
 */
#ifndef SL_PRELOAD_H
#define SL_PRELOAD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SL_PRELOAD_ABI 1
#define SL_PRELOAD_EXPORT __attribute__((visibility("default")))

/* Why a call was passed on to the library that it was meant for. */
enum sl_preload_why {
    SL_WHY_TYPE,   /* elements that the engine cannot reduce */
    SL_WHY_OP,     /* an operator that the engine has not */
    SL_WHY_COMM,   /* a communicator of a kind that is not taken: of one rank, between groups */
    SL_WHY_SIZE,   /* at this size the original is better */
    SL_WHY_EARLY,  /* the communicator has not seen enough calls to be worth an engine */
    SL_WHY_ENGINE, /* no engine could be made for the communicator */
    SL_WHY_FORM,   /* a form of the call that is not taken */
    SL_WHY_COUNT
};

/* What became of one kind of call. Threads add to it side by side. */
struct sl_preload_count {
    _Atomic uint64_t taken, bytes, ns;
    _Atomic uint64_t passed[SL_WHY_COUNT];
};

/* What the shim lends to a module, for the life of the process. */
struct sl_preload_host {
    uint32_t abi;
    bool report;                     /* somebody will read the counts; else they are not kept */
    struct sl_preload_count *counts; /* of this family, by number of the call */

    /* The next definition of a symbol after the shim's own; NULL: no library that is loaded has it.
     * Only while the module is being opened. */
    void *(*find)(const struct sl_preload_host *host, const char *symbol);
    /* The same for data, which may lie in the program itself (copy relocations), before the
     * shim. */
    void *(*object)(const struct sl_preload_host *host, const char *symbol);
    /* Before the first count: somebody has to print it. */
    void (*counted)(void);
    /* Keeps a sentence for the report, the first of each family: why there is no engine, what
     * failed. */
    void (*note)(const struct sl_preload_host *host, const char *sentence);
    /* Sets the rank that the report names; the first call counts. */
    void (*rank)(int rank);
};

/*
 * The one symbol of a module. Fills take[i] with the function that takes call number i, as the
 * family's list numbers them; what it leaves NULL goes to the original. Returns 0, or a negative
 * errno with a sentence in why[cap]: then the whole family goes to the originals.
 */
typedef int sl_preload_open_fn(const struct sl_preload_host *host, void **take, unsigned count,
                               char *why, size_t cap);
#define SL_PRELOAD_OPEN "sl_preload_open"

static inline void sl_preload_taken(const struct sl_preload_host *host, unsigned call,
                                    uint64_t bytes, uint64_t ns)
{
    struct sl_preload_count *count = &host->counts[call];

    if (__builtin_expect(!host->report, 1))
        return;
    host->counted();
    atomic_fetch_add_explicit(&count->taken, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&count->bytes, bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&count->ns, ns, memory_order_relaxed);
}

static inline void sl_preload_passed(const struct sl_preload_host *host, unsigned call,
                                     enum sl_preload_why why)
{
    if (__builtin_expect(!host->report, 1))
        return;
    host->counted();
    atomic_fetch_add_explicit(&host->counts[call].passed[why], 1, memory_order_relaxed);
}

#endif
