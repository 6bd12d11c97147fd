/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames of the DPDK transport made by hand: the fields of its headers, and what somebody would
 * send who sees what passes but has no flow's secret. Pure: bytes and chances, no port.
 */
#ifndef SL_TESTING_DPDK_FORGE_H
#define SL_TESTING_DPDK_FORGE_H

#include "core/rng.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where headers begin in a frame. */
#define SL_FORGE_IP 14
#define SL_FORGE_UDP 34
#define SL_FORGE_HEAD 42

#define SL_FORGE_KEPT 64
#define SL_FORGE_FRAME 10240 /* bytes, more than any port takes */
#define SL_FORGE_ARP 60

enum sl_forge_kind {
    SL_FORGE_FIELDS,   /* any field of any kind of packet; sealed, but with another secret */
    SL_FORGE_RANDOM,   /* bytes of no meaning to the right port */
    SL_FORGE_OLD,      /* of a flow before; half of them with the number of one of now */
    SL_FORGE_CUT,      /* shorter than its headers say */
    SL_FORGE_LONG,     /* longer than frames of the port */
    SL_FORGE_CHECKSUM, /* damaged: of IP, or of the header */
    SL_FORGE_FRAGMENT, /* of IP */
    SL_FORGE_VLAN,     /* with a tag */
    SL_FORGE_ARP_LIE,  /* "the peer's address is mine" */
    SL_FORGE_DOUBLE,   /* a true copy, at once or much later */
    SL_FORGE_KINDS
};

struct sl_forge_frame {
    unsigned to; /* the caller's: whom it was heard on the way to */
    size_t len;
    uint8_t bytes[SL_FORGE_FRAME];
};

/* Frames that were heard, from which others are made. */
struct sl_forge {
    struct sl_rng rng;
    struct sl_forge_frame kept[SL_FORGE_KEPT], old[SL_FORGE_KEPT];
    unsigned kept_count, old_count;
};

const char *sl_forge_word(enum sl_forge_kind kind);
/* The kind of that word, or -1. */
int sl_forge_kind(const char *word);

/* A frame of the protocol over IPv4 and UDP, to be kept. */
bool sl_forge_is_good(const uint8_t *bytes, size_t len);
/* At a place of its own while there are any, then at that of some other one. len is at most
 * SL_FORGE_FRAME. */
void sl_forge_keep(struct sl_forge *forge, unsigned to, const uint8_t *bytes, size_t len);
/* What was kept so far is old from now on. */
void sl_forge_forget(struct sl_forge *forge);
/* One of that kind from those that were kept, of which there are some. Of SL_FORGE_OLD there have
 * to be old ones. */
void sl_forge_make(struct sl_forge *forge, enum sl_forge_kind kind, struct sl_forge_frame *frame);

/* Big-endian. */
void sl_forge_put_16(uint8_t *at, size_t value);
/* IP's checksum is right again. */
void sl_forge_checksum(uint8_t *frame);
/* An answer (opcode 2), or a question, from which a host may learn that ip has that MAC. */
void sl_forge_arp(uint8_t arp[SL_FORGE_ARP], uint8_t opcode, const uint8_t mac[6],
                  const uint8_t ip[4], const uint8_t to_mac[6], const uint8_t to_ip[4]);

#endif
