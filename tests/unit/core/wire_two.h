/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks of one process that wire up over real sockets, with two fake transports whose faults a test
 * chooses, and a clock that only pumping moves.
 */
#ifndef SL_TESTS_UNIT_CORE_WIRE_TWO_H
#define SL_TESTS_UNIT_CORE_WIRE_TWO_H

#include "core/config.h"
#include "core/err.h"
#include "core/wireup.h"

#define RANKS 3
#define KINDS 2
#define EPS_MAX 256
#define TICK_NS (50 * 1000)

enum fault {
    WORKS,
    NO_CREATE,  /* ep_create() fails */
    NO_CONNECT, /* ep_connect() fails at once */
    NO_LINK,    /* its request ends with an error */
    TALKS,      /* ep_create() fails, with long_text */
    LOST,       /* the owner hears down() while it connects */
    NO_MEMORY,  /* ep_create() lacks memory */
};

struct side {
    uint32_t rank;
    struct sl_config config;
    struct sl_worker worker;
    struct sl_wireup *wireup;
    struct sl_iface ifaces[KINDS];
    enum fault faults[KINDS];
    uint32_t candidates; /* a bit per transport */
    struct sl_ep *eps[RANKS];
    unsigned ups, failures; /* calls of up() and failed() */
    int err;
    char why[SL_ERROR_TEXT_MAX];
    int next; /* the rank that it needs when a connection failed; -1: none */
    /* Where connections are by number: */
    bool numbered;
    bool awaits;               /* any hello, with the dialer's number */
    unsigned lacks;            /* so many calls of awaited() or ep_create() lack memory */
    unsigned lefts, strangers; /* calls of left() and stranger() */
};

extern struct side sides[RANKS];
extern struct sl_wireup_addr addrs[RANKS];
extern uint64_t now_ns;
extern char long_text[1901];

/* By sockets of this host; with tcp set, by TCP. */
void sides_open(bool tcp);
/* The same, but connections are by number: each leads from side 0 to side 1 or back. */
void sides_open_numbered(bool tcp);
void side_close(struct side *side);
/* Closes all; nothing may be left of them. */
void sides_close(void);

void pump_one(struct side *side);
void pump(void); /* all of them, and the clock */

/* The endpoints of two sides are each other's, the only ones. */
bool are_connected(const struct side *a, const struct side *b);
unsigned ep_count(void); /* that are not destroyed */
int transport_of(const struct side *side, uint32_t peer);

/* Waits in time of its own, at most ms of it. */
#define PUMP_UNTIL(ms, condition)                                                                  \
    do {                                                                                           \
        uint64_t until_ns = now_ns + (uint64_t)(ms)*SL_NS_PER_MS;                                  \
        while (!(condition) && now_ns < until_ns)                                                  \
            pump();                                                                                \
        assert_true(condition);                                                                    \
    } while (0)

#endif
