/* SPDX-License-Identifier: Apache-2.0 */
/* Ports: opened by name once per process, and counted. */
#include "core/clock.h"
#include "core/err.h"
#include "core/log.h"
#include "dpdk/port/eal.h"
#include "dpdk/port/inject.h"
#include "dpdk/port/inside.h"
#include "dpdk/port/quiet.h"
#include "dpdk/port/ring.h"

#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_config.h>
#include <rte_dev.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_ether.h>

#define DESCRIPTORS 1024                    /* each way */
#define NO_TYPE 0xffff                      /* of Ethernet: reserved, on no wire */
#define OPEN_HURRY_NS (5000 * SL_NS_PER_MS) /* the peers of a job start about now */

struct sl_dpdk_port *_Atomic sl_dpdk_open_ports[SL_DPDK_PORTS_MAX];

static void detach(struct sl_dpdk_port *port);

/* A device that is there may be a client's of this process, which was closed while its server took
 * no connection. Then it is made anew. */
static int take_back(struct sl_dpdk_port *port)
{
    int err, connection;

    if (!sl_dpdk_client_is_left(port->id))
        return 0;
    err = sl_dpdk_client_started(port->id, SL_DPDK_START_MS);
    if (err == -EINPROGRESS)
        return sl_fail(-EBUSY,
                       "DPDK port '%s' still waits for the process that listens at its socket, and "
                       "takes no connection: is it stopped?",
                       port->spec.name);
    port->is_client = true;
    port->was_there = false;
    sl_dpdk_memif_find_socket(port);
    connection = sl_dpdk_memif_hold(port);
    if (err == 0)
        (void)rte_eth_dev_stop(port->id);
    detach(port);
    sl_dpdk_memif_let_go(connection);
    return 0;
}

/* Makes the device, unless it is there. */
static int attach(struct sl_dpdk_port *port)
{
    char devargs[SL_DPDK_NAME_MAX + SL_DPDK_ARGS_MAX], why[200];

    if (port->spec.kind == SL_DPDK_RING)
        return sl_dpdk_ring_attach(&port->spec, &port->id);
    port->was_there = rte_eth_dev_get_port_by_name(port->spec.name, &port->id) == 0;
    int left = port->was_there ? take_back(port) : 0;
    if (left != 0 || port->was_there)
        return left;
    if (strncmp(port->spec.name, "net_memif", 9) == 0) {
        int err = sl_dpdk_memif_clear(&port->spec);
        if (err != 0)
            return err;
    }
    snprintf(devargs, sizeof(devargs), "%s%s%s", port->spec.name,
             port->spec.args[0] != '\0' ? "," : "", port->spec.args);
    sl_dpdk_log_clear();
    int err = rte_dev_probe(devargs);
    if (err == 0 && rte_eth_dev_get_port_by_name(port->spec.name, &port->id) == 0)
        return 0;
    if (if_nametoindex(port->spec.name) != 0)
        return sl_fail(-ENODEV,
                       "DPDK has no port '%s', which is an interface of the kernel: write "
                       "net_af_packet0,iface=%s or net_af_xdp0,iface=%s, or its PCI address",
                       port->spec.name, port->spec.name, port->spec.name);
    sl_dpdk_log_first(why, sizeof(why));
    if (why[0] == '\0')
        snprintf(why, sizeof(why), "%s",
                 err != 0 ? strerror(-err) : "its driver made no port of that name");
    return sl_fail(-ENODEV, "DPDK has no port '%s': %s", port->spec.name, why);
}

static void detach(struct sl_dpdk_port *port)
{
    struct rte_eth_dev_info info;

    if (port->was_there || port->is_starting || sl_dpdk_server_stays(port) ||
        rte_eth_dev_info_get(port->id, &info) != 0)
        return;
    rte_eth_dev_close(port->id);
    if (info.device != NULL)
        rte_dev_remove(info.device);
    if (port->spec.kind == SL_DPDK_RING)
        sl_dpdk_ring_detach(&port->spec);
}

/* The largest frame: by the driver's table, by its MTU, or by what the user wishes. */
static void choose_frame(struct sl_dpdk_port *port, const struct rte_eth_dev_info *info,
                         uint32_t wished)
{
    uint32_t wish = port->spec.mtu != 0 ? port->spec.mtu : wished;
    uint32_t most = port->traits.frame_most;

    if (most == 0 && port->spec.kind == SL_DPDK_PCI) /* virtual drivers do not know theirs */
        most = (info->max_mtu < SL_DPDK_MTU_USUAL ? info->max_mtu : SL_DPDK_MTU_USUAL) + 14;
    if (most == 0)
        most = (port->spec.mtu != 0 ? port->spec.mtu : SL_DPDK_MTU_USUAL) + 14;
    if (wish != 0 && wish + 14 < most)
        most = wish + 14;
    if (wish == 0 && most > SL_DPDK_MTU_USUAL + 14)
        most = SL_DPDK_MTU_USUAL + 14;
    port->frame_most = most;
}

