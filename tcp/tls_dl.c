/* SPDX-License-Identifier: Apache-2.0 */
/* Fills the table of OpenSSL's functions from the libraries of this machine. */
#include "tcp/tls_dl.h"

#include "core/dl.h"
#include "core/err.h"

#include <pthread.h>
#include <stdio.h>

#define SYMBOL(type, name, args) {#name, offsetof(struct sl_openssl, name), false},

static struct sl_openssl table;
static int error;
static char why[256];

static void open_libraries(void)
{
    static const char *const ssl_names[] = {"libssl.so.3", NULL};
    static const char *const crypto_names[] = {"libcrypto.so.3", NULL};
    static const struct sl_dl_symbol ssl[] = {SL_TLS_SSL_FUNCTIONS(SYMBOL)};
    static const struct sl_dl_symbol crypto[] = {SL_TLS_CRYPTO_FUNCTIONS(SYMBOL)};

    error = sl_dl_open(ssl_names, ssl, SL_ARRAY_LEN(ssl), &table);
    if (error == 0)
        error = sl_dl_open(crypto_names, crypto, SL_ARRAY_LEN(crypto), &table);
    if (error != 0)
        snprintf(why, sizeof(why), "%s", sluice_last_error());
}

int sl_openssl_get(const struct sl_openssl **out)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, open_libraries);
    if (error != 0)
        return sl_fail(error,
                       "TLS needs OpenSSL 3: %s; install it (Debian: libssl3), or set "
                       "SLUICE_TCP_TLS=off on every rank",
                       why);
    *out = &table;
    return 0;
}
