/* SPDX-License-Identifier: Apache-2.0 */
/* In place of probe_ud.c, where libibverbs' headers were not there to build it. */
#include "monitor/probe_ud.h"

#include "core/err.h"

#include <errno.h>

int sl_probe_ud_open(const char *library, const struct sl_probe_rail *rail, uint32_t qkey,
                     struct sl_probe_ud **out)
{
    (void)library, (void)rail, (void)qkey, (void)out;
    return sl_fail(-ENOTSUP, "this agent was built without libibverbs (libibverbs-dev)");
}

/* Nothing was opened, so nobody calls these. */

void sl_probe_ud_close(struct sl_probe_ud *ud)
{
    (void)ud;
}

uint32_t sl_probe_ud_qpn(const struct sl_probe_ud *ud)
{
    (void)ud;
    return 0;
}

unsigned sl_probe_ud_mtu(const struct sl_probe_ud *ud)
{
    (void)ud;
    return 0;
}

int sl_probe_ud_fd(const struct sl_probe_ud *ud)
{
    (void)ud;
    return -1;
}

int sl_probe_ud_way(struct sl_probe_ud *ud, const struct sl_probe_rail_gid *gid,
                    const struct sl_probe_port *to, uint8_t traffic_class,
                    struct sl_probe_ud_way **out)
{
    (void)ud, (void)gid, (void)to, (void)traffic_class, (void)out;
    return -ENOTSUP;
}

int sl_probe_ud_way_back(struct sl_probe_ud *ud, const struct sl_probe_ud_packet *packet,
                         struct sl_probe_ud_way **out)
{
    (void)ud, (void)packet, (void)out;
    return -ENOTSUP;
}

void sl_probe_ud_way_close(struct sl_probe_ud *ud, struct sl_probe_ud_way *way)
{
    (void)ud, (void)way;
}

int sl_probe_ud_send(struct sl_probe_ud *ud, struct sl_probe_ud_way *way, uint32_t qpn,
                     uint32_t qkey, const uint8_t *bytes, uint32_t len)
{
    (void)ud, (void)way, (void)qpn, (void)qkey, (void)bytes, (void)len;
    return -ENOTSUP;
}

int sl_probe_ud_poll(struct sl_probe_ud *ud, unsigned most,
                     void (*take)(void *arg, const struct sl_probe_ud_packet *packet), void *arg)
{
    (void)ud, (void)most, (void)take, (void)arg;
    return -ENOTSUP;
}
