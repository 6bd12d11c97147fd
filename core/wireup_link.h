/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection under way, shared by the files of wire-up: wireup.c keeps and moves links,
 * wireup_link.c is for both ends, wireup_dial.c and wireup_accept.c are for one each.
 *
 * Functions that return int: 0; why the pipe is of no use any more; or SL_WIREUP_GONE, and the link
 * must not be touched again. The owner's calls happen there, which may begin a link in the same
 * memory.
 */
#ifndef SL_CORE_WIREUP_LINK_H
#define SL_CORE_WIREUP_LINK_H

#include "core/wireup.h"
#include "core/wireup_word.h"

#define SL_WIREUP_GONE 1
/* A text of any length, and the words around it. */
#define SL_WIREUP_OUT_MAX (2 * (SL_WIREUP_WORD_MAX + SL_SEAL_BYTES))

struct sl_wireup_link {
    struct sl_node node; /* wireup->links */
    struct sl_wireup *wireup;
    struct sl_pending pending; /* in the set until its proof is there */
    bool dials;                /* else it accepts */
    bool wanted;               /* this rank needs the endpoint */
    bool patient, heard, proved;
    bool awaited;  /* the owner has it under its number */
    bool alien;    /* who answered has another key */
    uint32_t peer; /* UINT32_MAX: not known yet */
    struct sl_pipe *pipe;
    unsigned place, refused;       /* refused: places of this round where nobody listens */
    uint64_t deadline_ns, next_ns; /* of the whole; of the next dial, or for HELLO to go */
    uint32_t left;                 /* transports to be tried */
    bool is_up, committed;         /* UP was said or heard; DONE is on its way */
    uint8_t transport;
    struct sl_ep *ep;
    struct sl_req connecting;
    int lost; /* of ep: why it is of no use */
    int err;  /* worst of what failed here */
    struct sl_wireup_hello hello;
    uint8_t nonce[SL_WIREUP_NONCE_BYTES], key[SL_DIGEST_BYTES];
    bool sealed;
    uint8_t key_in[SL_DIGEST_BYTES], key_out[SL_DIGEST_BYTES];
    uint64_t number_in, number_out;
    char *reason; /* of the endpoint under way (sl_text_set); NULL: none yet */
    char *why;    /* "; shm: ...; tcp: ..." of all that failed */
    size_t in_len, out_len;
    uint8_t in[SL_WIREUP_WORD_MAX + SL_SEAL_BYTES], out[SL_WIREUP_OUT_MAX];
};

struct sl_wireup {
    struct sl_worker *worker;
    const struct sl_wire_ops *ops;
    struct sl_wireup_owner owner;
    struct sl_wireup_addr addr;
    struct sl_wire *wire;
    struct sl_node links;
    unsigned count;
    struct sl_wireup_link *spare; /* for the next pipe; there is one after a link was freed */
    uint64_t now_ns, next_poll_ns, patience_ns;
    uint64_t calm_ns; /* since something moved, or a link was wanted */
    struct sl_pending_set set;
    struct sl_pending_log log;
};

/* ---- links ---- */

/* Not listed yet: see sl_wireup_link_add(). NULL: no memory. */
struct sl_wireup_link *sl_wireup_link_new(struct sl_wireup *w, bool dials, uint32_t peer);
void sl_wireup_link_add(struct sl_wireup_link *link);
void sl_wireup_link_free(struct sl_wireup_link *link);
/* That peer's, other than but; NULL: there is none. */
struct sl_wireup_link *sl_wireup_link_find(const struct sl_wireup *w, uint32_t peer,
                                           const struct sl_wireup_link *but);
/* Ends its pipe and endpoint; it can dial again. */
void sl_wireup_link_hang_up(struct sl_wireup_link *link);
/* Tells the owner. SL_WIREUP_GONE. */
int sl_wireup_fail(struct sl_wireup_link *link, int err);
/* The endpoint is the owner's, as the pipe has done its work. SL_WIREUP_GONE. */
int sl_wireup_hand_over(struct sl_wireup_link *link);

/* ---- words ---- */

int sl_wireup_flush(struct sl_wireup_link *link);
int sl_wireup_say(struct sl_wireup_link *link, const struct sl_wireup_word *word);
int sl_wireup_say_failed(struct sl_wireup_link *link, uint8_t transport);
/* 1: a word; 0: none yet; else the pipe is of no use. */
int sl_wireup_hear(struct sl_wireup_link *link, struct sl_wireup_word *out);

/* All further words are sealed, in both directions. */
int sl_wireup_seal(struct sl_wireup_link *link);
int sl_wireup_know_key(struct sl_wireup_link *link);
/* -EACCES: it is wrong. -ENOMEM says nothing of the peer. */
int sl_wireup_check_proof(const struct sl_wireup_link *link, bool by_acceptor,
                          const uint8_t proof[SL_DIGEST_BYTES]);

/* ---- endpoints ---- */

/* An endpoint of that transport and its address, or link->why says why there is none. */
int sl_wireup_ep_make(struct sl_wireup_link *link, uint8_t transport, struct sl_addr *out);
int sl_wireup_ep_connect(struct sl_wireup_link *link, const struct sl_addr *addr);
/* 1: it is up here; 0: not yet; else it is gone, and why is noted. */
int sl_wireup_ep_state(struct sl_wireup_link *link);
void sl_wireup_ep_drop(struct sl_wireup_link *link);
/* The other end's endpoint did not come about; it may be this one that lacked memory for it. */
void sl_wireup_peer_failed(struct sl_wireup_link *link, const struct sl_wireup_word *word);

/* ---- the dialing end ---- */

int sl_wireup_dial(struct sl_wireup_link *link);
int sl_wireup_dial_word(struct sl_wireup_link *link, const struct sl_wireup_word *word);
/* Says when the endpoint is up, or is not going to be. */
int sl_wireup_dial_settle(struct sl_wireup_link *link);
/* Hangs up for that reason; the next place is dialed in a while. */
void sl_wireup_dial_rest(struct sl_wireup_link *link, int err);

/* ---- the accepting end ---- */

/* Takes dialed pipes, and makes room for them. Returns how many. */
unsigned sl_wireup_let_in(struct sl_wireup *w);
/* Ends links without a proof in time. */
void sl_wireup_show_late_out(struct sl_wireup *w);
int sl_wireup_accept_word(struct sl_wireup_link *link, const struct sl_wireup_word *word);
/* The endpoint is up at both ends: hands it over. Or it is not going to be: offers another. */
int sl_wireup_accept_settle(struct sl_wireup_link *link);
/* It waits for sl_wireup_finish() alone. */
bool sl_wireup_accept_waits(const struct sl_wireup_link *link);

#endif
