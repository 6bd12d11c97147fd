/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent over BPF probes in this kernel, and faults between two network namespaces:
 * loss, silence, a peer that does not read, resets, damage, a driver that drops, a slow queue; and
 * of processes that compete for a processor and are stopped.
 *
 *     this process, v1 10.77.0.1/24 ---- v2 10.77.0.2/24, a child: takes what it is sent
 *
 * Others use this kernel too, so counts may be higher than what was done here, never lower; which
 * connection suffered is looked up by its address.
 */
#include "core/err.h"
#include "ebpf/objects.h"
#include "ebpf/probe.h"
#include "monitor/agent.h"
#include "monitor/source.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#define PORT 7700
#define MS 1000000L

static const char *why_not; /* nothing of it can be tested here */
static char why_text[512];
static pid_t peer;
static int listener_go[2]; /* a byte for each connection that is to be read */
static char folder[] = "/tmp/sluice-bpf-XXXXXX";
static struct sl_mon_config config;
static struct sl_agent *agent;

/* ---- a probe that does not load ---- */

const void *__real_sl_bpf_object(const char *name, size_t *len);
const void *__wrap_sl_bpf_object(const char *name, size_t *len);

static bool is_checksum_broken;

const void *__wrap_sl_bpf_object(const char *name, size_t *len)
{
    static char copy[64 * 1024];
    const void *bytes = __real_sl_bpf_object(name, len);

    if (!is_checksum_broken || strcmp(name, "checksum") != 0)
        return bytes;
    assert_true(*len <= sizeof(copy));
    memcpy(copy, bytes, *len);
    for (size_t i = 0; i + 12 <= *len; i++)
        if (memcmp(copy + i, "tcp_bad_csum", 12) == 0)
            memcpy(copy + i, "tcp_bad_cake", 12);
    return copy;
}

/* ---- the two ends ---- */

static bool run(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static bool run(const char *fmt, ...)
{
    char command[1024];
    va_list args;

    va_start(args, fmt);
    vsnprintf(command, sizeof(command), fmt, args);
    va_end(args);
    return system(command) == 0;
}

static void pause_ms(long ms)
{
    const struct timespec span = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * MS};

    (void)nanosleep(&span, NULL);
}

/* Takes connections, one after another, and reads each to its end once it may. */
static void be_peer(int ready, int go)
{
    const struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    static char buffer[256 * 1024];
    int one = 1, listener;
    char byte = 'x';

    if (unshare(CLONE_NEWNET) != 0)
        byte = '-';
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void)setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(listener, (const struct sockaddr *)&any, sizeof(any)) != 0 || listen(listener, 8) != 0)
        byte = '-';
    if (write(ready, &byte, 1) != 1)
        _exit(1);
    for (;;) {
        int fd = accept(listener, NULL, NULL);

        if (fd < 0 || read(go, &byte, 1) != 1)
            _exit(0);
        while (read(fd, buffer, sizeof(buffer)) > 0)
            ;
        close(fd);
    }
}

static bool in_peer(const char *command)
{
    return run("nsenter -t %d -n sh -c '%s' 2>/dev/null", (int)peer, command);
}

static bool build_network(void)
{
    int ready[2];
    char byte = '-';

    if (unshare(CLONE_NEWNET) != 0 || pipe2(ready, O_CLOEXEC) != 0 ||
        pipe2(listener_go, O_CLOEXEC) != 0)
        return false;
    peer = fork();
    if (peer == 0)
        be_peer(ready[1], listener_go[0]);
    return peer > 0 && read(ready[0], &byte, 1) == 1 && byte == 'x' &&
           run("ip link add v1 type veth peer name v2 netns %d 2>/dev/null", (int)peer) &&
           run("ip addr add 10.77.0.1/24 dev v1 && ip link set lo up && ip link set v1 up") &&
           in_peer("ip addr add 10.77.0.2/24 dev v2 && ip link set lo up && ip link set v2 up");
}

