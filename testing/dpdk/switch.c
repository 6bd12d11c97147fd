/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sluice-dpdk-switch: an Ethernet switch of memif ports in one process, for tests of the DPDK
 * transport. Ranks are clients of its socket, each with an id of its own. Lines on stdin control
 * it, answers come on stdout, one line each (docs/dpdk.md, "Switch").
 */
#include "core/clock.h"
#include "core/err.h"
#include "core/relax.h"
#include "testing/dpdk/eal.h"
#include "testing/dpdk/fabric.h"
#include "testing/dpdk/memif_guard.h"

#include <fcntl.h>
#include <getopt.h>
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
#define FRAMES 16384
#define LINKS_NS (5 * SL_NS_PER_MS)
#define ASK_NS (1000 * SL_NS_PER_MS)
/* Without frames: spin, then give the core away, then sleep, the longer the quieter. */
#define SPIN_ROUNDS 64
#define YIELD_NS (2 * SL_NS_PER_MS)
#define BRIEF_NS (100 * SL_NS_PER_MS)
#define LONG_NS (2 * SL_NS_PER_S)
#define BRIEF_NAP_NS 50000
#define LONG_NAP_NS 500000
#define IDLE_NAP_NS 2000000

struct options {
    const char *socket;
    const char *uplinks[SL_FABRIC_PORTS];
    const char *lines[64];
    unsigned ports, uplink_count, line_count;
    uint64_t seed;
    bool spins;
};

struct control {
    char line[512];
    size_t len;
    bool is_open, is_skipping; /* skipping: the rest of a line that is too long */
};

static struct sl_fabric fabric;
static struct rte_mempool *pool;
static volatile sig_atomic_t is_over;
static bool is_up[SL_FABRIC_PORTS];

static void usage(FILE *out)
{
    fputs("usage: sluice-dpdk-switch --socket PATH --ports N [options]\n"
          "  --socket PATH        unix socket of memif; port i is id i of it (role=client)\n"
          "  --ports N            1 to 32, with the uplinks\n"
          "  --uplink PATH,ID     one more port: client of another switch's socket\n"
          "  --do LINE            as if it came on stdin first; may be repeated\n"
          "  --seed N             of the chances\n"
          "  --spin               never gives its core away: for one that it has to itself\n"
          "Lines: fault, cut, heal, shape, lossless, mirror, seed, reset, stats (docs/dpdk.md)\n",
          out);
}

/* ---- the fabric's ways out ---- */

static unsigned send_frames(void *arg, unsigned port, struct sl_fabric_frame *frames,
                            unsigned count)
{
    struct rte_mbuf *burst[BURST];
    for (unsigned i = 0; i < count; i++)
        burst[i] = frames[i].owner;
    if (!is_up[port]) { /* nobody is there: gone, as on a wire */
        rte_pktmbuf_free_bulk(burst, count);
        return count;
    }
    return rte_eth_tx_burst((uint16_t)port, 0, burst, (uint16_t)count);
}

static void drop_frame(void *arg, struct sl_fabric_frame *frame)
{
    rte_pktmbuf_free(frame->owner);
}

static bool copy_frame(void *arg, const struct sl_fabric_frame *frame, struct sl_fabric_frame *out)
{
    struct rte_mbuf *copy = rte_pktmbuf_copy(frame->owner, pool, 0, UINT32_MAX);
    if (!copy)
        return false;
    *out = (struct sl_fabric_frame){
        .owner = copy, .bytes = rte_pktmbuf_mtod(copy, uint8_t *), .len = frame->len};
    return true;
}

static const struct sl_fabric_ops ops = {
    .send = send_frames, .drop = drop_frame, .copy = copy_frame};

/* ---- control ---- */

static void answer(const char *line)
{
    if (!strcmp(line, "stats"))
        sl_fabric_print(&fabric, is_up, stdout);
    else if (sl_fabric_command(&fabric, line) < 0)
        printf("{\"error\": \"%s\"}\n", sluice_last_error());
    else
        puts("{\"ok\": true}");
    fflush(stdout);
}

