/* SPDX-License-Identifier: Apache-2.0 */
/* Wires between processes: test_port_memif PORT_PEER [KILLS]. With KILLS only that many peers are
 * killed at random moments. */
#include "core/clock.h"
#include "core/err.h"
#include "core/log.h"
#include "tests/unit/dpdk/port_spawn.h"

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#define WAIT_MS 10000

static const char *program;
static char dir[64];
static uint8_t payload[9000];
static unsigned socket_number;

/* The list of one end of a wire; each wire has a socket of its own. */
static const char *wire(const char *role, unsigned number)
{
    static char lists[4][160];
    static unsigned next;
    char *list = lists[next++ % 4];

    snprintf(list, sizeof(lists[0]), "net_memif_%u,role=%s,id=5,socket=%s/%u.sock", number, role,
             dir, number);
    return list;
}

static void open_end(struct port_end *end, const char *list, unsigned port)
{
    struct sl_dpdk_port_settings settings = {.list = list, .rank = -1, .local_rank = -1};

    if (port_end_open(end, &settings, port) != 0)
        fail_msg("%s", sluice_last_error());
}

/* Packets go there and come back. */
static void exchange(struct port_end *end, unsigned count)
{
    uint64_t came = end->came;

    assert_true(port_end_wait_up(end, WAIT_MS));
    for (unsigned i = 0; i < count; i++) {
        /* The other end may not be up yet: repeat. */
        for (unsigned try = 0; try < 200 && end->came < came + i + 1; try++) {
            (void)port_end_send(end, payload, 100 + i * 37 % 8000, i % 2);
            port_end_wait(end, &end->came, came + i + 1, 50);
        }
        assert_true(end->came >= came + i + 1);
    }
    assert_int_equal(end->damaged, 0);
}

static void a_server_waits_for_its_client(void **state)
{
    unsigned number = socket_number++;
    struct port_spawned peer;
    struct port_end end;

    (void)state;
    open_end(&end, wire("server", number), 0);
    port_spawn(&peer, program, wire("client", number), "echo", 0);
    assert_true(port_spawn_meet(&peer, &end, 50000));
    exchange(&end, 200);
    assert_int_equal(port_spawn_end(&peer), 0);
    port_end_close(&end);
}

static void a_client_finds_a_server_that_starts_later(void **state)
{
    unsigned number = socket_number++;
    struct port_spawned peer;
    struct port_end end;

    (void)state;
    open_end(&end, wire("client", number), 0);
    port_spawn(&peer, program, wire("server", number), "echo", 0);
    assert_true(port_spawn_meet(&peer, &end, 50000));
    exchange(&end, 200);
    assert_int_equal(port_spawn_end(&peer), 0);
    port_end_close(&end);
}

/* As a switch hands on frames of others, which may be longer than this end's own. With one in two
 * buffers the sender's driver would damage each that lies where it lay, for as long as the
 * connection is up. */
static void frames_longer_than_its_own_damage_none_behind_them(void **state)
{
    static uint8_t longest[10000];
    unsigned number = socket_number++;
    struct port_spawned peer;
    struct port_end end;
    char list[192];

    (void)state;
    snprintf(list, sizeof(list), "%s@mtu=10200", wire("server", number));
    open_end(&end, list, 0);
    port_spawn(&peer, program, wire("client", number), "echo", 0);
    assert_true(port_spawn_meet(&peer, &end, 50000));
    exchange(&end, 5);
    port_end_wait(&end, &end.came, UINT64_MAX, 20); /* all repeated ones are back */
    for (unsigned i = 0; i < 3000; i++) {
        uint64_t came = end.came;

        end.peer.flow ^= 1u << 31; /* for nobody */
        if (i < 1000)
            assert_true(port_end_send(&end, longest, 9000 + i, i % 2) >= 0);
        end.peer.flow ^= 1u << 31;
        assert_true(port_end_send(&end, payload, 100, false) >= 0);
        assert_true(port_end_wait(&end, &end.came, came + 1, WAIT_MS));
    }
    assert_int_equal(end.damaged, 0);
    assert_int_equal(port_spawn_end(&peer), 0);
    port_end_close(&end);
}