static int begin_all(void **state)
{
    static const char *const programs[] = {"on_damaged", NULL};
    struct sl_bpf *bpf = NULL;

    (void)state;
    assert_non_null(mkdtemp(folder));
    signal(SIGPIPE, SIG_IGN);
    if (sl_bpf_load("checksum", programs, &bpf) != 0) {
        snprintf(why_text, sizeof(why_text), "%s", sluice_last_error());
        why_not = why_text;
    } else if (!run("command -v ip nft tc nsenter >/dev/null")) {
        why_not = "ip, nft, tc or nsenter is not here (packages iproute2, nftables, util-linux)";
    } else if (!build_network()) {
        why_not = "network namespaces cannot be made here";
    }
    sl_bpf_close(bpf);
    return 0;
}

static int end_all(void **state)
{
    (void)state;
    if (peer > 0) {
        kill(peer, SIGKILL);
        (void)waitpid(peer, NULL, 0);
    }
    return run("rm -rf %s", folder) ? 0 : -1;
}

/* ---- the agent ---- */

static uint64_t ahead_ns; /* of the machine's clock */

static uint64_t clock_ns(clockid_t id)
{
    struct timespec at;

    clock_gettime(id, &at);
    return (uint64_t)at.tv_sec * 1000000000 + (uint64_t)at.tv_nsec;
}

static void tell_time(void *arg, struct sl_mon_time *out)
{
    (void)arg;
    *out = (struct sl_mon_time){.mono_ns = clock_ns(CLOCK_MONOTONIC) + ahead_ns,
                                .wall_ns = clock_ns(CLOCK_REALTIME) + ahead_ns,
                                .boot_ns = SL_MON_HOUR + ahead_ns};
}

static int begin(void **state)
{
    const struct sl_agent_options options = {
        .config = &config, .version = "1.2", .now = tell_time, .boot_id = "boot"};

    (void)state;
    if (why_not != NULL)
        return 0;
    sl_mon_config_defaults(&config);
    for (unsigned i = 0; i < sl_source_class_count; i++)
        *(enum sl_mon_wanted *)(void *)((char *)&config + sl_source_classes[i]->wanted) =
            SL_MON_OFF;
    config.bpf_tcp = config.bpf_queue = config.bpf_sched = config.bpf_rdma = SL_MON_AUTO;
    config.link_ignore[0] = '\0';
    snprintf(config.store_path, sizeof(config.store_path), "%s/state.db", folder);
    snprintf(config.events_path, sizeof(config.events_path), "%s/events", folder);
    if (sl_agent_open(&options, &agent) != 0)
        fail_msg("%s", sluice_last_error());
    return 0;
}

static int end(void **state)
{
    (void)state;
    is_checksum_broken = false;
    sl_agent_close(agent);
    agent = NULL;
    if (why_not == NULL)
        (void)(in_peer("nft flush ruleset; ip link set v2 mtu 1500") &&
               run("ip link set v1 mtu 1500"));
    return run("rm -f %s/state.db* %s/events", folder, folder) ? 0 : -1;
}

static void skip_where_it_must_be(void)
{
    if (why_not == NULL)
        return;
    printf("# skipped: %s\n", why_not);
    skip();
}

/* What it tells now, until the next call. */
static const char *metrics(void)
{
    static char *text;
    size_t len;
    FILE *out;

    free(text);
    text = NULL;
    out = open_memstream(&text, &len);
    sl_agent_tick(agent);
    assert_true(sl_agent_metrics(agent, SL_MON_OPENMETRICS, out));
    fclose(out);
    return text;
}

/* The value of a sample, by all of its name and labels; it has to be there. */
static double number(const char *name)
{
    const char *found;
    char line[256];

    snprintf(line, sizeof(line), "\n%s ", name);
    found = strstr(metrics(), line);
    if (found == NULL)
        fail_msg("no %s", name);
    return strtod(found + strlen(line), NULL);
}

static const char *reason(const char *probe)
{
    unsigned count;
    const struct sl_mon_probe *probes = sl_agent_probes(agent, &count);

    for (unsigned i = 0; i < count; i++)
        if (strcmp(probes[i].name, probe) == 0 && strcmp(probes[i].how, "bpf") == 0)
            return probes[i].is_up ? "" : probes[i].why;
    return "no such probe";
}

