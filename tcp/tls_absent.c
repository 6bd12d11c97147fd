/* SPDX-License-Identifier: Apache-2.0 */
/* In place of TLS where OpenSSL's headers were not there when Sluice was built. */
#include "tcp/tls.h"

#include "core/err.h"

uint64_t sl_tls_records_per_key;

static int absent(void)
{
    return sl_fail(-ENOTSUP,
                   "this build of Sluice has no TLS: build it where OpenSSL's headers are (Debian: "
                   "libssl-dev), or set SLUICE_TCP_TLS=off on every rank");
}

int sl_tls_context_open(enum sl_tls_records records, enum sl_tls_cipher cipher,
                        struct sl_tls_context **out)
{
    (void)records, (void)cipher, (void)out;
    return absent();
}

const struct sl_tls_terms *sl_tls_offer(const struct sl_tls_context *context)
{
    static const struct sl_tls_terms none;

    (void)context;
    return &none;
}

void sl_tls_context_close(struct sl_tls_context *context)
{
    (void)context;
}

int sl_tls_new(struct sl_tls_context *context, const struct sl_tls_terms *agreed, bool client,
               const uint8_t psk[SL_DIGEST_BYTES], const char *identity, struct sl_tls **out)
{
    (void)context, (void)agreed, (void)client, (void)psk, (void)identity, (void)out;
    return absent();
}

void sl_tls_free(struct sl_tls *tls)
{
    (void)tls;
}

int sl_tls_handshake(struct sl_tls *tls, int fd, bool *wants_write)
{
    (void)tls, (void)fd, (void)wants_write;
    return -ENOTSUP;
}

ssize_t sl_tls_send(struct sl_tls *tls, int fd, const struct iovec *iov, unsigned count)
{
    (void)tls, (void)fd, (void)iov, (void)count;
    errno = ENOTSUP;
    return -1;
}

ssize_t sl_tls_recv(struct sl_tls *tls, int fd, const struct iovec *iov, unsigned count)
{
    return sl_tls_send(tls, fd, iov, count);
}

const char *sl_tls_cipher(const struct sl_tls *tls)
{
    (void)tls;
    return "";
}
