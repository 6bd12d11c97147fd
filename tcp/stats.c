/* SPDX-License-Identifier: Apache-2.0 */
/* What is told of an endpoint's connections: bytes, messages and times are its own (receive.c), the
 * rest is the kernel's. */
#include "core/state.h"
#include "tcp/tcp.h"

#include <linux/tcp.h>
#include <stdio.h>

#define NS_PER_US 1000u

static uint64_t least(uint64_t a, uint64_t b)
{
    return a == 0 || (b != 0 && b < a) ? b : a;
}

/* What a kernel does not know is not written, and 0. */
static void add_conn(const struct sl_tcp_conn *conn, struct sl_state_path *out)
{
    struct tcp_info info = {0};
    socklen_t len = sizeof(info);

    if (conn->watch.fd < 0 || getsockopt(conn->watch.fd, IPPROTO_TCP, TCP_INFO, &info, &len) != 0)
        return;
    out->resent += info.tcpi_total_retrans;
    out->rtt_ns = least(out->rtt_ns, (uint64_t)info.tcpi_min_rtt * NS_PER_US);
}

size_t sl_tcp_ep_stats(const struct sl_ep *base, struct sl_state_path *out, size_t cap)
{
    const struct sl_tcp_ep *ep = (const struct sl_tcp_ep *)base;

    if (ep->state != SL_TCP_EP_UP || cap == 0)
        return ep->state == SL_TCP_EP_UP;
    *out = (struct sl_state_path){.peer = base->peer,
                                  .number = -1,
                                  .sent_bytes = ep->sent_bytes,
                                  .sent_messages = ep->tx_head,
                                  .received_bytes = ep->received_bytes,
                                  .arriving_ns = ep->arriving_ns,
                                  .arriving_bytes = ep->arriving_bytes,
                                  .arriving_messages = ep->arriving_messages,
                                  .quickest = {ep->quickest[0], ep->quickest[1]},
                                  .state = "up"};
    snprintf(out->name, sizeof(out->name), "tcp > %s", ep->peer_text);
    for (unsigned i = 1; ep->conns != NULL && i <= ep->data_conns; i++)
        add_conn(&ep->conns[i], out);
    return 1;
}