static void lent_payload_comes_whole(const char *mode)
{
    struct sl_dpdk_port_stats before, stats;
    unsigned number = socket_number++;
    struct port_spawned peer;
    struct port_end end;

    port_spawn(&peer, program, wire("server", number), mode, 0);
    open_end(&end, wire("client", number), 0);
    assert_true(port_end_wait_up(&end, WAIT_MS));
    sl_dpdk_port_stats(end.port, &before);
    assert_true(port_spawn_meet(&peer, &end, 50000));
    assert_true(port_end_wait(&end, &end.came, 20000, WAIT_MS));
    sl_dpdk_port_stats(end.port, &stats);
    assert_int_equal(stats.split, 0);
    assert_int_equal(stats.restarts, before.restarts);
    assert_int_equal(end.damaged, 0);
    assert_int_equal(port_spawn_end(&peer), 0);
    port_end_close(&end);
}

/* Headers and payload that is lent are two segments. From 23.03 on DPDK's driver has a way to send
 * in which each takes a buffer of memif's, and what comes in several spoils the connection. It
 * chooses by the pools of a burst: all of one, or mixed. */
static void what_is_lent_takes_no_buffer_of_its_own(void **state)
{
    (void)state;
    lent_payload_comes_whole("stream=3000");
    lent_payload_comes_whole("mixed");
}

/* With a frame that took two buffers the connection is spoiled: a new one is made. */
static void a_frame_longer_than_a_buffer_costs_the_connection_alone(void **state)
{
    struct sl_dpdk_port_stats stats = {0};
    unsigned number = socket_number++;
    struct port_spawned peer;
    struct port_end end;
    char list[192];

    (void)state;
    snprintf(list, sizeof(list), "%s@mtu=16000", wire("server", number));
    port_spawn(&peer, program, list, "one=12000", 0);
    open_end(&end, wire("client", number), 0);
    assert_true(port_spawn_meet(&peer, &end, 50000));
    for (unsigned i = 0; i < 500 && stats.split == 0; i++) {
        port_end_wait(&end, &end.came, UINT64_MAX, 10);
        sl_dpdk_port_stats(end.port, &stats);
    }
    assert_int_equal(stats.split, 1);
    exchange(&end, 1100); /* more than a ring has places */
    assert_int_equal(port_spawn_end(&peer), 0);
    port_end_close(&end);
}

/* One that closed its connection then, and came again, would end the server. It knows the
 * connection though the server calls the socket by another name than its own. */
static void a_client_waits_for_a_server_that_does_not_run(void **state)
{
    unsigned number = socket_number++;
    struct sl_dpdk_port_stats stats;
    struct port_spawned peer;
    struct port_end end;
    char link[128], list[192];

    (void)state;
    snprintf(link, sizeof(link), "%s/link", dir);
    assert_int_equal(symlink(dir, link), 0);
    snprintf(list, sizeof(list), "net_memif_c,role=client,id=5,socket=%s/%u.sock", link, number);
    port_spawn(&peer, program, wire("server", number), "echo", 0);
    assert_int_equal(read(peer.from, &peer.hello, sizeof(peer.hello)), sizeof(peer.hello));
    kill(peer.pid, SIGSTOP);
    open_end(&end, list, 0);
    assert_false(port_end_wait_up(&end, 400));
    sl_dpdk_port_stats(end.port, &stats);
    assert_int_equal(stats.restarts, 0);
    kill(peer.pid, SIGCONT);
    assert_int_equal(write(peer.to, &end.own, sizeof(end.own)), sizeof(end.own));
    assert_int_equal(port_end_connect(&end, &peer.hello, 50000), 0);
    exchange(&end, 20);
    assert_int_equal(port_spawn_end(&peer), 0);
    port_end_close(&end);
}

