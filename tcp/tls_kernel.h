/* SPDX-License-Identifier: Apache-2.0 */
/* TLS records by the kernel: Documentation/networking/tls.rst of Linux. */
#ifndef SL_TCP_TLS_KERNEL_H
#define SL_TCP_TLS_KERNEL_H

#include "tcp/tls_inside.h"

/* Tries it, once for the process, on a connection of its own. -ENOTSUP, with the missing part. */
int sl_tls_kernel_look(bool *takes_new_keys);

/* Hands both directions of a connection over, whose handshake is done. mine, theirs: traffic
 * secrets. */
int sl_tls_kernel_take(struct sl_tls *tls, int fd, const uint8_t *mine, const uint8_t *theirs);

/* As sl_tls_send() and sl_tls_recv(). */
ssize_t sl_tls_kernel_send(struct sl_tls *tls, int fd, const struct iovec *iov, unsigned count);
ssize_t sl_tls_kernel_recv(struct sl_tls *tls, int fd, const struct iovec *iov, unsigned count);

#endif
