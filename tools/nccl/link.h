/* SPDX-License-Identifier: Apache-2.0 */
/* What the two ends of a handshake do alike: words over a socket, and an endpoint that comes
 * about. */
#ifndef SL_NCCL_LINK_H
#define SL_NCCL_LINK_H

#include "tools/nccl/adapt.h"

/* Unsent words: the handshake says at most three per way. */
#define SL_NCCL_SAY_MAX (8 * (SL_NCCL_WORD_MAX + SL_SEAL_BYTES))

struct sl_nccl_link {
    struct sl_nccl_engine *engine;
    struct sl_nccl_comm *comm; /* owned until the handshake is over */
    int fd;                    /* owned; -1: none */
    bool is_send;
    uint64_t ways_left; /* to be tried; bits by id */
    uint8_t way;        /* under way, while comm->ep is there */
    struct sl_req connecting;
    char why[SL_NCCL_WHY];     /* of the last failure */
    struct sl_nccl_word hello; /* that was said or heard */
    uint8_t nonce[SL_NCCL_NONCE_BYTES], link_key[SL_DIGEST_BYTES];
    bool sealed; /* both have proved themselves */
    uint8_t key_in[SL_DIGEST_BYTES], key_out[SL_DIGEST_BYTES];
    uint64_t number_in, number_out;
    size_t in_len, out_len;
    uint8_t in[SL_NCCL_WORD_MAX + SL_SEAL_BYTES], out[SL_NCCL_SAY_MAX];
};

void sl_nccl_link_init(struct sl_nccl_link *link, struct sl_nccl_engine *engine, bool is_send);
/* Closes the socket and drops what was not taken. */
void sl_nccl_link_fini(struct sl_nccl_link *link);

/* Keeps a word to be sent, and sends what the socket takes. 0, or the error of the socket. */
int sl_nccl_link_say(struct sl_nccl_link *link, const struct sl_nccl_word *word);
/* 1: all is sent; 0: not yet. */
int sl_nccl_link_flush(struct sl_nccl_link *link);
/* 1: a word; 0: none yet; -ECONNRESET: the other end is gone; what decoding says. */
int sl_nccl_link_hear(struct sl_nccl_link *link, struct sl_nccl_word *out);
int sl_nccl_link_failed(struct sl_nccl_link *link, uint8_t way);

/* Words are sealed from here on, with keys of link_key, hello and nonce. */
int sl_nccl_link_seal(struct sl_nccl_link *link);
/* The same of a proof that came: -EPROTO when it is not right. */
int sl_nccl_link_check(struct sl_nccl_link *link, bool by_listener,
                       const uint8_t proof[SL_DIGEST_BYTES]);
/* link_key, of the handle's secret. */
int sl_nccl_link_know(struct sl_nccl_link *link, const uint8_t secret[SL_NCCL_SECRET_BYTES]);
/* A proof of the handle alone, whatever the job's secret is: made, and looked at. */
int sl_nccl_handle_proof(const struct sl_nccl_link *link, bool by_listener,
                         const uint8_t secret[SL_NCCL_SECRET_BYTES], uint8_t out[SL_DIGEST_BYTES]);
bool sl_nccl_handle_known(const struct sl_nccl_link *link, bool by_listener,
                          const uint8_t secret[SL_NCCL_SECRET_BYTES],
                          const uint8_t proof[SL_DIGEST_BYTES]);

/* An endpoint of that way, and its address. */
int sl_nccl_link_ep(struct sl_nccl_link *link, uint8_t way, struct sl_addr *out);
int sl_nccl_link_connect(struct sl_nccl_link *link, const struct sl_addr *peer);
/* 1: connected; 0: not yet; or why not (link->why). */
int sl_nccl_link_state(const struct sl_nccl_link *link);
void sl_nccl_link_drop(struct sl_nccl_link *link);
/* The connection is the caller's from now on: 0, or it could not be started. */
int sl_nccl_link_take(struct sl_nccl_link *link, struct sl_nccl_comm **out);

#endif
