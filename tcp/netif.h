/* SPDX-License-Identifier: Apache-2.0 */
/* The addresses of a peer; those of this host are core's. */
#ifndef SL_TCP_NETIF_H
#define SL_TCP_NETIF_H

#include "core/netif.h"

/* An address of a peer. */
struct sl_tcp_target {
    struct sockaddr_storage addr;
    bool loopback;
};

#endif
