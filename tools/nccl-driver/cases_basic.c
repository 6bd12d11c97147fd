/* SPDX-License-Identifier: Apache-2.0 */
/* What every job does: properties, connections, windows of messages, groups, the odd sizes. */
#include "tools/nccl-driver/cases.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static int sane(const struct net *net, int dev, const struct net_props *p)
{
    if (p->name == NULL || p->name[0] == '\0' || strlen(p->name) > 100)
        return watch_fail("device %d has no name", dev);
    if ((p->ptr_support & NET_PTR_HOST) == 0 || (p->ptr_support & ~7) != 0)
        return watch_fail("device %d: ptrSupport is 0x%x", dev, p->ptr_support);
    if (p->max_recvs < 1 || p->max_recvs > NET_GROUP)
        return watch_fail("device %d: maxRecvs is %d", dev, p->max_recvs);
    if (p->max_comms < 1 || p->port < 0 || p->speed < -1)
        return watch_fail("device %d: maxComms %d, port %d, speed %d", dev, p->max_comms, p->port,
                          p->speed);
    if (!isfinite(p->latency) || p->latency < 0 || p->latency > 1e6f)
        return watch_fail("device %d: latency is %g us", dev, (double)p->latency);
    if (net->version >= 8 && (p->device_type != 0 || p->reg_is_global < 0 || p->reg_is_global > 1))
        return watch_fail("device %d: netDeviceType %d, regIsGlobal %d", dev, p->device_type,
                          p->reg_is_global);
    if (p->max_p2p_bytes == 0 || p->max_p2p_bytes > NET_LARGEST || p->max_coll_bytes == 0 ||
        p->max_coll_bytes > NET_LARGEST)
        return watch_fail("device %d: maxP2pBytes %zu, maxCollBytes %zu", dev, p->max_p2p_bytes,
                          p->max_coll_bytes);
    if (p->virtual_count < 0 || p->virtual_count > (net->version == 12 ? 8 : 4))
        return watch_fail("device %d: a virtual device of %d", dev, p->virtual_count);
    return 0;
}

/* Filled with two kinds of poison first: a member that differs was left alone. */
static int filled(const struct net *net, int dev, const struct net_props *a,
                  const struct net_props *b)
{
    const char *left = a->guid != b->guid                 ? "guid"
                       : a->pci_path != b->pci_path       ? "pciPath"
                       : a->ptr_support != b->ptr_support ? "ptrSupport"
                       : a->speed != b->speed             ? "speed"
                       : a->port != b->port               ? "port"
                       : a->max_comms != b->max_comms     ? "maxComms"
                       : a->max_recvs != b->max_recvs     ? "maxRecvs"
                       /* NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): the same bits */
                       : memcmp(&a->latency, &b->latency, 4) != 0     ? "latency"
                       : a->reg_is_global != b->reg_is_global         ? "regIsGlobal"
                       : a->force_flush != b->force_flush             ? "forceFlush"
                       : a->device_type != b->device_type             ? "netDeviceType"
                       : a->device_version != b->device_version       ? "netDeviceVersion"
                       : a->virtual_count != b->virtual_count         ? "vProps.ndevs"
                       : a->max_p2p_bytes != b->max_p2p_bytes         ? "maxP2pBytes"
                       : a->max_coll_bytes != b->max_coll_bytes       ? "maxCollBytes"
                       : a->max_multi_request != b->max_multi_request ? "maxMultiRequestSize"
                       : a->rail != b->rail || a->plane != b->plane   ? "railId or planeId"
                                                                      : NULL;
    uintptr_t garbage;

    memset(&garbage, 0xa5, sizeof(garbage));
    if (left == NULL && (uintptr_t)a->name == garbage)
        left = "name";
    return left == NULL ? 0
                        : watch_fail("device %d: getProperties of v%d leaves %s alone", dev,
                                     net->version, left);
}

static int properties_are_filled_and_sane(struct rank *r)
{
    char names[32][104];
    void *ctx;
    int count;

    if (net_init(r->net, &ctx, 1) != NET_OK || net_devices(r->net, &count) != NET_OK)
        return watch_fail("init or devices failed");
    if (count < 1 || count > 32)
        return watch_fail("%d devices", count);
    for (int dev = 0; dev < count; dev++) {
        struct net_props a, b;

        if (net_properties(r->net, dev, 0xa5, &a) != NET_OK ||
            net_properties(r->net, dev, 0x3c, &b) != NET_OK)
            return watch_fail("getProperties of device %d failed", dev);
        if (filled(r->net, dev, &a, &b) != 0 || sane(r->net, dev, &a) != 0)
            return -1;
        strcpy(names[dev], a.name);
        for (int other = 0; other < dev; other++)
            if (strcmp(names[other], names[dev]) == 0)
                return watch_fail("devices %d and %d are both called %s: NCCL would join them",
                                  other, dev, names[dev]);
    }
    return net_finalize(r->net, ctx) == NET_OK ? 0 : watch_fail("finalize failed");
}

