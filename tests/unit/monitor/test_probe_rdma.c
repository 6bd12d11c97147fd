/* SPDX-License-Identifier: Apache-2.0 */
/* Probes over RDMA: what an agent says of its ports, which of them is probed, and both ends over
 * tests/fake/fake_ud.c, whose datagrams are those of UDP at 127.0.0.1 to 127.0.0.4. */
#include "core/err.h"
#include "monitor/probe_rdma.h"
#include "monitor/probe_responder.h"
#include "monitor/probe_ud.h"
#include "monitor/probe_udp.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#define SECRET "a secret that all agents share"

static uint8_t key[SL_DIGEST_BYTES];
static char root[] = "/tmp/sl-probe-rdma-XXXXXX";
static const char *library;

/* ---- a sysfs ---- */

static void put(const char *text, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void put(const char *text, const char *fmt, ...)
{
    char path[512], name[256];
    va_list args;
    FILE *file;

    va_start(args, fmt);
    vsnprintf(name, sizeof(name), fmt, args);
    va_end(args);
    snprintf(path, sizeof(path), "%s/%s", root, name);
    for (char *at = path + strlen(root) + 1; (at = strchr(at, '/')) != NULL; at++) {
        *at = '\0';
        (void)mkdir(path, 0755);
        *at = '/';
    }
    file = fopen(path, "we");
    assert_non_null(file);
    fprintf(file, "%s\n", text);
    fclose(file);
}

static void device(const char *name, const char *state, const char *layer, const char *gid)
{
    put(state, "%s/ports/1/state", name);
    put(layer, "%s/ports/1/link_layer", name);
    put("0x0", "%s/ports/1/lid", name);
    put("fe80:0000:0000:0000:0200:00ff:fe00:0001", "%s/ports/1/gids/0", name);
    put("IB/RoCE v1", "%s/ports/1/gid_attrs/types/0", name);
    put("0000:0000:0000:0000:0000:0000:0000:0000", "%s/ports/1/gids/1", name);
    put(gid, "%s/ports/1/gids/2", name);
    put("RoCE v2", "%s/ports/1/gid_attrs/types/2", name);
}

/* Two rails, as of two hosts in one, and a port that is down. */
static int set_up(void **state)
{
    (void)state;
    library = getenv("FAKE_UD_LIBRARY");
    if (mkdtemp(root) == NULL || sl_probe_key(SECRET, strlen(SECRET), key) != 0)
        return -1;
    setenv("FAKE_UD_ROOT", root, 1);
    device("fake0", "4: ACTIVE", "Ethernet", "0000:0000:0000:0000:0000:ffff:7f00:0001");
    device("fake1", "4: ACTIVE", "Ethernet", "0000:0000:0000:0000:0000:ffff:7f00:0002");
    device("fake2", "4: ACTIVE", "Ethernet", "0000:0000:0000:0000:0000:ffff:7f00:0003");
    device("fake3", "4: ACTIVE", "Ethernet", "0000:0000:0000:0000:0000:ffff:7f00:0004");
    device("fake9", "1: DOWN", "Ethernet", "0000:0000:0000:0000:0000:ffff:7f00:0009");
    return 0;
}

static int tear_down(void **state)
{
    char command[64];

    (void)state;
    snprintf(command, sizeof(command), "rm -rf %s", root);
    return system(command);
}

static void ports_are_read_with_the_first_gid_of_each_kind(void **state)
{
    static struct sl_probe_rail rails[16];
    struct sl_probe_rail rail;
    uint8_t wanted[16];
    char text[48];

    (void)state;
    assert_int_equal(sl_probe_rail_read(root, "fake0:1", NULL, &rail), 0);
    assert_string_equal(rail.state, "ACTIVE");
    assert_int_equal(rail.gid_count, 2);
    assert_int_equal(rail.gids[0].kind, SL_PROBE_GID_V2_IP4);
    assert_int_equal(rail.gids[0].index, 2);
    assert_int_equal(rail.gids[1].kind, SL_PROBE_GID_V1);
    sl_probe_gid_text(rail.gids[0].gid, text, sizeof(text));
    assert_string_equal(text, "::ffff:127.0.0.1");
    memcpy(wanted, rail.gids[0].gid, 16);
    assert_int_equal(sl_probe_rail_read(root, "fake0:1", wanted, &rail), 0);
    assert_int_equal(rail.gid_count, 1);
    wanted[15] = 77;
    assert_int_equal(sl_probe_rail_read(root, "fake0:1", wanted, &rail), 0);
    assert_int_equal(rail.gid_count, 0);
    assert_int_equal(sl_probe_rails(root, rails, 16), 4); /* one is down */
    assert_int_equal(sl_probe_rails(root, rails, 3), 3);
    assert_int_equal(sl_probe_rails("/nowhere", rails, 16), 0);
    assert_int_equal(sl_probe_rail_read(root, "fake7:1", NULL, &rail), -ENODEV);
    assert_int_equal(sl_probe_rail_read(root, "fake0:0", NULL, &rail), -ENODEV);
    assert_int_equal(sl_probe_rail_read(root, "fake0", NULL, &rail), -ENODEV);
    assert_int_equal(sl_probe_rail_read(root, "../fake0:1", NULL, &rail), -ENODEV);
}

/* ---- which port ---- */

static struct sl_probe_port port_at(const char *name, uint8_t kind, const char *gid)
{
    struct sl_probe_port port = {.qpn = 5, .qkey = 6, .mtu = 1024, .kind = kind};

    snprintf(port.name, sizeof(port.name), "%s", name);
    assert_int_equal(inet_pton(AF_INET6, gid, port.gid), 1);
    return port;
}

static struct sl_probe_rail rail_at(const char *name, uint8_t kind, const char *gid)
{
    struct sl_probe_rail rail = {.port = 1, .gid_count = 1};

    snprintf(rail.name, sizeof(rail.name), "%s", name);
    rail.gids[0].kind = kind;
    assert_int_equal(inet_pton(AF_INET6, gid, rail.gids[0].gid), 1);
    return rail;
}

static void the_port_in_the_same_network_or_of_the_same_name_is_probed(void **state)
{
    /* 127.0.0.1 is this host's, and has a network; 192.0.2.1 is not. */
    struct sl_probe_rail here = rail_at("mlx5_0:1", SL_PROBE_GID_V2_IP4, "::ffff:127.0.0.1");
    struct sl_probe_rail routed = rail_at("mlx5_1:1", SL_PROBE_GID_V2_IP4, "::ffff:192.0.2.1");
    struct sl_probe_port ports[] = {
        port_at("mlx5_0:1", SL_PROBE_GID_V2_IP4, "::ffff:127.0.0.1"), /* itself */
        port_at("mlx5_1:1", SL_PROBE_GID_V2_IP4, "::ffff:198.51.100.1"),
        port_at("mlx5_2:1", SL_PROBE_GID_V2_IP4, "::ffff:127.5.5.5"),
        port_at("ib0:1", SL_PROBE_GID_IB, "fe80::1:2:3:4")};
    const struct sl_probe_rail_gid *gid = NULL;

    (void)state;
    assert_ptr_equal(sl_probe_choose(&here, ports, 4, "", &gid), &ports[2]);
    assert_ptr_equal(gid, &here.gids[0]);
    assert_ptr_equal(sl_probe_choose(&routed, ports, 4, "", &gid), &ports[1]);
    assert_ptr_equal(sl_probe_choose(&routed, ports, 4, "mlx5_2:1", &gid), &ports[2]);
    assert_null(sl_probe_choose(&routed, ports, 4, "mlx5_7:1", &gid));
    assert_non_null(strstr(sluice_last_error(), "no ACTIVE RDMA port mlx5_7:1"));
    assert_null(sl_probe_choose(&routed, ports, 4, "ib0:1", &gid));
    assert_non_null(strstr(sluice_last_error(), "different fabrics"));
    assert_null(sl_probe_choose(&routed, ports, 1, "", &gid));
    assert_non_null(strstr(sluice_last_error(), "--to-rail"));
    /* One of that name among those in the network. */
    ports[0] = port_at("mlx5_0:1", SL_PROBE_GID_V2_IP4, "::ffff:127.5.5.6");
    assert_ptr_equal(sl_probe_choose(&here, ports, 4, "", &gid), &ports[0]);
}

/* ---- pages ---- */

static void pages_are_read_as_written_and_others_refused(void **state)
{
    static uint8_t bytes[SL_PROBE_LIST_BYTES];
    static struct sl_probe_page page, got;
    struct sl_probe_packet packet = {
        .kind = SL_PROBE_FOUND, .len = SL_PROBE_LIST_BYTES, .session = 9, .host = "node18"};
    struct sl_probe_packet read;

    (void)state;
    page.total = 17;
    page.count = SL_PROBE_PAGE;
    for (unsigned i = 0; i < SL_PROBE_PAGE; i++)
        page.ports[i] = port_at("mlx5_0:1", SL_PROBE_GID_V2_IP6, "2001:db8::1");
    assert_int_equal(sl_probe_page_write(&packet, &page, key, bytes), 0);
    assert_int_equal(sl_probe_read(bytes, sizeof(bytes), key, &read), 0);
    assert_int_equal(sl_probe_page_read(bytes, &read, &got), 0);
    assert_int_equal(got.count, page.count);
    assert_int_equal(got.total, 17);
    assert_memory_equal(&got.ports[15], &page.ports[15], sizeof(got.ports[0]));
    for (size_t i = 0; i < sizeof(bytes); i++) { /* its body is signed, too */
        bytes[i] ^= 4;
        assert_int_equal(sl_probe_read(bytes, sizeof(bytes), key, &read), -EBADMSG);
        bytes[i] ^= 4;
    }
    page.state = SL_PROBE_NONE;
    snprintf(page.why, sizeof(page.why), "no RDMA port is ACTIVE");
    assert_int_equal(sl_probe_page_write(&packet, &page, key, bytes), 0);
    assert_int_equal(sl_probe_page_read(bytes, &packet, &got), 0);
    assert_string_equal(got.why, page.why);
    snprintf(page.why, sizeof(page.why), "a\033[2J");
    assert_int_equal(sl_probe_page_write(&packet, &page, key, bytes), 0);
    assert_int_equal(sl_probe_page_read(bytes, &packet, &got), -EBADMSG);
    page.state = SL_PROBE_READY;
    page.ports[3].qpn = 0;
    assert_int_equal(sl_probe_page_write(&packet, &page, key, bytes), 0);
    assert_int_equal(sl_probe_page_read(bytes, &packet, &got), -EBADMSG);
    page.ports[3].qpn = 1;
    page.total = 3; /* less than are here */
    assert_int_equal(sl_probe_page_write(&packet, &page, key, bytes), 0);
    assert_int_equal(sl_probe_page_read(bytes, &packet, &got), -EBADMSG);
}

/* ---- both ends ---- */

/* An agent's side of it: probes over UDP, and where those over RDMA go. */
struct agent {
    pid_t pid;
    uint16_t port;
};

enum { USUAL, WITHOUT_RDMA };

static void serve_one(int fd, struct sl_probe_responder *responder,
                      const struct sl_probe_echo_order *order, int how)
{
    static uint8_t bytes[SL_PROBE_MOST];
    static struct sl_probe_page page;
    struct sockaddr_in from;
    socklen_t from_len = sizeof(from);
    ssize_t len =
        recvfrom(fd, bytes, sizeof(bytes), 0, (struct sockaddr *)(void *)&from, &from_len);
    struct sl_probe_packet packet;

    if (len < 0 || sl_probe_read(bytes, (size_t)len, order->key, &packet) != 0)
        return;
    memcpy(packet.host, order->host, sizeof(packet.host));
    if (packet.kind == SL_PROBE_ASK) {
        packet.kind = SL_PROBE_ANSWER;
        (void)sl_probe_write(&packet, order->key, bytes);
    } else if (how == WITHOUT_RDMA) {
        return;
    } else {
        packet.kind = SL_PROBE_FOUND;
        sl_probe_responder_page(responder, order, packet.number, sl_probe_mono(), &page);
        (void)sl_probe_page_write(&packet, &page, order->key, bytes);
    }
    (void)!sendto(fd, bytes, packet.len, 0, (struct sockaddr *)(void *)&from, from_len);
}

static struct agent agent_begin(int how)
{
    static struct sl_probe_responder responder;
    struct sl_probe_echo_order order = {.rdma_root = root,
                                        .library = library,
                                        .rate = 10000,
                                        .host = "node18",
                                        .idle_ns = UINT64_C(5000000000)};
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(at);
    struct agent agent;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    assert_int_equal(bind(fd, (struct sockaddr *)(void *)&at, sizeof(at)), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)(void *)&at, &len), 0);
    agent.port = ntohs(at.sin_port);
    memcpy(order.key, key, sizeof(key));
    agent.pid = fork();
    if (agent.pid != 0) {
        close(fd);
        return agent;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sl_probe_responder_init(&responder);
    for (;;)
        serve_one(fd, &responder, &order, how);
}

