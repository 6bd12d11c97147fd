/* SPDX-License-Identifier: Apache-2.0 */
/* Who is on this host, and who has a secret. */
#include "meeting.h"

#include "core/err.h"
#include "launch/launch.h"
#include "launch/nearby.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <cmocka.h>
#include <unistd.h>

/* A process of another user. Forked before this one has a second thread: a child that is forked
 * beside a thread may find locks that nobody gives back, malloc's among them. */
static pid_t fork_as_user(uid_t uid, void (*act_as)(void *arg), void *arg)
{
    fflush(NULL);
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        if (setgid(uid) != 0 || setuid(uid) != 0)
            _exit(77);
        act_as(arg);
        _exit(0);
    }
    return pid;
}

static void assert_child_went_well(pid_t pid)
{
    int status;

    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void try_to_join(void *arg)
{
    uint16_t port = *(uint16_t *)arg;
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    struct actor me = {.party = {1, 2, "job", "", 300},
                       .root = {.host = "127.0.0.1", .port = port}};
    struct sl_exchange *exchange;
    char name[SL_NEARBY_NAME_MAX], byte;
    int fd;

    /* Decently: it sees itself that rank 0 is somebody else's. */
    if (sl_rendezvous_join(&me.party, &(struct sl_places){.root = &me.root}, &exchange) == 0 ||
        strstr(sluice_last_error(), "not one of user") == NULL)
        _exit(1);
    /* And by force. */
    sl_nearby_name(port, name);
    memcpy(to.sun_path + 1, name + 1, strlen(name) - 1);
    fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (connect(fd, (struct sockaddr *)&to,
                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name))) != 0)
        _exit(2);
    if (recv(fd, &byte, 1, 0) > 0)
        _exit(3);
}

static void prepare_on_this_host(const char *secret)
{
    struct sl_root root;

    prepare(2, 20000, secret);
    sl_listeners_close(&actors[0].listeners);
    root = actors[0].root;
    assert_int_equal(sl_listen_root(&root, *secret != '\0', &actors[0].listeners), 0);
}

static void another_user_of_this_host_does_not_join(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        print_message("skipped: only root can become another user\n");
        skip();
    }
    prepare_on_this_host("");
    assert_int_equal(actors[0].listeners.count, 0); /* no TCP, where nobody proves who he is */
    pid_t stranger = fork_as_user(65534, try_to_join, &actors[0].root.port);

    go(0);
    assert_child_went_well(stranger);
    assert_true(said(last_refusal, "of user 65534: rank 0 belongs to user 0"));
    go(1);
    wait_for(1);
    wait_for(0);
    assert_went_well(2);
}

struct squat {
    uint16_t port;
    int told[2], end[2];
};

static void hold_name(void *arg)
{
    struct squat *squat = arg;
    char byte = 0, name[SL_NEARBY_NAME_MAX];
    int fd;

    close(squat->end[1]); /* its reader sees the end when the parent closes its own */
    sl_nearby_name(squat->port, name);
    if (sl_nearby_listen(name, &fd) != 0)
        _exit(1);
    (void)!write(squat->told[1], &byte, 1);
    (void)!read(squat->end[0], &byte, 1);
}

static void another_user_who_has_the_name_is_not_rank_0(void **state)
{
    struct squat squat;
    struct sl_listeners listeners;
    struct sl_root root;
    char byte;

    (void)state;
    if (geteuid() != 0) {
        print_message("skipped: only root can become another user\n");
        skip();
    }
    prepare(2, 600, "");
    sl_listeners_close(&actors[0].listeners);
    squat.port = actors[0].root.port;
    assert_int_equal(pipe(squat.told), 0);
    assert_int_equal(pipe(squat.end), 0);
    pid_t squatter = fork_as_user(65534, hold_name, &squat);

    close(
        squat.told[1]); /* the squatter's is the last: its end is seen if it does not get so far */
    assert_int_equal(read(squat.told[0], &byte, 1), 1);

    root = actors[0].root;
    assert_int_equal(sl_listen_root(&root, false, &listeners), -EACCES);
    assert_non_null(strstr(sluice_last_error(), "of user 65534 has the name @sluice-meet-"));
    assert_int_equal(sl_listen_root(&root, true, &listeners),
                     0); /* who proves himself may use TCP */
    assert_true(listeners.count > 0 && !listeners.has_nearby);
    sl_listeners_close(&listeners);
    root.more = 3; /* derived places have more */
    assert_int_equal(sl_listen_root(&root, false, &listeners), 0);
    assert_true(listeners.port > root.port && listeners.has_nearby && listeners.count == 0);
    sl_listeners_close(&listeners);

    go(1); /* a rank does not take him for rank 0 */
    wait_for(1);
    assert_int_equal(actors[1].err, -ETIMEDOUT);
    assert_non_null(strstr(actors[1].why, "of user 65534 has the name @sluice-meet-"));
    close(squat.end[1]);
    assert_child_went_well(squatter);
    close(squat.end[0]);
    close(squat.told[0]);
}

