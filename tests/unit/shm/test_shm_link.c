/* SPDX-License-Identifier: Apache-2.0 */
/* Connections: strangers, other versions, other hosts, and limits that are met. */
#include "tests/unit/shm/side.h"
#include "shm/config.h"

#include "core/log.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

static char logged[16384];
static unsigned logged_lines;

static void keep_line(void *arg, enum sl_log_level level, const char *area, const char *line)
{
    (void)arg, (void)level, (void)area;
    strncat(logged, line, sizeof(logged) - strlen(logged) - 1);
    logged_lines++;
}

static struct rlimit descriptors;

static int log_kept(void **state)
{
    (void)state;
    getrlimit(RLIMIT_NOFILE, &descriptors);
    logged[0] = '\0';
    logged_lines = 0;
    sl_log_set_sink(keep_line, NULL);
    return 0;
}

static int log_back(void **state)
{
    (void)state;
    setrlimit(RLIMIT_NOFILE, &descriptors); /* a case that failed may have left less */
    sl_log_set_sink(NULL, NULL);
    return 0;
}

/* A bare connection to s's socket. */
static int stranger(struct side *s)
{
    struct shm_iface *iface = shm_iface_of(s->iface);
    int fd = -1;

    assert_int_equal(shm_dial(iface->name, iface->name_len, &fd), 0);
    return fd;
}

/* Until the other end of fd has closed; a refusal may come first. */
static bool turned_away(int fd)
{
    struct shm_msg msg;
    int fds[SHM_FDS_MAX];
    unsigned count;
    size_t body;
    int err = shm_take(fd, &msg, &body, fds, &count);

    return err == -ECONNRESET;
}

static void garbage_is_refused_and_disturbs_nobody(void **state)
{
    static const char *const noise[] = {"GET / HTTP/1.0\r\n\r\n", "x", "SLSH",
                                        "SLSHaaaaaaaaaaaaaa"};
    struct side a, b;

    (void)state;
    side_open(&a);
    side_open(&b);
    for (unsigned i = 0; i < 4; i++) {
        int fd = stranger(&a);

        assert_true(write(fd, noise[i], strlen(noise[i])) > 0);
        /* A connecting endpoint makes progress look at once. */
        PUMP(&a, NULL, turned_away(fd));
        close(fd);
    }
    assert_non_null(strstr(logged, "refused a connection"));
    sides_connect(&a, &b);
    assert_int_equal(a.connected.status, 0);
    int fd = stranger(&a); /* and once more with the connection up */

    assert_true(write(fd, "noise", 5) == 5);
    PUMP(&a, &b, turned_away(fd));
    close(fd);
    assert_int_equal(a.downs + b.downs, 0);
    side_close(&a);
    side_close(&b);
}

static void a_hello_without_the_token_is_refused(void **state)
{
    struct shm_hello hello = {.ring_bytes = 65536, .cells = 64};
    struct side a;
    int fd, memory = memfd_create("x", 0);

    (void)state;
    side_open(&a);
    fd = stranger(&a);
    memset(hello.to, 0x5a, sizeof(hello.to));
    assert_int_equal(
        shm_post(fd, SHM_HELLO, &hello, sizeof(hello), (int[]){memory, memory, memory}, 3), 0);
    PUMP(&a, NULL, turned_away(fd));
    assert_non_null(strstr(logged, "knows no endpoint"));
    close(fd);
    close(memory);
    side_close(&a);
}

/* What this process connects or listens to meanwhile is that user's, for the kernel. */
static void become(uid_t uid)
{
    assert_int_equal(seteuid(uid), 0);
}

/* Somebody of that user listens, and a dials him. Returns his listener; *listens is his address. */
static int be_dialled(struct side *a, uid_t user, struct shm_addr *listens)
{
    uid_t self = geteuid();
    struct sl_addr addr;
    int listener;

    *listens = (struct shm_addr){.magic = SHM_MAGIC, .version = SHM_VERSION};
    become(user);
    assert_int_equal(shm_listen(listens->name, &listens->name_len, &listener), 0);
    become(self);
    memcpy(listens->host, inside(a)->addr.host, sizeof(listens->host));
    memset(listens->token, 0xff, sizeof(listens->token)); /* so that a dials */
    shm_addr_pack(listens, &addr);
    assert_int_equal(sl_shm_ops.ep_connect(a->ep, &addr, &a->connected), 0);
    return listener;
}

