/* SPDX-License-Identifier: Apache-2.0 */
/* Variables of RDMA: SLUICE_VERBS_*. */
#include "verbs/config.h"

#include "core/err.h"
#include "core/transport.h"
#include "verbs/pkey.h"

#include <stdio.h>
#include <string.h>

#define AT(field) offsetof(struct sl_verbs_config, field)

#define PATHS "SLUICE_VERBS_PATHS"

static int check_paths(const char *list)
{
    return sl_path_list_check(PATHS, list);
}

static const struct sl_config_row rows[] = {
    SL_ROW_TEXT(
        "VERBS_DEVICES", devices, "",
        "RDMA devices and ports that may be used: names such as mlx5_0 or mlx5_0:1, prefixes "
        "ending in *, each with ^ to exclude, separated by commas. Empty: every active port."),
    SL_ROW_INT("VERBS_GID_INDEX", gid_index, "-1", "index", -1, 255,
               "GID of every port, by index. -1: chosen by type, address family and subnet."),
    SL_ROW_CHOICE("VERBS_GID_FAMILY", gid_family, "auto", "auto ipv4 ipv6",
                  "Addresses to choose GIDs from: auto (IPv4 first), ipv4 or ipv6."),
    SL_ROW_CHECKED("VERBS_PKEY", pkey, "auto", sl_verbs_pkey_check,
                   "Partition of InfiniBand ports: a P_Key in hex (0x8001: as a full member, "
                   "0x0001: as either). "
                   "auto: the first key of a full member that suits the peer."),
    SL_MP_ROW_PATHS(
        "VERBS", check_paths,
        "Paths of each connection: LOCAL>REMOTE[/LABEL][@PORT] by number of rail, with a flow "
        "label in hex and a port of the bond that a rail may be, separated by commas "
        "(0>0/c0de,1>1/beef@2). auto: each rail to one of the peer's in its subnet."),
    SL_ROW_INT(
        "VERBS_PATHS_PER_RAIL", mp.paths_per_rail, "0", "paths", 0, 8,
        "Queue pairs between a pair of rails, each with a flow label of its own. 0: one, or one "
        "for each port of a bond."),
    SL_MP_ROW_LAZY("VERBS"),
    SL_ROW_INT(
        "VERBS_TRAFFIC_CLASS", traffic_class, "0", "", 0, 255,
        "Traffic class of RoCE packets: DSCP * 4. Choose the one for which the switches have PFC "
        "or ECN."),
    SL_ROW_INT("VERBS_SERVICE_LEVEL", service_level, "0", "", 0, 15, "Service level of packets."),
    SL_ROW_CHOICE("VERBS_STATIC_RATE", static_rate, "auto", "auto off",
                  "auto: what goes to a slower port leaves at that port's speed. off: at our own."),
    SL_ROW_CHOICE("VERBS_ECE", ece, "auto", "auto off",
                  "auto: what both devices can beyond the standard (selective repeat, for one) is "
                  "used, as their driver says. off: nothing of that."),
    {"VERBS_MTU", AT(mtu), SL_CONFIG_INT, "0", "bytes", 0, 4096,
     "Largest packet. 0: what both ports have active.", "0 256 512 1024 2048 4096"},
    SL_ROW_INT("VERBS_TIMEOUT", timeout, "14", "", 1, 31,
               "How long a NIC waits for an acknowledgement: 4.096 us * 2^value (14: 67 ms)."),
    SL_ROW_INT("VERBS_RETRY_COUNT", retry_count, "6", "times", 0, 7,
               "How often a NIC repeats before it gives a path up. 7 means for ever to some."),
    SL_ROW_INT(
        "VERBS_RNR_TIMER", rnr_timer, "6", "", 0, 31,
        "How long a NIC waits when the peer had no receive posted, by the InfiniBand table (6: 80 "
        "us)."),
    SL_ROW_CHOICE(
        "VERBS_LOCALITY", locality, "auto", "auto off near",
        "Ports that are far from this rank's GPU, or its cores: auto (held in reserve while a "
        "nearer one can carry, unless SLUICE_VERBS_DEVICES or SLUICE_VERBS_PATHS names what is to "
        "be used), off (all carry alike), near (not used at all)."),
    SL_MP_ROW_RESERVE("VERBS"),
    SL_MP_ROW_EAGER_BYTES("VERBS"),
    SL_ROW_BYTES(
        "VERBS_PIECE_BYTES", mp.piece_bytes, "0", 0, SL_GIB,
        "Messages are dealt over the paths in pieces of this size. 0: as long as the port takes 21 "
        "us for, 64 KiB up to 25 Gbit/s and 1 MiB from 400 Gbit/s on; soft-RoCE: a packet."),
    SL_ROW_BYTES(
        "VERBS_STAGING_BYTES", mp.staging_bytes, "16M", 64 * SL_KIB, 64 * SL_GIB,
        "Registered memory of an interface that messages pass through when their own is not "
        "registered, or is reduced into."),
    SL_MP_ROW_PATH_WAIT_MS("VERBS"),
    SL_MP_ROW_FALLBACK("VERBS"),
    SL_ROW_SWITCH(
        "VERBS_SRQ", srq, "auto",
        "Receive buffers of all connections in one queue: on (and the device must have such "
        "queues), off (each path has its own: some 400 KiB), auto (on where the device has them)."),
    SL_ROW_INT(
        "VERBS_COMP_VECTOR", comp_vector, "-1", "vector", -1, 65535,
        "Completion vector of a device (interrupt, and so processor) that wakes a rank which "
        "sleeps. -1: ranks are spread over all of them."),
    SL_ROW_SWITCH(
        "VERBS_THREAD_DOMAIN", thread_domain, "auto",
        "Queues of a thread domain, which drivers do not lock: auto (where the device has them), "
        "on (and it must), off."),
    SL_ROW_CHOICE(
        "VERBS_KEYS", keys, "region", "region window",
        "What a peer gets a key for when it may write into registered memory: region (all that was "
        "registered, as long as it is) or window (the bytes of that message, until they are "
        "there)."),
    SL_ROW_SWITCH(
        "VERBS_RELAXED_ORDERING", relaxed_ordering, "auto",
        "Let PCIe reorder writes into registered memory: auto and on, where the device offers "
        "it; off."),
    SL_ROW_SWITCH(
        "VERBS_FORK", fork, "auto",
        "Prepare registered memory for fork(): auto (only where the kernel does not do it by "
        "itself), on, off."),
};

