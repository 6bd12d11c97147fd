/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list of ports (SLUICE_DPDK_PORTS), read strictly. Pure.
 *
 *   list     ports with spaces between them
 *   port     device[@option=value]...
 *   device   0000:3b:00.0[,ARGS]   a PCI device, driven by DPDK
 *            net_memif0[,ARGS]     a virtual device with the arguments of its driver; or, without
 *                                  any, the name of a port that EAL has already
 *            ring:NAME/0, /1       the two ends of a wire within this process
 *            mesh:DIR              a memif port to each other rank of this host, by sockets in DIR
 *   option   ip=ADDRESS/PREFIX gw=ADDRESS mtu=BYTES segment=NAME
 *            ip and gw once of IPv4, of IPv6 or of each
 *            of a mesh: rank=N ranks=N mtu=BYTES
 *
 * %l in it is the rank's number on its host, %r its rank, %% a percent sign.
 */
#ifndef SL_DPDK_PORT_PORTS_H
#define SL_DPDK_PORT_PORTS_H

#include "dpdk/port/port.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SL_DPDK_ARGS_MAX 512
#define SL_DPDK_NAME_MAX 64 /* as EAL's; with its end */
#define SL_DPDK_MTU_LEAST 576
#define SL_DPDK_MTU6_LEAST 1280 /* of ports with IPv6: RFC 8200, 5 */
#define SL_DPDK_MTU_MOST 16384
#define SL_DPDK_MTU_USUAL 9000 /* of ports that could take any */
/* Bytes of a memif buffer, at least. A switch behind it may hand on frames of others that are
 * longer than the port's own; a sender by DPDK's driver that puts one into two buffers damages
 * all that follows (docs/design/0048-dpdk.md). Jumbo frames of NICs and switches are mostly of
 * up to 9,216 bytes, and of mlx5 of 9,996. */
#define SL_DPDK_MEMIF_BUFFER 10240

enum sl_dpdk_kind {
    SL_DPDK_PCI,
    SL_DPDK_VDEV, /* or the name of a port that is there */
    SL_DPDK_RING,
};

struct sl_dpdk_spec {
    enum sl_dpdk_kind kind;
    char name[SL_DPDK_NAME_MAX];
    char args[SL_DPDK_ARGS_MAX]; /* of its driver, without name; "" */
    uint8_t ip[4], gateway[4];   /* 0.0.0.0: not given */
    uint8_t ip6[16], gateway6[16];
    uint8_t prefix, prefix6;
    uint32_t mtu;     /* 0: not given */
    char segment[64]; /* "": what the device tells */
};

/* The ports that settings->list names, a mesh as its ports. -EINVAL with a sentence. */
int sl_dpdk_specs_parse(const struct sl_dpdk_port_settings *settings, struct sl_dpdk_spec *out,
                        size_t cap, size_t *count);

/* The value of an argument of a driver, cut at cap. False: it is not there, out is "". */
bool sl_dpdk_arg(const char *args, const char *key, char *out, size_t cap);

/* FNV-1a of a text: the number of a wire's name. */
static inline uint32_t sl_dpdk_hash(const char *text)
{
    uint32_t hash = 2166136261u;

    for (; *text != '\0'; text++)
        hash = (hash ^ (uint8_t)*text) * 16777619u;
    return hash;
}

#endif
