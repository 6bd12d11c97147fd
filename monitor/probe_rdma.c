/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/probe_rdma.h"

#include "core/err.h"
#include "monitor/probe_ud.h"
#include "monitor/probe_udp.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define FIND_NS UINT64_C(100000000)   /* for the answer to each question */
#define KNOWS_TRIES 8                 /* questions to one that has never answered any */
#define READY_NS UINT64_C(9000000000) /* for the other end to open its devices */
#define SPIN_NS UINT64_C(60000)       /* answers on a good way are there by then */
#define PER_POLL 64

struct work {
    struct sl_probe_asker asker; /* of UDP, then of RDMA */
    struct sl_probe_rail rail;
    struct sl_probe_port ports[SL_PROBE_PORTS];
    unsigned port_count;
    struct sl_probe_ud *ud;
    struct sl_probe_ud_way *way;
    const struct sl_probe_port *to;
    const struct sl_probe_rail_gid *gid; /* of ours */
};

/* ---- where to send ---- */

/* One question; 0: *page is there. -ETIMEDOUT. */
static int find(int fd, const struct sl_probe_order *order, uint32_t number,
                struct sl_probe_page *page)
{
    static uint8_t bytes[SL_PROBE_MOST];
    struct sl_probe_packet packet = {.kind = SL_PROBE_FIND,
                                     .len = SL_PROBE_LIST_BYTES,
                                     .session = order->session,
                                     .number = number,
                                     .sent_ns = sl_probe_wall()};
    uint64_t now = sl_probe_mono(), until = now + FIND_NS;

    if (sl_probe_write(&packet, order->key, bytes) == 0)
        (void)!send(fd, bytes, SL_PROBE_LIST_BYTES, 0);
    for (; now < until; now = sl_probe_mono()) {
        struct pollfd one = {.fd = fd, .events = POLLIN};
        ssize_t len;

        (void)poll(&one, 1, (int)((until - now) / 1000000) + 1);
        while ((len = recv(fd, bytes, sizeof(bytes), 0)) >= 0 || errno == ECONNREFUSED)
            if (len > 0 && sl_probe_read(bytes, (size_t)len, order->key, &packet) == 0 &&
                packet.session == order->session && packet.number == number &&
                sl_probe_page_read(bytes, &packet, page) == 0)
                return 0;
    }
    return -ETIMEDOUT;
}

/* All pages. */
static int list_ports(struct work *work, int fd)
{
    const struct sl_probe_order *order = work->asker.order;
    const char *host = work->asker.out->host;
    uint64_t until = sl_probe_mono() + READY_NS;
    struct sl_probe_page page;
    bool knows = false;

    for (unsigned tries = 0; sl_probe_mono() < until && (knows || tries < KNOWS_TRIES); tries++) {
        if (find(fd, order, work->port_count / SL_PROBE_PAGE, &page) != 0)
            continue;
        knows = true;
        if (page.state == SL_PROBE_NONE)
            return sl_fail(-ENODEV, "%s does not answer over RDMA: %s", host, page.why);
        if (page.state == SL_PROBE_SOON) {
            (void)poll(NULL, 0, (int)(FIND_NS / 1000000));
            continue;
        }
        if (work->port_count + page.count > SL_PROBE_PORTS)
            break;
        memcpy(&work->ports[work->port_count], page.ports, page.count * sizeof(page.ports[0]));
        work->port_count += page.count;
        if (page.count < SL_PROBE_PAGE || work->port_count >= page.total)
            return 0;
    }
    if (work->port_count > 0)
        return 0;
    return knows ? sl_fail(-ETIMEDOUT, "%s does not get its RDMA devices ready", host)
                 : sl_fail(-ETIMEDOUT,
                           "%s answers probes over UDP alone: is [probe] rdma off there, or its "
                           "agent older than this one?",
                           host);
}

/* ---- which port ---- */

static const struct sl_probe_rail_gid *gid_of(const struct sl_probe_rail *rail, uint8_t kind)
{
    for (unsigned i = 0; i < rail->gid_count; i++)
        if (rail->gids[i].kind == kind)
            return &rail->gids[i];
    return NULL;
}

