/* SPDX-License-Identifier: Apache-2.0 */
/* dpdk/port/port.h without DPDK. */
#include "tests/fake/fake_port.h"

#include "core/err.h"
#include "core/list.h"
#include "core/rng.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define QUEUE 1024
#define FRAME_MOST 9014
#define BURST 32
#define HEADERS 42
#define CUTS 16

struct packet {
    struct sl_node link;
    const struct sl_dpdk_port *to; /* NULL: to nobody */
    uint32_t flow;
    bool is_marked;
    size_t len;
    uint8_t bytes[];
};

/* One that was collected, and whose payload may be the sender's memory yet. */
struct collected {
    struct sl_dpdk_way way;
    uint8_t head[64];
    size_t head_len, len;
    const void *payload;
    uint8_t *copy; /* of the payload, where it was not kept */
    bool has_tail;
    uint32_t tail;
    uint64_t cookie;
};

/* A cookie whose payload the device still reads, for so many polls. */
struct kept {
    uint64_t cookie;
    unsigned polls;
};

struct sl_dpdk_port {
    struct sl_node link; /* of those that are open */
    unsigned refs;
    struct sl_dpdk_port_info info;
    bool is_stuck;
    uint16_t cuts[CUTS];
    unsigned cut_count;
};

struct use { /* of one port by one user */
    struct sl_dpdk_port *port;
    struct collected burst[BURST];
    unsigned count;
    struct sl_node inbox;
    unsigned waiting;
    struct kept *kept;
    unsigned kept_count, kept_room;
};

struct sl_dpdk_user {
    struct sl_node link;
    sl_dpdk_packet_fn packet;
    sl_dpdk_sent_fn sent;
    void *arg;
    struct use *uses[SL_DPDK_PORTS_MAX];
    unsigned use_count;
};

static struct {
    struct sl_node ports, users;
    struct sl_rng rng;
    struct fake_port_weather weather;
    struct sl_dpdk_user **flows; /* by number */
    uint32_t flow_cap, flow_next;
    unsigned flow_count, no_neighbours, made;
    struct packet *held;
    uint64_t sent, sent_in[256]; /* by traffic class */
    bool (*look)(void *arg, const uint8_t *bytes, size_t len);
    void *look_arg;
} the;

void fake_port_reset(uint64_t seed)
{
    sl_assert(the.ports.next == NULL || fake_port_live() == 0);
    free(the.flows);
    free(the.held);
    memset(&the, 0, sizeof(the));
    sl_list_init(&the.ports);
    sl_list_init(&the.users);
    sl_rng_init(&the.rng, seed);
    the.flow_next = 1;
}

void fake_port_weather(const struct fake_port_weather *weather)
{
    the.weather = *weather;
}

/* ---- ports ---- */

static struct sl_dpdk_port *find(const char *name)
{
    sl_list_foreach(&the.ports, node)
    {
        struct sl_dpdk_port *port = sl_container_of(node, struct sl_dpdk_port, link);

        if (strcmp(port->info.name, name) == 0)
            return port;
    }
    return NULL;
}

static uint32_t hash(const char *text)
{
    uint32_t value = 2166136261u;

    for (; *text != '\0'; text++)
        value = (value ^ (uint8_t)*text) * 16777619u;
    return value;
}

static struct sl_dpdk_port *open_port(const char *name, const char *wire)
{
    struct sl_dpdk_port *port = find(name);
    unsigned number = the.made;

    if (port != NULL) {
        port->refs++;
        return port;
    }
    port = calloc(1, sizeof(*port));
    if (port == NULL)
        return NULL;
    the.made++;
    port->refs = 1;
    snprintf(port->info.name, sizeof(port->info.name), "%s", name);
    snprintf(port->info.driver, sizeof(port->info.driver), "fake");
    port->info.address =
        (struct sl_dpdk_address){.mac = {2, 0, 0, 0, 0, (uint8_t)(number + 1)},
                                 .ip = {10, 1, 0, (uint8_t)(number + 1)},
                                 .prefix = 24,
                                 .udp_port = 4793,
                                 .segment = strcmp(wire, "*") == 0 ? 0 : hash(wire)};
    port->info.frame_most = the.weather.frame_most != 0 ? the.weather.frame_most : FRAME_MOST;
    port->info.numa_node = -1;
    port->info.sends_segments = the.weather.keeps;
    port->info.is_up = true;
    sl_list_push_back(&the.ports, &port->link);
    return port;
}