/* It knows the token: another user's process is refused nevertheless, unless only a secret can have
 * told it. */
static void another_user_is_refused_where_there_is_no_secret(void **state)
{
    int memory = memfd_create("x", 0);

    (void)state;
    if (geteuid() != 0) {
        print_message("skipped: only root can become another user\n");
        skip();
    }
    for (unsigned secret = 0; secret < 2; secret++) {
        struct shm_hello hello = {.ring_bytes = 65536, .cells = 64};
        struct side a;
        int fd;

        side_open(&a);
        a.worker.has_session = secret;
        memcpy(hello.to, inside(&a)->addr.token, SHM_TOKEN_LEN);
        become(65534);
        fd = stranger(&a);
        become(0);
        assert_int_equal(
            shm_post(fd, SHM_HELLO, &hello, sizeof(hello), (int[]){memory, memory, memory}, 3), 0);
        if (secret) {
            PUMP(&a, NULL, inside(&a)->pending != NULL);
        } else {
            PUMP(&a, NULL, turned_away(fd));
            assert_null(inside(&a)->pending);
            assert_non_null(strstr(logged, "of user 65534 is at the other end"));
        }
        close(fd);
        side_close(&a);
    }
    close(memory);
}

/* Who has the peer's name, but is another user, gets no memory; a rank among them hears why at
 * once. */
static void another_user_who_has_the_name_is_not_dialled(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        print_message("skipped: only root can become another user\n");
        skip();
    }
    for (unsigned secret = 0; secret < 2; secret++) {
        struct shm_addr listens;
        int fds[SHM_FDS_MAX], listener, fd = -1;
        struct shm_msg msg;
        unsigned count = 0;
        struct side a;
        size_t body;

        side_open(&a);
        a.worker.has_session = secret;
        listener = be_dialled(&a, 65534, &listens);
        PUMP(&a, NULL, fd >= 0 || shm_accept(listener, &fd) == 0);
        PUMP(&a, NULL, shm_take(fd, &msg, &body, fds, &count) == 0);
        assert_int_equal(msg.head.type, secret ? SHM_HELLO : SHM_REFUSE);
        assert_int_equal(count, secret ? SHM_FDS_MAX : 0);
        while (count > 0)
            close(fds[--count]);
        if (!secret) {
            PUMP(&a, NULL, a.connected.status != SL_PENDING);
            assert_int_equal(a.connected.status, -EACCES);
            assert_non_null(strstr(sluice_last_error(), "of user 65534"));
            assert_memory_equal(msg.refuse.to, listens.token, SHM_TOKEN_LEN);
            assert_int_equal(msg.refuse.code, -EACCES);
        }
        close(fd);
        close(listener);
        side_close(&a);
    }
}

