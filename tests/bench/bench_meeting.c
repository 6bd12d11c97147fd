/* SPDX-License-Identifier: Apache-2.0 */
/* How long ranks of one host take to meet and to swap their first bytes, and what goes through the
 * sockets of each rank meanwhile.
 *
 * usage: bench_meeting RANKS [BYTES [EXCHANGES]] */
#include "launch/launch.h"

#include "core/clock.h"
#include "core/err.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>

#define EXCHANGES_MAX 8

extern char **environ;

/* Of one rank, in memory that all share. */
struct record {
    uint64_t born_ns, met_ns, swapped_ns[EXCHANGES_MAX];
    uint64_t sent, received; /* by its sockets, until it had met and swapped */
    uint64_t first_sent, first_received;
};

static uint64_t sent, received;

ssize_t __real_send(int fd, const void *bytes, size_t len, int flags);
ssize_t __real_recv(int fd, void *bytes, size_t len, int flags);
ssize_t __wrap_send(int fd, const void *bytes, size_t len, int flags);
ssize_t __wrap_recv(int fd, void *bytes, size_t len, int flags);

ssize_t __wrap_send(int fd, const void *bytes, size_t len, int flags)
{
    ssize_t n = __real_send(fd, bytes, len, flags);

    sent += n > 0 ? (uint64_t)n : 0;
    return n;
}

ssize_t __wrap_recv(int fd, void *bytes, size_t len, int flags)
{
    ssize_t n = __real_recv(fd, bytes, len, flags);

    received += n > 0 ? (uint64_t)n : 0;
    return n;
}

static uint64_t now(void)
{
    return sl_now(&sl_clock_monotonic);
}

static int run_rank(struct record *records, size_t len, unsigned exchanges)
{
    uint64_t born_ns = now();
    struct sl_exchange *exchange;
    struct sl_config config;
    int err = sl_config_from_env(&config, environ);

    err = err ?: sl_launch(&config, NULL, &exchange);
    if (err != 0) {
        fprintf(stderr, "%s\n", sluice_last_error());
        return 1;
    }
    struct record *record = &records[exchange->rank];
    uint8_t *mine = malloc(len + 1), *all = malloc(len * (size_t)exchange->size + 1);

    record->born_ns = born_ns;
    record->met_ns = now();
    record->sent = sent;
    record->received = received;
    for (unsigned i = 0; i < exchanges && err == 0; i++) {
        memset(mine, exchange->rank + (int)i, len);
        err = exchange->allgather(exchange, mine, len, all);
        record->swapped_ns[i] = now();
        for (int r = 0; r < exchange->size && err == 0 && len > 0; r++)
            if (all[(size_t)r * len] != (uint8_t)(r + (int)i))
                err = sl_fail(-EBADMSG, "the share of rank %d is wrong", r);
        if (i == 0) {
            record->first_sent = sent - record->sent;
            record->first_received = received - record->received;
        }
    }
    if (err != 0)
        fprintf(stderr, "%s\n", sluice_last_error());
    exchange->close(exchange);
    free(mine);
    free(all);
    return err != 0;
}

static uint64_t last(const struct record *records, int size, unsigned exchange)
{
    uint64_t at = 0;

    for (int r = 0; r < size; r++) {
        uint64_t its = records[r].swapped_ns[exchange];

        at = its > at ? its : at;
    }
    return at;
}

static double ms(uint64_t ns)
{
    return (double)ns / (double)SL_NS_PER_MS;
}

static void print(const struct record *records, int size, uint64_t start_ns, unsigned exchanges)
{
    uint64_t most_sent = 0, most_received = 0, born_ns = 0;

    for (int r = 0; r < size; r++) {
        const struct record *its = &records[r];

        born_ns = its->born_ns > born_ns ? its->born_ns : born_ns;
        most_sent = its->first_sent > most_sent ? its->first_sent : most_sent;
        most_received = its->first_received > most_received ? its->first_received : most_received;
    }
    printf("%6d ranks: first exchange ends after %8.1f ms (the last rank began at %.1f ms)", size,
           ms(last(records, size, 0) - start_ns), ms(born_ns - start_ns));
    for (unsigned i = 1; i < exchanges; i++)
        printf(", then %.1f ms", ms(last(records, size, i) - last(records, size, i - 1)));
    printf("; rank 0: meeting %llu sent %llu received, exchange %llu %llu; most of any rank in the "
           "exchange %llu %llu\n",
           (unsigned long long)records[0].sent, (unsigned long long)records[0].received,
           (unsigned long long)records[0].first_sent, (unsigned long long)records[0].first_received,
           (unsigned long long)most_sent, (unsigned long long)most_received);
}

int main(int argc, char **argv)
{
    int size = argc > 1 ? atoi(argv[1]) : 0, status = 0;
    size_t len = argc > 2 ? (size_t)atoll(argv[2]) : 96;
    unsigned exchanges = argc > 3 ? (unsigned)atoi(argv[3]) : 1;

    if (size < 2 || exchanges < 1 || exchanges > EXCHANGES_MAX) {
        fprintf(stderr, "usage: bench_meeting RANKS [BYTES [EXCHANGES]]\n");
        return 2;
    }
    struct record *records = mmap(NULL, (size_t)size * sizeof(*records), PROT_READ | PROT_WRITE,
                                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    uint64_t start_ns = now();

    if (records == MAP_FAILED)
        return 1;
    int err = sl_local_start(size, 1000, &status);

    if (err == 1)
        return run_rank(records, len, exchanges);
    if (err != 0 || status != 0) {
        fprintf(stderr, "%s\n", err != 0 ? sluice_last_error() : "a rank failed");
        return 1;
    }
    print(records, size, start_ns, exchanges);
    return 0;
}
