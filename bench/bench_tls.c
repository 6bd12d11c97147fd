/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What TLS costs the processor: one thread carries messages over loopback TCP from one socket to
 * another, plain, over TLS with records made here, and with records that the kernel makes, where it
 * does. Processor time of both ends together, the least of the rounds, which take turns: it means
 * something on a busy machine, too. usage: bench_tls [CIPHER [PERCENT]]    a word of
 * SLUICE_TCP_TLS_CIPHER; of the usual repetitions (an emulated machine)
 */
#include "core/err.h"
#include "tcp/config.h"
#include "tcp/tls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define LEN_MAX (16u << 20)
#define ROUNDS 15

enum way { PLAIN, USER, KERNEL, WAYS };

static int fds[WAYS][2];
static struct sl_tls *tls[WAYS][2];
static uint8_t in[LEN_MAX], out[LEN_MAX];

static double cpu_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static void open_pair(int pair[2])
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    socklen_t len = sizeof(addr);

    sl_assert(bind(listener, (struct sockaddr *)&addr, len) == 0 && listen(listener, 1) == 0);
    sl_assert(getsockname(listener, (struct sockaddr *)&addr, &len) == 0);
    pair[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sl_assert(connect(pair[0], (struct sockaddr *)&addr, len) == 0);
    pair[1] = accept(listener, NULL, NULL);
    close(listener);
    for (int i = 0; i < 2; i++)
        setsockopt(pair[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

/* On a connection of its own; microseconds. */
static double shake(struct sl_tls_context *context, enum way way)
{
    static const uint8_t key[SL_DIGEST_BYTES] = {1};
    int done[2] = {0, 0};
    bool wants_write;

    for (int i = 0; i < 2; i++) {
        sl_tls_free(tls[way][i]);
        if (fds[way][i] > 0)
            close(fds[way][i]);
    }
    open_pair(fds[way]);
    double begin = cpu_us();

    for (int i = 0; i < 2; i++)
        sl_assert(sl_tls_new(context, sl_tls_offer(context), i == 0, key, "bench", &tls[way][i]) ==
                  0);
    while (done[0] == 0 || done[1] == 0)
        for (int i = 0; i < 2; i++)
            if (done[i] == 0 &&
                (done[i] = sl_tls_handshake(tls[way][i], fds[way][i], &wants_write)) < 0) {
                fprintf(stderr, "%s\n", sluice_last_error());
                exit(1);
            }
    return cpu_us() - begin;
}

static void carry(size_t len, enum way way)
{
    const int *fd = fds[way];
    struct sl_tls **end = tls[way];
    size_t sent = 0, got = 0;

    while (got < len) {
        struct iovec give = {in + sent, len - sent}, take = {out + got, len - got};
        ssize_t n = 0;

        if (sent < len)
            n = way != PLAIN ? sl_tls_send(end[0], fd[0], &give, 1)
                             : send(fd[0], in + sent, len - sent, MSG_DONTWAIT);
        sent += n > 0 ? (size_t)n : 0;
        n = way != PLAIN ? sl_tls_recv(end[1], fd[1], &take, 1)
                         : recv(fd[1], out + got, len - got, MSG_DONTWAIT);
        sl_assert(n > 0 || errno == EAGAIN);
        got += n > 0 ? (size_t)n : 0;
    }
}

static void measure(size_t len, int percent, double best[WAYS])
{
    int usual = len <= 4096 ? 4000 : len <= 65536 ? 600 : len < LEN_MAX ? 60 : 4;
    int times = usual * percent / 100 > 0 ? usual * percent / 100 : 1;

    for (int way = 0; way < WAYS; way++)
        best[way] = 1e18;
    for (int round = 0; round < ROUNDS; round++)
        for (int way = 0; way < WAYS; way++) {
            if (fds[way][0] == 0)
                continue;
            double begin = cpu_us();

            for (int i = 0; i < times; i++)
                carry(len, (enum way)way);
            double us = (cpu_us() - begin) / times;

            best[way] = us < best[way] ? us : best[way];
        }
}

int main(int argc, char **argv)
{
    static const size_t lens[] = {8, 4096, 65536, 1u << 20, LEN_MAX};
    static const enum sl_tls_records records[WAYS] = {
        [USER] = SL_TLS_RECORDS_USER, [KERNEL] = SL_TLS_RECORDS_KERNEL};
    struct sl_config config;
    struct sl_tls_context *context[WAYS] = {NULL};
    int percent = argc > 2 ? atoi(argv[2]) : 100;

    sl_config_defaults(&config);
    if (argc > 1 && sl_config_set(&config, "TCP_TLS_CIPHER", argv[1]) != 0) {
        fprintf(stderr, "%s\n", sluice_last_error());
        return 2;
    }
    open_pair(fds[PLAIN]);
    for (int way = USER; way < WAYS; way++) {
        double best = 1e18;

        if (sl_tls_context_open(records[way], sl_tcp_config(&config)->tls_cipher, &context[way]) !=
            0) {
            fprintf(stderr, "%s\n", sluice_last_error());
            if (way == USER)
                return 77;
            continue;
        }
        for (int i = 0; i < 50 * percent / 100 + 1; i++) {
            double us = shake(context[way], (enum way)way);

            best = us < best ? us : best;
        }
        printf("%s, handshake of both ends %.0f us\n", sl_tls_cipher(tls[way][0]), best);
    }
    printf("%10s %12s %12s %12s\n", "bytes", "plain us", "user us", "kernel us");
    for (size_t i = 0; i < SL_ARRAY_LEN(lens); i++) {
        double us[WAYS];

        measure(lens[i], percent, us);
        printf("%10zu %12.2f %12.2f", lens[i], us[PLAIN], us[USER]);
        printf(context[KERNEL] != NULL ? " %12.2f\n" : "            -\n", us[KERNEL]);
    }
    for (int way = USER; way < WAYS; way++) {
        for (int i = 0; i < 2; i++)
            sl_tls_free(tls[way][i]);
        sl_tls_context_close(context[way]);
    }
    return 0;
}