static void continue_later(pid_t pid, unsigned us)
{
    if (fork() == 0) {
        usleep(us);
        _exit(kill(pid, SIGCONT));
    }
}

/* As `sluice-bench --list` does, and a process whose next port does not open. */
static void a_client_that_leaves_at_once_ends_no_server(void **state)
{
    unsigned number = socket_number++;
    struct port_spawned peer;
    struct port_end end;

    (void)state;
    port_spawn(&peer, program, wire("server", number), "echo", 0);
    assert_int_equal(read(peer.from, &peer.hello, sizeof(peer.hello)), sizeof(peer.hello));
    kill(peer.pid, SIGSTOP);
    continue_later(peer.pid, 50000);
    open_end(&end, wire("client", number), 0);
    port_end_close(&end);
    open_end(&end, wire("client", number), 0);
    assert_int_equal(write(peer.to, &end.own, sizeof(end.own)), sizeof(end.own));
    assert_int_equal(port_end_connect(&end, &peer.hello, 50000), 0);
    exchange(&end, 5);
    assert_int_equal(port_spawn_end(&peer), 0);
    port_end_close(&end);
    while (wait(NULL) > 0)
        ;
}

static void while_the_link_is_down_packets_are_lost_and_what_was_lent_returns(void **state)
{
    struct sl_dpdk_port_stats stats;
    struct port_end end;

    (void)state;
    open_end(&end, wire("client", socket_number++), 0);
    assert_int_equal(port_end_connect(&end, &end.own, 50000), 0);
    for (unsigned i = 0; i < 100; i++)
        assert_int_equal(port_end_send(&end, payload, 4000, true), 1);
    sl_dpdk_flush(end.user, end.port);
    port_end_poll(&end);
    assert_int_equal(end.returned, 100);
    sl_dpdk_port_stats(end.port, &stats);
    assert_int_equal(stats.down_dropped, 100);
    assert_int_equal(stats.sent, 0);
    port_end_close(&end);
}

/* Goes on sending and receiving as an engine does. */
static void run_for(struct port_end *end, uint64_t ns)
{
    uint64_t until = sl_now(&sl_clock_monotonic) + ns;

    while (sl_now(&sl_clock_monotonic) < until) {
        for (unsigned i = 0; i < 16 && port_end_send(end, payload, 4000, i % 2) >= 0; i++)
            ;
        port_end_poll(end);
    }
}

/* The socket of a server that was killed stays: the next one takes it away. */
static void kill_and_go_on(const char *role, const char *peer_role, unsigned kills,
                           unsigned most_us)
{
    unsigned number = socket_number++, chance = 12345;
    struct port_end end;

    open_end(&end, wire(role, number), 0);
    for (unsigned i = 0; i < kills; i++) {
        struct port_spawned peer;

        port_spawn(&peer, program, wire(peer_role, number), "stream=4000", 0);
        assert_true(port_spawn_meet(&peer, &end, 50000));
        assert_true(port_end_wait_up(&end, WAIT_MS));
        assert_true(port_end_wait(&end, &end.came, end.came + 1, WAIT_MS));
        chance = chance * 1103515245 + 12345;
        run_for(&end, (uint64_t)(chance >> 8) % most_us * 1000);
        kill(peer.pid, SIGKILL);
        run_for(&end, 30000000); /* the moment at which the memory goes is in it */
        port_spawn_kill(&peer);
        assert_int_equal(end.damaged, 0);
    }
    struct port_spawned last;
    port_spawn(&last, program, wire(peer_role, number), "echo", 0);
    assert_true(port_spawn_meet(&last, &end, 50000));
    uint64_t damaged = end.damaged;
    exchange(&end, 20);
    assert_int_equal(end.damaged, damaged);
    assert_int_equal(port_spawn_end(&last), 0);
    port_end_close(&end);
}