static int handles_keep_to_128_bytes_and_differ(struct rank *r)
{
    uint8_t handles[4][NET_HANDLE_BYTES];
    void *comms[4];

    if (rank_start(r) != 0)
        return -1;
    for (int i = 0; i < 4; i++) {
        struct job job = {.kind = JOB_LISTEN, .conn = i, .ctx = r->ctx, .handle = handles[i]};

        if (rank_do(r, &job) != 0)
            return -1;
        comms[i] = job.comm;
        for (int other = 0; other < i; other++)
            if (memcmp(handles[other], handles[i], NET_HANDLE_BYTES) == 0)
                return watch_fail("listeners %d and %d have one handle", other, i);
    }
    for (int i = 0; i < 4; i++) {
        struct job job = {.kind = JOB_CLOSE_LISTEN, .conn = i, .comm = comms[i]};

        if (rank_do(r, &job) != 0)
            return -1;
    }
    return rank_stop(r);
}

/* Older NCCL probes a device so: both ends are polled by one thread. */
static int a_rank_connects_to_itself_on_one_thread(struct rank *r)
{
    static const size_t sizes[] = {0, 1, 4096, 100000};
    const struct flow like = {.steps = 24, .sizes = sizes, .size_count = COUNT(sizes)};
    struct conn conn = {.id = 0, .from = r->idx, .to = r->idx};

    if (rank_start(r) != 0 || rank_connect(r, &conn, 1) != 0 || case_carry(r, &conn, 1, &like) != 0)
        return -1;
    rank_close(r, &conn, 1);
    return rank_stop(r);
}

static int carry_on(struct rank *r, unsigned count, const struct flow *like)
{
    struct conn conns[CONNS_MOST];

    case_ring(r, conns, count, 0);
    if (rank_connect(r, conns, count) != 0 || case_carry(r, conns, count, like) != 0)
        return -1;
    rank_close(r, conns, count);
    return rank_stop(r);
}

static int windows_of_8_steps_carry_every_size(struct rank *r)
{
    const struct flow like = {.steps = 60, .sizes = case_mixed, .size_count = case_mixed_count};

    return rank_start(r) != 0 ? -1 : carry_on(r, 2, &like);
}

static int eight_connections_move_at_once(struct rank *r)
{
    const struct flow like = {.steps = 50, .sizes = case_small, .size_count = case_small_count};

    return rank_start(r) != 0 ? -1 : carry_on(r, 8, &like);
}

static int thirty_two_requests_are_in_flight(struct rank *r)
{
    const struct flow like = {
        .steps = 200, .window = NET_REQUESTS, .sizes = case_small, .size_count = case_small_count};

    return rank_start(r) != 0 ? -1 : carry_on(r, 2, &like);
}

static int zero_bytes_are_messages_too(struct rank *r)
{
    static const size_t sizes[] = {0};
    const struct flow like = {.steps = 100, .sizes = sizes, .size_count = 1};

    return rank_start(r) != 0 ? -1 : carry_on(r, 2, &like);
}

static int groups(struct rank *r, const struct flow *shape, unsigned subs)
{
    struct flow like = *shape;

    if (rank_start(r) != 0)
        return -1;
    if (r->props.max_recvs < 2) {
        watch_skip("maxRecvs is 1");
        return rank_stop(r);
    }
    like.subs = subs < (unsigned)r->props.max_recvs ? subs : (unsigned)r->props.max_recvs;
    for (unsigned s = 0; s < like.subs; s++)
        like.tags[s] = (int)(7 * s + 3);
    return carry_on(r, 2, &like);
}

static int grouped_receives_match_by_tag(struct rank *r)
{
    const struct flow shape = {.steps = 60, .sizes = case_small, .size_count = case_small_count};

    return groups(r, &shape, NET_GROUP);
}

static int groups_of_three_carry_large_messages(struct rank *r)
{
    static const size_t sizes[] = {0, 3, 65536, 300000};
    const struct flow shape = {.steps = 30, .sizes = sizes, .size_count = COUNT(sizes)};

    return groups(r, &shape, 3);
}

/* The messages of a group come one by one, with receives tested in between. */
static int a_group_ends_with_its_last_message(struct rank *r)
{
    const struct flow shape = {
        .steps = 12, .pause_ns = 1 * MS, .sizes = case_small, .size_count = case_small_count};

    return groups(r, &shape, 4);
}

