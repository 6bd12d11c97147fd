/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a packet costs in dpdk/port, headers and bursts alone: through a wire within the process, by
 * IPv4 or IPv6. usage: bench_dpdk_port [4|6] [BYTES] [PACKETS] [lent]
 *
 * Under `valgrind --tool=callgrind --toggle-collect=round_trip` instructions, which a machine that
 * is shared repeats as well.
 */
#include "core/clock.h"
#include "core/err.h"
#include "tests/unit/dpdk/port_end.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BURST 32

static uint8_t payload[9000];

/* One burst, there: sent, taken from the ring, told. */
__attribute__((noinline)) static int round_trip(struct port_end *from, struct port_end *to,
                                                size_t len, bool lent)
{
    for (unsigned i = 0; i < BURST; i++) {
        int rc = port_end_send(from, payload, len, lent);

        if (rc < 0)
            return rc;
    }
    port_end_poll(from);
    port_end_poll(to);
    return 0;
}

static void die(const char *what)
{
    fprintf(stderr, "bench_dpdk_port: %s: %s\n", what, sluice_last_error());
    exit(1);
}

int main(int argc, char **argv)
{
    static struct port_end a, b;
    bool is_v6 = argc > 1 && strcmp(argv[1], "6") == 0;
    size_t len = argc > 2 ? strtoul(argv[2], NULL, 10) : 1400;
    uint64_t packets = argc > 3 ? strtoul(argv[3], NULL, 10) : 320000;
    bool lent = argc > 4 && strcmp(argv[4], "lent") == 0;
    struct sl_dpdk_port_settings settings = {
        .list = is_v6 ? "ring:p/0@ip=fd00::1/64 ring:p/1@ip=fd00::2/64" : "ring:p/0 ring:p/1",
        .rank = -1,
        .local_rank = -1};

    if (len > sizeof(payload) - 128)
        die("too many bytes");
    port_end_fill(payload, len);
    if (port_end_open(&a, &settings, 0) != 0 || port_end_open(&b, &settings, 1) != 0 ||
        port_end_connect(&a, &b.own, 50000) != 0 || port_end_connect(&b, &a.own, 50001) != 0)
        die("the wire does not come up");
    a.skips_check = b.skips_check = true;
    for (unsigned i = 0; i < 64; i++)
        if (round_trip(&a, &b, len, lent) != 0)
            die("a packet is not taken");
    uint64_t began_ns = sl_now(&sl_clock_monotonic), came = b.came;
    for (uint64_t i = 0; i < packets / BURST; i++)
        if (round_trip(&a, &b, len, lent) != 0)
            die("a packet is not taken");
    uint64_t took_ns = sl_now(&sl_clock_monotonic) - began_ns;
    printf("IPv%c, %zu bytes%s: %.1f ns a packet, %lu of %lu came\n", is_v6 ? '6' : '4', len,
           lent ? ", lent" : "", (double)took_ns / (double)packets, (unsigned long)(b.came - came),
           (unsigned long)(packets / BURST * BURST));
    bool all = b.came - came == packets / BURST * BURST;
    port_end_close(&a);
    port_end_close(&b);
    return all ? 0 : 1;
}
