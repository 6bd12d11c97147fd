/* SPDX-License-Identifier: Apache-2.0 */
/* What the gloo module's C++ needs from the shim and the engine, whose headers are C only. */
#ifndef SL_PRELOAD_GLOO_BRIDGE_H
#define SL_PRELOAD_GLOO_BRIDGE_H

#include "tools/preload/gloo_calls.h"

#include <sluice/sluice.h>

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The gloo that the process runs on. */
struct sl_gloo_origin {
    void (*original[SL_GLOO_CALL_COUNT])(void *options); /* NULL: this gloo has not that call */
    void *create_buffer;                                 /* gloo::Context::createUnboundBuffer */
    bool has_table; /* a context begins with its table of virtual functions */
    bool exact;     /* sums in gloo's own order */
};
extern struct sl_gloo_origin sl_gloo_here;

/* Counting, for the report. */
void sl_gloo_taken(enum sl_gloo_call call, uint64_t bytes, uint64_t ns);
void sl_gloo_passed(enum sl_gloo_call call);
void sl_gloo_alone(enum sl_gloo_call call);
void sl_gloo_no_engine(enum sl_gloo_call call);
void sl_gloo_note(const char *sentence);

uint64_t sl_gloo_now(void);

/* A communicator over an allgather of gloo's, on all ranks or on none. */
typedef int sl_gloo_allgather_fn(void *arg, const void *in, size_t len, void *out);
int sl_gloo_comm_create(int rank, int size, sl_gloo_allgather_fn *allgather, void *arg,
                        int64_t timeout_ms, struct sluice_comm **out);

/* Deadline of the calls that follow, unless SLUICE_TIMEOUT_MS rules. */
void sl_gloo_comm_timeout(struct sluice_comm *comm, int64_t timeout_ms);

/* "allreduce" */
const char *sl_gloo_name(enum sl_gloo_call call);

/* Shows a call that waits for its turn as the communicator's next one, to who looks at this
 * process: its place there, or -1. And takes it away, where it is not -1. */
int sl_gloo_show(const struct sluice_comm *comm, enum sl_gloo_call call);
void sl_gloo_hide(int place);

/* The functions of the module, by number of the call. */
#define X(call, symbol) void sl_gloo_##call(void *options);
SL_GLOO_CALLS(X)
#undef X

/* At exit: tells peers that this rank leaves. */
void sl_gloo_leave(void);

#ifdef __cplusplus
}
#endif
#endif
