/* SPDX-License-Identifier: Apache-2.0 */
/* Variables of TCP: SLUICE_TCP_*. */
#ifndef SL_TCP_CONFIG_H
#define SL_TCP_CONFIG_H

#include "core/config.h"
#include "tcp/engine.h"
#include "tcp/tls.h"

struct sl_tcp_config {
    int64_t connections, crc, socket_bytes, stripe_bytes;
    enum sl_tls_cipher tls_cipher;
    enum sl_tls_records tls_records;
    enum sl_tcp_engine_kind engine;
    char congestion[SL_TEXT_MAX];
};

SL_CONFIG_SECTION(tcp)

#endif
