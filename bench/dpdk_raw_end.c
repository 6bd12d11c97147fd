/* SPDX-License-Identifier: Apache-2.0 */
/* One of the two processes of bench_dpdk_raw: sends, receives, echoes raw frames as it is told. */
#include "bench/dpdk_raw.h"

#include "core/clock.h"
#include "core/err.h"
#include "core/host.h"
#include "core/relax.h"
#include "testing/dpdk/eal.h"
#include "testing/dpdk/memif_guard.h"

#include <errno.h>
#include <fcntl.h>
#include <rte_ethdev.h>
#include <rte_ether.h>
#include <rte_mbuf.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define BURST 32
#define RING 1024
#define FRAMES 8191
#define HEAD 42 /* Ethernet, IPv4, UDP */
#define USER_BYTES (32u << 20)
#define PINGS 20000
#define LINK_NS (20 * SL_NS_PER_S)
#define RETRY_NS (500 * SL_NS_PER_MS)
#define LOST_NS (20 * SL_NS_PER_MS)
#define FIRST_NS UINT64_C(3000000000) /* more, for the first that comes back */
#define SPINS 200                     /* about as long as a round trip takes */
#define ANSWER_BYTES 96               /* an ACK where nothing is missing has 94: docs/wire.md */

struct end {
    int fd;
    const struct raw_wire *wire;
    struct rte_mempool *pool;
    uint8_t *user; /* the buffer that payload comes from or goes to */
    size_t at;
    struct rte_mbuf_ext_shared_info shared; /* of user */
    uint8_t mac[6];
    uint64_t times[PINGS];
};

static uint64_t now(void)
{
    return sl_now(&sl_clock_monotonic);
}

static uint8_t *user_bytes(struct end *end, unsigned len)
{
    if (end->at + len > USER_BYTES)
        end->at = 0;
    uint8_t *at = end->user + end->at;
    end->at += len;
    return at;
}

