/* SPDX-License-Identifier: Apache-2.0 */
/* Names, keys and proofs of endpoints. */
#include "tcp/proof.h"

#include <string.h>

int sl_tcp_name_make(const uint8_t token[SL_TCP_TOKEN_BYTES], uint8_t out[SL_TCP_NAME_BYTES])
{
    uint8_t digest[SL_DIGEST_BYTES];
    int err =
        sl_hmac(token, SL_TCP_TOKEN_BYTES, &(struct sl_part){"sluice tcp name 2", 17}, 1, digest);

    if (err == 0)
        memcpy(out, digest, SL_TCP_NAME_BYTES);
    return err;
}

int sl_tcp_link_key(const struct sl_worker *worker, const uint8_t dialler[SL_TCP_TOKEN_BYTES],
                    const uint8_t listener[SL_TCP_TOKEN_BYTES], uint8_t out[SL_DIGEST_BYTES])
{
    const struct sl_part parts[] = {
        {"sluice tcp link 2", 17}, {dialler, SL_TCP_TOKEN_BYTES}, {listener, SL_TCP_TOKEN_BYTES}};

    return sl_hmac(worker->session, worker->has_session ? sizeof(worker->session) : 0, parts, 3,
                   out);
}

int sl_tcp_proof_make(const uint8_t link_key[SL_DIGEST_BYTES], enum sl_tcp_proof what,
                      const uint8_t hello[SL_TCP_HELLO_BYTES],
                      const uint8_t answer[SL_TCP_ANSWER_BYTES + SL_TCP_NONCE_BYTES],
                      uint8_t out[SL_DIGEST_BYTES])
{
    static const char *const labels[] = {[SL_TCP_PROOF_LISTENER] = "sluice tcp listener 2",
                                         [SL_TCP_PROOF_DIALLER] = "sluice tcp dialler 2",
                                         [SL_TCP_PROOF_TLS] = "sluice tcp tls 2"};
    const struct sl_part parts[] = {{labels[what], strlen(labels[what]) + 1},
                                    {hello, SL_TCP_HELLO_BYTES},
                                    {answer, SL_TCP_ANSWER_BYTES + SL_TCP_NONCE_BYTES}};

    return sl_hmac(link_key, SL_DIGEST_BYTES, parts, 3, out);
}
