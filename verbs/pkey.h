/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Partitions of InfiniBand: the P_Keys of a port, and which of them a queue pair is to have.
 *
 * The lower 15 bits of a key name the partition, the upper one says whether the port is a full
 * member of it. Two ports talk where both are of one partition and at least one is a full member.
 * RoCE has the default partition alone.
 */
#ifndef SL_VERBS_PKEY_H
#define SL_VERBS_PKEY_H

#include "verbs/device.h"

#define SL_VERBS_PKEY_FULL 0x8000u
#define SL_VERBS_PKEY_PARTITION 0x7fffu
#define SL_VERBS_PKEY_DEFAULT 0xffffu

/* Fills pkeys of a port whose link layer is known, from a table of that length. Empty entries are
 * left out. */
void sl_verbs_pkeys_read(const struct sl_ibv *ibv, struct ibv_context *context, unsigned table_len,
                         struct sl_verbs_port *port);

/* May ports with these keys exchange packets? */
bool sl_verbs_pkeys_talk(uint16_t a, uint16_t b);

/* The key that SLUICE_VERBS_PKEY asks for, in its table; auto: the first of a full member, else the
 * first. -ENODEV: there is none; the text says what there is and what was asked for. */
int sl_verbs_pkey_choose(const struct sl_config *config, const struct sl_verbs_port *port,
                         struct sl_verbs_pkey *out);

/* As above, of those that talk to the peer's key; 0: that is not known. */
int sl_verbs_pkey_choose_for(const struct sl_config *config, const struct sl_verbs_port *port,
                             uint16_t peer, struct sl_verbs_pkey *out);

/* Is that key still where it was? */
bool sl_verbs_pkey_is_there(const struct sl_verbs_port *port, const struct sl_verbs_pkey *pkey);

/* SLUICE_VERBS_PKEY: -EINVAL, it is neither auto nor a key in hex. */
int sl_verbs_pkey_check(const char *text);

#endif
