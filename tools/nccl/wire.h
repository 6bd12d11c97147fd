/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes that two ends of an NCCL connection exchange: the handle, the words of the handshake,
 * and the announcement of receives. No input or output here; docs/wire.md draws them.
 *
 *     connecting end                              listening end
 *     HELLO (ways, host, nonce)                ->
 *                                              <- CHALLENGE (nonce, proof)
 *     PROOF (proof)                            ->
 *                                              <- OFFER (way, address of an endpoint)
 *     ANSWER (way, address of an endpoint)     ->
 *                     both connect their endpoints
 *     UP (way)                                 ->
 *                                              <- DONE (way): from here on it is a connection
 *
 * A proof shows that a side knows the handle and, where SLUICE_SECRET is set, the secret; words
 * after it are sealed. CHALLENGE also shows that its side knows the handle, whatever its secret is:
 * so the connecting end can tell another secret from another listener. It then says STRANGER, with
 * the same of its own, and both ends give up soon.
 *
 * Either says FAILED (way, why) when its endpoint does not come about; the next OFFER is for
 * another way. REFUSE (why) ends it. DONE is the last word, and whoever says it returns the
 * connection in the same call: so of two connections under way that stand for one, both ends take
 * the same.
 */
#ifndef SL_NCCL_WIRE_H
#define SL_NCCL_WIRE_H

#include "core/secret.h"
#include "core/transport.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#define SL_NCCL_WIRE_VERSION 4
#define SL_NCCL_SECRET_BYTES 16
#define SL_NCCL_NONCE_BYTES 16
#define SL_NCCL_PLACES_MAX 12  /* addresses of a listener */
#define SL_NCCL_PLACE_BYTES 72 /* that they may take in a handle */
#define SL_NCCL_HANDLE_OWN                                                                         \
    112 /* bytes of a handle that travel; behind them lies the connecting end's own */
#define SL_NCCL_WORD_HEADER 8
#define SL_NCCL_WORD_MAX 384 /* of one word of the handshake, with its header */
#define SL_NCCL_TEXT_MAX 160

#define SL_NCCL_GROUP_MAX 8 /* receives of a group */
#define SL_NCCL_CALL_HEADER 8
#define SL_NCCL_CALL_BYTES (SL_NCCL_CALL_HEADER + 12 * SL_NCCL_GROUP_MAX)

/* A way to connect: a transport, by its number in the registry, with the interfaces that it chooses
 * itself or with the device that NCCL has chosen. A bit of a mask, by this id. */
#define SL_NCCL_WAYS (2 * SL_TRANSPORT_NUMBERS)
#define SL_NCCL_WAY_ID(number, by_device) ((uint8_t)(2 * (number) + ((by_device) ? 1 : 0)))
_Static_assert(SL_NCCL_WAYS <= 64, "ways are bits of a mask of 64");

/* Where a listener can be reached. */
struct sl_nccl_place {
    struct sockaddr_storage addr; /* with its port */
    bool loopback;
};

struct sl_nccl_handle {
    uint64_t host; /* sl_host_hash() of the listening end */
    uint8_t secret[SL_NCCL_SECRET_BYTES];
    uint16_t port;
    unsigned place_count;
    struct sl_nccl_place places[SL_NCCL_PLACES_MAX];
};

/* Leaves out the places that there is no room for; their ports are handle->port. */
void sl_nccl_handle_encode(const struct sl_nccl_handle *handle, uint8_t out[SL_NCCL_HANDLE_OWN]);

/* -EPROTO: another version, or no handle of ours at all: the other rank has another plugin. */
int sl_nccl_handle_decode(const uint8_t bytes[SL_NCCL_HANDLE_OWN], struct sl_nccl_handle *out);