static void a_server_survives_clients_that_are_killed_and_takes_the_next(void **state)
{
    (void)state;
    kill_and_go_on("server", "client", 2, 20000);
}

static void a_client_survives_servers_that_are_killed_and_finds_the_next(void **state)
{
    (void)state;
    kill_and_go_on("client", "server", 2, 20000);
}

static void a_mesh_of_three_starts_in_any_order(void **state)
{
    struct port_spawned low, high;
    struct port_end to_low, to_high;
    char list[128], low_list[128], high_list[128];

    (void)state;
    snprintf(list, sizeof(list), "mesh:%s@rank=1@ranks=3", dir);
    snprintf(low_list, sizeof(low_list), "mesh:%s@rank=0@ranks=3", dir);
    snprintf(high_list, sizeof(high_list), "mesh:%s@rank=2@ranks=3", dir);
    port_spawn(&high, program, high_list, "echo", 1);
    open_end(&to_low, list, 0);
    open_end(&to_high, list, 1);
    port_spawn(&low, program, low_list, "echo", 0);
    assert_true(port_spawn_meet(&high, &to_high, 50000));
    assert_true(port_spawn_meet(&low, &to_low, 50000));
    assert_int_equal(to_low.own.address.segment, low.hello.address.segment);
    assert_int_equal(to_high.own.address.segment, high.hello.address.segment);
    assert_int_not_equal(to_low.own.address.segment, to_high.own.address.segment);
    assert_memory_not_equal(to_low.own.address.mac, low.hello.address.mac, 6);
    assert_memory_not_equal(to_low.own.address.mac, to_high.own.address.mac, 6);
    exchange(&to_low, 50);
    exchange(&to_high, 50);
    assert_int_equal(port_spawn_end(&high), 0);
    assert_int_equal(port_spawn_end(&low), 0);
    port_end_close(&to_low);
    port_end_close(&to_high);
}

static void a_socket_that_somebody_listens_at_is_left_alone(void **state)
{
    struct sl_dpdk_port *ports[SL_DPDK_PORTS_MAX];
    struct sl_dpdk_port_settings settings = {.rank = -1, .local_rank = -1};
    unsigned number = socket_number++;
    struct port_spawned peer;
    struct port_end end;
    char path[128];
    size_t count;

    (void)state;
    port_spawn(&peer, program, wire("server", number), "echo", 0);
    open_end(&end, wire("client", number), 0);
    assert_true(port_spawn_meet(&peer, &end, 50000));
    snprintf(path, sizeof(path), "net_memif_x,role=server,id=9,socket=%s/%u.sock", dir, number);
    settings.list = path;
    assert_int_equal(sl_dpdk_ports_get(&settings, ports, SL_DPDK_PORTS_MAX, &count), -EADDRINUSE);
    exchange(&end, 20);
    assert_int_equal(port_spawn_end(&peer), 0);
    port_end_close(&end);

    snprintf(path, sizeof(path), "%s/file", dir);
    close(open(path, O_CREAT | O_WRONLY, 0600));
    snprintf(path, sizeof(path), "net_memif_x,role=server,id=9,socket=%s/file", dir);
    assert_int_equal(sl_dpdk_ports_get(&settings, ports, SL_DPDK_PORTS_MAX, &count), -EINVAL);
    assert_non_null(strstr(sluice_last_error(), "something else"));
}

/* Sockets of this process that have a name in the test's folder, or lead to one. */
static int sockets_left(void)
{
    int count = 0;

    for (int fd = 3; fd < 256; fd++) {
        struct sockaddr_un own = {0}, peer = {0};
        socklen_t own_len = sizeof(own), peer_len = sizeof(peer);

        (void)getsockname(fd, (struct sockaddr *)&own, &own_len);
        (void)getpeername(fd, (struct sockaddr *)&peer, &peer_len);
        count += strncmp(own.sun_path, dir, strlen(dir)) == 0 ||
                 strncmp(peer.sun_path, dir, strlen(dir)) == 0;
    }
    return count;
}