struct sl_config_section sl_verbs_section = {.area = "VERBS",
                                             .rows = rows,
                                             .row_count = SL_ARRAY_LEN(rows),
                                             .size = sizeof(struct sl_verbs_config)};

struct sl_mp_path_wishes sl_verbs_path_wishes(const struct sl_config *config)
{
    return (struct sl_mp_path_wishes){.area = "verbs",
                                      .variable = PATHS,
                                      .list = sl_verbs_config(config)->mp.paths,
                                      .per_rail = sl_verbs_config(config)->mp.paths_per_rail};
}

static bool only_excludes(const char *list)
{
    for (; *list != '\0'; list += strcspn(list, ","), list += *list == ',')
        if (*list != '^' && *list != ',')
            return false;
    return true;
}

/* Rails of a connection are tried in the order of this list: the device's own, then all that are
 * allowed. */
static void prefer_rail(struct sl_verbs_config *config, const struct sl_device *dev)
{
    char all[SL_TEXT_MAX];
    int n;

    snprintf(all, sizeof(all), "%s", config->devices);
    n = snprintf(config->devices, sizeof(config->devices), "%s,%s%s", dev->name, all,
                 only_excludes(all) ? ",*" : "");
    if (n < 0 || (size_t)n >= SL_TEXT_MAX)
        memcpy(config->devices, all, sizeof(all));
}

void sl_verbs_prefer(struct sl_config *config, const struct sl_device *dev, int traffic_class)
{
    struct sl_verbs_config *own = sl_verbs_config_edit(config);

    if (traffic_class >= 0 && traffic_class <= 255)
        own->traffic_class = traffic_class;
    if (own->mp.reserve == SL_AUTO)
        own->mp.reserve = SL_ON;
    own->locality = SL_VERBS_LOCALITY_OFF; /* whoever prefers a device has looked at distances */
    prefer_rail(own, dev);
}