enum sl_nccl_word_kind {
    SL_NCCL_HELLO = 1,
    SL_NCCL_OFFER,
    SL_NCCL_ANSWER,
    SL_NCCL_UP,
    SL_NCCL_DONE,
    SL_NCCL_FAILED,
    SL_NCCL_REFUSE,
    SL_NCCL_CHALLENGE,
    SL_NCCL_PROOF,
    SL_NCCL_STRANGER, /* our secrets differ */
};

struct sl_nccl_word {
    enum sl_nccl_word_kind kind;
    uint8_t way; /* SL_NCCL_WAY_ID */
    /* HELLO */
    uint64_t ways;
    uint16_t version;
    uint64_t host;
    uint8_t nonce[SL_NCCL_NONCE_BYTES]; /* of CHALLENGE, too */
    /* CHALLENGE, PROOF */
    uint8_t proof[SL_DIGEST_BYTES];
    /* CHALLENGE, STRANGER: a proof as where there is no secret */
    uint8_t handle_proof[SL_DIGEST_BYTES];
    /* OFFER, ANSWER */
    struct sl_addr addr;
    /* FAILED, REFUSE */
    char text[SL_NCCL_TEXT_MAX];
};

/* Returns how many bytes it took, at most SL_NCCL_WORD_MAX. */
size_t sl_nccl_word_encode(const struct sl_nccl_word *word, uint8_t out[SL_NCCL_WORD_MAX]);

/* One word out of the first len bytes: how many it took, 0 when it is not complete; -EBADMSG: these
 * are no words of ours, known by the first bytes already; -EPROTO: a HELLO of another version
 * (out->version). */
int sl_nccl_word_decode(const uint8_t *bytes, size_t len, struct sl_nccl_word *out);

/* What both ends of a connection make of the handle and, where there is one, the session key of the
 * job's secret: who has read the handle alone then knows nothing. -ENOMEM. */
int sl_nccl_link_key(const uint8_t *session, const uint8_t secret[SL_NCCL_SECRET_BYTES],
                     uint8_t out[SL_DIGEST_BYTES]);

/* That a side knows it, of the hello and the listener's nonce; and two keys for what follows.
 * -ENOMEM. */
int sl_nccl_proof_make(const uint8_t link_key[SL_DIGEST_BYTES], bool by_listener,
                       const struct sl_nccl_word *hello, const uint8_t nonce[SL_NCCL_NONCE_BYTES],
                       uint8_t out[SL_DIGEST_BYTES]);
int sl_nccl_word_keys(const uint8_t link_key[SL_DIGEST_BYTES], const struct sl_nccl_word *hello,
                      const uint8_t nonce[SL_NCCL_NONCE_BYTES],
                      uint8_t to_listener[SL_DIGEST_BYTES], uint8_t to_dialler[SL_DIGEST_BYTES]);

/* Seals a word that was encoded, len bytes of it; returns its new length, or a negative errno. */
int sl_nccl_word_seal(uint8_t word[SL_NCCL_WORD_MAX + SL_SEAL_BYTES], size_t len,
                      const uint8_t key[SL_DIGEST_BYTES], uint64_t number);

/* The reverse, in place, of the first word of len bytes: then sl_nccl_word_decode() takes it.
 * Returns how many bytes it had as it came, 0 when it is not complete; -EBADMSG: it was changed, or
 * is none. */
int sl_nccl_word_unseal(uint8_t *bytes, size_t len, const uint8_t key[SL_DIGEST_BYTES],
                        uint64_t number);

/* What a receiver announces: as many messages may come, in this order, at most so long. */
struct sl_nccl_call {
    uint32_t number; /* of the group, from 0 */
    unsigned count;
    uint32_t tags[SL_NCCL_GROUP_MAX];
    uint64_t sizes[SL_NCCL_GROUP_MAX];
};

/* Returns the length. */
size_t sl_nccl_call_encode(const struct sl_nccl_call *call, uint8_t out[SL_NCCL_CALL_BYTES]);

/* -EBADMSG */
int sl_nccl_call_decode(const uint8_t *bytes, size_t len, struct sl_nccl_call *out);

#endif
