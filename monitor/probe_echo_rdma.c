/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/probe_echo_rdma.h"

#include "core/err.h"
#include "monitor/probe_ask.h"
#include "monitor/probe_ud.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define PORTS_MOST 32
#define TELL_NS UINT64_C(1000000000) /* between two records of counts */
#define PER_POLL 256                 /* then other ports are heard */

/* A session is answered by the way that its first packet came by. */
struct session {
    uint64_t session, at_ns;
    struct sl_probe_ud_way *way;
    uint32_t seen;
};

struct port {
    struct echo *echo;
    struct sl_probe_ud *ud;
    uint32_t qkey;
    struct session sessions[SL_PROBE_SESSIONS];
};

struct echo {
    const struct sl_probe_echo_order *order;
    int fd;
    struct sl_probe_bucket bucket;
    struct sl_probe_record counts;
    uint64_t heard_ns, told_ns;
    unsigned count;
    struct port ports[PORTS_MOST];
    uint8_t bytes[SL_PROBE_MOST];
};

static bool tell(const struct echo *echo, struct sl_probe_record *record)
{
    ssize_t len;

    record->magic = SL_PROBE_RECORD_MAGIC;
    do
        len = write(echo->fd, record, sizeof(*record));
    while (len < 0 && errno == EINTR);
    return len == (ssize_t)sizeof(*record);
}

/* ---- packets ---- */

static struct session *session_of(struct port *port, uint64_t session)
{
    struct session *oldest = &port->sessions[0];

    for (unsigned i = 0; i < SL_PROBE_SESSIONS; i++) {
        struct session *at = &port->sessions[i];

        if (at->way != NULL && at->session == session)
            return at;
        if (at->at_ns < oldest->at_ns)
            oldest = at;
    }
    sl_probe_ud_way_close(port->ud, oldest->way);
    *oldest = (struct session){.session = session};
    return oldest;
}

static void answer(struct port *port, struct sl_probe_packet *packet,
                   const struct sl_probe_ud_packet *from, uint64_t came_ns)
{
    struct echo *echo = port->echo;
    struct session *session = session_of(port, packet->session);

    if (session->way == NULL && sl_probe_ud_way_back(port->ud, from, &session->way) != 0)
        return;
    session->at_ns = echo->heard_ns = sl_probe_mono();
    packet->kind = SL_PROBE_ANSWER;
    packet->seen = ++session->seen;
    packet->came_ns = came_ns;
    memcpy(packet->host, echo->order->host, sizeof(packet->host));
    packet->answered_ns = sl_probe_wall();
    if (sl_probe_write(packet, echo->order->key, echo->bytes) == 0 &&
        sl_probe_ud_send(port->ud, session->way, from->qpn, port->qkey, echo->bytes, packet->len) ==
            0)
        echo->counts.answered++;
}

static void take(void *arg, const struct sl_probe_ud_packet *from)
{
    struct port *port = arg;
    struct echo *echo = port->echo;
    uint64_t came_ns = sl_probe_wall();
    struct sl_probe_packet packet;

    /* Before its proof is looked at: that costs most. */
    if (!sl_probe_bucket_take(&echo->bucket, sl_probe_mono()))
        echo->counts.beyond++;
    else if (sl_probe_read(from->bytes, from->len, echo->order->key, &packet) != 0 ||
             packet.kind != SL_PROBE_ASK)
        echo->counts.foreign++;
    else
        answer(port, &packet, from, came_ns);
}

/* ---- ports ---- */

static void close_port(struct port *port)
{
    for (unsigned i = 0; i < SL_PROBE_SESSIONS; i++)
        sl_probe_ud_way_close(port->ud, port->sessions[i].way);
    sl_probe_ud_close(port->ud);
    port->ud = NULL;
}

