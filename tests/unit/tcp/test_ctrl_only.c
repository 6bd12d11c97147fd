/* SPDX-License-Identifier: Apache-2.0 */
/* Endpoints that have control messages alone, as beside RDMA paths: one socket each. */
#include "wire_peer.h"

#include "core/err.h"
#include "tcp/tcp.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <cmocka.h>

static const char *engine;

static struct stage {
    struct sl_transport_ops ops;
    struct sl_config config[2];
    struct sl_worker worker[2];
    struct sl_iface *iface[2];
    struct sl_ep *ep[2];
    struct sl_req connect[2];
    unsigned heard[2], downs[2], connected_before;
    bool left;
} stage;

/* Of this process. */
static unsigned connected_sockets(void)
{
    DIR *dir = opendir("/proc/self/fd");
    const struct dirent *entry;
    unsigned count = 0;

    assert_non_null(dir);
    while ((entry = readdir(dir)) != NULL) {
        struct sockaddr_storage peer;
        socklen_t len = sizeof(peer);

        count += getpeername(atoi(entry->d_name), (struct sockaddr *)&peer, &len) == 0 &&
                 (peer.ss_family == AF_INET || peer.ss_family == AF_INET6);
    }
    closedir(dir);
    return count - stage.connected_before;
}

static void on_ctrl(void *arg, struct sl_ep *ep, const void *msg, size_t len)
{
    unsigned side = ep == stage.ep[1];
    uint32_t word;

    (void)arg;
    assert_int_equal(len, sizeof(word));
    memcpy(&word, msg, sizeof(word));
    assert_int_equal(word, stage.heard[side]++);
}

static void on_down(void *arg, struct sl_ep *ep, int status, const char *why)
{
    (void)arg, (void)status, (void)why;
    stage.downs[ep == stage.ep[1]]++;
    stage.left = ep->left;
}

#define UNTIL(cond)                                                                                \
    do {                                                                                           \
        uint64_t end_ns = sl_now(&sl_clock_monotonic) + 20 * SL_NS_PER_S;                          \
                                                                                                   \
        while (!(cond)) {                                                                          \
            for (unsigned n = 0; n < 2; n++)                                                       \
                assert_true(stage.ops.progress(stage.iface[n], 16) >= 0);                          \
            if (sl_now(&sl_clock_monotonic) > end_ns)                                              \
                fail_msg("timed out waiting for %s", #cond);                                       \
        }                                                                                          \
    } while (0)

static void open_ends(bool other_too)
{
    struct sl_addr addr[2];

    memset(&stage, 0, sizeof(stage));
    stage.connected_before = connected_sockets();
    sl_transport_complete(&sl_tcp_ops, &stage.ops);
    for (unsigned i = 0; i < 2; i++) {
        const struct sl_handler handler = {
            .ctrl = on_ctrl, .down = on_down, .ctrl_only = i == 0 || other_too};

        sl_config_defaults(&stage.config[i]);
        assert_int_equal(sl_config_set(&stage.config[i], "TCP_ENGINE", engine), 0);
        assert_int_equal(sl_config_set(&stage.config[i], "INTERFACE", "lo"), 0);
        assert_int_equal(sl_config_set(&stage.config[i], "TCP_CONNECTIONS", "3"), 0);
        stage.worker[i] = (struct sl_worker){.clock = &sl_clock_monotonic,
                                             .config = &stage.config[i],
                                             .rank = (int)i,
                                             .has_session = true,
                                             .session = {7}};
        assert_int_equal(stage.ops.open(&stage.worker[i], NULL, &handler, &stage.iface[i]), 0);
        assert_int_equal(stage.ops.ep_create(stage.iface[i], &stage.ep[i]), 0);
        stage.ep[i]->peer = (int)!i;
        assert_int_equal(stage.ops.ep_addr(stage.ep[i], &addr[i]), 0);
    }
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(stage.ops.ep_connect(stage.ep[i], &addr[!i], &stage.connect[i]), 0);
    UNTIL(stage.connect[0].status == 0 && stage.connect[1].status == 0);
}

static int fresh(void **state)
{
    (void)state;
    open_ends(true);
    return 0;
}

static int clean(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        stage.ops.ep_destroy(stage.ep[i]);
        stage.ops.close(stage.iface[i]);
    }
    return 0;
}

static void talk(void)
{
    uint32_t end = stage.heard[0] + 20;

    for (unsigned i = 0; i < 2; i++)
        for (uint32_t word = stage.heard[!i]; word < end; word++)
            UNTIL(stage.ops.ctrl(stage.ep[i], &word, sizeof(word)) == 0);
    UNTIL(stage.heard[0] == end && stage.heard[1] == end);
}

static void each_end_has_one_socket(void **state)
{
    (void)state;
    assert_int_equal(connected_sockets(), 2);
    talk();
}

static void also_where_the_other_one_would_have_more(void **state)
{
    (void)state;
    open_ends(false);
    assert_int_equal(connected_sockets(), 2);
    talk();
}

static void also_after_it_was_dialled_again(void **state)
{
    (void)state;
    talk();
    assert_int_equal(shutdown(sl_tcp_ep_of(stage.ep[0])->conns[0].watch.fd, SHUT_RDWR), 0);
    UNTIL(stage.downs[0] == 1 && stage.downs[1] == 1);
    for (unsigned i = 0; i < 2; i++) {
        stage.connect[i].status = SL_PENDING;
        assert_int_equal(stage.ops.ep_redial(stage.ep[i], &stage.connect[i], &stage.ep[i]), 0);
    }
    UNTIL(stage.connect[0].status == 0 && stage.connect[1].status == 0);
    assert_int_equal(connected_sockets(), 2);
    talk();
}

/* No message can come behind it, and no socket of another end has to end first. */
static void a_farewell_is_the_end(void **state)
{
    (void)state;
    talk();
    stage.ops.ep_destroy(stage.ep[1]);
    stage.ep[1] = NULL;
    UNTIL(stage.downs[0] == 1);
    assert_true(stage.left);
}

int main(int argc, char **argv)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, fresh, clean)
    const struct CMUnitTest tests[] = {
        CASE(each_end_has_one_socket),
        cmocka_unit_test_teardown(also_where_the_other_one_would_have_more, clean),
        CASE(also_after_it_was_dialled_again),
        CASE(a_farewell_is_the_end),
    };

    engine = argc > 1 ? argv[1] : "epoll";
    return cmocka_run_group_tests(tests, NULL, NULL);
}