static bool is_told_more(const struct end *end)
{
    char byte;
    ssize_t got = recv(end->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return got >= 0 || (errno != EAGAIN && errno != EINTR);
}

/* UDP to a port of ours over IPv4, without a checksum. */
static void write_head(uint8_t *out, const struct end *end, const uint8_t *peer, unsigned frame)
{
    static const uint8_t rest[HEAD - 12] = {8, 0, 0x45, 2, 0, 0, 0, 0, 0x40, 0, 64, 17};
    memcpy(out, peer, 6);
    memcpy(out + 6, end->mac, 6);
    memcpy(out + 12, rest, sizeof(rest));
    out[16] = (uint8_t)((frame - 14) >> 8);
    out[17] = (uint8_t)(frame - 14);
    out[38] = (uint8_t)((frame - 34) >> 8);
    out[39] = (uint8_t)(frame - 34);
}

static void keep(void *addr, void *arg)
{
}

static bool add_payload(struct end *end, struct rte_mbuf *frame, unsigned len)
{
    if (end->wire->payload == RAW_EXTERNAL) {
        struct rte_mbuf *external = rte_pktmbuf_alloc(end->pool);
        if (!external)
            return false;
        uint8_t *bytes = user_bytes(end, len);
        rte_mbuf_ext_refcnt_update(&end->shared, 1);
        rte_pktmbuf_attach_extbuf(external, bytes, (rte_iova_t)(uintptr_t)bytes, (uint16_t)len,
                                  &end->shared);
        external->data_len = (uint16_t)len;
        frame->data_len = HEAD;
        frame->pkt_len = HEAD + len;
        frame->nb_segs = 2;
        frame->next = external;
        return true;
    }
    if (end->wire->payload == RAW_COPIED)
        memcpy(rte_pktmbuf_mtod_offset(frame, uint8_t *, HEAD), user_bytes(end, len), len);
    frame->data_len = (uint16_t)(HEAD + len);
    frame->pkt_len = HEAD + len;
    return true;
}

static unsigned make_burst(struct end *end, const struct raw_task *task, struct rte_mbuf **burst)
{
    if (rte_pktmbuf_alloc_bulk(end->pool, burst, BURST) < 0)
        return 0;
    for (unsigned i = 0; i < BURST; i++) {
        write_head(rte_pktmbuf_mtod(burst[i], uint8_t *), end, task->peer, task->frame);
        if (!add_payload(end, burst[i], task->frame - HEAD)) {
            rte_pktmbuf_free_bulk(burst + i, BURST - i);
            return i;
        }
    }
    return BURST;
}

static void drop_answers(void)
{
    struct rte_mbuf *burst[BURST];
    unsigned count = rte_eth_rx_burst(0, 0, burst, BURST);
    rte_pktmbuf_free_bulk(burst, count);
}

static void send_frames(struct end *end, const struct raw_task *task, struct raw_result *result)
{
    struct rte_mbuf *burst[BURST];
    unsigned count = 0, sent = 0, empty = 0;
    uint64_t start = now();
    for (unsigned round = 0;; round++) {
        if (round % 64 == 0 && (result->ns = now() - start) > task->ns)
            break;
        if (sent == count) {
            count = make_burst(end, task, burst);
            sent = 0;
        }
        sl_memif_enter();
        unsigned took = rte_eth_tx_burst(0, 0, burst + sent, (uint16_t)(count - sent));
        if (task->answers)
            drop_answers();
        sl_memif_leave();
        sent += took;
        result->frames += took;
        empty = took ? 0 : empty + 1;
        if (empty > SPINS)
            sched_yield();
    }
    rte_pktmbuf_free_bulk(burst + sent, count - sent);
}

/* A burst, with the process giving its core away when nothing came for a while. */
static unsigned poll_port(struct rte_mbuf **burst, unsigned most, unsigned *empty)
{
    sl_memif_enter();
    unsigned count = rte_eth_rx_burst(0, 0, burst, (uint16_t)most);
    sl_memif_leave();
    *empty = count ? 0 : *empty + 1;
    if (*empty > SPINS)
        sched_yield();
    else if (*empty)
        sl_cpu_relax();
    return count;
}

/* What no buffer or no place is there for is not sent. */
static void answer(const struct end *end, const struct raw_task *task)
{
    struct rte_mbuf *frame = rte_pktmbuf_alloc(end->pool);
    if (!frame)
        return;
    uint8_t *bytes = rte_pktmbuf_mtod(frame, uint8_t *);
    memset(bytes, 0, ANSWER_BYTES);
    write_head(bytes, end, task->peer, ANSWER_BYTES);
    frame->data_len = ANSWER_BYTES;
    frame->pkt_len = ANSWER_BYTES;
    sl_memif_enter();
    if (rte_eth_tx_burst(0, 0, &frame, 1) != 1)
        rte_pktmbuf_free(frame);
    sl_memif_leave();
}

/* Until it is told more; time counts from the first frame to the last. */
static void receive_frames(struct end *end, const struct raw_task *task, struct raw_result *result)
{
    struct rte_mbuf *burst[BURST];
    uint64_t first = 0, answered = 0;
    for (unsigned round = 0, empty = 0; round % 256 || empty < SPINS || !is_told_more(end);
         round++) {
        unsigned count = poll_port(burst, BURST, &empty);
        if (!count)
            continue;
        for (unsigned i = 0; i < count; i++) {
            if (burst[i]->pkt_len != task->frame)
                continue;
            result->frames++;
            result->bytes += burst[i]->pkt_len;
            if (end->wire->payload != RAW_NONE)
                memcpy(user_bytes(end, task->frame - HEAD),
                       rte_pktmbuf_mtod_offset(burst[i], uint8_t *, HEAD), task->frame - HEAD);
        }
        rte_pktmbuf_free_bulk(burst, count);
        for (; task->answers && result->frames - answered >= task->answers;
             answered += task->answers)
            answer(end, task);
        uint64_t time = now();
        first = first ? first : time;
        result->ns = time - first;
    }
}

static bool is_ours(const struct rte_mbuf *frame, unsigned len)
{
    const uint8_t *bytes = rte_pktmbuf_mtod(frame, const uint8_t *);
    return frame->pkt_len == len && bytes[12] == 8 && bytes[13] == 0 && bytes[23] == 17;
}

/* Sends frames back with the addresses exchanged. */
static void echo(struct end *end, const struct raw_task *task)
{
    struct rte_mbuf *burst[BURST];
    for (unsigned round = 0, empty = 0; round % 256 || empty < SPINS || !is_told_more(end);
         round++) {
        unsigned count = poll_port(burst, BURST, &empty);
        for (unsigned i = 0; i < count; i++) {
            uint8_t *bytes = rte_pktmbuf_mtod(burst[i], uint8_t *);
            bool good = is_ours(burst[i], task->frame);
            if (good) {
                memcpy(bytes, bytes + 6, 6);
                memcpy(bytes + 6, end->mac, 6);
            }
            if (!good || rte_eth_tx_burst(0, 0, &burst[i], 1) != 1)
                rte_pktmbuf_free(burst[i]);
        }
    }
}

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* The frame of that number: what comes late is not taken for the answer to a later one. */
static bool is_back(const struct rte_mbuf *frame, unsigned len, uint32_t number)
{
    uint32_t theirs;
    if (!is_ours(frame, len))
        return false;
    memcpy(&theirs, rte_pktmbuf_mtod_offset(frame, const uint8_t *, HEAD), sizeof(theirs));
    return theirs == number;
}

/* One frame there and back. False: lost. */
static bool ping_once(struct end *end, const struct raw_task *task, uint32_t number)
{
    struct rte_mbuf *frame = rte_pktmbuf_alloc(end->pool), *burst[BURST];
    if (!frame)
        return false;
    uint8_t *bytes = rte_pktmbuf_mtod(frame, uint8_t *);
    memset(bytes, 0, task->frame);
    write_head(bytes, end, task->peer, task->frame);
    memcpy(bytes + HEAD, &number, sizeof(number));
    frame->data_len = (uint16_t)task->frame;
    frame->pkt_len = task->frame;
    if (rte_eth_tx_burst(0, 0, &frame, 1) != 1) {
        rte_pktmbuf_free(frame);
        return false;
    }
    uint64_t start = now();
    for (unsigned empty = 0; now() - start < LOST_NS;) {
        unsigned count = poll_port(burst, BURST, &empty);
        bool good = false;
        for (unsigned i = 0; i < count; i++)
            good |= is_back(burst[i], task->frame, number);
        rte_pktmbuf_free_bulk(burst, count);
        if (good)
            return true;
    }
    return false;
}

/* Until each buffer of the rings was used once: the first time the kernel finds a page for it. */
static uint32_t warm_up(struct end *end, const struct raw_task *task)
{
    uint64_t start = now();
    uint32_t number = 0;
    while (number < 2 * RING && now() - start < FIRST_NS)
        ping_once(end, task, number++);
    return number;
}

/* At least one, as other processes may have the cores at first, and as switches learn by it. */
static void ping(struct end *end, const struct raw_task *task, struct raw_result *result)
{
    uint32_t number = warm_up(end, task);
    uint64_t start = now();
    unsigned count = 0;
    while (count < PINGS && now() - start < (count ? task->ns : task->ns + FIRST_NS)) {
        uint64_t sent = now();
        if (ping_once(end, task, number++))
            end->times[count++] = now() - sent;
        else
            result->lost++;
    }
    qsort(end->times, count, sizeof(end->times[0]), by_size);
    result->frames = count;
    if (count) {
        result->p50_ns = end->times[count / 2];
        result->p99_ns = end->times[(size_t)count * 99 / 100];
    }
}

/* memif: a client asks again until the server's port is there; then both see the link. Not at once:
 * DPDK 22.11 ends a server whose client went before it was accepted. A server that was started
 * again would end the connection that has just been made. */
static int wait_for_link(const struct end *end, bool asks)
{
    struct rte_eth_link link = {0};
    uint64_t start = now(), asked = start;
    for (;;) {
        if (rte_eth_link_get_nowait(0, &link) == 0 && link.link_status)
            return 0;
        if (now() - start > LINK_NS)
            return sl_fail(-ETIMEDOUT, "%s: no link after 20 s", end->wire->name);
        if (is_told_more(end))
            return sl_fail(-ECANCELED, "%s: the other end did not start", end->wire->name);
        usleep(1000);
        if (asks && now() - asked > RETRY_NS) {
            rte_eth_dev_stop(0);
            rte_eth_dev_start(0);
            asked = now();
        }
    }
}

/* libbpf and libxdp tell of each thing that they look for and do without. */
static int start_quietly(const char *device)
{
    int out = dup(STDERR_FILENO), nothing = open("/dev/null", O_WRONLY | O_CLOEXEC);
    dup2(nothing, STDERR_FILENO);
    int rc = sl_eal_start(&device, 1, 256);
    dup2(out, STDERR_FILENO);
    close(out);
    close(nothing);
    return rc;
}

static int open_end(struct end *end, const char *device, const char *net)
{
    int fd = net ? open(net, O_RDONLY | O_CLOEXEC) : -1;
    if (net && (fd < 0 || setns(fd, CLONE_NEWNET) < 0))
        return sl_fail(-errno, "cannot enter the network namespace %s: %s", net, strerror(errno));
    int rc = start_quietly(device);
    if (rc == 0)
        rc = sl_eal_pool("frames", FRAMES, end->wire->room, &end->pool);
    if (rc == 0)
        rc = sl_eal_port(0, end->pool, RING);
    if (rc < 0 && rc != -EAGAIN)
        return rc;
    end->user = mmap(NULL, USER_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (end->user == MAP_FAILED)
        return sl_fail(-ENOMEM, "no memory for a buffer of %u bytes", USER_BYTES);
    memset(end->user, 1, USER_BYTES);
    end->shared.free_cb = keep;
    rte_mbuf_ext_refcnt_set(&end->shared, 1);
    rc = wait_for_link(end, strstr(device, "role=client") != NULL);
    struct rte_ether_addr mac;
    if (rc == 0 && rte_eth_macaddr_get(0, &mac) == 0)
        memcpy(end->mac, mac.addr_bytes, 6);
    return rc;
}

static bool tell(const struct end *end, struct raw_result *result)
{
    memcpy(result->mac, end->mac, 6);
    return send(end->fd, result, sizeof(*result), MSG_NOSIGNAL) == sizeof(*result);
}

static void work(struct end *end)
{
    struct raw_task task;
    struct raw_result result = {0};
    bool goes_on = tell(end, &result);
    while (goes_on && recv(end->fd, &task, sizeof(task), 0) == sizeof(task)) {
        if (task.order != RAW_STOP)
            result = (struct raw_result){0};
        switch (task.order) {
        case RAW_SEND: send_frames(end, &task, &result); break;
        case RAW_PING: ping(end, &task, &result); break;
        /* These end when the next order is there, which is RAW_STOP, and asks for the result. */
        case RAW_ECHO: echo(end, &task); continue;
        case RAW_RECEIVE: receive_frames(end, &task, &result); continue;
        case RAW_STOP: break;
        }
        goes_on = tell(end, &result);
    }
}

void raw_end(int fd, unsigned number, const struct raw_wire *wire, const char *device,
             const char *net)
{
    static struct end end;
    end.fd = fd;
    end.wire = wire;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sl_memif_guard();
    sl_host_bind(number, 2);
    int rc = open_end(&end, device, net);
    if (rc < 0) {
        fprintf(stderr, "bench_dpdk_raw: %s\n", sluice_last_error());
        struct raw_result result = {.status = -EIO};
        tell(&end, &result);
        sl_eal_exit(1);
    }
    work(&end);
    sl_eal_exit(0);
}
