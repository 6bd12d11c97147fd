/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Raw Ethernet frames between two processes by DPDK, by driver and frame size: the ceiling that the
 * DPDK transport is compared with. Throughput one way, and the round trip of 64 bytes. Rounds go
 * over all drivers in turn, so that the machine's moods befall all alike; medians are printed.
 *
 *   usage: bench_dpdk_raw [options] [WIRE...]
 *   --rounds N      5
 *   --ms N          length of one measurement, 200
 *   --veth A,B      for af_packet and af_xdp: NETNS:INTERFACE of each end, NETNS a file such as
 *                   /run/netns/a (bench/dpdk.sh makes them)
 *   --switch PATH   for "switch": socket of a sluice-dpdk-switch, its ports 0 and 1
 *   --answers N     throughput once more with a frame of 96 bytes back for N frames: what the
 *                   acknowledgements of a reliable transport cost whoever sends them
 *   --json FILE     what was measured, every round
 */
#include "bench/dpdk_raw.h"

#include "testing/dpdk/eal.h"

#include <getopt.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define MEMIF "net_memif0,socket=%s,socket-abstract=no,bsize=9728,id=0,role="
#define ROOM (SL_EAL_FRAME + 128)
#define ROUNDS_MAX 99
#define SIZES_MAX 4
#define PING_BYTES 64
#define DRAIN_US 20000

static const struct raw_wire wires[] = {
    {"memif", MEMIF, RAW_NONE, false, false, ROOM, {1500, 4096, 9000}},
    {"memif-copy", MEMIF, RAW_COPIED, false, false, ROOM, {1500, 4096, 9000}},
    {"memif-extbuf", MEMIF, RAW_EXTERNAL, false, false, ROOM, {1500, 4096, 9000}},
    {"switch",
     "net_memif0,socket=%s,socket-abstract=no,bsize=9728,role=client,id=",
     RAW_COPIED,
     false,
     true,
     ROOM,
     {1500, 4096, 9000}},
    {"af_packet",
     "net_af_packet0,iface=%s,blocksz=65536,framesz=16384,framecnt=512",
     RAW_COPIED,
     true,
     false,
     16384 + 128,
     {1500, 4096, 9000}},
    {"af_xdp", "net_af_xdp0,iface=%s,busy_budget=0", RAW_COPIED, true, false, 3840, {1500, 3392}},
};
#define WIRES (sizeof(wires) / sizeof(wires[0]))

/* Of one round: throughput for each size, loss, and the round trip. */
struct figures {
    double gbit[SIZES_MAX], lost[SIZES_MAX], p50_us, p99_us;
    double answered_gbit[SIZES_MAX], answered_lost[SIZES_MAX];
};

struct bench {
    unsigned rounds, ms, answers;
    char veth[2][128]; /* NETNS:INTERFACE */
    const char *socket, *json;
    char dir[64];
    bool wanted[WIRES];
    unsigned have[WIRES];
    struct figures figures[WIRES][ROUNDS_MAX];
};

struct pair {
    int fd[2];
    pid_t pid[2];
    uint8_t mac[2][6];
};

static bool hear(struct pair *pair, unsigned end, struct raw_result *out)
{
    return recv(pair->fd[end], out, sizeof(*out), 0) == sizeof(*out) && out->status == 0;
}

static bool give(struct pair *pair, unsigned end, struct raw_task task)
{
    memcpy(task.peer, pair->mac[!end], 6);
    return send(pair->fd[end], &task, sizeof(task), MSG_NOSIGNAL) == sizeof(task);
}

static bool order(struct pair *pair, unsigned end, enum raw_order what, unsigned frame, unsigned ms)
{
    return give(pair, end,
                (struct raw_task){.order = what, .frame = frame, .ns = ms * UINT64_C(1000000)});
}