static int grouped_receives_are_cut_short_too(struct rank *r)
{
    const struct flow shape = {
        .steps = 40, .clip = 100, .sizes = case_small, .size_count = case_small_count};

    return groups(r, &shape, 4);
}

static int sends_are_cut_to_the_receive(struct rank *r)
{
    static const size_t sizes[] = {1, 1000, 1001, 70000, 300000};
    const struct flow like = {
        .steps = 60, .clip = 1000, .sizes = sizes, .size_count = COUNT(sizes)};

    return rank_start(r) != 0 ? -1 : carry_on(r, 2, &like);
}

static int optional_receives_are_marked(struct rank *r)
{
    const struct flow like = {.steps = 150,
                              .marker = true,
                              .window = NET_REQUESTS,
                              .sizes = case_small,
                              .size_count = case_small_count};

    if (!net_has_marker(r->net))
        return watch_skip("NCCL keeps the marker from plugins older than v9");
    return rank_start(r) != 0 ? -1 : carry_on(r, 2, &like);
}

static int profile(struct rank *r, enum net_profiling how)
{
    const struct flow like = {.steps = 60, .sizes = case_mixed, .size_count = 6};
    unsigned open, seen;

    if (!net_has_profiler(r->net))
        return watch_skip("no profiler before v10");
    if (r->idx == 0)
        net_profile(how);
    if (boot_barrier(r) != 0 || rank_start(r) != 0 || carry_on(r, 2, &like) != 0 ||
        boot_barrier(r) != 0)
        return -1;
    open = net_profile_open(&seen);
    if (seen == 0)
        return watch_skip("the plugin tells the profiler nothing");
    return open == 0
               ? 0
               : watch_fail("of %u events of the profiler, %u were never stopped", seen, open);
}

static int profiler_events_start_and_stop(struct rank *r)
{
    return profile(r, PROFILING_ON);
}

static int a_profiler_that_takes_no_event_is_not_told_of_its_end(struct rank *r)
{
    return profile(r, PROFILING_SILENT);
}

static int attributes_are_hints(struct rank *r)
{
    struct net_attr attr = {
        .send = {4, 1, 2, 1}, .recv = {4, 1, 2, 1}, .op = 1, .algo = 2, .proto = 4};
    struct net_attr any = {.send = {-1, -1, -1, -1},
                           .recv = {-1, -1, -1, -1},
                           .op = UINT32_MAX,
                           .algo = UINT32_MAX,
                           .proto = UINT32_MAX};

    if (!net_has_contexts(r->net))
        return watch_skip("no setNetAttr before v11");
    if (rank_start(r) != 0)
        return -1;
    if (net_set_attr(r->net, r->ctx, &attr) != NET_OK ||
        net_set_attr(r->net, r->ctx, &any) != NET_OK ||
        net_set_attr(r->net, r->ctx, NULL) != NET_OK)
        return watch_fail("setNetAttr failed");
    return case_quick(r, 0) != 0 ? -1 : rank_stop(r);
}

const struct driver_case cases_basic[] = {
    {NAMED(properties_are_filled_and_sane), 1, CASE_THREADS},
    {NAMED(handles_keep_to_128_bytes_and_differ), 1, CASE_THREADS},
    {NAMED(a_rank_connects_to_itself_on_one_thread), 1, CASE_THREADS},
    {NAMED(windows_of_8_steps_carry_every_size), 2, CASE_ANYWHERE},
    {NAMED(eight_connections_move_at_once), 2, CASE_ANYWHERE},
    {NAMED(thirty_two_requests_are_in_flight), 2, CASE_ANYWHERE},
    {NAMED(zero_bytes_are_messages_too), 2, CASE_ANYWHERE},
    {NAMED(grouped_receives_match_by_tag), 2, CASE_ANYWHERE},
    {NAMED(groups_of_three_carry_large_messages), 2, CASE_ANYWHERE},
    {NAMED(a_group_ends_with_its_last_message), 2, CASE_ANYWHERE},
    {NAMED(grouped_receives_are_cut_short_too), 2, CASE_ANYWHERE},
    {NAMED(sends_are_cut_to_the_receive), 2, CASE_ANYWHERE},
    {NAMED(optional_receives_are_marked), 2, CASE_ANYWHERE},
    {NAMED(profiler_events_start_and_stop), 2, CASE_THREADS},
    {NAMED(a_profiler_that_takes_no_event_is_not_told_of_its_end), 2, CASE_THREADS},
    {NAMED(attributes_are_hints), 2, CASE_THREADS},
};
const unsigned cases_basic_count = COUNT(cases_basic);
