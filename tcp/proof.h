/* SPDX-License-Identifier: Apache-2.0 */
/* Proofs of two endpoints in place of their tokens, which never travel on a connection.
 * Pure. */
#ifndef SL_TCP_PROOF_H
#define SL_TCP_PROOF_H

#include "core/secret.h"
#include "core/worker.h"
#include "tcp/frame.h"

/* The name of an endpoint on the wire: it does not give the token away. -ENOMEM. */
int sl_tcp_name_make(const uint8_t token[SL_TCP_TOKEN_BYTES], uint8_t out[SL_TCP_NAME_BYTES]);

/* A key that only the two endpoints have: of both tokens and, where there is one, the job's session
 * key. -ENOMEM. */
int sl_tcp_link_key(const struct sl_worker *worker, const uint8_t dialler[SL_TCP_TOKEN_BYTES],
                    const uint8_t listener[SL_TCP_TOKEN_BYTES], uint8_t out[SL_DIGEST_BYTES]);

/* The uses of a digest of one connection. */
enum sl_tcp_proof { SL_TCP_PROOF_LISTENER, SL_TCP_PROOF_DIALLER, SL_TCP_PROOF_TLS };

/* Of the link's key, the hello, and the answer with its nonce: others on each connection.
 * -ENOMEM. */
int sl_tcp_proof_make(const uint8_t link_key[SL_DIGEST_BYTES], enum sl_tcp_proof what,
                      const uint8_t hello[SL_TCP_HELLO_BYTES],
                      const uint8_t answer[SL_TCP_ANSWER_BYTES + SL_TCP_NONCE_BYTES],
                      uint8_t out[SL_DIGEST_BYTES]);

#endif