static bool tell_port(struct echo *echo, const struct sl_probe_rail *rail, const struct port *port)
{
    for (unsigned i = 0; i < rail->gid_count; i++) {
        struct sl_probe_record record = {.type = SL_PROBE_RECORD_PORT,
                                         .port = {.qpn = sl_probe_ud_qpn(port->ud),
                                                  .qkey = port->qkey,
                                                  .lid = rail->lid,
                                                  .mtu = (uint16_t)sl_probe_ud_mtu(port->ud),
                                                  .kind = rail->gids[i].kind}};

        memcpy(record.port.gid, rail->gids[i].gid, 16);
        memcpy(record.port.name, rail->name, sizeof(record.port.name));
        if (!tell(echo, &record))
            return false;
    }
    return true;
}

/* False: the agent is gone. */
static bool open_ports(struct echo *echo, uint32_t qkey)
{
    static struct sl_probe_rail rails[PORTS_MOST];
    unsigned count = sl_probe_rails(echo->order->rdma_root, rails, PORTS_MOST);
    struct sl_probe_record record = {.type = SL_PROBE_RECORD_READY};

    if (count == 0)
        snprintf(record.why, sizeof(record.why),
                 "it has no RDMA port that is ACTIVE and has a GID");
    for (unsigned i = 0; i < count; i++) {
        struct port *port = &echo->ports[echo->count];

        *port = (struct port){.echo = echo, .qkey = qkey};
        if (sl_probe_ud_open(echo->order->library, &rails[i], qkey, &port->ud) != 0) {
            snprintf(record.why, sizeof(record.why), "%.159s", sluice_last_error());
            continue;
        }
        echo->count++;
        if (!tell_port(echo, &rails[i], port))
            return false;
    }
    if (echo->count == 0)
        record.type = SL_PROBE_RECORD_NONE;
    return tell(echo, &record) && echo->count > 0;
}

/* ---- its life ---- */

/* False: it is over. */
static bool tell_counts(struct echo *echo, uint64_t now_ns)
{
    struct sl_probe_record *counts = &echo->counts;

    if (now_ns - echo->told_ns < TELL_NS)
        return true;
    echo->told_ns = now_ns;
    if (counts->answered + counts->foreign + counts->beyond > 0) {
        counts->type = SL_PROBE_RECORD_COUNTS;
        if (!tell(echo, counts))
            return false;
        counts->answered = counts->foreign = counts->beyond = 0;
    }
    return now_ns - echo->heard_ns < echo->order->idle_ns;
}

/* True: there is more. */
static bool poll_ports(struct echo *echo)
{
    bool is_busy = false;

    for (unsigned i = 0; i < echo->count;) {
        int got = sl_probe_ud_poll(echo->ports[i].ud, PER_POLL, take, &echo->ports[i]);

        if (got >= 0) {
            is_busy |= got >= PER_POLL;
            i++;
            continue;
        }
        close_port(&echo->ports[i]); /* its link went down, for one */
        echo->ports[i] = echo->ports[--echo->count];
    }
    return is_busy;
}

static bool wait_for_packets(const struct echo *echo)
{
    struct pollfd fds[PORTS_MOST + 1];

    for (unsigned i = 0; i < echo->count; i++)
        fds[i] = (struct pollfd){.fd = sl_probe_ud_fd(echo->ports[i].ud), .events = POLLIN};
    fds[echo->count] = (struct pollfd){.fd = echo->fd}; /* who reads has gone */
    (void)poll(fds, echo->count + 1, (int)(TELL_NS / 1000000));
    return fds[echo->count].revents == 0;
}

int sl_probe_echo_rdma_run(const void *arg, int fd)
{
    static struct echo echo;
    uint32_t qkey = 0;

    echo = (struct echo){.order = arg, .fd = fd};
    sl_probe_bucket_init(&echo.bucket, echo.order->rate, sl_probe_mono());
    if (getrandom(&qkey, sizeof(qkey), 0) != sizeof(qkey))
        return 1;
    /* With its highest bit it would need more rights. */
    if (!open_ports(&echo, qkey & 0x7fffffff))
        return 0;
    echo.heard_ns = echo.told_ns = sl_probe_mono();
    while (echo.count > 0 && tell_counts(&echo, sl_probe_mono()))
        if (!poll_ports(&echo) && !wait_for_packets(&echo))
            break;
    while (echo.count > 0)
        close_port(&echo.ports[--echo.count]);
    return 0;
}