/* A case that needs a tracepoint which this kernel has not. */
static void skip_without(const char *probe)
{
    skip_where_it_must_be();
    if (strncmp(reason(probe), "this kernel has no ", 19) == 0) {
        printf("# skipped: %s\n", reason(probe));
        skip();
    }
    assert_string_equal(reason(probe), "");
}

/* A connection to the peer of that port, as it may be read at once, or not. */
static int connect_peer(unsigned port, bool is_read, unsigned *local_port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)}, own;
    socklen_t len = sizeof(own);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    inet_pton(AF_INET, "10.77.0.2", &to.sin_addr);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5);
    if (connect(fd, (const struct sockaddr *)&to, sizeof(to)) != 0) {
        close(fd);
        return -errno;
    }
    assert_int_equal(getsockname(fd, (struct sockaddr *)&own, &len), 0);
    *local_port = ntohs(own.sin_port);
    if (is_read)
        assert_int_equal(write(listener_go[1], "x", 1), 1);
    assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    return fd;
}

/* One that nobody reads yet is read from now on, so that the peer is free for the next one. */
static void hang_up(int fd, bool was_read)
{
    if (!was_read)
        assert_int_equal(write(listener_go[1], "x", 1), 1);
    close(fd);
}

/* As much as it takes. */
static void push(int fd, long ms)
{
    static char buffer[64 * 1024];
    uint64_t until = clock_ns(CLOCK_MONOTONIC) + (uint64_t)ms * MS;

    while (clock_ns(CLOCK_MONOTONIC) < until) {
        struct pollfd ready = {.fd = fd, .events = POLLOUT};

        if (poll(&ready, 1, 10) > 0)
            (void)!write(fd, buffer, sizeof(buffer));
    }
}

/* Of the connection from that port, as the agent's answer has it. */
static int64_t flow(unsigned local_port, const char *key, char *device, size_t cap)
{
    struct json_object *out = json_object_new_object(), *list;
    char local[64];
    int64_t value = 0;

    snprintf(local, sizeof(local), "10.77.0.1:%u", local_port);
    assert_true(sl_agent_json(agent, "tcp_retransmit", out));
    list = json_object_object_get(out, "tcp_retransmits");
    assert_non_null(list);
    for (size_t i = 0; i < json_object_array_length(list); i++) {
        struct json_object *one = json_object_array_get_idx(list, i);

        if (strcmp(json_object_get_string(json_object_object_get(one, "local")), local) != 0)
            continue;
        value = json_object_get_int64(json_object_object_get(one, key));
        if (device != NULL)
            snprintf(device, cap, "%s",
                     json_object_get_string(json_object_object_get(one, "device")));
    }
    json_object_put(out);
    return value;
}

#define LOSE(what)                                                                                 \
    "nft add table netdev f && "                                                                   \
    "nft \"add chain netdev f in { type filter hook ingress device v2 priority 0 ; }\" && "        \
    "nft add rule netdev f in ip protocol tcp " what " counter drop"

/* ---- cases ---- */

static void loss_is_sent_again_for_its_gaps_and_dropped_for_its_reason(void **state)
{
    double recovery, drops;
    unsigned local_port;
    char device[32] = "";
    int fd;

    (void)state;
    skip_without("tcp_retransmit");
    skip_without("drop");
    recovery = number("sluice_tcp_retransmits_total{cause=\"recovery\"}");
    drops = number("sluice_net_drops_total{reason=\"NETFILTER_DROP\"}");
    fd = connect_peer(PORT, true, &local_port);
    assert_true(fd >= 0);
    assert_true(in_peer(LOSE("numgen inc mod 50 == 0")));
    for (unsigned i = 0; i < 20 && flow(local_port, "recovery", NULL, 0) < 20; i++)
        push(fd, 100);
    assert_true(flow(local_port, "recovery", device, sizeof(device)) >= 20);
    assert_string_equal(device, "v1");
    assert_true(number("sluice_tcp_retransmits_total{cause=\"recovery\"}") >= recovery + 20);
    assert_true(number("sluice_net_drops_total{reason=\"NETFILTER_DROP\"}") >= drops + 10);
    hang_up(fd, true);
}