/* One socket, however often it is opened: the driver cannot close it (server.c). */
static void a_server_that_is_opened_again_is_the_one_that_was_there(void **state)
{
    struct sl_dpdk_port *ports[SL_DPDK_PORTS_MAX];
    struct sl_dpdk_port_settings settings = {.rank = -1, .local_rank = -1};
    unsigned number = socket_number++;
    int before = sockets_left();
    struct port_end end;
    char list[200];
    size_t count;

    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        open_end(&end, wire("server", number), 0);
        port_end_close(&end);
        assert_int_equal(sockets_left(), before + 1);
    }
    snprintf(list, sizeof(list), "%s,bsize=4096", wire("server", number));
    settings.list = list;
    assert_int_equal(sl_dpdk_ports_get(&settings, ports, SL_DPDK_PORTS_MAX, &count), -EBUSY);
    snprintf(list, sizeof(list), "net_memif_y,role=server,id=6,socket=%s/%u.sock", dir, number);
    assert_int_equal(sl_dpdk_ports_get(&settings, ports, SL_DPDK_PORTS_MAX, &count), 0);
    sl_dpdk_ports_put(ports, count);
    assert_int_equal(sockets_left(), before + 1);
}

/* One that connects, as a client does, just before the server is closed. */
static void a_client_does_not_wait_for_a_server_that_was_closed(void **state)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    unsigned number = socket_number++;
    struct port_end end;

    (void)state;
    snprintf(address.sun_path, sizeof(address.sun_path), "%s/%u.sock", dir, number);
    for (unsigned i = 0; i < 10; i++) {
        struct pollfd client = {.fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0),
                                .events = POLLIN};

        open_end(&end, wire("server", number), 0);
        assert_int_equal(connect(client.fd, (struct sockaddr *)&address, sizeof(address)), 0);
        port_end_close(&end);
        open_end(&end, wire("server", number), 0);
        assert_int_equal(poll(&client, 1, 3000), 1);
        close(client.fd);
        port_end_close(&end);
    }
}

/* A socket as a server's whose process is stopped, with as many before it as it takes: a further
 * connect() waits. */
static void listen_in_vain(const char *path, int fds[3])
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    for (unsigned i = 0; i < 3; i++)
        fds[i] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fds[0], (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(fds[0], 1), 0); /* as the driver does */
    for (unsigned i = 1; i < 3; i++)
        assert_int_equal(connect(fds[i], (struct sockaddr *)&address, sizeof(address)), 0);
}

static void end_in_vain(const char *path, const int fds[3])
{
    unlink(path);
    for (unsigned i = 0; i < 3; i++)
        close(fds[i]);
}

static void a_client_waits_for_no_server_that_takes_no_connection(void **state)
{
    struct sl_dpdk_port *ports[SL_DPDK_PORTS_MAX];
    struct sl_dpdk_port_settings settings = {.rank = -1, .local_rank = -1};
    unsigned number = socket_number++;
    uint64_t before = sl_now(&sl_clock_monotonic);
    struct sl_dpdk_port_info info;
    struct port_spawned peer;
    struct port_end end;
    char path[128];
    size_t count;
    int fds[3];

    (void)state;
    snprintf(path, sizeof(path), "%s/%u.sock", dir, number);
    settings.list = wire("client", number);
    for (unsigned i = 0; i < 2; i++) { /* closed while it waits, or not */
        listen_in_vain(path, fds);
        open_end(&end, settings.list, 0);
        sl_dpdk_port_info(end.port, &info);
        assert_true(info.is_refused);
        if (i == 0) {
            port_end_close(&end);
            assert_int_equal(sl_dpdk_ports_get(&settings, ports, SL_DPDK_PORTS_MAX, &count),
                             -EBUSY);
            assert_non_null(strstr(sluice_last_error(), "is it stopped?"));
        }
        end_in_vain(path, fds);
        if (i == 0)
            usleep(50000); /* the driver hears that it was refused */
    }
    port_spawn(&peer, program, wire("server", number), "echo", 0);
    assert_true(port_spawn_meet(&peer, &end, 50000));
    exchange(&end, 20);
    sl_dpdk_port_info(end.port, &info);
    assert_false(info.is_refused);
    assert_int_equal(port_spawn_end(&peer), 0);
    port_end_close(&end);
    assert_true(sl_now(&sl_clock_monotonic) - before < 20 * SL_NS_PER_S);
}