int sl_dpdk_ports_get(const struct sl_dpdk_port_settings *settings, struct sl_dpdk_port **out,
                      size_t cap, size_t *count)
{
    const char *at = settings->list;
    size_t found = 0;

    while (*at != '\0') {
        size_t len = strcspn(at, " ");
        char entry[80], *wire;

        snprintf(entry, sizeof(entry), "%.*s", (int)len, at);
        at += len + (at[len] == ' ');
        wire = strchr(entry, '@');
        if (wire == NULL || found == cap) {
            sl_dpdk_ports_put(out, found);
            return sl_fail(-EINVAL, "SLUICE_DPDK_PORTS: '%s' is no fake port", entry);
        }
        *wire++ = '\0';
        out[found] = open_port(entry, wire);
        if (out[found] == NULL) {
            sl_dpdk_ports_put(out, found);
            return sl_fail(-ENOMEM, "no memory for a fake port");
        }
        found++;
    }
    *count = found;
    return found > 0 ? 0 : sl_fail(-ENODEV, "SLUICE_DPDK_PORTS names no port");
}

void sl_dpdk_ports_put(struct sl_dpdk_port **ports, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (--ports[i]->refs != 0)
            continue;
        sl_list_remove(&ports[i]->link);
        free(ports[i]);
    }
}

void sl_dpdk_port_info(const struct sl_dpdk_port *port, struct sl_dpdk_port_info *out)
{
    *out = port->info;
}

void fake_port_link(const char *name, bool is_up)
{
    find(name)->info.is_up = is_up;
}

void fake_port_stuck(const char *name, bool is_stuck)
{
    find(name)->is_stuck = is_stuck;
}

void fake_port_cut(const char *name, uint16_t source_port, bool is_cut)
{
    struct sl_dpdk_port *port = find(name);
    unsigned left = 0;

    for (unsigned i = 0; i < port->cut_count; i++)
        if (port->cuts[i] != source_port)
            port->cuts[left++] = port->cuts[i];
    port->cut_count = left;
    if (is_cut && left < CUTS)
        port->cuts[port->cut_count++] = source_port;
}

void fake_port_neighbours(unsigned count)
{
    the.no_neighbours = count;
}

void fake_port_watch(bool (*look)(void *arg, const uint8_t *bytes, size_t len), void *arg)
{
    the.look = look;
    the.look_arg = arg;
}

uint64_t fake_port_sent(void)
{
    return the.sent;
}

uint64_t fake_port_sent_in(uint8_t traffic_class)
{
    return the.sent_in[traffic_class];
}

unsigned fake_port_live(void)
{
    unsigned count = the.flow_count;

    sl_list_foreach(&the.ports, node) count++;
    sl_list_foreach(&the.users, node) count++;
    return count;
}

/* ---- users ---- */

int sl_dpdk_user_open(sl_dpdk_packet_fn packet, sl_dpdk_sent_fn sent, void *arg,
                      struct sl_dpdk_user **out)
{
    struct sl_dpdk_user *user = calloc(1, sizeof(*user));

    if (user == NULL)
        return sl_fail(-ENOMEM, "no memory for a user of ports");
    user->packet = packet;
    user->sent = sent;
    user->arg = arg;
    sl_list_push_back(&the.users, &user->link);
    *out = user;
    return 0;
}

static struct use *use_of(struct sl_dpdk_user *user, struct sl_dpdk_port *port)
{
    struct use *use;

    for (unsigned i = 0; i < user->use_count; i++)
        if (user->uses[i]->port == port)
            return user->uses[i];
    sl_assert(user->use_count < SL_DPDK_PORTS_MAX);
    use = calloc(1, sizeof(*use));
    sl_assert(use != NULL);
    use->port = port;
    sl_list_init(&use->inbox);
    user->uses[user->use_count++] = use;
    return use;
}

static void keep(struct use *use, uint64_t cookie)
{
    if (use->kept_count == use->kept_room) {
        use->kept_room = use->kept_room == 0 ? 64 : 2 * use->kept_room;
        use->kept = reallocarray(use->kept, use->kept_room, sizeof(*use->kept));
        sl_assert(use->kept != NULL);
    }
    use->kept[use->kept_count++] = (struct kept){cookie, the.weather.slow};
}

static void forget_collected(struct use *use, struct collected *one)
{
    if (one->copy == NULL && one->len > 0)
        keep(use, one->cookie);
    free(one->copy);
    one->copy = NULL;
}

static void drop(struct use *use)
{
    for (unsigned i = 0; i < use->count; i++)
        forget_collected(use, &use->burst[i]);
    use->count = 0;
}

void sl_dpdk_drop(struct sl_dpdk_user *user, struct sl_dpdk_port *port)
{
    drop(use_of(user, port));
}

