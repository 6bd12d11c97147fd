/* SPDX-License-Identifier: Apache-2.0 */
/* A peer made by hand: plain sockets that speak the wire format to a real endpoint, so that a test
 * decides each byte. The hand-made side dials: its token is all zero, which is the lowest. */
#ifndef TESTS_TCP_WIRE_PEER_H
#define TESTS_TCP_WIRE_PEER_H

#include "core/config.h"
#include "core/transport.h"
#include "tcp/frame.h"

#define WIRE_CONNS 4

extern const struct sl_transport_ops sl_tcp_ops;

struct wire {
    struct sl_transport_ops ops;
    struct sl_clock clock; /* real time plus skew */
    uint64_t skew_ns;
    struct sl_config config;
    struct sl_worker worker;
    struct sl_iface *iface;
    struct sl_ep *ep;
    struct sl_req connect;
    struct sl_addr addr; /* of ep */
    uint8_t name[SL_TCP_NAME_BYTES];
    int fds[WIRE_CONNS + 1]; /* the hand-made side; 0 is control */
    int downs, down_status;
    char down_why[200];
    int ctrls;
};

/* engine and NAME=VALUE pairs (without SLUICE_), NULL-terminated. */
void wire_open(struct wire *w, const char *engine, const char *const *settings);
void wire_close(struct wire *w);

/* A plain connection to the interface's port; family AF_INET or AF_INET6. */
int wire_dial(struct wire *w, int family);
void wire_hello(struct wire *w, struct sl_tcp_hello *out, unsigned idx, unsigned count, bool crc);
/* Says hello on fd, takes the answer, checks its proof and gives ours; token is that of the
 * hand-made side. */
void wire_greet(struct wire *w, int fd, const struct sl_tcp_hello *hello, const uint8_t *token);
/* Starts ep_connect to the hand-made side, dials all its connections, and waits until ep is up. */
void wire_connect(struct wire *w, unsigned data_conns, bool crc);
/* The two halves of it. */
void wire_connect_begin(struct wire *w, unsigned data_conns, bool crc);
void wire_connect_end(struct wire *w, unsigned data_conns, bool crc);

/* Part of a message of total bytes. */
struct sl_tcp_frame wire_piece(uint32_t seq, uint64_t tag, size_t total, size_t off, size_t len);
/* Posts a receive of len bytes into dst; it must be taken. */
void wire_post(struct wire *w, struct sl_sink *sink, struct sl_req *req, void *dst, size_t len,
               uint64_t tag);

void wire_progress(struct wire *w);
/* A frame of a message; payload may be NULL to send the header only. */
void wire_frame(struct wire *w, unsigned conn, const struct sl_tcp_frame *frame, bool crc,
                const void *payload);
/* All len bytes, with progress between. */
void wire_write(struct wire *w, int fd, const void *bytes, size_t len);
void wire_read(struct wire *w, int fd, void *bytes, size_t len);
/* The other side closes fd: true within the time limit. */
bool wire_is_closed(struct wire *w, int fd);

/* Progress until cond or 20 s. */
#define WIRE_UNTIL(w, cond)                                                                        \
    do {                                                                                           \
        uint64_t wire_end = sl_now(&sl_clock_monotonic) + 20 * SL_NS_PER_S;                        \
        while (!(cond)) {                                                                          \
            wire_progress(w);                                                                      \
            if (sl_now(&sl_clock_monotonic) > wire_end)                                            \
                fail_msg("timed out waiting for %s", #cond);                                       \
        }                                                                                          \
    } while (0)

#endif