static unsigned open_descriptors(void)
{
    unsigned count = 0;

    for (int fd = 0; fd < 256; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

/* Someone who knows the token, before the endpoint is connected: each descriptor beyond the first
 * three was one of this process' own that was closed. */
static void a_second_hello_is_refused_and_closes_nothing_of_ours(void **state)
{
    struct shm_hello hello = {.ring_bytes = 65536, .cells = 64};
    struct side a;
    int fd, memory = memfd_create("x", 0);
    unsigned before;

    (void)state;
    side_open(&a);
    memcpy(hello.to, inside(&a)->addr.token, SHM_TOKEN_LEN);
    fd = stranger(&a);
    before = open_descriptors();
    for (int i = 0; i < 2; i++)
        assert_int_equal(
            shm_post(fd, SHM_HELLO, &hello, sizeof(hello), (int[]){memory, memory, memory}, 3), 0);
    PUMP(&a, NULL, turned_away(fd));
    assert_non_null(strstr(logged, "out of turn"));
    assert_int_equal(open_descriptors(), before);
    close(fd);
    close(memory);
    side_close(&a);
}

static void a_hello_on_a_finished_connection_loses_the_peer(void **state)
{
    struct shm_hello hello = {.ring_bytes = 65536, .cells = 64};
    int memory = memfd_create("x", 0);
    struct side a, b;

    (void)state;
    side_open(&a);
    side_open(&b);
    sides_connect(&a, &b);
    assert_int_equal(shm_post(inside(&a)->source.fd, SHM_HELLO, &hello, sizeof(hello),
                              (int[]){memory, memory, memory}, 3),
                     0);
    PUMP(&b, NULL, b.downs == 1);
    assert_int_equal(b.down_status, -EBADMSG);
    close(memory);
    side_close(&a);
    side_close(&b);
}

/* An answer from where we dialled, but not to our question. */
static void an_answer_with_another_token_is_refused(void **state)
{
    int page = memfd_create("x", 0), event = eventfd(0, 0);

    (void)state;
    for (unsigned wrong = 0; wrong < 2; wrong++) {
        struct shm_addr listens;
        struct shm_hello welcome = {.ring_bytes = 65536, .cells = 64};
        int fds[SHM_FDS_MAX], listener, fd = -1;
        struct shm_msg msg;
        unsigned count = 0;
        struct side a;
        size_t body;

        side_open(&a);
        listener = be_dialled(&a, geteuid(), &listens);
        PUMP(&a, NULL, fd >= 0 || shm_accept(listener, &fd) == 0);
        PUMP(&a, NULL, shm_take(fd, &msg, &body, fds, &count) == 0);
        assert_int_equal(msg.head.type, SHM_HELLO);
        while (count > 0)
            close(fds[--count]);
        memcpy(welcome.from, listens.token, SHM_TOKEN_LEN);
        memcpy(welcome.to, msg.hello.from, SHM_TOKEN_LEN);
        (wrong == 0 ? welcome.to : welcome.from)[7] ^= 1;
        assert_int_equal(
            shm_post(fd, SHM_WELCOME, &welcome, sizeof(welcome), (int[]){page, event}, 2), 0);
        PUMP(&a, NULL, a.connected.status != SL_PENDING);
        assert_int_equal(a.connected.status, -EPROTO);
        assert_non_null(strstr(sluice_last_error(), "not one to our question"));
        close(fd);
        close(listener);
        side_close(&a);
    }
    close(page);
    close(event);
}

static void strangers_without_end_fill_neither_log_nor_descriptors(void **state)
{
    struct side a, b;
    unsigned limit;
    int fd[300];

    (void)state;
    side_open(&a);
    side_open(&b);
    limit = shm_iface_of(a.iface)->pending.limit;
    assert_true(limit >= SL_PENDING_LEAST && limit <= SHM_PENDING_MOST);
    for (unsigned i = 0; i < 300; i++) {
        int noisy = stranger(&a);

        assert_int_equal(write(noisy, "noise", 5), 5);
        fd[i] = stranger(&a); /* says nothing */
        for (int k = 0; k < 200; k++)
            sl_shm_ops.progress(a.iface, 64);
        close(noisy);
        assert_true(shm_iface_of(a.iface)->pending.count <= limit);
    }
    assert_true(logged_lines >= 1 && logged_lines <= SL_PENDING_LOG_LINES);
    sides_connect(&a, &b); /* whoever of the two is dialled */
    assert_int_equal(a.connected.status, 0);
    assert_int_equal(b.connected.status, 0);
    for (unsigned i = 0; i < 300; i++)
        close(fd[i]);
    side_close(&a);
    side_close(&b);
}

/* The first to notice is the listener, and it has no part in whom the endpoint waits for. */
static void a_lack_of_descriptors_at_accept_ends_no_endpoint(void **state)
{
    struct rlimit old, low;
    struct side a, b;
    int fd;

    (void)state;
    side_open(&a);
    side_open(&b);
    if (memcmp(inside(&a)->addr.token, inside(&b)->addr.token, SHM_TOKEN_LEN) < 0) {
        side_close(&a); /* a must be the one that is dialled */
        side_close(&b);
        a_lack_of_descriptors_at_accept_ends_no_endpoint(state);
        return;
    }
    assert_int_equal(sl_shm_ops.ep_connect(a.ep, &b.addr, &a.connected), 0);
    fd = stranger(&a);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    low = (struct rlimit){(rlim_t)fd, old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    for (int i = 0; i < 2000; i++)
        sl_shm_ops.progress(a.iface, 64);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    assert_int_equal(a.connected.status, SL_PENDING);
    assert_int_equal(logged_lines, 1); /* not one for each try */
    assert_non_null(strstr(logged, "ulimit -n"));
    assert_int_equal(sl_shm_ops.ep_connect(b.ep, &a.addr, &b.connected), 0);
    PUMP(&a, &b, a.connected.status != SL_PENDING && b.connected.status != SL_PENDING);
    assert_int_equal(a.connected.status, 0);
    assert_int_equal(b.connected.status, 0);
    close(fd);
    side_close(&a);
    side_close(&b);
}

/* The kernel installs as many descriptors of a message as have room, and says so by a flag. */
static void descriptors_that_were_cut_off_are_an_error_and_leak_nothing(void **state)
{
    struct shm_hello hello = {.ring_bytes = 65536, .cells = 64};
    char name[SHM_NAME_MAX];
    int listener, fd, peer = -1, fds[SHM_FDS_MAX];
    struct rlimit old, low;
    struct shm_msg msg;
    uint16_t name_len;
    unsigned count = 99, before;
    size_t body;

    (void)state;
    assert_int_equal(shm_listen(name, &name_len, &listener), 0);
    assert_int_equal(shm_dial(name, name_len, &fd), 0);
    assert_int_equal(shm_accept(listener, &peer), 0);
    assert_int_equal(shm_post(fd, SHM_HELLO, &hello, sizeof(hello), (int[]){0, 1, 2}, 3), 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    before = open_descriptors();
    low = (struct rlimit){(rlim_t)peer + 2, old.rlim_max}; /* one fits */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    int err = shm_take(peer, &msg, &body, fds, &count);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    assert_int_equal(err, -EMFILE);
    assert_int_equal(count, 99);
    assert_int_equal(msg.head.type, SHM_HELLO);
    assert_int_equal(open_descriptors(), before);
    close(fd);
    close(peer);
    close(listener);
}

/* The kernel tells that our words were not read before it hands out what the peer said last. */
static void last_words_are_heard_though_the_peer_read_none_of_ours(void **state)
{
    struct shm_refuse words = {.code = -EMFILE, .text = "no descriptor"};
    char name[SHM_NAME_MAX];
    int listener, fd, peer = -1, fds[SHM_FDS_MAX];
    struct shm_msg msg;
    uint16_t name_len;
    unsigned count;
    size_t body;

    (void)state;
    assert_int_equal(shm_listen(name, &name_len, &listener), 0);
    assert_int_equal(shm_dial(name, name_len, &fd), 0);
    assert_int_equal(shm_accept(listener, &peer), 0);
    assert_int_equal(shm_post(fd, SHM_BYE, NULL, 0, NULL, 0), 0);
    assert_int_equal(shm_post(peer, SHM_REFUSE, &words, sizeof(words), NULL, 0), 0);
    close(peer);
    assert_int_equal(shm_take(fd, &msg, &body, fds, &count), 0);
    assert_int_equal(msg.head.type, SHM_REFUSE);
    assert_string_equal(msg.refuse.text, words.text);
    assert_int_equal(shm_take(fd, &msg, &body, fds, &count), -ECONNRESET);
    close(fd);
    close(listener);
}

/* Someone with the right tokens whose memory could be taken away under us. */
static void files_that_could_shrink_are_refused(void **state)
{
    struct shm_hello hello = {.ring_bytes = 65536, .cells = 64};
    struct side a, b;
    int fd, memory = memfd_create("x", MFD_ALLOW_SEALING), event = eventfd(0, 0);

    (void)state;
    side_open(&a);
    side_open(&b);
    if (memcmp(inside(&a)->addr.token, inside(&b)->addr.token, SHM_TOKEN_LEN) < 0) {
        struct side swap = a; /* a must be the one that is dialled */

        a = b;
        b = swap;
        a.iface->handler.arg = &a;
        b.iface->handler.arg = &b;
        a.iface->worker = &a.worker;
        b.iface->worker = &b.worker;
        a.worker.config = &a.config;
        b.worker.config = &b.config;
    }
    assert_int_equal(ftruncate(memory, 1 << 20), 0);
    memcpy(hello.to, inside(&a)->addr.token, SHM_TOKEN_LEN);
    memcpy(hello.from, inside(&b)->addr.token, SHM_TOKEN_LEN);
    assert_int_equal(sl_shm_ops.ep_connect(a.ep, &b.addr, &a.connected), 0);
    fd = stranger(&a);
    assert_int_equal(
        shm_post(fd, SHM_HELLO, &hello, sizeof(hello), (int[]){memory, memory, event}, 3), 0);
    PUMP(&a, NULL, a.connected.status != SL_PENDING);
    assert_int_equal(a.connected.status, -EBADMSG);
    assert_non_null(strstr(sluice_last_error(), "sealed"));
    close(fd);
    close(memory);
    close(event);
    side_close(&a);
    side_close(&b);
}

static void another_version_gets_both_versions_told(void **state)
{
    struct shm_msg msg = {.head = {SHM_MAGIC, SHM_VERSION + 6, SHM_HELLO}};
    struct side a;
    int fd;

    (void)state;
    side_open(&a);
    memcpy(msg.hello.to, inside(&a)->addr.token, SHM_TOKEN_LEN);
    fd = stranger(&a);
    assert_true(write(fd, &msg, SHM_MSG_LEN(sizeof(msg.hello))) > 0);
    PUMP(&a, NULL, turned_away(fd));
    close(fd);
    /* The endpoint that was meant fails as it connects, and says why. */
    struct side b;

    side_open(&b);
    assert_int_equal(sl_shm_ops.ep_connect(a.ep, &b.addr, &a.connected), 0);
    PUMP(&a, NULL, a.connected.status != SL_PENDING);
    assert_int_equal(a.connected.status, -EPROTO);
    assert_non_null(strstr(sluice_last_error(), "version 2, the other 8"));
    side_close(&a);
    side_close(&b);
}

static void another_host_is_unreachable(void **state)
{
    struct side a, b;

    (void)state;
    side_open(&a);
    side_open(&b);
    b.addr.bytes[offsetof(struct shm_addr, host) + 3] ^= 1;
    assert_int_equal(sl_shm_ops.ep_connect(a.ep, &b.addr, &a.connected), 0);
    PUMP(&a, NULL, a.connected.status != SL_PENDING);
    assert_int_equal(a.connected.status, -EHOSTUNREACH);
    assert_non_null(strstr(sluice_last_error(), "SLUICE_HOST_ID"));
    side_close(&a);
    side_close(&b);
}

static void a_peer_that_never_connects_times_out(void **state)
{
    struct side a, b;

    (void)state;
    side_open(&a);
    side_open(&b);
    a.config.connect_timeout_ms = 30;
    assert_int_equal(sl_shm_ops.ep_connect(a.ep, &b.addr, &a.connected), 0);
    PUMP(&a, NULL, a.connected.status != SL_PENDING);
    assert_int_equal(a.connected.status, -ETIMEDOUT);
    side_close(&a);
    side_close(&b);
}

/* epoll may tell of a socket that has nothing to read. */
static void an_answer_that_is_not_there_yet_is_waited_for(void **state)
{
    struct side a, b, *asks;

    (void)state;
    side_open(&a);
    side_open(&b);
    asks = memcmp(inside(&a)->addr.token, inside(&b)->addr.token, SHM_TOKEN_LEN) < 0 ? &a : &b;
    assert_int_equal(
        sl_shm_ops.ep_connect(asks->ep, asks == &a ? &b.addr : &a.addr, &asks->connected), 0);
    PUMP(asks, NULL, inside(asks)->state == SHM_ASKED);
    inside(asks)->source.ready(shm_iface_of(asks->iface), &inside(asks)->source);
    assert_int_equal(inside(asks)->state, SHM_ASKED);
    struct side *other = asks == &a ? &b : &a;

    assert_int_equal(sl_shm_ops.ep_connect(other->ep, &asks->addr, &other->connected), 0);
    PUMP(&a, &b, a.connected.status != SL_PENDING && b.connected.status != SL_PENDING);
    assert_int_equal(a.connected.status, 0);
    assert_int_equal(b.connected.status, 0);
    side_close(&a);
    side_close(&b);
}

/* Pieces of shared memory that this process maps. */
static unsigned mappings(void)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    unsigned count = 0;
    char line[512];

    assert_non_null(maps);
    while (fgets(line, sizeof(line), maps) != NULL)
        count += strstr(line, "/memfd:sluice") != NULL;
    fclose(maps);
    return count;
}

static void what_is_mapped_of_a_peer_goes_with_the_endpoint(void **state)
{
    unsigned before = mappings();
    struct side a, b;

    (void)state;
    side_open(&a);
    side_open(&b);
    sides_connect(&a, &b);
    assert_true(mappings() > before);
    side_close(&a);
    side_close(&b);
    assert_int_equal(mappings(), before);
}

/* SLUICE_SHM_RING_BYTES at its largest meets the limit on file sizes: a sentence, no signal. */
static void memory_that_is_not_there_is_said_and_both_sides_know(void **state)
{
    struct rlimit old, low = {16 << 20, RLIM_INFINITY};
    struct side a, b;
    int *statuses[2];

    (void)state;
    side_open(&a);
    side_open(&b);
    sl_shm_config_edit(&a.config)->ring_bytes = sl_shm_config_edit(&b.config)->ring_bytes = 1 << 30;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    low.rlim_max = old.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    sides_connect(&a, &b);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    statuses[0] = &a.connected.status;
    statuses[1] = &b.connected.status;
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(*statuses[i], -ENOMEM);
    assert_non_null(strstr(sluice_last_error(), "needs 2048.0 MiB"));
    assert_non_null(strstr(sluice_last_error(), "16.0 MiB at most"));
    assert_non_null(strstr(sluice_last_error(), "SLUICE_SHM_RING_BYTES"));
    side_close(&a);
    side_close(&b);
}

static void a_lack_of_descriptors_names_the_limit(void **state)
{
    struct sl_config config;
    struct sl_worker worker = {.clock = &sl_clock_monotonic, .config = &config};
    struct rlimit old, low;
    struct sl_iface *iface;
    unsigned worked = 0;

    (void)state;
    sl_config_defaults(&config);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    int next = dup(0);

    close(next);
    /* Each number of free descriptors from none up: every place of open() fails once. */
    for (unsigned spare = 0; worked == 0; spare++) {
        assert_true(spare < 20);
        low = (struct rlimit){(rlim_t)next + spare, old.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
        int err = sl_shm_ops.open(&worker, NULL, NULL, &iface);

        assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
        if (err == 0) {
            worked++;
            sl_shm_ops.close(iface);
        } else {
            assert_int_equal(err, -EMFILE);
            assert_non_null(strstr(sluice_last_error(), "ulimit -n"));
        }
        int after = dup(0); /* nothing leaked */

        assert_int_equal(after, next);
        close(after);
    }
}

static void a_lack_of_descriptors_while_connecting_ends_both_sides(void **state)
{
    struct rlimit old, low;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    for (unsigned spare = 0; spare < 8; spare++) {
        struct side a, b;

        side_open(&a);
        side_open(&b);
        a.config.connect_timeout_ms = b.config.connect_timeout_ms = 100;
        int next = dup(0);

        close(next);
        low = (struct rlimit){(rlim_t)next + spare, old.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
        sides_connect(&a, &b);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
        if (spare < 3) {
            assert_int_not_equal(a.connected.status, 0);
            assert_int_not_equal(b.connected.status, 0);
        }
        side_close(&a);
        side_close(&b);
    }
}

/* The limit falls to what is in use now and so many more. */
static struct rlimit leave_descriptors(unsigned spare)
{
    struct rlimit old;
    int next = dup(0);

    assert_true(next >= 0);
    close(next);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &(struct rlimit){(rlim_t)next + spare, old.rlim_max}),
                     0);
    return old;
}

/* The one that dials and the one that waits for it. */
static void open_in_order(struct side *dialling, struct side *awaiting)
{
    struct side *first = dialling, *second = awaiting;

    for (;;) {
        side_open(first);
        side_open(second);
        if (memcmp(inside(dialling)->addr.token, inside(awaiting)->addr.token, SHM_TOKEN_LEN) < 0)
            return;
        side_close(first);
        side_close(second);
    }
}

static void who_cannot_dial_for_lack_of_descriptors_tells_the_peer(void **state)
{
    (void)state;
    for (unsigned spare = 0; spare < 2; spare++) {
        struct side a, b;

        open_in_order(&a, &b);
        assert_int_equal(sl_shm_ops.ep_connect(b.ep, &a.addr, &b.connected), 0);
        struct rlimit old =
            leave_descriptors(spare); /* none for the segment; none for the socket */

        assert_int_equal(sl_shm_ops.ep_connect(a.ep, &b.addr, &a.connected), 0);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
        PUMP(&a, &b, a.connected.status != SL_PENDING && b.connected.status != SL_PENDING);
        assert_int_equal(a.connected.status, -EMFILE);
        assert_int_equal(b.connected.status, -EMFILE);
        assert_non_null(strstr(inside(&b)->why, "ulimit -n"));
        side_close(&a);
        side_close(&b);
    }
}

/* A clock that the test puts forward. */
static uint64_t given_ns;

static uint64_t now_given(const struct sl_clock *clock)
{
    (void)clock;
    return given_ns;
}

/* When no stranger can be why any more, the peer is let in to be told. */
static void who_cannot_accept_for_lack_of_descriptors_tells_the_peer(void **state)
{
    static const struct sl_clock clock = {now_given};
    struct side a, b;

    (void)state;
    open_in_order(&a, &b);
    given_ns = test_now();
    b.worker.clock = &clock;
    assert_int_equal(sl_shm_ops.ep_connect(b.ep, &a.addr, &b.connected), 0);
    assert_int_equal(sl_shm_ops.ep_connect(a.ep, &b.addr, &a.connected), 0);
    struct rlimit old = leave_descriptors(0);

    for (int tries = 0; tries < 6; tries++) {
        assert_int_equal(a.connected.status, SL_PENDING);
        assert_int_equal(b.connected.status, SL_PENDING);
        for (int i = 0; i < 200; i++)
            sl_shm_ops.progress(b.iface, 64);
        given_ns += SL_NS_PER_S;
    }
    PUMP(&a, &b, a.connected.status != SL_PENDING && b.connected.status != SL_PENDING);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    assert_int_equal(a.connected.status, -EMFILE);
    assert_int_equal(b.connected.status, -EMFILE);
    assert_non_null(strstr(inside(&a)->why, "ulimit -n"));
    side_close(&a);
    side_close(&b);
}

#define KEPT(test) cmocka_unit_test_setup_teardown(test, log_kept, log_back)

int main(void)
{
    const struct CMUnitTest tests[] = {
        KEPT(who_cannot_dial_for_lack_of_descriptors_tells_the_peer),
        KEPT(who_cannot_accept_for_lack_of_descriptors_tells_the_peer),
        KEPT(last_words_are_heard_though_the_peer_read_none_of_ours),
        KEPT(garbage_is_refused_and_disturbs_nobody),
        KEPT(a_hello_without_the_token_is_refused),
        KEPT(another_user_is_refused_where_there_is_no_secret),
        KEPT(another_user_who_has_the_name_is_not_dialled),
        KEPT(a_second_hello_is_refused_and_closes_nothing_of_ours),
        cmocka_unit_test(a_hello_on_a_finished_connection_loses_the_peer),
        KEPT(an_answer_with_another_token_is_refused),
        KEPT(strangers_without_end_fill_neither_log_nor_descriptors),
        KEPT(a_lack_of_descriptors_at_accept_ends_no_endpoint),
        KEPT(descriptors_that_were_cut_off_are_an_error_and_leak_nothing),
        KEPT(files_that_could_shrink_are_refused),
        KEPT(another_version_gets_both_versions_told),
        KEPT(another_host_is_unreachable),
        KEPT(a_peer_that_never_connects_times_out),
        KEPT(an_answer_that_is_not_there_yet_is_waited_for),
        KEPT(what_is_mapped_of_a_peer_goes_with_the_endpoint),
        KEPT(memory_that_is_not_there_is_said_and_both_sides_know),
        KEPT(a_lack_of_descriptors_names_the_limit),
        KEPT(a_lack_of_descriptors_while_connecting_ends_both_sides),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
