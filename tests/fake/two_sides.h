/* SPDX-License-Identifier: Apache-2.0 */
/* Two ends of a connection by one transport over fakes, in one process and virtual time: what
 * tests of every transport under multipath/ need of them. */
#ifndef SL_TESTS_FAKE_TWO_SIDES_H
#define SL_TESTS_FAKE_TWO_SIDES_H

#include "core/config.h"
#include "core/event.h"
#include "core/transport.h"
#include "tests/fake/loop.h"

#define WORLD_LIMIT_NS (60 * SL_NS_PER_S)

struct world_side {
    struct sl_config config;
    struct sl_worker worker;
    struct sl_event_ring events;
    struct sl_iface *iface;
    struct sl_ep *ep;
    unsigned downs;
    char why[512]; /* of the last down */
};

extern struct loop *world_loop;
extern struct world_side world[2];
/* Moves the transport's fake before each side's progress; NULL: it needs none. */
extern void (*world_step)(void);

/* The loop, and default settings of both ends; nothing is open yet. */
void world_begin(void);
/* Opens both ends; connects them; closes what is open, and the loop. */
void world_open_by(const struct sl_transport_ops *ops);
void world_connect(void);
void world_close(void);

void world_progress(void);
/* Until the condition holds; fails the case when it does not in time. */
#define WORLD_UNTIL(condition)                                                                     \
    do {                                                                                           \
        uint64_t limit_ns = loop_now(world_loop) + WORLD_LIMIT_NS;                                 \
                                                                                                   \
        while (!(condition)) {                                                                     \
            if (loop_now(world_loop) > limit_ns)                                                   \
                fail_msg("in time: %s", #condition);                                               \
            world_progress();                                                                      \
        }                                                                                          \
    } while (0)

int world_send(unsigned side, const struct sl_buf *buf, uint64_t tag, struct sl_req *req);
int world_recv(unsigned side, const struct sl_sink *sink, struct sl_req *req);
/* One message of len bytes from one side to the other and back, checked. */
void world_message(size_t len);

#endif
