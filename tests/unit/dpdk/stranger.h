/* SPDX-License-Identifier: Apache-2.0 */
/* Somebody on the wire of a live pair who sees what passes, and adds packets of his own: with
 * everything right but the 64-bit secret, mangled copies, lies of ARP. */
#ifndef SL_TESTS_UNIT_DPDK_STRANGER_H
#define SL_TESTS_UNIT_DPDK_STRANGER_H

#include "core/rng.h"
#include "tests/unit/dpdk/live_pair.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum stranger_kind {
    STRANGER_FIELDS,   /* any field of any kind of packet; sealed, but with another secret */
    STRANGER_RANDOM,   /* bytes of no meaning to the right port */
    STRANGER_OLD,      /* of the flow before; half of them with the number of this one */
    STRANGER_CUT,      /* shorter than its headers say */
    STRANGER_LONG,     /* longer than frames of the port */
    STRANGER_CHECKSUM, /* damaged: of IP, or of the header */
    STRANGER_FRAGMENT, /* of IP */
    STRANGER_VLAN,     /* with a tag */
    STRANGER_ARP,      /* "the peer's address is mine" */
    STRANGER_DOUBLE,   /* a true copy, at once or much later */
    STRANGER_KINDS
};

#define STRANGER_KEPT 64
#define STRANGER_FRAME 10240

struct rte_mempool;

struct stranger {
    struct live_pair *pair;
    struct rte_mempool *pool;
    const char *wire; /* of the list: "ring:wire/0 ring:wire/1" */
    struct sl_rng rng;
    enum stranger_kind kind;
    unsigned percent; /* of the packets that pass; 0: he only listens */
    unsigned owed;    /* percent of a packet */
    uint64_t seen, sent;
    struct stranger_frame {
        unsigned to; /* end */
        size_t len;
        uint8_t bytes[STRANGER_FRAME];
    } kept[STRANGER_KEPT], old[STRANGER_KEPT];
    unsigned kept_count, old_count;
};

/* 0, or negative errno. DPDK has been started. */
int stranger_open(struct stranger *stranger, struct live_pair *pair, const char *wire);
void stranger_close(struct stranger *stranger);
/* What he has seen so far is old from now on. */
void stranger_forget(struct stranger *stranger);
/* For live_run(): arg is the stranger. */
void stranger_act(void *arg);
/* ARP's answer to an end: ip has that MAC. */
void stranger_says(struct stranger *s, unsigned to, const uint8_t mac[6], const uint8_t ip[4]);
const char *stranger_word(enum stranger_kind kind);

#endif
