/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The source of network interfaces: rtnetlink tells when a link changes, within milliseconds.
 *
 * The kernel merges messages: three flaps of 100 ms may be one message. Its counts of ups and downs
 * are in each, and are never merged, so these say how often; the messages say when. Links that an
 * administrator has taken down are nobody's fault.
 */
#ifndef SL_MONITOR_LINK_H
#define SL_MONITOR_LINK_H

#include "monitor/port.h"

struct nlmsghdr;

/* What one message says of one interface. */
struct sl_mon_link {
    int ifindex;
    char name[16];
    bool is_gone;   /* RTM_DELLINK */
    bool is_answer; /* to sl_mon_links_ask(); else it changed just now */
    bool is_wanted; /* an administrator has it up */
    bool has_carrier, is_loopback;
    uint32_t ups, downs; /* of the carrier, so far; has_counts */
    bool has_counts;
    uint64_t sent, received; /* bytes; has_bytes */
    bool has_bytes;
    uint64_t at_ns; /* when it came, of CLOCK_MONOTONIC, however late it is read; 0: not known */
};

/* False: it is no message of a link, or makes no sense. len: of the bytes that there are. */
bool sl_mon_link_parse(const struct nlmsghdr *message, size_t len, struct sl_mon_link *out);

/* ---- what follows from one after another; pure ---- */

struct sl_mon_link_track {
    bool is_known, had_carrier, was_wanted;
    uint32_t ups, downs;
    uint64_t down_ns; /* since when it has none */
};

struct sl_mon_link_change {
    uint32_t flaps;     /* it went down and came back so often */
    uint64_t lasted_ns; /* the last of these; 0: not known */
    bool went_down;
};

void sl_mon_link_track(struct sl_mon_link_track *track, const struct sl_mon_link *link,
                       uint64_t now_ns, struct sl_mon_link_change *out);
/* As one reading of a port. */
void sl_mon_link_reading(const struct sl_mon_link *link, struct sl_mon_reading *out);

/* ---- the socket ---- */

struct sl_mon_links;

/* Subscribes, and asks for all links there are. -EPERM, ... with a sentence. */
int sl_mon_links_open(struct sl_mon_links **out);
void sl_mon_links_close(struct sl_mon_links *links);
int sl_mon_links_fd(const struct sl_mon_links *links);
/* Asks for all of them again: counts and bytes between messages, and what a message that was lost
 * would have told. */
int sl_mon_links_ask(struct sl_mon_links *links);
/* Gives each message that is here to take(). How many; -ENOBUFS: some were lost, and all are asked
 * for again. */
int sl_mon_links_read(struct sl_mon_links *links,
                      void (*take)(void *arg, const struct sl_mon_link *link), void *arg);
uint64_t sl_mon_links_lost(const struct sl_mon_links *links);
/* What it runs at now, by ethtool, in bits a second; 0: it does not say. */
uint64_t sl_mon_links_speed(const struct sl_mon_links *links, const char *name);

#endif
