/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TLS 1.3 with a pre-shared key over a socket that never blocks.
 *
 *   tls.c         the handshake, by OpenSSL (opened at run time: tls_dl.c); of OpenSSL no more than
 *                 ciphers are used later
 *   tls_user.c    records made and opened here, straight out of and into the caller's memory
 *                 (record.c)
 *   tls_kernel.c  records made and opened by the kernel, where it does (CONFIG_TLS)
 *
 * docs/design/0014-tls.md says why it is so.
 */
#ifndef SL_TCP_TLS_H
#define SL_TCP_TLS_H

#include "core/secret.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#define SL_TLS_IDENTITY_MAX 128

/* State of an interface for all its connections. */
struct sl_tls_context;
struct sl_tls; /* of one connection */

/* In the order of the choices of their variables, SLUICE_TCP_TLS_RECORDS and _CIPHER. */
enum sl_tls_records { SL_TLS_RECORDS_USER, SL_TLS_RECORDS_KERNEL, SL_TLS_RECORDS_AUTO };

enum sl_tls_cipher {
    SL_TLS_CIPHER_AUTO,
    SL_TLS_CIPHER_AES_128,
    SL_TLS_CIPHER_AES_256,
    SL_TLS_CIPHER_CHACHA20
};

/* Terms of an end before they connect, and the conclusions of both. */
struct sl_tls_terms {
    /* enum sl_tls_cipher; AUTO: AES-128-GCM or ChaCha20-Poly1305, as their processors like */
    uint8_t cipher;
    bool keys_stay; /* a kernel in it takes no new keys: ChaCha20-Poly1305, which needs none */
};

/* -ENOTSUP: this build, machine or kernel cannot; the sentence has a remedy. */
int sl_tls_context_open(enum sl_tls_records records, enum sl_tls_cipher cipher,
                        struct sl_tls_context **out);
void sl_tls_context_close(struct sl_tls_context *context); /* takes NULL */
const struct sl_tls_terms *sl_tls_offer(const struct sl_tls_context *context);

/* Nothing is sent yet. identity names the key to listeners on the network, and to the log; the
 * key itself is known to both ends. */
int sl_tls_new(struct sl_tls_context *context, const struct sl_tls_terms *agreed, bool client,
               const uint8_t psk[SL_DIGEST_BYTES], const char *identity, struct sl_tls **out);
void sl_tls_free(struct sl_tls *tls); /* takes NULL */

/* Goes on with the handshake. 1: done; 0: call again when fd is readable, or writable
 * (*wants_write).
 * -EPROTO, -ECONNRESET: it came to nothing, with a sentence part. No byte behind the handshake is
 * read. */
int sl_tls_handshake(struct sl_tls *tls, int fd, bool *wants_write);

/*
 * As sendmsg() and recvmsg() of the plain bytes, with errno: EBADMSG when the bytes are not those
 * that were sent. Sending counts bytes once the kernel has all of their records; until then it says
 * EAGAIN, and wants the same bytes again. Each element of iov begins a record, unless the kernel
 * makes them. Receiving takes no byte on EAGAIN alone, so a reader that waits for an event first
 * reads until EAGAIN, as of a socket.
 */
ssize_t sl_tls_send(struct sl_tls *tls, int fd, const struct iovec *iov, unsigned count);
ssize_t sl_tls_recv(struct sl_tls *tls, int fd, const struct iovec *iov, unsigned count);

/* "AES-128-GCM", or "AES-128-GCM in the kernel", once the handshake is done. */
const char *sl_tls_cipher(const struct sl_tls *tls);

/* For tests: records that one key seals. */
extern uint64_t sl_tls_records_per_key;

#endif