/* With interrupts where the driver has them. A NIC is told the MTU; virtual drivers refuse any. */
static int configure(struct sl_dpdk_port *port, const struct rte_eth_dev_info *info)
{
    struct rte_eth_conf conf = {0};
    int err;

    if (port->spec.kind == SL_DPDK_PCI)
        conf.rxmode.mtu = port->frame_most - 14;
    if (info->tx_offload_capa & RTE_ETH_TX_OFFLOAD_MULTI_SEGS)
        conf.txmode.offloads = RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
    else
        port->traits.takes_lent = false;
    if (port->address.prefix6 != 0) { /* of IPv4 UDP's checksum is left away */
        port->sums = (info->tx_offload_capa & RTE_ETH_TX_OFFLOAD_UDP_CKSUM) != 0;
        conf.txmode.offloads |= info->tx_offload_capa & RTE_ETH_TX_OFFLOAD_UDP_CKSUM;
        conf.rxmode.offloads |= info->rx_offload_capa & RTE_ETH_RX_OFFLOAD_UDP_CKSUM;
    }
    conf.intr_conf.rxq = 1;
    err = rte_eth_dev_configure(port->id, 1, 1, &conf);
    port->has_interrupts = err == 0;
    if (err != 0) {
        conf.intr_conf.rxq = 0;
        err = rte_eth_dev_configure(port->id, 1, 1, &conf);
    }
    if (err != 0)
        return sl_fail(err, "DPDK port '%s' cannot be configured: %s", port->name, strerror(-err));
    return 0;
}

static int make_queues(struct sl_dpdk_port *port)
{
    uint16_t receive = DESCRIPTORS, send = DESCRIPTORS;
    int err = rte_eth_dev_adjust_nb_rx_tx_desc(port->id, &receive, &send);

    if (err != 0)
        receive = send = DESCRIPTORS;
    err = sl_dpdk_pools_get(port, receive + send);
    if (err != 0)
        return err;
    err = rte_eth_rx_queue_setup(port->id, 0, receive, SOCKET_ID_ANY, NULL, port->large);
    if (err == 0)
        err = rte_eth_tx_queue_setup(port->id, 0, send, SOCKET_ID_ANY, NULL);
    if (err == 0)
        return 0;
    sl_dpdk_pools_put(port);
    return sl_fail(err, "DPDK port '%s' cannot make its queues: %s", port->name, strerror(-err));
}

static void choose_address(struct sl_dpdk_port *port, const struct sl_dpdk_port_settings *settings)
{
    struct sl_dpdk_address *address = &port->address;
    struct rte_ether_addr mac = {{0}};

    (void)rte_eth_macaddr_get(port->id, &mac);
    if (rte_is_zero_ether_addr(&mac)) /* of a wire within the process */
        sl_dpdk_random_mac(mac.addr_bytes);
    memcpy(address->mac, mac.addr_bytes, 6);
    memcpy(address->ip, port->spec.ip, 4);
    address->prefix = port->spec.prefix;
    memcpy(address->ip6, port->spec.ip6, 16);
    address->prefix6 = port->spec.prefix6;
    if (address->ip[0] == 0 && address->prefix6 == 0) { /* 169.254.1 to 254: RFC 3927 */
        uint32_t hash = 2166136261u;

        for (unsigned i = 0; i < 6; i++)
            hash = (hash ^ mac.addr_bytes[i]) * 16777619u;
        address->ip[0] = 169;
        address->ip[1] = 254;
        address->ip[2] = (uint8_t)(1 + (hash >> 8) % 254);
        address->ip[3] = (uint8_t)(hash >> 24);
        address->prefix = 16;
    }
    memcpy(port->gateway, port->spec.gateway, 4);
    memcpy(port->gateway6, port->spec.gateway6, 16);
    address->udp_port = settings->udp_port != 0 ? settings->udp_port : SL_DPDK_UDP_PORT;
    port->udp_port = rte_cpu_to_be_16(address->udp_port);
    port->ip4_type = address->ip[0] != 0 ? rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4) : NO_TYPE;
    port->ip6_type = address->prefix6 != 0 ? rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV6) : NO_TYPE;
    if (port->spec.segment[0] != '\0')
        address->segment = sl_dpdk_hash(port->spec.segment);
    else if (port->spec.kind == SL_DPDK_RING)
        address->segment = sl_dpdk_ring_segment(&port->spec);
    else if (port->traits.is_gated)
        address->segment = sl_dpdk_memif_segment(&port->spec);
    /* Else 0: which NICs are on one wire their subnets tell. */
}