static void agent_end(const struct agent *agent)
{
    kill(agent->pid, SIGKILL);
    waitpid(agent->pid, NULL, 0);
}

static struct sl_probe_order order_to(uint16_t port, const char *rail, const char *to_rail)
{
    struct sl_probe_order order = {.count = 200,
                                   .bytes = 300,
                                   .gap_ns = 200000,
                                   .session = 0x1234567812345678,
                                   .is_rdma = true,
                                   .rdma_root = root,
                                   .library = library};
    struct sockaddr_in *to = (struct sockaddr_in *)(void *)&order.to;

    *to = (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    order.to_len = sizeof(*to);
    memcpy(order.key, key, sizeof(key));
    snprintf(order.rail, sizeof(order.rail), "%s", rail);
    snprintf(order.to_rail, sizeof(order.to_rail), "%s", to_rail);
    return order;
}

static void the_rail_that_loses_is_told_from_the_other(void **state)
{
    struct sl_probe_report reports[2];
    struct sl_probe_order order;
    struct agent agent;

    (void)state;
    setenv("FAKE_UD_LOSE", "fake3:10", 1); /* on the way back, as fake3 answers */
    agent = agent_begin(USUAL);
    unsetenv("FAKE_UD_LOSE");
    order = order_to(agent.port, "fake0:1", "fake1:1");
    sl_probe_rdma(&order, &reports[0]);
    order = order_to(agent.port, "fake2:1", "fake3:1");
    sl_probe_rdma(&order, &reports[1]);
    agent_end(&agent);
    assert_string_equal(reports[0].why, "");
    assert_string_equal(reports[1].why, "");
    assert_string_equal(reports[0].host, "node18");
    assert_string_equal(reports[0].to_rail, "fake1:1");
    assert_int_equal(reports[0].gid_index, 2);
    assert_int_equal(reports[0].mtu, 1024);
    assert_int_equal(reports[0].result.sent, 200);
    /* A machine that does other things may be later than a probe waits. */
    assert_in_range(reports[0].result.answered, 195, 200);
    assert_in_range(reports[1].result.answered, 170, 180);
    assert_in_range(reports[1].result.lost_there, 0, 5);
    assert_in_range(reports[1].result.lost_back, 15, 25);
    assert_true(reports[0].result.rtt.p50_ns > 0);
}

static void loss_on_the_way_there_and_delay_are_found(void **state)
{
    struct sl_probe_report report;
    struct sl_probe_order order;
    struct agent agent = agent_begin(USUAL);

    (void)state;
    order = order_to(agent.port, "fake0:1", "fake1:1");
    setenv("FAKE_UD_LOSE", "fake0:5", 1);
    sl_probe_rdma(&order, &report);
    unsetenv("FAKE_UD_LOSE");
    assert_string_equal(report.why, "");
    assert_in_range(report.result.lost_there, 35, 45);
    assert_in_range(report.result.lost_back, 0, 5);
    order.count = 50;
    order.gap_ns = 3000000;
    order.session++;
    setenv("FAKE_UD_LATE", "fake0:2000", 1);
    sl_probe_rdma(&order, &report);
    unsetenv("FAKE_UD_LATE");
    agent_end(&agent);
    assert_in_range(report.result.answered, 48, 50);
    assert_true(report.result.rtt.least_ns > 2000000);
}

/* More packets than there are buffers to send from. */
static void one_that_is_late_all_the_time_loses_nothing_of_its_own(void **state)
{
    struct agent agent = agent_begin(USUAL);
    struct sl_probe_order order = order_to(agent.port, "fake0:1", "fake1:1");
    struct sl_probe_report report;

    (void)state;
    order.count = 150;
    order.bytes = SL_PROBE_LEAST;
    order.gap_ns = 1;
    sl_probe_rdma(&order, &report);
    agent_end(&agent);
    assert_string_equal(report.why, "");
    assert_in_range(report.result.answered, 140, 150);
}

static void says(const struct sl_probe_order *order, const char *text)
{
    struct sl_probe_report report;

    sl_probe_rdma(order, &report);
    if (strstr(report.why, text) == NULL)
        fail_msg("'%s' says nothing of '%s'", report.why, text);
}

static void what_is_missing_is_said_in_a_sentence(void **state)
{
    struct agent agent = agent_begin(USUAL), plain = agent_begin(WITHOUT_RDMA), poor;
    struct sl_probe_order order = order_to(agent.port, "fake0:1", "fake1:1");

    (void)state;
    order.bytes = 2000;
    says(&order, "longer than the MTU");
    order.bytes = 300;
    snprintf(order.rail, sizeof(order.rail), "fake7:1");
    says(&order, "no RDMA port fake7:1 here");
    snprintf(order.rail, sizeof(order.rail), "fake9:1");
    says(&order, "fake9:1 is DOWN");
    order = order_to(agent.port, "fake0:1", "fake5:1");
    says(&order, "no ACTIVE RDMA port fake5:1");
    order = order_to(plain.port, "fake0:1", "fake1:1");
    says(&order, "over UDP alone");
    order = order_to(agent.port, "fake0:1", "fake1:1");
    order.library = "libno-such-thing.so.1";
    says(&order, "libno-such-thing");
    order.library = library;
    setenv("FAKE_UD_LOSE", "fake0:1", 1); /* each packet */
    says(&order, "no datagram comes back");
    unsetenv("FAKE_UD_LOSE");
    setenv("FAKE_UD_REFUSE", "ibv_reg_mr", 1);
    poor = agent_begin(USUAL);
    unsetenv("FAKE_UD_REFUSE");
    order = order_to(poor.port, "fake0:1", "fake1:1");
    says(&order, "node18 does not answer over RDMA: fake");
    agent_end(&agent);
    agent_end(&plain);
    agent_end(&poor);
}

static void each_call_that_fails_is_told_and_nothing_is_left(void **state)
{
    static const char *const calls[] = {"ibv_open_device",         "ibv_query_port", "ibv_alloc_pd",
                                        "ibv_create_comp_channel", "ibv_create_cq",  "ibv_reg_mr",
                                        "ibv_create_qp",           "ibv_modify_qp",  "none"};
    void *handle = dlopen(library, RTLD_NOW);
    unsigned (*alive)(void);
    struct sl_probe_rail rail;

    (void)state;
    assert_non_null(handle);
    *(void **)&alive = dlsym(handle, "fake_ud_live");
    assert_int_equal(sl_probe_rail_read(root, "fake0:1", NULL, &rail), 0);
    for (unsigned i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        struct sl_probe_ud *ud = NULL;
        int err;

        setenv("FAKE_UD_REFUSE", calls[i], 1);
        err = sl_probe_ud_open(library, &rail, 5, &ud);
        unsetenv("FAKE_UD_REFUSE");
        assert_int_equal(err != 0, i + 1 < sizeof(calls) / sizeof(calls[0]));
        if (err != 0)
            assert_int_equal(alive(), 0);
        else
            sl_probe_ud_close(ud);
    }
    assert_int_equal(alive(), 0);
    dlclose(handle);
}

/* ---- strangers ---- */

/* A datagram as the fake's queue pairs send them. */
static void send_raw(int fd, const struct sl_probe_port *to, uint32_t qkey, const uint8_t *bytes,
                     size_t len)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)to->qpn)};
    uint8_t frame[8 + SL_PROBE_UD_MOST];
    uint32_t head[2] = {htonl(qkey), 0};
    struct sockaddr_in own;
    socklen_t own_len = sizeof(own);

    getsockname(fd, (struct sockaddr *)(void *)&own, &own_len);
    head[1] = htonl(ntohs(own.sin_port));
    memcpy(&at.sin_addr, to->gid + 12, 4);
    memcpy(frame, head, 8);
    memcpy(frame + 8, bytes, len);
    (void)!sendto(fd, frame, 8 + len, 0, (struct sockaddr *)(void *)&at, sizeof(at));
}