static void two_jobs_of_one_user_do_not_share_a_place(void **state)
{
    struct sl_listeners second;
    struct sl_root root;

    (void)state;
    prepare_on_this_host("");
    root = actors[0].root;
    assert_int_equal(sl_listen_root(&root, false, &second), -EADDRINUSE);
    assert_non_null(strstr(sluice_last_error(), "has the name @sluice-meet-"));
    sl_listeners_close(&actors[0].listeners);
}

static int launch_alone(const char *secret, int64_t require)
{
    struct sl_exchange *exchange;
    struct sl_listeners place;
    struct sl_config config;

    sl_config_defaults(&config);
    assert_int_equal(sl_listen_any("", NULL, &place), 0); /* for a port that is free */
    sl_listeners_close(&place);
    config.rank = 0;
    config.size = 2;
    config.connect_timeout_ms = 50;
    config.require_secret = require;
    snprintf(config.root, sizeof(config.root), "127.0.0.1:%u", place.port);
    snprintf(config.secret, sizeof(config.secret), "%s", secret);
    last_warning[0] = '\0';
    return sl_launch(&config, NULL, &exchange);
}

static void a_secret_can_be_demanded_and_should_be_long(void **state)
{
    (void)state;
    assert_int_equal(launch_alone("", SL_ON), -EINVAL);
    assert_non_null(strstr(sluice_last_error(), "SLUICE_REQUIRE_SECRET is on"));
    assert_int_equal(launch_alone("", SL_OFF), -ETIMEDOUT);
    assert_string_equal(last_warning, ""); /* users are compared */
    assert_int_equal(launch_alone("fifteen letters", SL_ON), -ETIMEDOUT);
    assert_true(said(last_warning, "the secret has 15 characters"));
    assert_int_equal(launch_alone("sixteen letters!", SL_ON), -ETIMEDOUT);
    assert_string_equal(last_warning, "");
}

/* TCP without a secret is said, on loopback too. */
static void a_meeting_that_anybody_could_join_is_warned_of(void **state)
{
    (void)state;
    prepare(2, 20000, "");
    last_warning[0] = '\0';
    all_act(2);
    assert_went_well(2);
    assert_true(said(last_warning, "anyone on this host can join"));
}

/* A rank that took the lack of descriptors for a lack of unix sockets would ask by TCP, where
 * anybody may answer. */
static void without_descriptors_unix_sockets_are_possible_all_the_same(void **state)
{
    struct rlimit old, none;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    none = (struct rlimit){0, old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    bool possible = sl_nearby_possible();
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    assert_true(possible);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_user_of_this_host_does_not_join),
        cmocka_unit_test(another_user_who_has_the_name_is_not_rank_0),
        cmocka_unit_test(two_jobs_of_one_user_do_not_share_a_place),
        cmocka_unit_test(a_secret_can_be_demanded_and_should_be_long),
        cmocka_unit_test(a_meeting_that_anybody_could_join_is_warned_of),
        cmocka_unit_test(without_descriptors_unix_sockets_are_possible_all_the_same),
    };

    sl_log_set_sink(meeting_log, NULL);
    return cmocka_run_group_tests_name("users", tests, NULL, NULL);
}