/* A port that finds no peer yet is started again by link.c. */
static int start(struct sl_dpdk_port *port)
{
    uint64_t now_ns = sl_now(&sl_clock_monotonic);
    int err;

    if (port->is_client) {
        port->starting_ns = now_ns;
        sl_dpdk_client_take(port, sl_dpdk_client_start(port->id, SL_DPDK_START_MS));
        port->hurry_until_ns = now_ns + OPEN_HURRY_NS;
        return 0;
    }
    err = rte_eth_dev_start(port->id);
    port->has_started = err == 0;
    port->hurry_until_ns = now_ns + OPEN_HURRY_NS;
    if (err == 0)
        return 0;
    return sl_fail(err, "DPDK port '%s' does not start: %s", port->name, strerror(-err));
}

static int check_frame(const struct sl_dpdk_port *port)
{
    unsigned least = port->spec.prefix6 != 0 ? SL_DPDK_MTU6_LEAST : SL_DPDK_MTU_LEAST;

    if (port->frame_most >= least + 14)
        return 0;
    return sl_fail(-EINVAL,
                   "DPDK port '%s' takes IP packets of up to %u bytes, and %u are the least%s: "
                   "raise what limits them (@mtu, SLUICE_DPDK_MTU, the interface's MTU, bsize, "
                   "framesz)",
                   port->name, port->frame_most - 14, least,
                   port->spec.prefix6 != 0 ? " with an IPv6 address" : "");
}

static int set_up(struct sl_dpdk_port *port, const struct sl_dpdk_port_settings *settings)
{
    struct rte_eth_dev_info info;
    int err = rte_eth_dev_info_get(port->id, &info);

    if (err != 0)
        return sl_fail(err, "DPDK port '%s' tells nothing of itself: %s", port->spec.name,
                       strerror(-err));
    snprintf(port->name, sizeof(port->name), "%s", port->spec.name);
    snprintf(port->driver, sizeof(port->driver), "%s", info.driver_name);
    sl_dpdk_driver_traits(port->driver, &port->spec, &port->traits);
    port->is_client = port->traits.is_gated && !sl_dpdk_memif_serves(&port->spec);
    port->is_up = !port->traits.is_gated;
    choose_frame(port, &info, settings->mtu);
    choose_address(port, settings);
    err = check_frame(port);
    if (err == 0)
        err = configure(port, &info);
    if (err == 0)
        err = make_queues(port);
    if (err != 0)
        return err;
    err = sl_dpdk_inject_start(port, settings->inject);
    if (err == 0)
        err = start(port);
    if (err != 0) {
        sl_dpdk_pools_put(port);
        return err;
    }
    sl_dpdk_port_sleep_open(port);
    sl_dpdk_group_join(port);
    sl_dpdk_kernel_drop(port);
    return 0;
}

static int place_of(const char *name, unsigned *unused)
{
    *unused = SL_DPDK_PORTS_MAX;
    for (unsigned i = 0; i < SL_DPDK_PORTS_MAX; i++) {
        if (sl_dpdk_open_ports[i] == NULL)
            *unused = i < *unused ? i : *unused;
        else if (strcmp(sl_dpdk_open_ports[i]->name, name) == 0)
            return (int)i;
    }
    return -1;
}

static void port_free(struct sl_dpdk_port *port)
{
    if (port->xdp_fd >= 0)
        close(port->xdp_fd);
    sl_dpdk_group_leave(port);
    sl_dpdk_kernel_drop_end(port);
    pthread_mutex_destroy(&port->neighbours_lock);
    free(port);
}

