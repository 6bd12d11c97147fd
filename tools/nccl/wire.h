/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes that two ends of an NCCL connection exchange beside wire-up's (core/wireup.h): the
 * handle, words about channels (flow.h), and the announcement of receives. No input or output here;
 * docs/wire.md draws them.
 */
#ifndef SL_NCCL_WIRE_H
#define SL_NCCL_WIRE_H

#include "core/wireup.h"

#include <stddef.h>
#include <stdint.h>

#define SL_NCCL_WIRE_VERSION 6
#define SL_NCCL_HANDLE_OWN                                                                         \
    80 /* bytes of a handle that travel; behind them lies the connecting end's own */

#define SL_NCCL_GROUP_MAX 8 /* receives of a group */
#define SL_NCCL_CALL_HEADER 8
#define SL_NCCL_CALL_BYTES (SL_NCCL_CALL_HEADER + 12 * SL_NCCL_GROUP_MAX)

/* The address of a listener, and its secret: no connection without it. */
struct sl_nccl_handle {
    struct sl_wireup_addr addr; /* of its engine */
    uint64_t token;             /* random; which of its listeners */
};

void sl_nccl_handle_encode(const struct sl_nccl_handle *handle, uint8_t out[SL_NCCL_HANDLE_OWN]);

/* -EPROTO: another version, or no handle of ours at all: the other rank has another plugin. */
int sl_nccl_handle_decode(const uint8_t bytes[SL_NCCL_HANDLE_OWN], struct sl_nccl_handle *out);

/* What two engines say about the channels of an endpoint, by control messages. */
enum sl_nccl_word_kind {
    SL_NCCL_OPEN = 1,
    SL_NCCL_ACCEPTED,
    SL_NCCL_REFUSED,
    SL_NCCL_GIVEN_UP,
};

#define SL_NCCL_WORD_BYTES 16

struct sl_nccl_word {
    enum sl_nccl_word_kind kind;
    uint32_t channel;
    uint64_t token; /* OPEN: of the handle; others: 0 */
};

void sl_nccl_word_encode(const struct sl_nccl_word *word, uint8_t out[SL_NCCL_WORD_BYTES]);

/* -EBADMSG */
int sl_nccl_word_decode(const uint8_t *bytes, size_t len, struct sl_nccl_word *out);

/* An announcement of a receiver: as many messages may come, in this order, at most so long. */
struct sl_nccl_call {
    uint32_t number; /* of the group, from 0 */
    unsigned count;
    uint32_t tags[SL_NCCL_GROUP_MAX];
    uint64_t sizes[SL_NCCL_GROUP_MAX];
};

/* Returns the length. */
size_t sl_nccl_call_encode(const struct sl_nccl_call *call, uint8_t out[SL_NCCL_CALL_BYTES]);

/* -EBADMSG */
int sl_nccl_call_decode(const uint8_t *bytes, size_t len, struct sl_nccl_call *out);

#endif
