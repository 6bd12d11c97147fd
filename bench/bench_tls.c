/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What TLS costs the processor: one thread carries messages over loopback TCP from one socket to another, plain and
 * over TLS. Processor time of both ends together, the least of the rounds: it means something on a busy machine, too.
 */
#include "core/err.h"
#include "tcp/tls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define LEN_MAX (1u << 20)
#define ROUNDS 15

static int fds[2];
static struct sl_tls *tls[2];
static uint8_t in[LEN_MAX], out[LEN_MAX];

static double cpu_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static void open_pair(void)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    socklen_t len = sizeof(addr);

    sl_assert(bind(listener, (struct sockaddr *)&addr, len) == 0 && listen(listener, 1) == 0);
    sl_assert(getsockname(listener, (struct sockaddr *)&addr, &len) == 0);
    fds[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sl_assert(connect(fds[0], (struct sockaddr *)&addr, len) == 0);
    fds[1] = accept(listener, NULL, NULL);
    for (int i = 0; i < 2; i++)
        setsockopt(fds[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

static void shake(struct sl_tls_context *context)
{
    static const uint8_t key[SL_DIGEST_BYTES] = {1};
    int done[2] = {0, 0};
    bool wants_write;

    for (int i = 0; i < 2; i++) {
        sl_tls_free(tls[i]);
        sl_assert(sl_tls_new(context, sl_tls_offer(context), i == 0, key, "bench", &tls[i]) == 0);
    }
    while (done[0] == 0 || done[1] == 0)
        for (int i = 0; i < 2; i++)
            if (done[i] == 0)
                sl_assert((done[i] = sl_tls_handshake(tls[i], fds[i], &wants_write)) >= 0);
}

static void carry(size_t len, bool secure)
{
    size_t sent = 0, got = 0;

    while (got < len) {
        struct iovec give = {in + sent, len - sent}, take = {out + got, len - got};
        ssize_t n = 0;

        if (sent < len)
            n = secure ? sl_tls_send(tls[0], fds[0], &give, 1) : send(fds[0], in + sent, len - sent, MSG_DONTWAIT);
        sent += n > 0 ? (size_t)n : 0;
        n = secure ? sl_tls_recv(tls[1], fds[1], &take, 1) : recv(fds[1], out + got, len - got, MSG_DONTWAIT);
        sl_assert(n > 0 || errno == EAGAIN);
        got += n > 0 ? (size_t)n : 0;
    }
}

static double least(size_t len, bool secure)
{
    int times = len <= 4096 ? 4000 : len <= 65536 ? 600 : 60;
    double best = 1e18;

    for (int round = 0; round < ROUNDS; round++) {
        double begin = cpu_us();

        for (int i = 0; i < times; i++)
            carry(len, secure);
        double us = (cpu_us() - begin) / times;

        best = us < best ? us : best;
    }
    return best;
}

int main(void)
{
    static const size_t lens[] = {8, 56, 4096, 65536, LEN_MAX};
    struct sl_tls_context *context;
    double best = 1e18;

    if (sl_tls_context_open("user", "auto", &context) != 0) {
        fprintf(stderr, "%s\n", sluice_last_error());
        return 77;
    }
    open_pair();
    for (int i = 0; i < 50; i++) {
        double begin = cpu_us();

        shake(context);
        best = cpu_us() - begin < best ? cpu_us() - begin : best;
    }
    printf("%s, handshake of both ends %.0f us\n%10s %12s %12s\n", sl_tls_cipher(tls[0]), best, "bytes",
           "plain us", "TLS us");
    for (size_t i = 0; i < SL_ARRAY_LEN(lens); i++)
        printf("%10zu %12.2f %12.2f\n", lens[i], least(lens[i], false), least(lens[i], true));
    for (int i = 0; i < 2; i++)
        sl_tls_free(tls[i]);
    sl_tls_context_close(context);
    return 0;
}