static void silence_is_sent_again_for_its_timeout(void **state)
{
    double timeouts;
    int64_t recovery;
    unsigned local_port;
    int fd;

    (void)state;
    skip_without("tcp_retransmit");
    timeouts = number("sluice_tcp_retransmits_total{cause=\"timeout\"}");
    fd = connect_peer(PORT, true, &local_port);
    assert_true(fd >= 0);
    push(fd, 50);
    assert_true(in_peer(LOSE("")));
    recovery = flow(local_port, "recovery", NULL, 0); /* a busy peer may have dropped some */
    push(fd, 1000);
    assert_true(flow(local_port, "timeout", NULL, 0) >= 1);
    assert_int_equal(flow(local_port, "recovery", NULL, 0), recovery);
    assert_true(number("sluice_tcp_retransmits_total{cause=\"timeout\"}") >= timeouts + 1);
    hang_up(fd, true);
}

static void a_peer_that_does_not_read_closes_its_window(void **state)
{
    double before;
    unsigned local_port;
    int fd;

    (void)state;
    skip_without("tcp_window");
    before = number("sluice_tcp_zero_windows_total");
    fd = connect_peer(PORT, false, &local_port);
    assert_true(fd >= 0);
    for (unsigned i = 0; i < 20 && number("sluice_tcp_zero_windows_total") < before + 1; i++)
        push(fd, 100);
    assert_true(number("sluice_tcp_zero_windows_total") >= before + 1);
    hang_up(fd, false);
}

static void resets_are_counted_each_way(void **state)
{
    const struct linger now = {.l_onoff = 1};
    double sent, received;
    unsigned local_port;

    (void)state;
    skip_without("tcp_reset");
    sent = number("sluice_tcp_resets_total{direction=\"sent\"}");
    received = number("sluice_tcp_resets_total{direction=\"received\"}");
    /* Of a connection: what a port that nobody listens to answers is not told by older kernels. */
    for (unsigned i = 0; i < 3; i++) {
        int fd = connect_peer(PORT, true, &local_port);

        assert_true(fd >= 0);
        assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now)), 0);
        close(fd);
    }
    pause_ms(20);
    assert_true(number("sluice_tcp_resets_total{direction=\"sent\"}") >= sent + 3);
    assert_true(number("sluice_tcp_resets_total{direction=\"received\"}") >= received + 3);
}

/* A segment with a checksum of nothing. */
static void damage_is_counted_and_dropped_for_its_checksum(void **state)
{
    struct {
        struct iphdr ip;
        struct tcphdr tcp;
    } packet = {.ip = {.version = 4,
                       .ihl = 5,
                       .ttl = 64,
                       .protocol = IPPROTO_TCP,
                       .tot_len = htons(sizeof(packet))},
                .tcp = {.source = htons(4711),
                        .dest = htons(PORT),
                        .doff = 5,
                        .syn = 1,
                        .check = htons(0x1234)}};
    struct sockaddr_in to = {.sin_family = AF_INET};
    double damaged, drops;
    int fd;

    (void)state;
    skip_without("tcp_checksum");
    damaged = number("sluice_tcp_bad_checksums_total");
    drops = number("sluice_net_drops_total{reason=\"TCP_CSUM\"}");
    inet_pton(AF_INET, "10.77.0.2", &to.sin_addr);
    packet.ip.daddr = to.sin_addr.s_addr;
    inet_pton(AF_INET, "10.77.0.1", &packet.ip.saddr);
    fd = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW);
    assert_true(fd >= 0);
    for (unsigned i = 0; i < 5; i++)
        assert_int_equal(
            sendto(fd, &packet, sizeof(packet), 0, (const struct sockaddr *)&to, sizeof(to)),
            sizeof(packet));
    close(fd);
    pause_ms(20);
    assert_true(number("sluice_tcp_bad_checksums_total") >= damaged + 5);
    if (reason("drop")[0] == '\0')
        assert_true(number("sluice_net_drops_total{reason=\"TCP_CSUM\"}") >= drops + 5);
}

