/* SPDX-License-Identifier: Apache-2.0 */
/* What communicators show on the state page: read by another process, by this one, and printed on
 * SIGUSR1. */
#include "crew.h"

#include "collectives/health.h"
#include "collectives/status.h"
#include "core/err.h"
#include "core/registry.h"
#include "core/state_page.h"
#include "core/state_text.h"
#include "tools/bench/status.h"

#include <sluice/sluice.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* A process with a communicator of one rank. Its stderr goes to *err; it lives until it is
 * killed. */
static pid_t start_child(const char *signal_setting, int *err)
{
    int ready[2], errors[2];
    char byte;

    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(errors), 0);
    pid_t pid = fork();

    if (pid == 0) {
        struct sluice_comm *comm;

        dup2(errors[1], STDERR_FILENO);
        setenv("SLUICE_STATUS_SIGNAL", signal_setting, 1);
        setenv("SLUICE_LAUNCHER", "none", 1);
        /* Twice: the handler must not call itself. */
        if (sluice_comm_from_env(&comm) != 0 || sluice_comm_from_env(&comm) != 0 ||
            write(ready[1], "", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    close(ready[1]);
    close(errors[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    *err = errors[0];
    return pid;
}

static void end_child(pid_t pid, int err)
{
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    close(err);
}

static void the_report_of_another_process_can_be_printed(void **state)
{
    char *text = NULL;
    size_t len = 0;
    int err;
    pid_t pid = start_child("off", &err);
    FILE *out = open_memstream(&text, &len);

    (void)state;
    assert_int_equal(sb_status((int)pid, NULL, out), 0);
    fclose(out);
    assert_non_null(strstr(text, "communicator of 1 ranks, this is rank 0"));
    assert_non_null(strstr(text, "nothing is under way"));
    free(text);
    end_child(pid, err);
}

static void a_process_without_communicator_and_none_at_all_are_told_apart(void **state)
{
    pid_t pid = fork();

    (void)state;
    if (pid == 0)
        for (;;)
            pause();
    assert_int_equal(sb_status((int)pid, NULL, stdout), -ENOENT);
    assert_non_null(strstr(sluice_last_error(), "has made no communicator"));
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(sb_status((int)pid, NULL, stdout), -ESRCH);
    assert_non_null(strstr(sluice_last_error(), "there is no process"));
}

static void sigusr1_prints_the_report_when_it_was_asked_for(void **state)
{
    char text[512] = "";
    int err;
    pid_t pid = start_child("on", &err);

    (void)state;
    kill(pid, SIGUSR1);
    assert_true(read(err, text, sizeof(text) - 1) > 0);
    assert_non_null(strstr(text, "communicator of 1 ranks"));
    assert_int_equal(waitpid(pid, NULL, WNOHANG), 0); /* it lives */
    end_child(pid, err);
}

static void sigusr1_is_the_programs_own_otherwise(void **state)
{
    int err, status;
    pid_t pid = start_child("auto", &err);

    (void)state;
    kill(pid, SIGUSR1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGUSR1);
    close(err);
}

/* ---- this process's own page ---- */

static struct sl_state_reader own_reader(void)
{
    struct sl_state_reader reader;
    size_t bytes;
    const void *page = sl_state_memory(&bytes);

    assert_non_null(page);
    assert_int_equal(sl_state_read_memory(page, bytes, &reader), 0);
    return reader;
}

/* Communicators on the page; the last one is left in *out. */
static unsigned count_shown(struct sl_state_comm *out)
{
    struct sl_state_reader reader = own_reader();
    unsigned shown = 0;

    for (uint32_t i = 0; i < sl_state_count(&reader, SL_STATE_COMM); i++) {
        struct sl_state_comm comm;

        if (sl_state_get(&reader, SL_STATE_COMM, i, &comm, sizeof(comm)) != SL_STATE_WHOLE ||
            comm.number == 0)
            continue;
        *out = comm;
        shown++;
    }
    return shown;
}

static struct sluice_comm *make_one(void)
{
    struct sluice_comm *comm;

    setenv("SLUICE_LAUNCHER", "none", 1);
    assert_int_equal(sluice_comm_from_env(&comm), 0);
    return comm;
}

/* The handler may be reading it in another thread. */
static void the_page_stays_and_places_are_used_again(void **state)
{
    struct sl_state_comm shown;
    size_t bytes;

    (void)state;
    sluice_comm_destroy(make_one());
    const void *page = sl_state_memory(&bytes);

    assert_non_null(page);
    for (int i = 0; i < 200; i++) { /* more than there are places */
        sluice_comm_destroy(make_one());
        assert_ptr_equal(sl_state_memory(&bytes), page);
    }
    assert_int_equal(count_shown(&shown), 0);
}

#define MANY (SL_STATE_COMMS + 6)

static void communicators_beyond_the_page_are_counted_and_come_when_there_is_room(void **state)
{
    struct sluice_comm *comms[MANY];
    struct sl_state_comm shown;

    (void)state;
    for (int i = 0; i < MANY; i++)
        comms[i] = make_one();
    struct sl_state_reader reader = own_reader();

    assert_int_equal(count_shown(&shown), SL_STATE_COMMS);
    assert_int_equal(sl_state_count_left_out(&reader, SL_STATE_COMM), 6);
    assert_int_equal(sluice_barrier(comms[MANY - 1], NULL), 0);
    sluice_comm_destroy(comms[0]);
    sl_status_refresh(comms[MANY - 1]);
    reader = own_reader();
    assert_int_equal(count_shown(&shown), SL_STATE_COMMS);
    assert_int_equal(sl_state_count_left_out(&reader, SL_STATE_COMM), 5);
    for (int i = 1; i < MANY; i++)
        sluice_comm_destroy(comms[i]);
    reader = own_reader();
    assert_int_equal(count_shown(&shown), 0);
    assert_int_equal(sl_state_count_left_out(&reader, SL_STATE_COMM), 0);
}

static void calls_are_counted_though_no_one_waits(void **state)
{
    struct sluice_comm *comm = make_one();
    struct sl_state_reader reader = own_reader();
    struct sl_state_comm shown;
    struct sl_state_shape shape;
    float in[3] = {1}, out[3];

    (void)state;
    for (int i = 0; i < 5; i++)
        assert_int_equal(sluice_allreduce(comm, in, out, 3, SLUICE_F32, SLUICE_MAX, NULL), 0);
    assert_int_equal(count_shown(&shown), 1);
    uint64_t begun = atomic_load(&shown.calls.begun[0]);

    assert_int_equal(begun & 0xffffffffffff, 5);
    assert_int_equal(atomic_load(&shown.calls.ended[0]), 5);
    assert_int_equal(sl_state_get(&reader, SL_STATE_SHAPE,
                                  (uint32_t)(begun >> SL_STATE_SHAPE_SHIFT) - 1, &shape,
                                  sizeof(shape)),
                     SL_STATE_WHOLE);
    assert_string_equal(shape.coll, "allreduce");
    assert_string_equal(shape.redop, "max");
    assert_int_equal(shape.bytes, 12);
    assert_int_equal(shape.comm, shown.number);
    sluice_comm_destroy(comm);
}

static bool keep_line(void *arg, const char *text, size_t len)
{
    return fwrite(text, 1, len, arg) == len;
}

static _Atomic int phase;

/* Rank 0 waits; rank 1 looks at the page until it shows for whom, then joins. */
static void wait_for_each_other(struct sluice_comm *comm, int rank)
{
    int32_t x = 1;

    if (rank == 0) {
        CREW_EXPECT(sluice_broadcast(comm, &x, &x, 1, SLUICE_I32, 1, NULL) == 0);
        atomic_store(&phase, 2);
        return;
    }
    for (uint64_t end = sl_now(&sl_clock_monotonic) + 10 * SL_NS_PER_S;
         atomic_load(&phase) == 0 && sl_now(&sl_clock_monotonic) < end;) {
        struct sl_state_reader reader = own_reader();
        char *text = NULL;
        size_t len;
        FILE *out = open_memstream(&text, &len);

        sl_state_text_comms(&reader, keep_line, out);
        fclose(out);
        if (strstr(text, "broadcast number 1 (1 i32, root 1, ") != NULL &&
            strstr(text, " rank 1 by ") != NULL)
            atomic_store(&phase, 1);
        free(text);
    }
    CREW_EXPECT(atomic_load(&phase) == 1);
    CREW_EXPECT(sluice_broadcast(comm, &x, &x, 1, SLUICE_I32, 1, NULL) == 0);
}

static void an_operation_that_waits_is_shown_and_gone_when_it_is_over(void **state)
{
    struct sl_state_comm shown;
    struct crew crew = {.ranks = 2,
                        .settings = "",
                        .ops = {sl_transport_find("shm", 3), sl_transport_find("shm", 3)}};

    (void)state;
    RUN_CREW(&crew, wait_for_each_other);
    assert_int_equal(atomic_load(&phase), 2);
    struct sl_state_reader reader = own_reader();

    for (uint32_t i = 0; i < sl_state_count(&reader, SL_STATE_OP); i++) {
        struct sl_state_op op;

        sl_state_get(&reader, SL_STATE_OP, i, &op, sizeof(op));
        assert_int_equal(op.comm, 0);
    }
    assert_int_equal(count_shown(&shown), 0);
}

static uint64_t ids[2];

static void break_it(struct sluice_comm *comm, int rank)
{
    ids[rank] = comm->id;
    if (rank == 1)
        sluice_comm_abort(comm);
    int err = 0;

    /* Barriers that need not be waited for end well until the abort is looked at. */
    for (unsigned i = 0; i < 1000000 && err == 0; i++)
        err = sluice_barrier(comm, NULL);
    CREW_EXPECT(err == -ECANCELED);
    struct sl_state_comm shown;
    size_t bytes;
    struct sl_state_reader reader;

    const void *page = sl_state_memory(&bytes);

    CREW_EXPECT(sl_state_read_memory(page, bytes, &reader) == 0);
    CREW_EXPECT(sl_state_get(&reader, SL_STATE_COMM, comm->state_place - 1u, &shown,
                             sizeof(shown)) == SL_STATE_WHOLE);
    CREW_EXPECT(shown.error == -ECANCELED && shown.rank == (uint32_t)rank);
    CREW_EXPECT((shown.flags & SL_STATE_TORN_DOWN) != 0 && shown.connected == 0);
    CREW_EXPECT(strstr(shown.error_text, "rank 1 aborted the communicator") != NULL);
    CREW_EXPECT(shown.id == comm->id);
}

static char long_text[1901];

static void fill_long_text(void)
{
    memset(long_text, 'x', sizeof(long_text) - 1);
    long_text[0] = '<', long_text[sizeof(long_text) - 2] = '>';
}

/* Of the communicator, on the page. */
static uint64_t number_of(const struct sluice_comm *comm)
{
    struct sl_state_comm shown;
    struct sl_state_reader reader;
    size_t bytes;
    const void *page = sl_state_memory(&bytes);

    if (sl_state_read_memory(page, bytes, &reader) != 0 ||
        sl_state_get(&reader, SL_STATE_COMM, comm->state_place - 1u, &shown, sizeof(shown)) !=
            SL_STATE_WHOLE)
        return 0;
    return shown.number;
}

static bool add_line(void *arg, const char *text, size_t len)
{
    char *out = arg;
    size_t used = strlen(out);

    snprintf(out + used, 2 * SL_STATE_LINE - used, "%.*s", (int)len, text);
    return true;
}

static void break_with_many_words(struct sluice_comm *comm, int rank)
{
    static char shown[2][2 * SL_STATE_LINE];
    struct sl_state_error error;
    struct sl_state_reader reader;
    size_t bytes;
    const void *page = sl_state_memory(&bytes);

    if (rank == 1) {
        CREW_EXPECT(sluice_barrier(comm, NULL) < 0);
        return;
    }
    sl_comm_fail(comm, -EBADMSG, 1, "%s", long_text);
    sl_health_tear_down(comm);
    CREW_EXPECT(sluice_barrier(comm, NULL) == -EBADMSG);
    CREW_EXPECT(sl_state_read_memory(page, bytes, &reader) == 0);
    CREW_EXPECT(sl_state_get_error(&reader, number_of(comm), &error));
    CREW_EXPECT(error.code == -EBADMSG && error.culprit == 1 && strcmp(error.area, "comm") == 0);
    CREW_EXPECT(strcmp(error.text, sluice_last_error()) == 0);
    CREW_EXPECT(strstr(error.text, long_text) != NULL);
    CREW_EXPECT(sl_state_text_comms(&reader, add_line, shown[rank]));
    CREW_EXPECT(strstr(shown[rank], long_text) != NULL);
}

static void an_error_of_any_length_is_shown_whole(void **state)
{
    struct crew crew = {.ranks = 2,
                        .settings = "",
                        .ops = {sl_transport_find("shm", 3), sl_transport_find("shm", 3)}};

    (void)state;
    fill_long_text();
    RUN_CREW(&crew, break_with_many_words);
}

static struct sl_transport_ops refusing;

static int open_refusing(struct sl_worker *worker, const struct sl_device *dev,
                         const struct sl_handler *handler, struct sl_iface **out)
{
    int err = sl_transport_find("shm", 3)->open(worker, dev, handler, out);

    if (err == 0)
        (*out)->ops = &refusing;
    return err;
}

static int refuse_with_many_words(struct sl_iface *iface, struct sl_ep **out)
{
    (void)iface, (void)out;
    return sl_fail(-ENODEV, "%s", long_text);
}

static void hear_of_no_transport(struct sluice_comm *comm, int rank)
{
    CREW_EXPECT(comm == NULL && sluice_error_code() == -EHOSTUNREACH);
    CREW_EXPECT(strncmp(sluice_last_error(), "no transport connects ranks 0 and 1; shm: <", 43) ==
                0);
    CREW_EXPECT(strstr(sluice_last_error(), long_text) != NULL);
}

/* The reason crosses from the end that has it to the other one. */
static void why_no_transport_connects_is_told_whole(void **state)
{
    const struct sl_transport_ops *shm = sl_transport_find("shm", 3);

    (void)state;
    refusing = *shm;
    refusing.open = open_refusing;
    refusing.ep_create = refuse_with_many_words;
    fill_long_text();
    for (int i = 0; i < 2; i++) {
        struct crew crew = {.ranks = 2, .settings = "", .ops = {shm, shm}, .may_fail = true};

        crew.ops[i] = &refusing;
        RUN_CREW(&crew, hear_of_no_transport);
    }
}

/* ---- paths ---- */

#define PEERS 7 /* of each of 8 ranks */
#define EACH 14 /* paths of a peer: 784 in all */
#define MOST 65 /* that are shown of one */

/* What the endpoints of this rank tell. */
static _Thread_local unsigned path_count;
static _Thread_local uint64_t carried;

static size_t made_up_paths(const struct sl_ep *ep, struct sl_state_path *out, size_t cap)
{
    for (unsigned i = 0; i < path_count && i < cap; i++) {
        out[i] = (struct sl_state_path){
            .peer = ep->peer, .number = (int32_t)i, .sent_bytes = carried, .state = "up"};
        snprintf(out[i].name, sizeof(out[i].name), "made up %u", i);
    }
    return path_count;
}

/* Paths of that communicator (its number) that have carried so much; each is there once. */
static int count_paths(uint64_t number, uint64_t bytes)
{
    struct sl_state_reader reader = own_reader();
    unsigned seen[PEERS + 1][MOST + 4] = {0};
    int count = 0;

    for (uint32_t i = 0; i < sl_state_count(&reader, SL_STATE_PATH); i++) {
        struct sl_state_path path;

        if (sl_state_get(&reader, SL_STATE_PATH, i, &path, sizeof(path)) != SL_STATE_WHOLE ||
            path.comm == 0 || path.comm != number)
            continue;
        if (seen[path.peer][path.number]++ != 0)
            return -1;
        count += path.sent_bytes == bytes;
    }
    return count;
}

static struct sl_state_comm record_of(const struct sluice_comm *comm)
{
    struct sl_state_reader reader = own_reader();
    struct sl_state_comm record;

    sl_state_get(&reader, SL_STATE_COMM, comm->state_place - 1u, &record, sizeof(record));
    return record;
}

/* Every rank connects to every other. */
static void meet_all(struct sluice_comm *comm, int rank)
{
    int32_t x = rank, y;

    for (int k = 1; k <= PEERS; k++)
        for (int i = 0; i < 2; i++) {
            int err = (rank < (rank ^ k)) == (i == 0)
                          ? sluice_send(comm, &x, 1, SLUICE_I32, rank ^ k, NULL)
                          : sluice_recv(comm, &y, 1, SLUICE_I32, rank ^ k, NULL);

            CREW_EXPECT(err == 0);
        }
}

static void have_many_paths(struct sluice_comm *comm, int rank)
{
    static struct sl_transport_ops ops[PEERS + 1];
    static atomic_int through;
    struct sluice_comm *child;

    meet_all(comm, rank);
    struct sl_iface *iface = sl_comm_peer(comm, (uint32_t)!rank)->ep->iface;
    uint64_t number = record_of(comm).number;

    ops[rank] = *iface->ops;
    ops[rank].ep_stats = made_up_paths;
    iface->ops = &ops[rank];

    path_count = EACH;
    carried = 1;
    sl_status_publish(comm);
    CREW_EXPECT(count_paths(number, 1) == PEERS * EACH);

    carried = 2; /* in turns: whole peers, until they are 32 */
    sl_status_refresh(comm);
    CREW_EXPECT(count_paths(number, 2) == 3 * EACH);
    sl_status_refresh(comm);
    CREW_EXPECT(count_paths(number, 2) == 6 * EACH);
    sl_status_refresh(comm);
    CREW_EXPECT(count_paths(number, 2) == 7 * EACH);

    path_count = MOST + 4;
    sl_status_publish(comm);
    CREW_EXPECT(count_paths(number, 2) == PEERS * MOST);
    CREW_EXPECT(record_of(comm).paths_left_out == PEERS * 4);
    path_count = 1;
    sl_status_publish(comm);
    CREW_EXPECT(count_paths(number, 2) == PEERS && record_of(comm).paths_left_out == 0);

    /* Whoever waits shows what it uses, and no path is shown twice. */
    CREW_EXPECT(sluice_comm_split(comm, 0, rank, &child) == 0);
    meet_all(child, rank);
    carried = 3;
    sl_status_refresh(child);
    CREW_EXPECT(count_paths(number, 3) == PEERS);
    CREW_EXPECT(count_paths(record_of(child).number, 3) == 0);
    sluice_comm_destroy(child);
    CREW_EXPECT(count_paths(number, 3) == PEERS);

    /* What they did stays to be read when the endpoints are gone. */
    CREW_EXPECT(sluice_barrier(comm, NULL) == 0);
    carried = 4;
    atomic_fetch_add(&through, 1);
    while (rank == 1 && atomic_load(&through) <= PEERS) /* an abort overtakes the barrier */
        sl_comm_progress(comm);
    if (rank == 1)
        sluice_comm_abort(comm);
    for (unsigned i = 0; i < 1000000 && sluice_barrier(comm, NULL) == 0; i++)
        ;
    CREW_EXPECT(sl_comm_peer(comm, (uint32_t)!rank)->ep == NULL);
    CREW_EXPECT(count_paths(number, 4) == PEERS);
    sl_status_publish(comm);
    CREW_EXPECT(count_paths(number, 4) == PEERS);
}

static void all_paths_are_shown_in_turns_and_to_the_end(void **state)
{
    struct crew crew = {.ranks = PEERS + 1, .settings = ""};
    struct sl_state_reader reader;

    (void)state;
    for (int i = 0; i <= PEERS; i++)
        crew.ops[i] = sl_transport_find("tcp", 3);
    RUN_CREW(&crew, have_many_paths);
    reader = own_reader();
    assert_true(sl_state_count(&reader, SL_STATE_PATH) > 48);
    for (uint32_t i = 0; i < sl_state_count(&reader, SL_STATE_PATH); i++) {
        struct sl_state_path path;

        sl_state_get(&reader, SL_STATE_PATH, i, &path, sizeof(path));
        assert_int_equal(path.comm, 0);
    }
}

#define CROWD 36 /* ranks: more peers than are asked at once */

static _Thread_local unsigned asked;

static size_t count_asked(const struct sl_ep *ep, struct sl_state_path *out, size_t cap)
{
    (void)ep, (void)out, (void)cap;
    asked++;
    return 0;
}

static void have_many_peers(struct sluice_comm *comm, int rank)
{
    static struct sl_transport_ops ops;
    int32_t x = 0;

    if (rank != 0) {
        CREW_EXPECT(sluice_recv(comm, &x, 1, SLUICE_I32, 0, NULL) == 0);
        CREW_EXPECT(sluice_barrier(comm, NULL) == 0); /* until rank 0 has looked */
        return;
    }
    for (int to = 1; to < CROWD; to++)
        CREW_EXPECT(sluice_send(comm, &x, 1, SLUICE_I32, to, NULL) == 0);
    struct sl_iface *iface = sl_comm_peer(comm, 1)->ep->iface;

    ops = *iface->ops;
    ops.ep_stats = count_asked;
    iface->ops = &ops;
    sl_status_publish(comm);
    CREW_EXPECT(asked == CROWD - 1);
    asked = 0;
    sl_status_refresh(comm);
    CREW_EXPECT(asked > 16 && asked <= 32); /* itself is one of those in turn */
    sl_status_refresh(comm);
    CREW_EXPECT(asked == CROWD - 1);
    CREW_EXPECT(sluice_barrier(comm, NULL) == 0);
}

static void peers_without_paths_are_asked_in_turns_too(void **state)
{
    struct crew crew = {.ranks = CROWD, .settings = ""};

    (void)state;
    for (int i = 0; i < CROWD; i++)
        crew.ops[i] = sl_transport_find("tcp", 3);
    RUN_CREW(&crew, have_many_peers);
}

static void a_communicator_that_broke_says_why_at_once(void **state)
{
    struct crew crew = {.ranks = 2,
                        .settings = "",
                        .ops = {sl_transport_find("shm", 3), sl_transport_find("shm", 3)}};

    (void)state;
    RUN_CREW(&crew, break_it);
    assert_int_equal(ids[0], ids[1]);
    assert_true(ids[0] != 0);
}

static void state_off_shows_nothing_and_works(void **state)
{
    struct sluice_comm *comm;
    struct sl_state_comm shown;
    unsigned before = count_shown(&shown);

    (void)state;
    setenv("SLUICE_STATE", "off", 1);
    comm = make_one();
    unsetenv("SLUICE_STATE");
    assert_int_equal(count_shown(&shown), before);
    assert_int_equal(sluice_barrier(comm, NULL), 0);
    sluice_comm_destroy(comm);
}

/* ---- signals ---- */

/* Fills the pipe behind the descriptor. */
static void fill(int fd)
{
    char byte = 0;

    assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    while (write(fd, &byte, 1) == 1)
        ;
    assert_int_equal(fcntl(fd, F_SETFL, 0), 0);
}

static void a_full_pipe_does_not_stop_a_process_that_is_asked(void **state)
{
    int after[2], errors[2];

    assert_int_equal(pipe(after), 0);
    assert_int_equal(pipe(errors), 0);
    pid_t pid = fork();

    if (pid == 0) {
        struct sluice_comm *comm;

        setenv("SLUICE_STATUS_SIGNAL", "on", 1);
        setenv("SLUICE_LAUNCHER", "none", 1);
        if (sluice_comm_from_env(&comm) != 0)
            _exit(1);
        fill(errors[1]);
        dup2(errors[1], STDERR_FILENO);
        raise(SIGUSR1);
        _exit(write(after[1], "", 1) == 1 ? 0 : 2);
    }
    struct pollfd wait = {.fd = after[0], .events = POLLIN};

    close(after[1]);
    assert_int_equal(poll(&wait, 1, 10000), 1);
    assert_true((wait.revents & POLLIN) != 0);
    end_child(pid, errors[0]);
    close(errors[1]);
    close(after[0]);
}

static void a_limit_of_file_sizes_costs_the_report_alone(void **state)
{
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        struct rlimit none = {0, 0};
        struct sluice_comm *comm;

        setenv("SLUICE_LAUNCHER", "none", 1);
        if (setrlimit(RLIMIT_FSIZE, &none) != 0 || sluice_comm_from_env(&comm) != 0)
            _exit(1);
        size_t bytes;

        _exit(sl_state_memory(&bytes) == NULL && sluice_barrier(comm, NULL) == 0 ? 0 : 2);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_report_of_another_process_can_be_printed),
        cmocka_unit_test(a_process_without_communicator_and_none_at_all_are_told_apart),
        cmocka_unit_test(sigusr1_prints_the_report_when_it_was_asked_for),
        cmocka_unit_test(sigusr1_is_the_programs_own_otherwise),
        cmocka_unit_test(a_full_pipe_does_not_stop_a_process_that_is_asked),
        cmocka_unit_test(a_limit_of_file_sizes_costs_the_report_alone),
        cmocka_unit_test(the_page_stays_and_places_are_used_again),
        cmocka_unit_test(communicators_beyond_the_page_are_counted_and_come_when_there_is_room),
        cmocka_unit_test(calls_are_counted_though_no_one_waits),
        cmocka_unit_test(an_operation_that_waits_is_shown_and_gone_when_it_is_over),
        cmocka_unit_test(all_paths_are_shown_in_turns_and_to_the_end),
        cmocka_unit_test(peers_without_paths_are_asked_in_turns_too),
        cmocka_unit_test(a_communicator_that_broke_says_why_at_once),
        cmocka_unit_test(an_error_of_any_length_is_shown_whole),
        cmocka_unit_test(why_no_transport_connects_is_told_whole),
        cmocka_unit_test(state_off_shows_nothing_and_works),
    };

    return cmocka_run_group_tests_name("status", tests, NULL, NULL);
}
