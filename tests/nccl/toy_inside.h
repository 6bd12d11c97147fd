/* SPDX-License-Identifier: Apache-2.0 */
/* What the toy's two files share. */
#pragma once

#include "tests/nccl/toy.h"

#include <stdbool.h>

#define TOY_GROUPS 32
#define TOY_SENDS (TOY_GROUPS * NET_GROUP)
#define TOY_ID (((int64_t)7 << 16) | 1)

struct grant { /* on the wire, from the receiver */
    uint32_t n;
    int32_t tags[NET_GROUP];
    uint32_t sizes[NET_GROUP];
};

struct header { /* on the wire, from the sender; its bytes follow */
    uint32_t group, slot;
    uint64_t len;
};

struct request {
    struct comm *comm;
    bool used, done, send;
    int n;
    unsigned left;
    uint8_t *data[NET_GROUP];
    size_t room[NET_GROUP], got[NET_GROUP];
    void *events[NET_GROUP];
    void *phandles[NET_GROUP];
};

struct outgoing { /* a message on its way */
    struct request *request;
    struct header header;
    const uint8_t *data;
    size_t sent; /* of header and data together */
};

struct comm {
    int fd, error;
    bool send;
    struct context *ctx;
    net_profiler profiler;
    struct comm *next;
    struct request requests[TOY_SENDS];
    unsigned next_request;
    /* Sender: what was granted, and what is under way. */
    struct grant grants[TOY_GROUPS], incoming;
    bool taken[TOY_GROUPS][NET_GROUP];
    size_t incoming_got;
    unsigned grant_first, grant_last;
    struct outgoing queue[TOY_SENDS];
    unsigned queue_first, queue_last;
    const uint8_t *last_data;
    unsigned sends;
    /* Receiver: what was posted, what of it the sender was told, and the message that is arriving.
     */
    struct request *groups[TOY_GROUPS];
    unsigned group_first, group_last, told;
    size_t told_bytes;
    struct grant outgoing_grants[TOY_GROUPS];
    struct header header;
    size_t header_got, data_got;
};

void toy_close_comm(struct comm *comm);
