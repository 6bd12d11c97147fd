/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sluice-dpdk-stranger: a host at a port of the software switch that hears what others say (the
 * switch's line "mirror port=N") and adds frames of its own, for all of them, without a flow's
 * secret (testing/dpdk/forge.h). Lines on stdin control it, answers come on stdout (docs/dpdk.md).
 */
#include "core/err.h"
#include "testing/dpdk/eal.h"
#include "testing/dpdk/forge.h"
#include "testing/dpdk/memif_guard.h"

#include <getopt.h>
#include <inttypes.h>
#include <poll.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define BURST 32
#define RING 1024
#define FRAMES 4096
#define PERCENT_MOST 1000u
#define KEEP_OF 16        /* of so many that are heard one takes an older one's place */
#define OWED_MOST 100000u /* percent: what could not be sent is not made up for */
#define EMPTY_ROUNDS 256
#define NAP_NS 50000

struct options {
    const char *socket;
    unsigned id, percent;
    uint64_t seed;
    bool is_wanted[SL_FORGE_KINDS];
};

static struct sl_forge forge;
static struct rte_mempool *pool;
static struct rte_ether_addr mac;
static volatile sig_atomic_t is_over;
static unsigned owed, turn; /* owed: percent of a frame */
static uint64_t heard, sent[SL_FORGE_KINDS], full;

static void usage(FILE *out)
{
    fputs("usage: sluice-dpdk-stranger --socket PATH --id N [options]\n"
          "  --socket PATH        of the switch\n"
          "  --id N               its port, to which the switch mirrors: \"mirror port=N\"\n"
          "  --percent N          frames for 100 that are heard, 0 to 1000 (default 0)\n"
          "  --kind WORD          only these; may be repeated: fields, random, old, cut, long,\n"
          "                       checksum, fragment, vlan, arp, double\n"
          "  --seed N             of the chances\n"
          "Lines: percent N, forget (what was heard so far is of old flows), stats\n",
          out);
}

/* ---- control ---- */

static void print_stats(void)
{
    uint64_t all = 0;

    for (int kind = 0; kind < SL_FORGE_KINDS; kind++)
        all += sent[kind];
    printf("{\"heard\": %" PRIu64 ", \"sent\": %" PRIu64 ", \"full\": %" PRIu64, heard, all, full);
    for (int kind = 0; kind < SL_FORGE_KINDS; kind++)
        printf(", \"%s\": %" PRIu64, sl_forge_word((enum sl_forge_kind)kind), sent[kind]);
    puts("}");
}

static void obey(struct options *options, const char *line)
{
    unsigned percent;

    if (strcmp(line, "stats") == 0) {
        print_stats();
    } else if (strcmp(line, "forget") == 0) {
        sl_forge_forget(&forge);
        puts("{\"ok\": true}");
    } else if (sscanf(line, "percent %u", &percent) == 1 && percent <= PERCENT_MOST) {
        options->percent = percent;
        puts("{\"ok\": true}");
    } else {
        puts("{\"error\": \"lines are: percent N (0 to 1000), forget, stats\"}");
    }
    fflush(stdout);
}

/* Waits for a line at most that long; lines are short, and come whole. False: there are no more. */
static bool listen_for(struct options *options, uint64_t ns)
{
    struct pollfd fd = {.fd = STDIN_FILENO, .events = POLLIN};
    struct timespec timeout = {.tv_nsec = (long)ns};
    char bytes[256], *rest = NULL;
    ssize_t got;

    if (ppoll(&fd, 1, &timeout, NULL) <= 0)
        return true;
    got = read(STDIN_FILENO, bytes, sizeof(bytes) - 1);
    if (got <= 0)
        return false;
    bytes[got] = '\0';
    for (char *line = strtok_r(bytes, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest))
        obey(options, line);
    return true;
}

/* ---- frames ---- */

static void hear(const struct rte_mbuf *packet)
{
    uint8_t whole[SL_FORGE_FRAME];
    const uint8_t *bytes;

    if (packet->pkt_len > sizeof(whole))
        return;
    bytes = rte_pktmbuf_read(packet, 0, packet->pkt_len, whole);
    if (sl_forge_is_good(bytes, packet->pkt_len) &&
        (forge.kept_count < SL_FORGE_KEPT || sl_rng_below(&forge.rng, KEEP_OF) == 0))
        sl_forge_keep(&forge, 0, bytes, packet->pkt_len);
}

static unsigned receive(unsigned percent)
{
    struct rte_mbuf *burst[BURST];
    unsigned count = rte_eth_rx_burst(0, 0, burst, BURST);

    for (unsigned i = 0; i < count; i++)
        hear(burst[i]);
    if (count > 0)
        rte_pktmbuf_free_bulk(burst, count);
    heard += count;
    owed += count * percent;
    if (owed > OWED_MOST)
        owed = OWED_MOST;
    return count;
}

/* The next kind that is wanted and can be made, or -1. */
static int next_kind(const struct options *options)
{
    for (int i = 0; i < SL_FORGE_KINDS; i++) {
        turn = (turn + 1) % SL_FORGE_KINDS;
        if (options->is_wanted[turn] && (turn != SL_FORGE_OLD || forge.old_count > 0))
            return (int)turn;
    }
    return -1;
}

/* With its own MAC as the sender's: a switch learns where others are from theirs. */
static bool add(const struct options *options)
{
    static struct sl_forge_frame frame;
    int kind = next_kind(options);
    struct rte_mbuf *packet = kind < 0 ? NULL : rte_pktmbuf_alloc(pool);

    if (packet == NULL)
        return false;
    do
        sl_forge_make(&forge, (enum sl_forge_kind)kind, &frame);
    while (frame.len < RTE_ETHER_HDR_LEN);
    memcpy(frame.bytes + 6, &mac, 6);
    memcpy(rte_pktmbuf_append(packet, (uint16_t)frame.len), frame.bytes, frame.len);
    if (rte_eth_tx_burst(0, 0, &packet, 1) == 1) {
        sent[kind]++;
        return true;
    }
    rte_pktmbuf_free(packet);
    full++;
    return false;
}

static void serve(struct options *options)
{
    pid_t parent = getppid();
    unsigned empty = 0;

    for (unsigned round = 0; !is_over && getppid() == parent; round++) {
        sl_memif_enter();
        unsigned came = receive(options->percent);
        while (owed >= 100 && forge.kept_count == SL_FORGE_KEPT && add(options))
            owed -= 100;
        sl_memif_leave();
        empty = came > 0 ? 0 : empty + 1;
        if (empty < EMPTY_ROUNDS && round % 1024 != 0)
            sched_yield();
        else if (!listen_for(options, empty < EMPTY_ROUNDS ? 0 : NAP_NS))
            return;
    }
}

/* ---- start ---- */

static int read_options(int argc, char **argv, struct options *options)
{
    static const struct option known[] = {{"socket", 1, NULL, 's'},  {"id", 1, NULL, 'i'},
                                          {"percent", 1, NULL, 'p'}, {"kind", 1, NULL, 'k'},
                                          {"seed", 1, NULL, 'r'},    {"help", 0, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    bool any = false;
    int c, kind;

    while ((c = getopt_long(argc, argv, "", known, NULL)) != -1) {
        if (c == 's') {
            options->socket = optarg;
        } else if (c == 'i') {
            options->id = (unsigned)strtoul(optarg, NULL, 10);
        } else if (c == 'p') {
            options->percent = (unsigned)strtoul(optarg, NULL, 10);
        } else if (c == 'r') {
            options->seed = strtoull(optarg, NULL, 10);
        } else if (c == 'k' && (kind = sl_forge_kind(optarg)) >= 0) {
            any = options->is_wanted[kind] = true;
        } else {
            usage(c == 'h' ? stdout : stderr);
            return c == 'h' ? 0 : 2;
        }
    }
    for (kind = 0; !any && kind < SL_FORGE_KINDS; kind++)
        options->is_wanted[kind] = true;
    if (options->socket != NULL && options->percent <= PERCENT_MOST)
        return -1;
    usage(stderr);
    return 2;
}

static int open_port(const struct options *options)
{
    char text[512];
    const char *vdev = text;
    int rc;

    snprintf(text, sizeof(text),
             "net_memif0,role=client,id=%u,socket=%s,socket-abstract=no,bsize=%d", options->id,
             options->socket, SL_EAL_FRAME);
    rc = sl_eal_start(&vdev, 1, 64);
    if (rc == 0)
        rc = sl_eal_pool("frames", FRAMES, SL_EAL_FRAME + RTE_PKTMBUF_HEADROOM, &pool);
    if (rc == 0)
        rc = sl_eal_port(0, pool, RING);
    if (rc == 0)
        rc = rte_eth_macaddr_get(0, &mac);
    return rc;
}

static void on_signal(int number)
{
    is_over = 1;
}

int main(int argc, char **argv)
{
    struct options options = {.seed = 1};
    struct sigaction action = {.sa_handler = on_signal};
    int rc = read_options(argc, argv, &options);

    if (rc >= 0)
        return rc;
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    sl_memif_guard();
    sl_rng_init(&forge.rng, options.seed);
    if (open_port(&options) < 0) {
        fprintf(stderr, "sluice-dpdk-stranger: %s\n", sluice_last_error());
        return 1;
    }
    puts("{\"ready\": true}");
    fflush(stdout);
    serve(&options);
    sl_eal_exit(0);
}