static int open_port(const struct sl_dpdk_spec *spec, const struct sl_dpdk_port_settings *settings,
                     unsigned idx, struct sl_dpdk_port **out)
{
    struct sl_dpdk_port *port = aligned_alloc(SL_CACHE_LINE, sizeof(*port));
    int err;

    if (port == NULL)
        return sl_fail(-ENOMEM, "no memory for DPDK port '%s'", spec->name);
    memset(port, 0, sizeof(*port));
    pthread_mutex_init(&port->neighbours_lock, NULL);
    port->idx = (uint16_t)idx;
    port->sleep_fd = port->xdp_fd = port->group_fd = -1;
    port->drop_fds[0] = port->drop_fds[1] = -1;
    port->spec = *spec;
    err = sl_dpdk_server_check(spec);
    if (err == 0)
        err = sl_dpdk_driver_args(&port->spec);
    if (err == 0)
        err = sl_dpdk_xdp_reserve(&port->spec, &port->xdp_fd);
    if (err == 0)
        err = attach(port);
    if (err != 0)
        goto err_free;
    err = set_up(port, settings);
    if (err == 0 && port->traits.is_gated)
        err = sl_dpdk_gate_install();
    if (err != 0)
        goto err_detach;
    if (port->traits.is_gated)
        sl_dpdk_memif_own_sockets(port);
    sl_dpdk_open_ports[idx] = port;
    sl_dpdk_gate_hurry();
    *out = port;
    return 0;
err_detach:
    sl_dpdk_inject_stop(port);
    detach(port);
err_free:
    port_free(port);
    return err;
}

static void close_port(struct sl_dpdk_port *port)
{
    int connection;

    if (port->is_starting)
        sl_dpdk_client_take(port, sl_dpdk_client_started(port->id, SL_DPDK_START_MS));
    connection = sl_dpdk_link_is_up(port) ? -1 : sl_dpdk_memif_hold(port);
    sl_dpdk_lock_wait(&port->rx);
    sl_dpdk_lock_wait(&port->tx);
    sl_dpdk_open_ports[port->idx] = NULL;
    sl_dpdk_inject_stop(port);
    sl_dpdk_port_sleep_close(port);
    if (port->has_started)
        (void)rte_eth_dev_stop(port->id);
    detach(port);
    sl_dpdk_memif_let_go(connection);
    sl_dpdk_pools_put(port);
    port_free(port);
}

static void put_one(struct sl_dpdk_port *port)
{
    if (--port->users == 0)
        close_port(port);
}

static int get_one(const struct sl_dpdk_spec *spec, const struct sl_dpdk_port_settings *settings,
                   struct sl_dpdk_port **out)
{
    unsigned unused;
    int idx = place_of(spec->name, &unused), err = 0;

    if (idx >= 0)
        *out = sl_dpdk_open_ports[idx];
    else if (unused == SL_DPDK_PORTS_MAX)
        return sl_fail(-ENOMEM, "a process has at most %d DPDK ports", SL_DPDK_PORTS_MAX);
    else
        err = open_port(spec, settings, unused, out);
    if (err == 0)
        (*out)->users++;
    return err;
}

int sl_dpdk_ports_get(const struct sl_dpdk_port_settings *settings, struct sl_dpdk_port **out,
                      size_t cap, size_t *count)
{
    struct sl_dpdk_spec specs[SL_DPDK_PORTS_MAX];
    struct sl_dpdk_port *ports[SL_DPDK_PORTS_MAX];
    struct sl_dpdk_quiet quiet;
    size_t wanted, have = 0;
    int err;

    err = sl_dpdk_specs_parse(settings, specs, SL_DPDK_PORTS_MAX, &wanted);
    if (err != 0)
        return err;
    if (wanted == 0)
        return sl_fail(-ENODEV, "no DPDK port is named: SLUICE_DPDK_PORTS is empty");
    if (wanted > cap)
        return sl_fail(-EINVAL, "%zu DPDK ports are named, and %zu are taken", wanted, cap);
    if (!sl_dpdk_control_lock())
        return -ETIMEDOUT;
    sl_dpdk_quiet_begin(&quiet);
    err = sl_dpdk_eal_start(settings, specs, wanted);
    while (err == 0 && have < wanted) {
        err = get_one(&specs[have], settings, &ports[have]);
        have += err == 0;
    }
    while (err != 0 && have > 0)
        put_one(ports[--have]);
    sl_dpdk_quiet_end(&quiet);
    sl_dpdk_control_unlock();
    if (err != 0)
        return err;
    memcpy(out, ports, have * sizeof(ports[0]));
    *count = have;
    return 0;
}

void sl_dpdk_ports_put(struct sl_dpdk_port **ports, size_t count)
{
    struct sl_dpdk_quiet quiet;

    if (!sl_dpdk_control_lock()) {
        sl_warn("dpdk", "ports stay open: %s", sluice_last_error());
        return;
    }
    sl_dpdk_quiet_begin(&quiet);
    for (size_t i = 0; i < count; i++)
        put_one(ports[i]);
    sl_dpdk_quiet_end(&quiet);
    sl_dpdk_control_unlock();
}