static void device_of(const struct bench *bench, const struct raw_wire *wire, unsigned end,
                      char *device, size_t cap)
{
    char place[192];
    if (wire->by_veth)
        snprintf(place, sizeof(place), "%s", strchr(bench->veth[end], ':') + 1);
    else if (wire->by_switch)
        snprintf(place, sizeof(place), "%s", bench->socket);
    else
        snprintf(place, sizeof(place), "%s/%s", bench->dir, wire->name);
    int len = snprintf(device, cap, wire->device, place);
    if (wire->by_switch)
        len += snprintf(device + len, cap - (size_t)len, "%u", end);
    else if (!wire->by_veth)
        len += snprintf(device + len, cap - (size_t)len, "%s", end ? "client" : "server");
    /* Chance would give both the same one: DPDK's is seeded before the fork. */
    if (!wire->by_veth)
        snprintf(device + len, cap - (size_t)len, ",mac=02:00:00:00:00:%02x", end + 1);
}

static void start_end(const struct bench *bench, const struct raw_wire *wire, unsigned end,
                      struct pair *pair)
{
    int fds[2];
    char device[256], net[128], *file = NULL;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
        exit(1);
    device_of(bench, wire, end, device, sizeof(device));
    if (wire->by_veth) {
        snprintf(net, sizeof(net), "%s", bench->veth[end]);
        *strchr(net, ':') = 0;
        file = net;
    }
    fflush(NULL);
    pair->pid[end] = fork();
    if (pair->pid[end] == 0) {
        close(fds[0]);
        if (end)
            close(pair->fd[0]);
        raw_end(fds[1], end, wire, device, file);
    }
    close(fds[1]);
    pair->fd[end] = fds[0];
}

static bool stream(struct pair *pair, unsigned frame, unsigned answers, unsigned ms, double *gbit,
                   double *lost)
{
    struct raw_task take = {.order = RAW_RECEIVE, .frame = frame, .answers = answers};
    struct raw_task put = {
        .order = RAW_SEND, .frame = frame, .answers = answers, .ns = ms * UINT64_C(1000000)};
    struct raw_result sent, came;
    if (!give(pair, 1, take) || !give(pair, 0, put) || !hear(pair, 0, &sent))
        return false;
    usleep(DRAIN_US);
    if (!order(pair, 1, RAW_STOP, 0, 0) || !hear(pair, 1, &came))
        return false;
    *gbit = came.ns ? (double)came.bytes * 8 / (double)came.ns : 0;
    *lost = sent.frames ? 1 - (double)came.frames / (double)sent.frames : 0;
    return true;
}

static bool round_trips(struct pair *pair, unsigned ms, struct figures *out)
{
    struct raw_result result, stopped;
    if (!order(pair, 1, RAW_ECHO, PING_BYTES, 0) || !order(pair, 0, RAW_PING, PING_BYTES, ms) ||
        !hear(pair, 0, &result) || !order(pair, 1, RAW_STOP, 0, 0) || !hear(pair, 1, &stopped))
        return false;
    out->p50_us = (double)result.p50_ns / 1e3;
    out->p99_us = (double)result.p99_ns / 1e3;
    return true;
}

/* Ends do not take their socket away: see sl_eal_exit(). */
static void remove_socket(const struct bench *bench, const struct raw_wire *wire)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", bench->dir, wire->name);
    unlink(path);
}