static void send_datagrams(unsigned count)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9)};
    static char bytes[1000];
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    inet_pton(AF_INET, "10.77.0.2", &to.sin_addr);
    for (unsigned i = 0; i < count; i++)
        (void)sendto(fd, bytes, sizeof(bytes), MSG_DONTWAIT, (const struct sockaddr *)&to,
                     sizeof(to));
    close(fd);
}

/* Only those of this network namespace: a container's eth0 is none of ours. */
static void what_a_driver_does_not_take_is_counted_of_its_device(void **state)
{
    (void)state;
    skip_without("net_xmit");
    send_datagrams(1); /* the neighbour is known from here on */
    pause_ms(20);
    assert_true(number("sluice_net_transmit_failures_total{device=\"v1\",kind=\"dropped\"}") == 0);
    assert_true(in_peer("ip link set v2 mtu 600")); /* longer ones it does not pass on */
    send_datagrams(20);
    assert_true(number("sluice_net_transmit_failures_total{device=\"v1\",kind=\"dropped\"}") == 20);
    assert_true(number("sluice_net_transmit_failures_total{device=\"v1\",kind=\"busy\"}") == 0);
    assert_true(in_peer("ip link set v2 mtu 1500") && run("ip link set v1 mtu 600"));
    assert_true(run("nsenter -t %d -n bash -c '"
                    "for i in 1 2 3; do head -c 1000 /dev/zero >/dev/udp/10.77.0.1/9; done'",
                    (int)peer));
    assert_null(strstr(metrics(), "\"v2\""));
    /* nor taken for v1, whose number it may have there */
    assert_true(number("sluice_net_transmit_failures_total{device=\"v1\",kind=\"dropped\"}") == 20);
}

#define SAMPLES number("sluice_net_queueing_samples_total{device=\"v1\"}")

static void time_in_a_slow_queue_is_measured(void **state)
{
    double count, sum, longest = 0;

    (void)state;
    skip_without("net_queueing");
    count = SAMPLES;
    sum = number("sluice_net_queueing_seconds_total{device=\"v1\"}");
    if (!run("tc qdisc add dev v1 root tbf rate 2mbit burst 2kb latency 200ms 2>/dev/null")) {
        printf("# skipped: this kernel has no tbf\n");
        skip();
    }
    send_datagrams(40); /* 40 kB at 2 Mbit/s: 160 ms */
    for (unsigned i = 0; i < 200 && (i < 25 || SAMPLES < count + 10); i++) {
        double now = number("sluice_net_queueing_max_seconds{device=\"v1\"}");

        longest = now > longest ? now : longest;
        pause_ms(10);
    }
    assert_true(run("tc qdisc del dev v1 root"));
    count = SAMPLES - count;
    sum = number("sluice_net_queueing_seconds_total{device=\"v1\"}") - sum;
    assert_true(count >= 10);
    assert_true(longest > 0.02 && longest < 1);
    assert_true(sum / count > 0.005 && sum / count < longest);
    assert_true(number("sluice_net_queueing_max_seconds{device=\"v1\"}") == 0); /* it is over */
}

static pid_t hog(void)
{
    pid_t pid = fork();
    cpu_set_t first;

    if (pid != 0)
        return pid;
    CPU_ZERO(&first);
    CPU_SET(0, &first);
    (void)sched_setaffinity(0, sizeof(first), &first);
    alarm(20); /* whatever becomes of the test */
    for (;;)
        __asm__ volatile("");
}

static struct sl_mon_subject *follow(pid_t pid)
{
    char name[SL_MON_NAME];

    snprintf(name, sizeof(name), "pid %d", (int)pid);
    return sl_mon_subject(sl_agent_mon(agent), SL_MON_PROCESS, name);
}

static void reap(pid_t pid)
{
    kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
}

static void two_that_share_a_processor_wait_for_it(void **state)
{
    pid_t one, other;
    double before, waited = 0;

    (void)state;
    skip_without("sched");
    one = hog();
    other = hog();
    (void)follow(one);
    assert_true(number("sluice_ranks_followed") == 1);
    before = number("sluice_ranks_run_queue_seconds_total");
    for (unsigned i = 0; i < 30 && waited < 0.1; i++) { /* a wait counts when it ends */
        pause_ms(300);
        waited = number("sluice_ranks_run_queue_seconds_total") - before;
    }
    reap(one);
    reap(other);
    assert_true(waited >= 0.1);
    assert_true(number("sluice_ranks_run_queue_max_seconds") < 10);
    assert_true(number("sluice_ranks_stops_total") == 0);
}

