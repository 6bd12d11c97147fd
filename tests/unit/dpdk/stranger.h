/* SPDX-License-Identifier: Apache-2.0 */
/* Somebody on the wire of a live pair who sees what passes, and adds packets of his own
 * (testing/dpdk/forge.h). */
#ifndef SL_TESTS_UNIT_DPDK_STRANGER_H
#define SL_TESTS_UNIT_DPDK_STRANGER_H

#include "testing/dpdk/forge.h"
#include "tests/unit/dpdk/live_pair.h"

#include <stdint.h>

struct rte_mempool;

struct stranger {
    struct live_pair *pair;
    struct rte_mempool *pool;
    const char *wire; /* of the list: "ring:wire/0 ring:wire/1" */
    struct sl_forge forge;
    enum sl_forge_kind kind;
    unsigned percent; /* of the packets that pass; 0: he only listens */
    unsigned owed;    /* percent of a packet */
    uint64_t seen, sent;
};

/* 0, or negative errno. DPDK has been started. */
int stranger_open(struct stranger *stranger, struct live_pair *pair, const char *wire);
void stranger_close(struct stranger *stranger);
/* For live_run(): arg is the stranger. */
void stranger_act(void *arg);
/* ARP's answer to an end: ip has that MAC. */
void stranger_says(struct stranger *s, unsigned to, const uint8_t mac[6], const uint8_t ip[4]);

#endif