/* How well it fits; 0: not at all. */
static unsigned fits(const struct sl_probe_rail *rail, const struct sl_probe_port *port,
                     const char *wanted)
{
    const struct sl_probe_rail_gid *gid = gid_of(rail, port->kind);
    bool is_named = strcmp(port->name, wanted[0] != '\0' ? wanted : rail->name) == 0;
    bool is_near;

    /* Never itself. */
    if (gid == NULL || memcmp(gid->gid, port->gid, 16) == 0)
        return 0;
    is_near = sl_probe_gid_is_near(port->kind, gid->gid, port->gid);
    if (!is_named && (wanted[0] != '\0' || !is_near))
        return 0;
    /* Link-local addresses and RoCE v1 do not leave their network: the last to be tried. */
    return (is_near ? 20u : 0u) + (is_named ? 10u : 0u) + (SL_PROBE_GID_KINDS - port->kind) + 1;
}

static bool is_named_there(const struct sl_probe_port *ports, unsigned count, const char *name)
{
    for (unsigned i = 0; i < count; i++)
        if (strcmp(ports[i].name, name) == 0)
            return true;
    return false;
}

const struct sl_probe_port *sl_probe_choose(const struct sl_probe_rail *rail,
                                            const struct sl_probe_port *ports, unsigned count,
                                            const char *wanted,
                                            const struct sl_probe_rail_gid **gid)
{
    const struct sl_probe_port *best = NULL;
    unsigned most = 0;

    for (unsigned i = 0; i < count; i++) {
        unsigned fit = fits(rail, &ports[i], wanted);

        if (fit > most) {
            most = fit;
            best = &ports[i];
        }
    }
    if (best != NULL) {
        *gid = gid_of(rail, best->kind);
        return best;
    }
    if (wanted[0] != '\0' && !is_named_there(ports, count, wanted))
        sl_fail(-ENODEV, "the other host has no ACTIVE RDMA port %s", wanted);
    else if (wanted[0] != '\0')
        sl_fail(-ENODEV,
                "%s and %s there are of different fabrics: no kind of GID is common to both (RoCE "
                "v2 over IPv4 or IPv6, RoCE v1, InfiniBand)",
                rail->name, wanted);
    else
        sl_fail(-ENODEV,
                "the other host has no port in a network with %s, and none of that name: --to-rail "
                "names one",
                rail->name);
    return NULL;
}

/* ---- datagrams ---- */

static void send_packet(struct sl_probe_asker *asker, const uint8_t *bytes, uint32_t len)
{
    const struct work *work = asker->arg;

    (void)sl_probe_ud_send(work->ud, work->way, work->to->qpn, work->to->qkey, bytes, len);
}

static void take_packet(void *arg, const struct sl_probe_ud_packet *packet)
{
    struct work *work = arg;

    sl_probe_take(&work->asker, packet->bytes, packet->len, sl_probe_wall());
}

static void take_packets(struct sl_probe_asker *asker)
{
    struct work *work = asker->arg;
    int got;

    do
        got = sl_probe_ud_poll(work->ud, PER_POLL, take_packet, work);
    while (got >= PER_POLL);
    if (got >= 0)
        return;
    asker->is_over = true;
    snprintf(asker->out->why, sizeof(asker->out->why), "%s", sluice_last_error());
}

/* ---- one after another ---- */

static int meet(struct work *work, int fd)
{
    sl_probe_udp_use(&work->asker, fd);
    if (!sl_probe_is_there(&work->asker))
        return sl_fail(-ETIMEDOUT, "%s", SL_PROBE_NOBODY);
    return list_ports(work, fd);
}