/* Answers are JSON: what a line holds must not end a string. */
static void take_byte(struct control *control, char byte)
{
    if (byte == '\n') {
        control->line[control->len] = 0;
        if (control->is_skipping)
            puts("{\"error\": \"a line that is too long\"}");
        else if (control->len)
            answer(control->line);
        control->len = 0;
        control->is_skipping = false;
    } else if (control->len + 1 == sizeof(control->line)) {
        control->is_skipping = true;
    } else {
        control->line[control->len++] = byte == '"' || byte == '\\' || byte < ' ' ? ' ' : byte;
    }
}

static void take_lines(struct control *control)
{
    char bytes[512];
    ssize_t got = read(STDIN_FILENO, bytes, sizeof(bytes));
    for (ssize_t i = 0; i < got; i++)
        take_byte(control, bytes[i]);
    if (got == 0)
        control->is_open = false;
}

/* Waits for lines at most that long. */
static void listen_for(struct control *control, uint64_t ns)
{
    struct pollfd fd = {.fd = control->is_open ? STDIN_FILENO : -1, .events = POLLIN};
    struct timespec timeout = {.tv_nsec = (long)ns};
    if (ppoll(&fd, 1, &timeout, NULL) > 0)
        take_lines(control);
}

/* ---- frames ---- */

static unsigned receive(unsigned port, uint64_t now_ns)
{
    struct rte_mbuf *burst[BURST];
    unsigned count = rte_eth_rx_burst((uint16_t)port, 0, burst, BURST);
    for (unsigned i = 0; i < count; i++) {
        struct sl_fabric_frame frame = {.owner = burst[i],
                                        .bytes = rte_pktmbuf_mtod(burst[i], uint8_t *),
                                        .len = burst[i]->pkt_len};
        /* Frames of several buffers are not made by a peer with buffers of SL_EAL_FRAME. */
        if (burst[i]->nb_segs > 1)
            rte_pktmbuf_free(burst[i]);
        else
            sl_fabric_receive(&fabric, port, &frame, now_ns);
    }
    return count;
}

/* Ports that lost their peer wait for another. Uplinks ask again, but not at once: DPDK 22.11 ends
 * a server whose client went before it was accepted, and a client in the midst of its setup. */
static void check_links(unsigned servers, uint64_t now_ns, uint64_t *asked_ns)
{
    bool asks = now_ns - *asked_ns > ASK_NS;
    for (unsigned i = 0; i < fabric.count; i++) {
        struct rte_eth_link link = {0};
        is_up[i] = rte_eth_link_get_nowait((uint16_t)i, &link) == 0 && link.link_status;
        if (is_up[i] || i < servers || !asks)
            continue;
        *asked_ns = now_ns;
        rte_eth_dev_stop((uint16_t)i);
        rte_eth_dev_start((uint16_t)i);
    }
}

static unsigned round_of_all(uint64_t now_ns)
{
    unsigned moved = 0;
    sl_memif_enter();
    if (sl_fabric_has_room(&fabric))
        for (unsigned i = 0; i < fabric.count; i++)
            moved += is_up[i] ? receive(i, now_ns) : 0;
    moved += sl_fabric_run(&fabric, now_ns);
    sl_memif_leave();
    return moved;
}

/* How long nothing can happen but what comes from outside, and no longer than the ladder says. */
static void rest(struct control *control, unsigned empty_rounds, uint64_t quiet_ns, uint64_t now_ns)
{
    uint64_t next = sl_fabric_next(&fabric), nap = IDLE_NAP_NS;
    if (empty_rounds < SPIN_ROUNDS) {
        sl_cpu_relax();
        return;
    }
    if (quiet_ns < LONG_NS)
        nap = quiet_ns < BRIEF_NS ? BRIEF_NAP_NS : LONG_NAP_NS;
    if (next != UINT64_MAX)
        nap = next > now_ns + BRIEF_NAP_NS && next - now_ns < nap ? next - now_ns - BRIEF_NAP_NS
                                                                  : nap;
    if (quiet_ns < YIELD_NS || next <= now_ns + BRIEF_NAP_NS)
        sched_yield();
    else
        listen_for(control, nap);
}

static void serve(unsigned servers, bool spins, pid_t parent)
{
    struct control control = {.is_open = true};
    uint64_t busy_ns = 0, links_ns = 0, asked_ns = sl_now(&sl_clock_monotonic);
    for (unsigned empty = 0, round = 0; !is_over; round++) {
        uint64_t now_ns = sl_now(&sl_clock_monotonic);
        if (now_ns - links_ns > LINKS_NS) {
            check_links(servers, now_ns, &asked_ns);
            links_ns = now_ns;
            is_over |= getppid() != parent;
        }
        if (round % 1024 == 0)
            listen_for(&control, 0);
        if (round_of_all(now_ns)) {
            empty = 0;
            busy_ns = now_ns;
            continue;
        }
        if (!spins)
            rest(&control, empty++, now_ns - busy_ns, now_ns);
    }
}

