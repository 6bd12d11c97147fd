/* SPDX-License-Identifier: Apache-2.0 */
/* One end of a shm connection in a test: opened, connected and pumped, always under a deadline. */
#ifndef TESTS_UNIT_SHM_SIDE_H
#define TESTS_UNIT_SHM_SIDE_H

#include "core/config.h"
#include "shm/config.h"
#include "shm/shm.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

extern const struct sl_transport_ops sl_shm_ops;

#define TEST_DEADLINE_NS (20 * SL_NS_PER_S)

/* SLUICE_SHM_READ of the sides that are opened next. */
static int64_t side_read = SL_AUTO;

struct side {
    struct sl_config config;
    struct sl_worker worker;
    struct sl_iface *iface;
    struct sl_ep *ep;
    struct sl_addr addr;
    struct sl_req connected;
    unsigned downs, ctrls;
    int down_status;
    uint64_t down_ns;
    char why[SHM_TEXT_MAX];
    uint8_t note[SL_CTRL_MAX];
    size_t note_len;
};

static inline uint64_t test_now(void)
{
    return sl_now(&sl_clock_monotonic);
}

static inline struct shm_ep *inside(struct side *s)
{
    return shm_ep_of(s->ep);
}

static void side_down(void *arg, struct sl_ep *ep, int status, const char *why)
{
    struct side *s = arg;

    (void)ep;
    s->downs++;
    s->down_status = status;
    s->down_ns = test_now();
    strncpy(s->why, why, sizeof(s->why) - 1);
}

static void side_ctrl(void *arg, struct sl_ep *ep, const void *msg, size_t len)
{
    struct side *s = arg;

    (void)ep;
    s->ctrls++;
    s->note_len = len;
    memcpy(s->note, msg, len);
}

/* An interface and an endpoint that is not connected. */
static inline void side_open(struct side *s)
{
    struct sl_handler handler = {side_ctrl, side_down, s};

    memset(s, 0, sizeof(*s));
    sl_config_defaults(&s->config);
    sl_shm_config_edit(&s->config)->read = side_read;
    s->worker = (struct sl_worker){.clock = &sl_clock_monotonic, .config = &s->config};
    assert_int_equal(sl_shm_ops.open(&s->worker, NULL, &handler, &s->iface), 0);
    assert_int_equal(sl_shm_ops.ep_create(s->iface, &s->ep), 0);
    assert_int_equal(sl_shm_ops.ep_addr(s->ep, &s->addr), 0);
}

static inline void side_close(struct side *s)
{
    sl_shm_ops.ep_destroy(s->ep);
    sl_shm_ops.close(s->iface);
}

/* Progress on one or two sides until the condition holds. */
#define PUMP(a, b, condition)                                                                      \
    do {                                                                                           \
        uint64_t pump_end = test_now() + TEST_DEADLINE_NS;                                         \
                                                                                                   \
        while (!(condition)) {                                                                     \
            sl_shm_ops.progress((a)->iface, 64);                                                   \
            if ((b) != NULL)                                                                       \
                sl_shm_ops.progress(((struct side *)(b))->iface, 64);                              \
            if (test_now() > pump_end)                                                             \
                fail_msg("not within the deadline: %s", #condition);                               \
        }                                                                                          \
    } while (0)

/* Two sides in this process. The one that dials comes first. */
static inline void sides_connect(struct side *a, struct side *b)
{
    assert_int_equal(sl_shm_ops.ep_connect(a->ep, &b->addr, &a->connected), 0);
    assert_int_equal(sl_shm_ops.ep_connect(b->ep, &a->addr, &b->connected), 0);
    PUMP(a, b, a->connected.status != SL_PENDING && b->connected.status != SL_PENDING);
}

static inline int side_send(struct side *s, const void *bytes, size_t len, uint64_t tag,
                            struct sl_req *req)
{
    struct sl_buf buf = {.addr = bytes, .len = len};

    return sl_shm_ops.send(s->ep, &buf, tag, req);
}

static inline int side_recv(struct side *s, struct sl_sink *sink, void *dst, size_t len,
                            uint64_t tag, struct sl_req *req)
{
    *sink = (struct sl_sink){.dst = dst, .len = len, .tag = tag};
    return sl_shm_ops.recv(s->ep, sink, req);
}

#endif