/* Otherwise the peer would not notice when the parent ends. */
static void a_child_has_no_sockets_and_no_ports(void **state)
{
    static const char *const roles[] = {"server", "client"};
    struct sl_dpdk_port_settings settings = {.list = "net_ring0", .rank = -1, .local_rank = -1};
    struct sl_dpdk_port *ports[SL_DPDK_PORTS_MAX];
    size_t count;

    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        unsigned number = socket_number++;
        struct port_spawned peer;
        struct port_end end;
        int status;

        if (i == 0)
            open_end(&end, wire(roles[i], number), 0);
        port_spawn(&peer, program, wire(roles[!i], number), "echo", 0);
        if (i == 1)
            open_end(&end, wire(roles[i], number), 0);
        assert_true(port_spawn_meet(&peer, &end, 50000));
        exchange(&end, 5);
        assert_true(sockets_left() > 0);
        pid_t child = fork();
        if (child == 0) {
            int err = sl_dpdk_ports_get(&settings, ports, SL_DPDK_PORTS_MAX, &count);

            _exit(err == -ENOTSUP ? sockets_left() : 100);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        exchange(&end, 5);
        assert_int_equal(port_spawn_end(&peer), 0);
        port_end_close(&end);
    }
}

/* virtio_user tells its peer that it ends, by a socket of which the other end may be gone. */
static void closing_beside_a_dead_peer_raises_no_signal(void **state)
{
    char own[128], theirs[128];
    struct port_spawned peer;
    struct port_end end;
    sigset_t pending;

    (void)state;
    snprintf(own, sizeof(own), "net_virtio_user1,path=%s/w.sock,queues=1,in_order=1", dir);
    snprintf(theirs, sizeof(theirs), "net_vhost1,iface=%s/w.sock,queues=1", dir);
    port_spawn(&peer, program, theirs, "echo", 0);
    assert_int_equal(read(peer.from, &peer.hello, sizeof(peer.hello)), sizeof(peer.hello));
    open_end(&end, own, 0);
    assert_int_equal(write(peer.to, &end.own, sizeof(end.own)), sizeof(end.own));
    assert_int_equal(port_end_connect(&end, &peer.hello, 50000), 0);
    exchange(&end, 5);
    port_spawn_kill(&peer);
    assert_true(signal(SIGPIPE, SIG_DFL) == SIG_DFL);
    port_end_close(&end);
    assert_int_equal(sigpending(&pending), 0);
    assert_false(sigismember(&pending, SIGPIPE));
}

