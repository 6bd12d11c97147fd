/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Entry points of the shim: an exported function jumps to where its pointer says. At first that is
 * a stand-in, which has the family resolved and jumps again; from then on a call costs one load and
 * a jump.
 *
 * A family lists its calls once, in an X macro of (number, exported name, result, parameters,
 * arguments), and writes, for its struct sl_preload_family `f`:
 *
 *     #define X(call, name, ret, params, args) SL_PRELOAD_ENTRY(f, name, ret, params, args)
 *     LIST(X)
 *     #undef X
 *     #define X(call, name, ret, params, args) SL_PRELOAD_ROW(call, name)
 *     static const struct sl_preload_entry entries[] = {LIST(X)};
 *     #undef X
 *
 * Parameters are what travels, not what is meant: what a library passes by pointer or as an integer
 * up to 64 bits is uintptr_t, so that one entry serves every ABI of the library.
 */
#ifndef SL_PRELOAD_FRAME_H
#define SL_PRELOAD_FRAME_H

#include "tools/preload/preload.h"

struct sl_preload_entry {
    const char *name;  /* as exported here, and as the original is looked up */
    void *_Atomic *to; /* where the entry point jumps */
    unsigned call;     /* its number in the family's counts; several names may share one */
};

struct sl_preload_family {
    const char *name; /* as the report says it */
    const char *const
        *prefixes;     /* of the names of libraries that have the originals, NULL at the end */
    const char *probe; /* a symbol that tells such a library from others */
    const char *const *calls; /* their names in the report, by number */
    unsigned call_count;
    const struct sl_preload_entry *entries;
    unsigned entry_count;
    struct sl_preload_count *counts; /* [call_count] */

    /* The module for the library at hand: "ompi" for libsluice-preload-ompi.so. NULL: none fits,
     * and why[cap] says so. */
    const char *(*module)(const struct sl_preload_host *host, char *why, size_t cap);

    /* frame.c's own */
    struct sl_preload_host host;
    void *library; /* that has the originals, when they are not in the global scope */
    _Atomic int resolved;
    char note[256];
};

/* Points every entry of the family to a module's function or to the original. Once; later calls
 * return at once. */
void sl_preload_resolve(struct sl_preload_family *family);

/* enter_*.c: every family, NULL at the end. */
extern struct sl_preload_family *const sl_preload_families[];
extern struct sl_preload_family sl_preload_mpi, sl_preload_gloo, sl_preload_nccl;

#define SL_PRELOAD_ENTRY(family, name, ret, params, args)                                          \
    SL_PRELOAD_EXPORT ret name params;                                                             \
    static ret name##_first params;                                                                \
    static void *_Atomic name##_to = (void *)name##_first;                                         \
    SL_PRELOAD_EXPORT ret name params                                                              \
    {                                                                                              \
        return ((ret(*) params)atomic_load_explicit(&name##_to, memory_order_acquire))args;        \
    }                                                                                              \
    static ret name##_first params                                                                 \
    {                                                                                              \
        sl_preload_resolve(&(family));                                                             \
        return ((ret(*) params)atomic_load_explicit(&name##_to, memory_order_acquire))args;        \
    }
#define SL_PRELOAD_ROW(call, name) {#name, &name##_to, call},

#endif
