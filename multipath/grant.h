/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys of one CTS: made for the bytes that it names, and dead before they are the user's again.
 * Where the lanes' owner has none, iface->grants is NULL, and a CTS carries the region's keys.
 *
 *   open       the keys are being made; the CTS leaves when they all are
 *     |
 *   end        its bytes are in, or the message came by other means
 *     |
 *   put        they are dead: the message is over
 */
#ifndef SL_MULTIPATH_GRANT_H
#define SL_MULTIPATH_GRANT_H

#include "multipath/frame.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sl_mp_grants;
struct sl_mp_iface;
struct sl_mp_region;

/* The lanes' owner embeds it. */
struct sl_mp_grant {
    const struct sl_mp_grants *by; /* that opened it */
    uint32_t rkeys[SL_MP_RAILS_MAX];
    uint16_t rails;   /* whose keys hold: a bit each */
    uint16_t pending; /* where one is being made or ended */
    bool is_ending;
    bool is_refused; /* a device did not make one */
};

/* No call but cut() waits. */
struct sl_mp_grants {
    /* Keys for len bytes of the region, pending; owned until put() or cut(). asked: the sender
     * waits for them; others leave half of what there is to these. NULL: none is free now. */
    struct sl_mp_grant *(*open)(struct sl_mp_iface *iface, struct sl_mp_region *region, void *addr,
                                size_t len, bool asked);
    /* Makes those that it lacks, of rails that can. */
    void (*renew)(struct sl_mp_iface *iface, struct sl_mp_grant *grant);
    /* They are to be none any more. Those being made are ended then. */
    void (*end)(struct sl_mp_iface *iface, struct sl_mp_grant *grant);
    /* One that has ended and is not pending. */
    void (*put)(struct sl_mp_iface *iface, struct sl_mp_grant *grant);
    /* The same of any, at once: for the end of a channel or a connection. */
    void (*cut)(struct sl_mp_iface *iface, struct sl_mp_grant *grant);
    /* Sees what has been made and ended by now. */
    void (*poll)(struct sl_mp_iface *iface);
};

#endif
