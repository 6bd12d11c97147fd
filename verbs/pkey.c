/* SPDX-License-Identifier: Apache-2.0 */
/* The P_Keys of a port: what they are, and which one to use towards a peer. */
#include "verbs/pkey.h"
#include "verbs/config.h"

#include "core/config.h"
#include "core/err.h"

#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_full(uint16_t key)
{
    return (key & SL_VERBS_PKEY_FULL) != 0;
}

static bool has_partitions(const struct sl_verbs_port *port)
{
    return port->link_layer == IBV_LINK_LAYER_INFINIBAND;
}

void sl_verbs_pkeys_read(const struct sl_ibv *ibv, struct ibv_context *context, unsigned table_len,
                         struct sl_verbs_port *port)
{
    port->pkey_count = 0;
    for (unsigned i = 0; i < table_len && i <= UINT16_MAX && port->pkey_count < SL_VERBS_PKEYS_MAX;
         i++) {
        __be16 key = 0;

        if ((ibv->ibv_query_pkey)(context, port->num, (int)i, &key) != 0 ||
            (be16toh(key) & SL_VERBS_PKEY_PARTITION) == 0)
            continue;
        port->pkeys[port->pkey_count++] = (struct sl_verbs_pkey){be16toh(key), (uint16_t)i};
        if (!has_partitions(port) && be16toh(key) == SL_VERBS_PKEY_DEFAULT)
            return; /* nothing else counts there */
    }
}

bool sl_verbs_pkeys_talk(uint16_t a, uint16_t b)
{
    return (a & SL_VERBS_PKEY_PARTITION) == (b & SL_VERBS_PKEY_PARTITION) &&
           (is_full(a) || is_full(b));
}

/* ---- the setting ---- */

/* 0: auto. */
static int read_setting(const char *text, uint16_t *out)
{
    char *end;
    unsigned long key;

    *out = 0;
    if (text[0] == '\0' || strcmp(text, "auto") == 0)
        return 0;
    key = strtoul(text, &end, 16);
    if (strspn(text, "0123456789abcdefABCDEFxX") != strlen(text) || *end != '\0' ||
        key > UINT16_MAX || (key & SL_VERBS_PKEY_PARTITION) == 0)
        return sl_fail(-EINVAL,
                       "SLUICE_VERBS_PKEY: '%s' is neither auto nor a P_Key in hex (0x0001 to "
                       "0xffff, but not 0x8000)",
                       text);
    *out = (uint16_t)key;
    return 0;
}

int sl_verbs_pkey_check(const char *text)
{
    uint16_t key;

    return read_setting(text, &key);
}

static uint16_t setting_of(const struct sl_config *config)
{
    uint16_t key = 0;

    (void)read_setting(sl_verbs_config(config)->pkey, &key); /* it was checked */
    return key;
}

/* ---- the choice ---- */

/* With the upper bit it has to be a full member's; without, either will do. */
static bool is_asked_for(uint16_t key, uint16_t wanted)
{
    return wanted == 0 || key == wanted || (key & SL_VERBS_PKEY_PARTITION) == wanted;
}

/* What is to be changed comes first: lists of keys may be long. */
static int fail_none(const struct sl_verbs_port *port, uint16_t wanted, uint16_t peer)
{
    char have[128] = "none", wish[48] = "";
    size_t used = 0;

    for (unsigned i = 0; i < port->pkey_count && used < sizeof(have); i++)
        used += (size_t)snprintf(have + used, sizeof(have) - used, "%s0x%04x", i == 0 ? "" : ", ",
                                 port->pkeys[i].key);
    if (wanted != 0)
        snprintf(wish, sizeof(wish), " 0x%04x of SLUICE_VERBS_PKEY", wanted);
    if (peer != 0)
        return sl_fail(
            -ENODEV,
            "port %s has no P_Key%s that talks to the peer's 0x%04x: both must be in one "
            "partition, one as a full member; it has %s",
            port->name, wish, peer, have);
    return sl_fail(-ENODEV, "port %s has no P_Key%s: %s; it has %s", port->name, wish,
                   wanted != 0 ? "add it to that partition, or set the variable to one of its own"
                               : "add it to a partition (opensm's partitions.conf)",
                   have);
}

int sl_verbs_pkey_choose_for(const struct sl_config *config, const struct sl_verbs_port *port,
                             uint16_t peer, struct sl_verbs_pkey *out)
{
    const struct sl_verbs_pkey *best = NULL;
    uint16_t wanted = has_partitions(port) ? setting_of(config) : SL_VERBS_PKEY_DEFAULT;

    for (unsigned i = 0; i < port->pkey_count; i++) {
        const struct sl_verbs_pkey *pkey = &port->pkeys[i];

        if (is_asked_for(pkey->key, wanted) &&
            (peer == 0 || sl_verbs_pkeys_talk(pkey->key, peer)) &&
            (best == NULL || (is_full(pkey->key) && !is_full(best->key))))
            best = pkey;
    }
    if (best == NULL && has_partitions(port))
        return fail_none(port, wanted, peer);
    *out = best != NULL ? *best : (struct sl_verbs_pkey){SL_VERBS_PKEY_DEFAULT, 0};
    return 0;
}

int sl_verbs_pkey_choose(const struct sl_config *config, const struct sl_verbs_port *port,
                         struct sl_verbs_pkey *out)
{
    return sl_verbs_pkey_choose_for(config, port, 0, out);
}

bool sl_verbs_pkey_is_there(const struct sl_verbs_port *port, const struct sl_verbs_pkey *pkey)
{
    if (!has_partitions(port))
        return true;
    for (unsigned i = 0; i < port->pkey_count; i++)
        if (port->pkeys[i].key == pkey->key && port->pkeys[i].index == pkey->index)
            return true;
    return false;
}