static void tell_kept(struct sl_dpdk_user *user, struct use *use, bool all)
{
    unsigned left = 0;

    for (unsigned i = 0; i < use->kept_count; i++) {
        struct kept kept = use->kept[i];

        if (all || kept.polls == 0) {
            user->sent(user->arg, kept.cookie);
        } else {
            kept.polls--;
            use->kept[left++] = kept;
        }
    }
    use->kept_count = left;
}

void sl_dpdk_user_close(struct sl_dpdk_user *user)
{
    if (user == NULL)
        return;
    for (unsigned i = 0; i < user->use_count; i++) {
        struct use *use = user->uses[i];
        struct sl_node *node;

        drop(use);
        tell_kept(user, use, true);
        while ((node = sl_list_pop_front(&use->inbox)) != NULL)
            free(sl_container_of(node, struct packet, link));
        free(use->kept);
        free(use);
    }
    sl_list_remove(&user->link);
    free(user);
}

int sl_dpdk_flow_number(struct sl_dpdk_user *user, uint32_t *out)
{
    if (the.flow_next >= the.flow_cap) {
        uint32_t cap = the.flow_cap == 0 ? 256 : 2 * the.flow_cap;

        the.flows = reallocarray(the.flows, cap, sizeof(struct sl_dpdk_user *));
        sl_assert(the.flows != NULL);
        memset(the.flows + the.flow_cap, 0, (cap - the.flow_cap) * sizeof(struct sl_dpdk_user *));
        the.flow_cap = cap;
    }
    the.flows[the.flow_next] = user;
    the.flow_count++;
    *out = the.flow_next++;
    return 0;
}

void sl_dpdk_flow_forget(struct sl_dpdk_user *user, uint32_t number)
{
    sl_assert(number < the.flow_cap && the.flows[number] == user);
    the.flows[number] = NULL;
    the.flow_count--;
}

unsigned sl_dpdk_user_poll(struct sl_dpdk_user *user, struct sl_dpdk_port *port, unsigned budget)
{
    struct use *use = use_of(user, port);
    unsigned came = 0;

    tell_kept(user, use, false);
    while (came < budget && !sl_list_empty(&use->inbox)) {
        struct packet *packet =
            sl_container_of(sl_list_pop_front(&use->inbox), struct packet, link);

        use->waiting--;
        came++;
        if (the.flows[packet->flow] == user)
            user->packet(user->arg, port, packet->flow, packet->bytes, packet->len,
                         packet->is_marked);
        free(packet);
    }
    return came;
}

/* ---- the wire ---- */

static struct sl_dpdk_port *port_at(const struct sl_dpdk_port *from, const uint8_t mac[6])
{
    sl_list_foreach(&the.ports, node)
    {
        struct sl_dpdk_port *port = sl_container_of(node, struct sl_dpdk_port, link);

        if (port != from && port->info.address.segment == from->info.address.segment &&
            memcmp(port->info.address.mac, mac, 6) == 0)
            return port;
    }
    return NULL;
}

/* What is full loses what comes. */
static void arrive(struct packet *packet)
{
    struct sl_dpdk_user *user =
        packet->flow > 0 && packet->flow < the.flow_cap ? the.flows[packet->flow] : NULL;
    unsigned room = the.weather.queue != 0 ? the.weather.queue : QUEUE;
    struct use *use = NULL;

    for (unsigned i = 0; user != NULL && i < user->use_count; i++)
        if (user->uses[i]->port == packet->to)
            use = user->uses[i];
    if (use == NULL || !packet->to->info.is_up || use->waiting >= room) {
        free(packet);
        return;
    }
    sl_list_push_back(&use->inbox, &packet->link);
    use->waiting++;
}

/* One that is held back comes behind the next. */
static void deliver(struct packet *packet)
{
    struct packet *held = the.held;

    the.held = NULL;
    if (held == NULL && sl_rng_chance(&the.rng, the.weather.held)) {
        the.held = packet;
        return;
    }
    arrive(packet);
    if (held != NULL)
        arrive(held);
}

static bool is_cut(const struct sl_dpdk_port *port, const struct sl_dpdk_way *way)
{
    uint16_t source_port = (uint16_t)(way->head[34] << 8 | way->head[35]);

    for (unsigned i = 0; i < port->cut_count; i++)
        if (port->cuts[i] == 0 || port->cuts[i] == source_port)
            return true;
    return false;
}

static struct packet *packet_of(const struct sl_dpdk_port *port, const struct collected *one)
{
    size_t tail = one->has_tail ? sizeof(one->tail) : 0;
    struct packet *packet = malloc(sizeof(*packet) + one->head_len + one->len + tail);

