/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is known of drivers. A driver that is not in the table is a NIC's: nothing is lent to it,
 * since the memory of a user is not mapped for a device.
 */
#include "core/clock.h"
#include "core/err.h"
#include "dpdk/port/inside.h"

#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

/* UMEM of af_xdp: a buffer with its header is one page, and from 3,457 bytes on a frame is lost. */
#define XDP_ROOM 3776
#define HEADROOM 128 /* RTE_PKTMBUF_HEADROOM */
#define XDP_FRAME 3456
#define PACKET_HEAD 80 /* of the kernel, before a frame in the ring of a packet socket */

static const struct {
    const char *name;
    struct sl_dpdk_traits traits;
} drivers[] = {
    {"net_memif", {.takes_lent = true, .is_gated = true}},
    {"net_af_packet", {.takes_lent = true}},
    {"net_af_xdp",
     {.own_pool = true, .holds_buffers = true, .frame_most = XDP_FRAME, .room = XDP_ROOM}},
    {"net_pcap", {.takes_lent = true}},
    {"net_ring", {.takes_lent = true, .frame_most = SL_DPDK_MTU_USUAL + 14}},
    {"net_null", {.takes_lent = true}},
    {"net_tap", {.takes_lent = true}},
    /* Only DPDK's own memory, which is shared with the other side. */
    {"net_virtio_user", {.holds_buffers = true}},
    {"net_vhost", {.takes_lent = false}},
};

/* More than a buffer of memif's is damaged. What one holds has to go into one of ours: where there
 * is no memory for the second of two, the driver forgets the first.
 *
 * From 23.03 on the driver puts each segment of a frame into a buffer of its own where all frames
 * of a burst are of one pool whose buffers are no longer than its own. So ours are longer, and the
 * first segment of a frame of two is one of them: then both go into one buffer, as in 22.11. */
static void memif_traits(uint32_t buffer, struct sl_dpdk_traits *out)
{
    out->frame_most = buffer;
    out->large_heads = true;
    out->takes_lent = buffer >= SL_DPDK_MTU_LEAST && buffer <= UINT16_MAX - HEADROOM - 64;
    if (out->takes_lent)
        out->room = HEADROOM + (buffer + 64) / 64 * 64;
}

void sl_dpdk_driver_traits(const char *driver, const struct sl_dpdk_spec *spec,
                           struct sl_dpdk_traits *out)
{
    char text[16];

    *out = (struct sl_dpdk_traits){.holds_buffers = true};
    for (size_t i = 0; i < SL_ARRAY_LEN(drivers); i++) {
        if (strcmp(drivers[i].name, driver) == 0)
            *out = drivers[i].traits;
    }
    if (sl_dpdk_arg(spec->args, "bsize", text, sizeof(text)))
        memif_traits((uint32_t)strtoul(text, NULL, 10), out);
    if (sl_dpdk_arg(spec->args, "framesz", text, sizeof(text))) {
        uint32_t place = (uint32_t)strtoul(text, NULL, 10);

        out->room = HEADROOM + place; /* af_packet: not one byte less */
        out->frame_most = place > PACKET_HEAD ? place - PACKET_HEAD : 1; /* more is cut off */
    }
}

/* The MTU of an interface of the kernel, or 0. */
static uint32_t kernel_mtu(const char *name)
{
    struct ifreq request = {0};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), mtu = 0;

    if (fd < 0)
        return 0;
    snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", name);
    if (ioctl(fd, SIOCGIFMTU, &request) == 0)
        mtu = request.ifr_mtu;
    close(fd);
    return mtu > 0 ? (uint32_t)mtu : 0;
}

/* A frame of the ring has to take the largest of the interface, with the header of the ring. */
static int packet_socket_args(struct sl_dpdk_spec *spec, uint32_t mtu)
{
    uint32_t frame = 2048;
    char text[16];

    if (sl_dpdk_arg(spec->args, "framesz", text, sizeof(text)) ||
        sl_dpdk_arg(spec->args, "blocksz", text, sizeof(text)))
        return 0; /* the user's own */
    while (frame < mtu + 128 && frame < 32768)
        frame *= 2;
    if (!sl_text_add(spec->args, sizeof(spec->args), ",blocksz=65536,framesz=%u,framecnt=512",
                     frame))
        return sl_fail(-EINVAL, "the arguments of DPDK port '%s' are too long", spec->name);
    return 0;
}

void sl_dpdk_random_mac(uint8_t mac[6])
{
    if (getrandom(mac, 6, GRND_NONBLOCK) != 6) {
        uint64_t seed = sl_seed();

        memcpy(mac, &seed, 6);
    }
    mac[0] = (uint8_t)((mac[0] & ~1u) | 2); /* of one port, given by nobody */
}

/* The driver's own is from a generator whose state two processes may share that forked after the
 * library was loaded. */
static int memif_args(struct sl_dpdk_spec *spec)
{
    char text[32];
    uint8_t mac[6];

    if (sl_dpdk_arg(spec->args, "mac", text, sizeof(text)))
        return 0;
    sl_dpdk_random_mac(mac);
    if (!sl_text_add(spec->args, sizeof(spec->args), ",mac=%02x:%02x:%02x:%02x:%02x:%02x", mac[0],
                     mac[1], mac[2], mac[3], mac[4], mac[5]))
        return sl_fail(-EINVAL, "the arguments of DPDK port '%s' are too long", spec->name);
    return 0;
}

int sl_dpdk_driver_args(struct sl_dpdk_spec *spec)
{
    if (strncmp(spec->name, "net_memif", 9) == 0)
        return memif_args(spec);
    bool is_packet = strncmp(spec->name, "net_af_packet", 13) == 0;
    bool is_xdp = strncmp(spec->name, "net_af_xdp", 10) == 0;
    char interface[IFNAMSIZ];

    if (spec->kind != SL_DPDK_VDEV || !(is_packet || is_xdp) ||
        !sl_dpdk_arg(spec->args, "iface", interface, sizeof(interface)))
        return 0;
    uint32_t mtu = kernel_mtu(interface);
    if (mtu == 0)
        return sl_fail(-ENODEV, "DPDK port '%s' needs the interface '%s', which is not here",
                       spec->name, interface);
    if (spec->mtu == 0)
        spec->mtu = SL_DPDK_MTU_USUAL; /* lo has more than a buffer takes */
    if (spec->mtu > mtu)
        spec->mtu = mtu;
    char text[16];
    if (is_xdp && !sl_dpdk_arg(spec->args, "busy_budget", text, sizeof(text)))
        sl_text_add(spec->args, sizeof(spec->args), ",busy_budget=0");
    return is_packet ? packet_socket_args(spec, mtu < SL_DPDK_MTU_MOST ? mtu : SL_DPDK_MTU_MOST)
                     : 0;
}