static bool comes_back(int fd, int ms)
{
    struct pollfd one = {.fd = fd, .events = POLLIN};
    uint8_t bytes[8 + SL_PROBE_UD_MOST];

    return poll(&one, 1, ms) == 1 && recv(fd, bytes, sizeof(bytes), 0) > 8;
}

static void strangers_get_nothing_back_and_others_go_on(void **state)
{
    static struct sl_probe_responder responder;
    static struct sl_probe_page page;
    struct sl_probe_echo_order order = {.rdma_root = root,
                                        .library = library,
                                        .rate = 100000,
                                        .host = "node18",
                                        .idle_ns = UINT64_C(5000000000)};
    struct sl_probe_packet packet = {.kind = SL_PROBE_ASK, .len = 200, .session = 3};
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const struct sl_probe_port *to = &page.ports[0];
    uint8_t bytes[SL_PROBE_UD_MOST] = {0};

    (void)state;
    assert_int_equal(bind(fd, (struct sockaddr *)(void *)&at, sizeof(at)), 0);
    memcpy(order.key, key, sizeof(key));
    sl_probe_responder_init(&responder);
    for (unsigned i = 0; i < 500 && (i == 0 || page.state == SL_PROBE_SOON); i++) {
        sl_probe_responder_page(&responder, &order, 0, sl_probe_mono(), &page);
        (void)poll(NULL, 0, 10);
    }
    assert_int_equal(page.state, SL_PROBE_READY);
    assert_int_equal(page.count, 8); /* two GIDs of each port */
    /* Slowly: what finds no room is not refused. */
    for (size_t len = 1; len < 1024; len += 3) {
        send_raw(fd, to, to->qkey, bytes, len);
        if (len % 32 == 1)
            (void)poll(NULL, 0, 5);
    }
    assert_int_equal(sl_probe_write(&packet, key, bytes), 0);
    for (unsigned i = 0; i < SL_PROBE_LEAST; i++) {
        bytes[i] ^= 1;
        send_raw(fd, to, to->qkey, bytes, packet.len);
        bytes[i] ^= 1;
        if (i % 32 == 0)
            (void)poll(NULL, 0, 5);
    }
    (void)poll(NULL, 0, 20);
    send_raw(fd, to, to->qkey ^ 1, bytes, packet.len);
    packet.kind = SL_PROBE_ANSWER; /* answers are not answered */
    assert_int_equal(sl_probe_write(&packet, key, bytes), 0);
    send_raw(fd, to, to->qkey, bytes, packet.len);
    assert_false(comes_back(fd, 300));
    packet.kind = SL_PROBE_ASK;
    assert_int_equal(sl_probe_write(&packet, key, bytes), 0);
    send_raw(fd, to, to->qkey, bytes, packet.len);
    assert_true(comes_back(fd, 5000));
    assert_false(comes_back(fd, 50));
    for (unsigned i = 0; i < 400 && responder.answered == 0; i++) {
        sl_probe_responder_tick(&responder, sl_probe_mono());
        (void)poll(NULL, 0, 10);
    }
    assert_int_equal(responder.answered, 1);
    assert_true(responder.foreign > 300);
    sl_probe_responder_fini(&responder);
    close(fd);
}

