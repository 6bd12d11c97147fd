/* SPDX-License-Identifier: Apache-2.0 */
/* Variables of DPDK: SLUICE_DPDK_*. */
#include "dpdk/config.h"

#include "core/err.h"
#include "core/transport.h"
#include "dpdk/port/port.h"
#include "dpdk/proto/flow.h"

#include <stdio.h>

#define AT(field) offsetof(struct sl_dpdk_config, field)

static int paths_check(const char *value)
{
    return sl_path_list_check("SLUICE_DPDK_PATHS", value);
}

static const struct sl_config_row rows[] = {
    SL_ROW_CHECKED_LONG(
        "DPDK_PORTS", ports, "", SL_DPDK_PORTS_BYTES, sl_dpdk_ports_check,
        "Ports to drive, separated by spaces: a PCI address, the name of a port, or a virtual "
        "device with its arguments (net_memif0,role=client,id=3), each with options behind @ "
        "(@ip=10.1.0.2/24@gw=10.1.0.1@mtu=9000; IPv6 in place of IPv4 or beside it: "
        "@ip=fd00:1::2/64@gw=fe80::1); mesh:DIR: one to each other rank of this host. Empty: no "
        "port is touched, and there is no such transport."),
    SL_MP_ROW_PATHS(
        "DPDK", paths_check,
        "Paths of each connection: LOCAL>REMOTE[/LABEL] by number of port in SLUICE_DPDK_PORTS, "
        "with a label in hex from which the UDP source port follows, and which is the flow label "
        "of IPv6, separated by commas. auto: each port to one of the peer's on its wire, or in its "
        "subnet."),
    SL_ROW_INT("DPDK_PATHS_PER_RAIL", mp.paths_per_rail, "0", "paths", 0, 16,
               "Paths between a pair of ports, each with a UDP source port, an order and a "
               "congestion window of its own. 0: one."),
    SL_ROW_INT("DPDK_ROUTES", routes, "0", "routes", 0, SL_DP_ROUTES_MAX,
               "UDP source ports over which the packets of one path are sprayed, by what each "
               "delivers. 0: four, and one between ports of one named wire (memif), which has no "
               "other way."),
    SL_MP_ROW_LAZY("DPDK"),
    SL_ROW_INT("DPDK_MTU", mtu, "0", "bytes", 0, 65535,
               "Largest IP packet. 0: what the ports of both ends take; more than 1500 is tried "
               "before it is used."),
    SL_ROW_INT("DPDK_WINDOW", window, "1024", "packets", 64, 1024,
               "Packets of a path that may be under way, at most: a power of two, or the next "
               "lower one is taken."),
    SL_ROW_CHOICE("DPDK_CC", cc, "swift", "swift timely fixed",
                  "Congestion control: swift (keeps the delay at a target, and hears ECN marks), "
                  "timely (goes by how the RTT changes; to compare with) or fixed (none: the whole "
                  "window)."),
    SL_ROW_INT("DPDK_TARGET_US", target_us, "50", "us", 1, 100000,
               "Delay by queues in the network that congestion control aims at."),
    SL_ROW_SWITCH("DPDK_CRC", crc, "auto",
                  "A checksum (CRC32C) over the payload of each packet: on; off; auto (off, unless "
                  "the peer asks for it)."),
    SL_ROW_INT("DPDK_RTO_MIN_MS", rto_min_ms, "20", "ms", 1, 10000,
               "A packet that nobody answers is repeated after so long at the earliest. Longer "
               "than a busy host keeps a rank off its processor."),
    SL_ROW_INT("DPDK_TIMEOUT_MS", timeout_ms, "5000", "ms", 10, SL_DAY_MS,
               "A path on which nothing is answered for so long is down."),
    SL_MP_ROW_RESERVE("DPDK"),
    SL_MP_ROW_EAGER_BYTES("DPDK"),
    SL_ROW_BYTES(
        "DPDK_PIECE_BYTES", mp.piece_bytes, "0", 0, SL_GIB,
        "Messages are dealt over the paths in pieces of this size. 0: as long as the port takes 21 "
        "us for, 64 KiB up to 25 Gbit/s and 1 MiB from 400 Gbit/s on."),
    SL_ROW_BYTES("DPDK_STAGING_BYTES", mp.staging_bytes, "16M", 64 * SL_KIB, 64 * SL_GIB,
                 "Memory of an interface that messages pass through which are reduced as they "
                 "arrive."),
    SL_MP_ROW_PATH_WAIT_MS("DPDK"),
    SL_MP_ROW_FALLBACK("DPDK"),
    SL_ROW_INT("DPDK_TRAFFIC_CLASS", traffic_class, "0", "", 0, 255,
               "Traffic class of packets: DSCP * 4. The two bits below are ECN's, and always "
               "capable."),
    SL_ROW_INT("DPDK_SHORT_TRAFFIC_CLASS", high_class, "-1", "", -1, 255,
               "The same of answers, and of short messages that have nothing before them: with one "
               "that switches serve first, they need not wait for long flows. -1: 80, which is "
               "DSCP 20 (AF22, low-latency data), where DPDK_TRAFFIC_CLASS is 0, else that."),
    SL_ROW_INT("DPDK_UDP_PORT", udp_port, "47809", "", 1, 65535,
               "UDP port that packets are sent to."),
    SL_ROW_INT("DPDK_MEMORY_MIB", memory_mib, "0", "MiB", 0, 1 << 18,
               "Memory for packets, of the whole process. 0: 64 for each port, and at least 256."),
    SL_ROW_TEXT("DPDK_INJECT", inject, "",
                "For tests: faults of what arrives, such as loss=0.01,reorder=0.01,seed=7."),
};

struct sl_config_section sl_dpdk_section = {.area = "DPDK",
                                            .rows = rows,
                                            .row_count = SL_ARRAY_LEN(rows),
                                            .size = sizeof(struct sl_dpdk_config)};

/* AF22 of RFC 4594's low-latency data. Its bit of low delay, as the old type of service has it,
 * puts it into the first band of Linux's default queue, too. Who chose a class for all packets has
 * chosen the queue that they belong in. */
#define HIGH_CLASS 80

uint8_t sl_dpdk_high_class(const struct sl_dpdk_config *config)
{
    if (config->high_class >= 0)
        return (uint8_t)config->high_class;
    return config->traffic_class / 4 == 0 ? HIGH_CLASS : (uint8_t)config->traffic_class;
}

struct sl_mp_path_wishes sl_dpdk_path_wishes(const struct sl_config *config)
{
    const struct sl_dpdk_config *own = sl_dpdk_config(config);

    return (struct sl_mp_path_wishes){.area = "dpdk",
                                      .variable = "SLUICE_DPDK_PATHS",
                                      .list = own->mp.paths,
                                      .per_rail = own->mp.paths_per_rail};
}

/* All ports are opened: another one may be the only one on the peer's wire. */
void sl_dpdk_prefer(struct sl_config *config, const struct sl_device *dev, int traffic_class)
{
    struct sl_dpdk_config *own = sl_dpdk_config_edit(config);

    if (traffic_class >= 0 && traffic_class <= 255)
        own->traffic_class = traffic_class;
    if (own->mp.reserve == SL_AUTO)
        own->mp.reserve = SL_ON;
    snprintf(own->first, sizeof(own->first), "%s", dev->name);
}