/* The queue pair here takes what comes with the Q_Key of the one there, as answers do. */
static int open_way(struct work *work)
{
    const struct sl_probe_order *order = work->asker.order;
    struct sl_probe_report *out = work->asker.out;
    int err;

    work->to =
        sl_probe_choose(&work->rail, work->ports, work->port_count, order->to_rail, &work->gid);
    if (work->to == NULL)
        return -ENODEV;
    snprintf(out->to_rail, sizeof(out->to_rail), "%s", work->to->name);
    memcpy(out->gid, work->gid->gid, 16);
    memcpy(out->to_gid, work->to->gid, 16);
    out->gid_index = work->gid->index;
    err = sl_probe_ud_open(order->library, &work->rail, work->to->qkey, &work->ud);
    if (err != 0)
        return err;
    out->mtu = sl_probe_ud_mtu(work->ud);
    out->mtu = work->to->mtu < out->mtu ? work->to->mtu : out->mtu;
    if (order->bytes > out->mtu)
        return sl_fail(-EMSGSIZE,
                       "packets of %u bytes are longer than the MTU of %s and %s there, %u: a "
                       "datagram is one packet",
                       order->bytes, work->rail.name, out->to_rail, out->mtu);
    return sl_probe_ud_way(work->ud, work->gid, work->to, order->traffic_class, &work->way);
}

static int probe(struct work *work)
{
    struct sl_probe_asker *asker = &work->asker;
    char from[48], to[48];

    asker->arg = work;
    asker->fd = sl_probe_ud_fd(work->ud);
    asker->spin_ns = SPIN_NS;
    asker->send = send_packet;
    asker->take = take_packets;
    take_packets(asker); /* from now on its fd says what comes */
    if (sl_probe_is_there(asker)) {
        sl_probe_run(asker);
        return 0;
    }
    if (asker->is_over)
        return 0;
    sl_probe_gid_text(asker->out->gid, from, sizeof(from));
    sl_probe_gid_text(asker->out->to_gid, to, sizeof(to));
    return sl_fail(-ETIMEDOUT,
                   "%s is there, and no datagram comes back from its %s: GID %s to %s. Are both in "
                   "one fabric, VLAN or partition, and does the way let RoCE (UDP 4791) pass?",
                   asker->out->host, asker->out->to_rail, from, to);
}

static int read_rail(struct work *work)
{
    const struct sl_probe_order *order = work->asker.order;
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    uint8_t wanted[16];
    bool is_wanted = true;
    int err;

    if (order->from.ss_family == AF_INET6) {
        memcpy(wanted, &((const struct sockaddr_in6 *)(const void *)&order->from)->sin6_addr, 16);
    } else if (order->from.ss_family == AF_INET) {
        memcpy(wanted, mapped, sizeof(mapped));
        memcpy(wanted + 12, &((const struct sockaddr_in *)(const void *)&order->from)->sin_addr, 4);
    } else {
        is_wanted = false;
    }
    err = sl_probe_rail_read(order->rdma_root, order->rail, is_wanted ? wanted : NULL, &work->rail);
    if (err != 0)
        return err;
    if (strcmp(work->rail.state, "ACTIVE") != 0)
        return sl_fail(-ENETDOWN, "%s is %s, not ACTIVE", work->rail.name,
                       work->rail.state[0] != '\0' ? work->rail.state : "in no state");
    return work->rail.gid_count > 0
               ? 0
               : sl_fail(-ENODEV, "%s has no %s", work->rail.name,
                         is_wanted ? "GID of that address" : "GID: give its interface an address");
}

/* From wherever the kernel finds a way: an address of the port is for RDMA. */
static int ask_where(struct work *work)
{
    struct sl_probe_order udp = *work->asker.order;
    int fd, err;

    udp.from_len = 0;
    udp.device[0] = '\0';
    fd = sl_probe_udp_open(&udp);
    if (fd < 0)
        return fd;
    err = meet(work, fd);
    close(fd);
    return err;
}

void sl_probe_rdma(const struct sl_probe_order *order, struct sl_probe_report *out)
{
    static struct work work;
    int err;

    *out = (struct sl_probe_report){.wall_ns = sl_probe_wall()};
    memset(&work, 0, sizeof(work));
    if (sl_probe_asker_init(&work.asker, order, out) != 0)
        return;
    err = read_rail(&work);
    err = err ?: ask_where(&work);
    err = err ?: open_way(&work);
    err = err ?: probe(&work);
    if (err != 0)
        snprintf(out->why, sizeof(out->why), "%s", sluice_last_error());
    if (work.ud != NULL)
        sl_probe_ud_way_close(work.ud, work.way);
    sl_probe_ud_close(work.ud);
    sl_probe_asker_fini(&work.asker);
}