/* The process ends when nobody probes, and is begun again. */
static void the_process_that_answers_is_there_on_demand_only(void **state)
{
    static struct sl_probe_responder responder;
    static struct sl_probe_page page;
    struct sl_probe_echo_order order = {
        .rdma_root = root, .library = library, .rate = 1000, .host = "node18", .idle_ns = 1};
    pid_t first = 0;

    (void)state;
    memcpy(order.key, key, sizeof(key));
    sl_probe_responder_init(&responder);
    sl_probe_responder_tick(&responder, sl_probe_mono());
    assert_int_equal(responder.reader.child, 0);
    for (unsigned i = 0; i < 500 && (i == 0 || page.state == SL_PROBE_SOON); i++) {
        sl_probe_responder_page(&responder, &order, 0, sl_probe_mono(), &page);
        first = first != 0 ? first : responder.reader.child;
        (void)poll(NULL, 0, 10);
    }
    for (unsigned i = 0; i < 500 && responder.reader.child != 0; i++) {
        sl_probe_responder_tick(&responder, sl_probe_mono());
        (void)poll(NULL, 0, 10);
    }
    assert_int_equal(responder.reader.child, 0);
    sl_probe_responder_page(&responder, &order, 0, sl_probe_mono(), &page);
    assert_true(responder.reader.child != 0 && responder.reader.child != first);
    assert_int_equal(page.state, SL_PROBE_SOON);
    sl_probe_responder_fini(&responder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ports_are_read_with_the_first_gid_of_each_kind),
        cmocka_unit_test(the_port_in_the_same_network_or_of_the_same_name_is_probed),
        cmocka_unit_test(pages_are_read_as_written_and_others_refused),
        cmocka_unit_test(each_call_that_fails_is_told_and_nothing_is_left),
        cmocka_unit_test(the_rail_that_loses_is_told_from_the_other),
        cmocka_unit_test(loss_on_the_way_there_and_delay_are_found),
        cmocka_unit_test(one_that_is_late_all_the_time_loses_nothing_of_its_own),
        cmocka_unit_test(what_is_missing_is_said_in_a_sentence),
        cmocka_unit_test(strangers_get_nothing_back_and_others_go_on),
        cmocka_unit_test(the_process_that_answers_is_there_on_demand_only),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