/* ---- start ---- */

static int read_options(int argc, char **argv, struct options *options)
{
    static const struct option known[] = {{"socket", 1, NULL, 's'}, {"ports", 1, NULL, 'p'},
                                          {"uplink", 1, NULL, 'u'}, {"do", 1, NULL, 'd'},
                                          {"seed", 1, NULL, 'r'},   {"spin", 0, NULL, 'n'},
                                          {"help", 0, NULL, 'h'},   {NULL, 0, NULL, 0}};
    int c;
    while ((c = getopt_long(argc, argv, "", known, NULL)) != -1) {
        if (c == 's')
            options->socket = optarg;
        else if (c == 'p')
            options->ports = (unsigned)strtoul(optarg, NULL, 10);
        else if (c == 'r')
            options->seed = strtoull(optarg, NULL, 10);
        else if (c == 'n')
            options->spins = true;
        else if (c == 'u' && options->uplink_count < SL_FABRIC_PORTS)
            options->uplinks[options->uplink_count++] = optarg;
        else if (c == 'd' && options->line_count < 64)
            options->lines[options->line_count++] = optarg;
        else {
            usage(c == 'h' ? stdout : stderr);
            return c == 'h' ? 0 : 2;
        }
    }
    if (!options->socket || options->ports < 1 ||
        options->ports + options->uplink_count > SL_FABRIC_PORTS) {
        usage(stderr);
        return 2;
    }
    return -1;
}

static int open_ports(const struct options *options)
{
    static char text[SL_FABRIC_PORTS][256];
    const char *vdevs[SL_FABRIC_PORTS];
    unsigned count = options->ports + options->uplink_count;
    for (unsigned i = 0; i < count; i++) {
        char path[200];
        const char *socket = options->socket;
        unsigned id = i;
        if (i >= options->ports) {
            if (sscanf(options->uplinks[i - options->ports], "%199[^,],%u", path, &id) != 2)
                return sl_fail(-EINVAL, "--uplink is PATH,ID, not '%s'",
                               options->uplinks[i - options->ports]);
            socket = path;
        }
        snprintf(text[i], sizeof(text[i]),
                 "net_memif%u,role=%s,id=%u,socket=%s,socket-abstract=no,bsize=%d", i,
                 i < options->ports ? "server" : "client", id, socket, SL_EAL_FRAME);
        vdevs[i] = text[i];
    }
    unlink(options->socket); /* of a switch that was killed */
    int rc = sl_eal_start(vdevs, count, 256);
    if (rc == 0)
        rc = sl_eal_pool("frames", FRAMES, SL_EAL_FRAME + RTE_PKTMBUF_HEADROOM, &pool);
    for (unsigned i = 0; i < count && rc == 0; i++)
        rc = sl_eal_port((uint16_t)i, pool, RING);
    return rc == -EAGAIN ? 0 : rc; /* uplinks come when the other switch is there */
}

static void on_signal(int number)
{
    is_over = 1;
}

static int set_up(const struct options *options)
{
    unsigned count = options->ports + options->uplink_count;
    int rc = open_ports(options);
    if (rc == 0)
        rc = sl_fabric_init(&fabric, count, options->seed, &ops, NULL);
    for (unsigned i = 0; i < options->line_count && rc == 0; i++)
        rc = sl_fabric_command(&fabric, options->lines[i]);
    return rc;
}

int main(int argc, char **argv)
{
    struct options options = {.seed = 1};
    pid_t parent = getppid();
    int rc = read_options(argc, argv, &options);
    if (rc >= 0)
        return rc;
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    prctl(PR_SET_TIMERSLACK, 1000ul);
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
    sl_memif_guard();
    if (set_up(&options) < 0) {
        fprintf(stderr, "sluice-dpdk-switch: %s\n", sluice_last_error());
        return 1;
    }
    puts("{\"ready\": true}");
    fflush(stdout);
    serve(options.ports, options.spins, parent);
    unlink(options.socket);
    sl_eal_exit(0);
}