static bool measure(struct bench *bench, const struct raw_wire *wire, struct figures *out)
{
    struct pair pair = {.fd = {-1, -1}};
    struct raw_result up[2] = {0};
    for (unsigned end = 0; end < 2; end++)
        start_end(bench, wire, end, &pair);
    bool good = hear(&pair, 0, &up[0]) && hear(&pair, 1, &up[1]);
    for (unsigned end = 0; end < 2; end++)
        memcpy(pair.mac[end], up[end].mac, 6);
    good = good && round_trips(&pair, bench->ms, out); /* a switch learns the addresses, too */
    for (unsigned i = 0; good && i < SIZES_MAX && wire->sizes[i]; i++) {
        good = stream(&pair, wire->sizes[i], 0, bench->ms, &out->gbit[i], &out->lost[i]);
        if (good && bench->answers)
            good = stream(&pair, wire->sizes[i], bench->answers, bench->ms, &out->answered_gbit[i],
                          &out->answered_lost[i]);
    }
    for (unsigned end = 0; end < 2; end++) {
        int status;
        close(pair.fd[end]);
        waitpid(pair.pid[end], &status, 0);
        good = good && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    remove_socket(bench, wire);
    return good;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of the number at that place in struct figures, over the rounds of a wire. */
static void spread(const struct bench *bench, size_t wire, size_t offset, double out[3])
{
    double values[ROUNDS_MAX];
    unsigned count = bench->have[wire];
    for (unsigned i = 0; i < count; i++)
        memcpy(&values[i], (const char *)&bench->figures[wire][i] + offset, sizeof(double));
    qsort(values, count, sizeof(values[0]), by_value);
    out[0] = values[count / 2];
    out[1] = values[0];
    out[2] = values[count - 1];
}

static void print_streams(const struct bench *bench, size_t number, size_t gbit, size_t lost,
                          const char *more)
{
    const struct raw_wire *wire = &wires[number];
    double s[3], l[3];
    for (unsigned i = 0; i < SIZES_MAX && wire->sizes[i]; i++) {
        spread(bench, number, gbit + i * sizeof(double), s);
        spread(bench, number, lost + i * sizeof(double), l);
        printf("%-13s %5u B  %7.2f Gbit/s (%.2f to %.2f)  lost %.2f %%%s\n", wire->name,
               wire->sizes[i], s[0], s[1], s[2], 100 * l[0], more);
    }
}

static void print_wire(const struct bench *bench, size_t number)
{
    const struct raw_wire *wire = &wires[number];
    double s[3], p99[3];
    char more[48];
    print_streams(bench, number, offsetof(struct figures, gbit), offsetof(struct figures, lost),
                  "");
    snprintf(more, sizeof(more), "  one answer for %u", bench->answers);
    if (bench->answers)
        print_streams(bench, number, offsetof(struct figures, answered_gbit),
                      offsetof(struct figures, answered_lost), more);
    spread(bench, number, offsetof(struct figures, p50_us), s);
    spread(bench, number, offsetof(struct figures, p99_us), p99);
    printf("%-13s %5u B  round trip p50 %.2f us (%.2f to %.2f), p99 %.2f us\n", wire->name,
           PING_BYTES, s[0], s[1], s[2], p99[0]);
}

static void write_streams(const struct raw_wire *wire, unsigned round, const char *what,
                          const double *gbit, const double *lost, FILE *out)
{
    for (unsigned i = 0; i < SIZES_MAX && wire->sizes[i]; i++)
        fprintf(out,
                "{\"what\": \"%s\", \"wire\": \"%s\", \"round\": %u, \"frame\": %u, "
                "\"gbit\": %.3f, \"lost\": %.5f}\n",
                what, wire->name, round, wire->sizes[i], gbit[i], lost[i]);
}

static void write_wire(const struct bench *bench, size_t number, FILE *out)
{
    const struct raw_wire *wire = &wires[number];
    for (unsigned round = 0; round < bench->have[number]; round++) {
        const struct figures *f = &bench->figures[number][round];
        write_streams(wire, round, "raw", f->gbit, f->lost, out);
        if (bench->answers)
            write_streams(wire, round, "raw_answered", f->answered_gbit, f->answered_lost, out);
        fprintf(out,
                "{\"what\": \"raw_rtt\", \"wire\": \"%s\", \"round\": %u, \"frame\": %u, "
                "\"p50_us\": %.3f, \"p99_us\": %.3f}\n",
                wire->name, round, PING_BYTES, f->p50_us, f->p99_us);
    }
}

static void usage(void)
{
    fputs("usage: bench_dpdk_raw [--rounds N] [--ms N] [--veth NETNS:IF,NETNS:IF] [--switch PATH] "
          "[--answers N] [--json FILE] [WIRE...]\n  wires:",
          stderr);
    for (size_t i = 0; i < WIRES; i++)
        fprintf(stderr, " %s", wires[i].name);
    fputs("\n", stderr);
    exit(2);
}

/* "/run/netns/a:veth0,/run/netns/b:veth0" */
static void read_veth(struct bench *bench, const char *text)
{
    if (sscanf(text, "%127[^,],%127[^,]", bench->veth[0], bench->veth[1]) != 2 ||
        !strchr(bench->veth[0], ':') || !strchr(bench->veth[1], ':'))
        usage();
}

static void read_wires(struct bench *bench, int argc, char **argv)
{
    for (int arg = optind; arg < argc; arg++) {
        size_t i = 0;
        while (i < WIRES && strcmp(wires[i].name, argv[arg]))
            i++;
        if (i == WIRES || (wires[i].by_veth && !bench->veth[0][0]) ||
            (wires[i].by_switch && !bench->socket))
            usage();
        bench->wanted[i] = true;
    }
    for (size_t i = 0; optind == argc && i < WIRES; i++)
        bench->wanted[i] =
            (!wires[i].by_veth || bench->veth[0][0]) && (!wires[i].by_switch || bench->socket);
}

static void read_options(struct bench *bench, int argc, char **argv)
{
    static const struct option known[] = {{"rounds", 1, NULL, 'r'}, {"ms", 1, NULL, 'm'},
                                          {"veth", 1, NULL, 'v'},   {"switch", 1, NULL, 's'},
                                          {"json", 1, NULL, 'j'},   {"answers", 1, NULL, 'a'},
                                          {NULL, 0, NULL, 0}};
    int c;
    while ((c = getopt_long(argc, argv, "", known, NULL)) != -1) {
        switch (c) {
        case 'r': bench->rounds = (unsigned)strtoul(optarg, NULL, 10); break;
        case 'm': bench->ms = (unsigned)strtoul(optarg, NULL, 10); break;
        case 'v': read_veth(bench, optarg); break;
        case 's': bench->socket = optarg; break;
        case 'j': bench->json = optarg; break;
        case 'a': bench->answers = (unsigned)strtoul(optarg, NULL, 10); break;
        default: usage();
        }
    }
    if (bench->rounds < 1 || bench->rounds > ROUNDS_MAX || bench->ms < 1)
        usage();
    read_wires(bench, argc, argv);
}

static int report(const struct bench *bench)
{
    FILE *out = bench->json ? fopen(bench->json, "w") : NULL;
    int status = bench->json && !out;
    for (size_t i = 0; i < WIRES; i++) {
        if (bench->have[i])
            print_wire(bench, i);
        if (bench->have[i] && out)
            write_wire(bench, i, out);
        if (bench->wanted[i] && bench->have[i] < bench->rounds) {
            printf("%-13s %u of %u rounds failed\n", wires[i].name, bench->rounds - bench->have[i],
                   bench->rounds);
            status = 1;
        }
    }
    if (out)
        fclose(out);
    return status;
}

int main(int argc, char **argv)
{
    static struct bench bench = {.rounds = 5, .ms = 200, .dir = "/tmp/dpdk_raw.XXXXXX"};
    read_options(&bench, argc, argv);
    if (!mkdtemp(bench.dir))
        return 1;
    for (unsigned round = 0; round < bench.rounds; round++)
        for (size_t i = 0; i < WIRES; i++)
            if (bench.wanted[i] && measure(&bench, &wires[i], &bench.figures[i][bench.have[i]]))
                bench.have[i]++;
    rmdir(bench.dir);
    return report(&bench);
}
