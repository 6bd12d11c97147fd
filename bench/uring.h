/* SPDX-License-Identifier: Apache-2.0 */
/* One end of bench_uring, and its ways to exchange messages. */
#ifndef SL_BENCH_URING_H
#define SL_BENCH_URING_H

#include <liburing.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CONNS_MAX 64
#define BUFFERS 512
#define BUFFER_BYTES (16u << 10)

enum variant { EPOLL, BATCH, MULTI, DIRECT, ZC, VARIANTS };

enum waiting { SPIN, SLEEP, ENTER };

enum { OP_SEND = 1, OP_RECV, OP_IGNORE };

struct conn {
    int fd;
    bool readable, writable, armed;
    size_t sent, got;
};

struct side {
    int meet;
    unsigned count;
    enum waiting waiting;
    bool yields;
    struct conn conns[CONNS_MAX];
    char *src, *dst; /* of all connections: what is in them does not matter */
    int epoll;
    int ring_event;              /* who waits for the ring sleeps on it */
    struct io_uring plain, ring; /* of batch; of the others */
    struct io_uring_buf_ring *pool;
    char *pool_bytes;
    uint64_t zc_sends, zc_copied;
    unsigned notifs; /* of SEND_ZC, still due */
};

void die(const char *what) __attribute__((noreturn));
void sleep_on(int fd);

/* One message of len bytes each way on each connection, whose sent and got are set to 0. */
void epoll_exchange(struct side *s, size_t len, bool batch);
void ring_exchange(struct side *s, size_t len, enum variant variant);

/* A buffer of the pool may be received into again. */
void buffer_give(struct side *s, uint16_t bid);

/* No multishot receive may be left when another variant reads. */
void disarm(struct side *s);

#endif