/* memif has no interrupts; vhost does. */
static void a_sleeper_wakes_when_packets_come(void **state)
{
    char own[128], theirs[128];
    struct port_spawned peer;
    struct port_end end;

    (void)state;
    snprintf(own, sizeof(own), "net_vhost0,iface=%s/v.sock,queues=1", dir);
    snprintf(theirs, sizeof(theirs), "net_virtio_user0,path=%s/v.sock,queues=1,in_order=1", dir);
    open_end(&end, own, 0);
    port_spawn(&peer, program, theirs, "echo", 0);
    assert_true(port_spawn_meet(&peer, &end, 50000));
    exchange(&end, 20);
    port_end_wait(&end, &end.came, UINT64_MAX, 100); /* all repeated ones are back */
    struct pollfd sleeper = {.fd = sl_dpdk_port_fd(end.port), .events = POLLIN};
    assert_true(sleeper.fd >= 0);
    sl_dpdk_port_disarm(end.port);
    assert_int_equal(sl_dpdk_port_arm(end.port), 0);
    port_end_poll(&end);
    uint64_t came = end.came;
    assert_int_equal(poll(&sleeper, 1, 20), 0);
    assert_int_equal(port_end_send(&end, payload, 100, false), 0);
    sl_dpdk_flush(end.user, end.port);
    assert_int_equal(poll(&sleeper, 1, 5000), 1);
    assert_true(port_end_wait(&end, &end.came, came + 1, 1000));
    sl_dpdk_port_disarm(end.port);
    assert_int_equal(poll(&sleeper, 1, 0), 0);
    assert_int_equal(port_spawn_end(&peer), 0);
    port_end_close(&end);
}

static void half_of_the_kills_as_server(void **state)
{
    kill_and_go_on("server", "client", *(unsigned *)*state / 2, 30000);
}

static void half_of_the_kills_as_client(void **state)
{
    kill_and_go_on("client", "server", *(unsigned *)*state / 2, 30000);
}

static int clean_up(void **state)
{
    char command[128];

    (void)state;
    snprintf(command, sizeof(command), "rm -rf %s", dir);
    return system(command);
}

int main(int argc, char **argv)
{
    static unsigned kills;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_server_waits_for_its_client),
        cmocka_unit_test(a_client_finds_a_server_that_starts_later),
        cmocka_unit_test(what_is_lent_takes_no_buffer_of_its_own),
        cmocka_unit_test(frames_longer_than_its_own_damage_none_behind_them),
        cmocka_unit_test(a_frame_longer_than_a_buffer_costs_the_connection_alone),
        cmocka_unit_test(a_client_waits_for_a_server_that_does_not_run),
        cmocka_unit_test(a_client_that_leaves_at_once_ends_no_server),
        cmocka_unit_test(while_the_link_is_down_packets_are_lost_and_what_was_lent_returns),
        cmocka_unit_test(a_server_survives_clients_that_are_killed_and_takes_the_next),
        cmocka_unit_test(a_client_survives_servers_that_are_killed_and_finds_the_next),
        cmocka_unit_test(a_mesh_of_three_starts_in_any_order),
        cmocka_unit_test(a_socket_that_somebody_listens_at_is_left_alone),
        cmocka_unit_test(a_server_that_is_opened_again_is_the_one_that_was_there),
        cmocka_unit_test(a_client_does_not_wait_for_a_server_that_was_closed),
        cmocka_unit_test(a_client_waits_for_no_server_that_takes_no_connection),
        cmocka_unit_test(a_child_has_no_sockets_and_no_ports),
        cmocka_unit_test(closing_beside_a_dead_peer_raises_no_signal),
        cmocka_unit_test(a_sleeper_wakes_when_packets_come),
    };
    const struct CMUnitTest many[] = {
        cmocka_unit_test_prestate(half_of_the_kills_as_server, &kills),
        cmocka_unit_test_prestate(half_of_the_kills_as_client, &kills),
    };

    if (argc < 2)
        return 2;
    program = argv[1];
    kills = argc > 2 ? (unsigned)atoi(argv[2]) : 0;
    if (getenv("PEER_LOG") != NULL)
        sl_log_configure(getenv("PEER_LOG"));
    snprintf(dir, sizeof(dir), "/tmp/sluice-memif-%d", (int)getpid());
    mkdir(dir, 0700);
    port_end_fill(payload, sizeof(payload));
    return kills > 0 ? cmocka_run_group_tests(many, NULL, clean_up)
                     : cmocka_run_group_tests(tests, NULL, clean_up);
}
