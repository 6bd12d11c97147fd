/* SPDX-License-Identifier: Apache-2.0 */
/* Both ends of a connection of the plugin's newest table, in this process and thread. */
#ifndef SL_TESTS_NCCL_ENDS_H
#define SL_TESTS_NCCL_ENDS_H

#include "core/clock.h"
#include "core/rng.h"
#include "tools/nccl/abi_v11.h"

#define ENDS_PATIENCE_NS (10 * SL_NS_PER_S)

extern const struct sl_nccl_net_v11 ncclNetPlugin_v11;

struct ends {
    void *ctx, *listen, *send, *recv;
    void *send_mr, *recv_mr; /* of the messages' memory; or NULL */
    uint8_t handle[SL_NCCL_HANDLE_BYTES];
};

/* What the plugin warned of last. */
extern char ends_warning[1024];
extern unsigned ends_warnings; /* how often it did */
void ends_logger(enum sl_nccl_log_level level, unsigned long flags, const char *file, int line,
                 const char *fmt, ...) __attribute__((format(printf, 5, 6)));
uint64_t ends_now(void);

void *ends_open_ctx(void);
/* All of them fail the test where the plugin does. ends_make() is context, listener and both ends;
 * ends_part() undoes what is there of it. */
void ends_listen(struct ends *e);
void ends_meet(struct ends *e);
void ends_make(struct ends *e);
void ends_part(struct ends *e);

void *ends_irecv(struct ends *e, void *data, size_t len, int tag);
/* Asks again until it is taken. */
void *ends_isend(struct ends *e, const void *data, size_t len, int tag);
void ends_finish(void *request, int *sizes);
/* Waits for both, whose progress may be one another's. */
void ends_finish_both(void *a, int *size_a, void *b, int *sizes_b);

/* The same bytes for the same seed. */
void ends_fill(uint8_t *bytes, size_t len, uint64_t seed);

#endif