    sl_assert(packet != NULL);
    the.sent_in[one->way.head[15]]++;
    packet->len = one->head_len + one->len + tail;
    memcpy(packet->bytes, one->head, one->head_len);
    if (one->len > 0)
        memcpy(packet->bytes + one->head_len, one->copy != NULL ? one->copy : one->payload,
               one->len);
    memcpy(packet->bytes + one->head_len + one->len, &one->tail, tail);
    memcpy(&packet->flow, packet->bytes + 4, sizeof(packet->flow));
    packet->to = port_at(port, one->way.head);
    packet->is_marked = sl_rng_chance(&the.rng, the.weather.marked) != 0;
    return packet;
}

static void put_on_wire(const struct sl_dpdk_port *port, const struct collected *one)
{
    struct packet *packet = packet_of(port, one), *again;

    the.sent++;
    if (packet->to == NULL || !port->info.is_up || is_cut(port, &one->way) ||
        (the.look != NULL && !the.look(the.look_arg, packet->bytes, packet->len)) ||
        sl_rng_chance(&the.rng, the.weather.lost)) {
        free(packet);
        return;
    }
    if (sl_rng_chance(&the.rng, the.weather.damaged))
        packet->bytes[sl_rng_below(&the.rng, one->head_len)] ^= 1;
    if (sl_rng_chance(&the.rng, the.weather.doubled)) {
        again = malloc(sizeof(*packet) + packet->len);
        sl_assert(again != NULL);
        memcpy(again, packet, sizeof(*packet) + packet->len);
        deliver(again);
    }
    deliver(packet);
}

void fake_port_inject(uint32_t flow, const void *bytes, size_t len)
{
    sl_list_foreach(&the.ports, node)
    {
        struct packet *packet = malloc(sizeof(*packet) + len);

        sl_assert(packet != NULL);
        *packet = (struct packet){
            .to = sl_container_of(node, struct sl_dpdk_port, link), .flow = flow, .len = len};
        memcpy(packet->bytes, bytes, len);
        arrive(packet);
    }
}

int sl_dpdk_way_make(struct sl_dpdk_port *port, const struct sl_dpdk_address *peer,
                     uint16_t source_port, uint8_t traffic_class, struct sl_dpdk_way *out)
{
    if (the.no_neighbours > 0) {
        the.no_neighbours--;
        return -EAGAIN;
    }
    memset(out, 0, sizeof(*out));
    memcpy(out->head, peer->mac, 6);
    memcpy(out->head + 6, port->info.address.mac, 6);
    out->head[15] = traffic_class;
    out->head[34] = (uint8_t)(source_port >> 8);
    out->head[35] = (uint8_t)source_port;
    return 0;
}

int sl_dpdk_send(struct sl_dpdk_user *user, struct sl_dpdk_port *port,
                 const struct sl_dpdk_way *way, const void *head, size_t head_len,
                 const void *payload, size_t len, const uint32_t *tail, bool may_keep,
                 uint64_t cookie)
{
    struct use *use = use_of(user, port);
    struct collected *one;
    bool keeps = may_keep && the.weather.keeps && len > 0;

    sl_assert(HEADERS + head_len + len + (tail != NULL ? sizeof(*tail) : 0) <=
              port->info.frame_most);
    if (use->count == BURST)
        sl_dpdk_flush(user, port);
    if (use->count == BURST)
        return -EAGAIN;
    one = &use->burst[use->count++];
    *one = (struct collected){.way = *way,
                              .head_len = head_len,
                              .len = len,
                              .payload = payload,
                              .has_tail = tail != NULL,
                              .tail = tail != NULL ? *tail : 0,
                              .cookie = cookie};
    sl_assert(head_len <= sizeof(one->head));
    memcpy(one->head, head, head_len);
    if (keeps)
        return 1;
    one->copy = malloc(len + 1);
    sl_assert(one->copy != NULL);
    if (len > 0)
        memcpy(one->copy, payload, len);
    return 0;
}

unsigned sl_dpdk_flush(struct sl_dpdk_user *user, struct sl_dpdk_port *port)
{
    struct use *use = use_of(user, port);
    unsigned count = use->count;

    if (port->is_stuck)
        return 0;
    for (unsigned i = 0; i < count; i++) {
        put_on_wire(port, &use->burst[i]);
        forget_collected(use, &use->burst[i]);
    }
    use->count = 0;
    return count;
}

int sl_dpdk_port_fd(struct sl_dpdk_port *port)
{
    (void)port;
    return -1;
}

int sl_dpdk_port_arm(struct sl_dpdk_port *port)
{
    (void)port;
    return -ENOTSUP;
}

void sl_dpdk_port_disarm(struct sl_dpdk_port *port)
{
    (void)port;
}