/* It is stopped when this returns, which takes its time where others have the processors. */
static void stop(pid_t pid)
{
    kill(pid, SIGSTOP);
    assert_int_equal(waitpid(pid, NULL, WUNTRACED), pid);
}

/* One that is stopped waits for nothing; and a stop that is over before anybody looks is told. */
static void a_stop_between_two_looks_is_told(void **state)
{
    struct sl_mon_subject *subject;
    pid_t pid;
    double waited, stopped;

    (void)state;
    skip_without("sched");
    pid = fork();
    if (pid == 0) {
        alarm(20);
        for (;;)
            pause_ms(5);
    }
    subject = follow(pid);
    (void)number("sluice_ranks_followed");
    pause_ms(50);
    assert_int_equal(sl_mon_subject_state(subject), SL_MON_OK);
    stop(pid);
    pause_ms(300);
    kill(pid, SIGCONT);
    assert_int_equal(waitpid(pid, NULL, WCONTINUED), pid);
    stopped = number("sluice_ranks_stopped_seconds_total");
    assert_true(stopped > 0.25 && stopped < 10);
    assert_true(number("sluice_ranks_stops_total") == 1);
    assert_int_equal(sl_mon_subject_state(subject), SL_MON_RECOVERING); /* at a second look */
    stop(pid);
    waited = number("sluice_ranks_run_queue_seconds_total");
    pause_ms(200);
    assert_true(number("sluice_ranks_run_queue_seconds_total") == waited);
    assert_int_equal(sl_mon_subject_state(subject), SL_MON_BAD); /* while it lasts */
    kill(pid, SIGCONT);
    reap(pid);
}

static void nobody_is_followed_who_is_no_subject(void **state)
{
    struct sl_mon_subject *subject;
    pid_t pid;

    (void)state;
    skip_without("sched");
    pid = hog();
    assert_true(number("sluice_ranks_followed") == 0);
    subject = follow(pid);
    assert_true(number("sluice_ranks_followed") == 1);
    sl_mon_forget(sl_agent_mon(agent), subject);
    assert_true(number("sluice_ranks_followed") == 0);
    reap(pid);
}

static void one_probe_that_fails_leaves_the_others_up(void **state)
{
    (void)state;
    skip_without("tcp_checksum");
    assert_int_equal(end(NULL), 0);
    is_checksum_broken = true;
    assert_int_equal(begin(NULL), 0);
    assert_true(number("sluice_probe_up{probe=\"tcp_checksum\",how=\"bpf\"}") == 0);
    assert_string_equal(
        reason("tcp_checksum"),
        "this kernel has no tracepoint or function that the BPF probe 'checksum' is for");
    assert_true(number("sluice_tcp_bad_checksums_total") == 0);
    assert_true(number("sluice_probe_up{probe=\"tcp_reset\",how=\"bpf\"}") == 1);
    assert_true(number("sluice_probe_up{probe=\"net_xmit\",how=\"bpf\"}") == 1);
    assert_true(number("sluice_probe_up{probe=\"sched\",how=\"bpf\"}") == 1);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        CASE(loss_is_sent_again_for_its_gaps_and_dropped_for_its_reason),
        CASE(silence_is_sent_again_for_its_timeout),
        CASE(a_peer_that_does_not_read_closes_its_window),
        CASE(resets_are_counted_each_way),
        CASE(damage_is_counted_and_dropped_for_its_checksum),
        CASE(what_a_driver_does_not_take_is_counted_of_its_device),
        CASE(time_in_a_slow_queue_is_measured),
        CASE(two_that_share_a_processor_wait_for_it),
        CASE(a_stop_between_two_looks_is_told),
        CASE(nobody_is_followed_who_is_no_subject),
        CASE(one_probe_that_fails_leaves_the_others_up)};

    return cmocka_run_group_tests(tests, begin_all, end_all);
}
