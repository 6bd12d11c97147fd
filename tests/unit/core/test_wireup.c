/* SPDX-License-Identifier: Apache-2.0 */
/* Endpoints that come about from either side, from both, by another transport, or not; and
 * strangers at the door. */
#include "wire_two.h"

#include "core/err.h"
#include "core/host.h"
#include "core/log.h"
#include "core/wireup_addr.h"
#include "core/wireup_link.h"
#include "core/wireup_word.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#define FDS_MAX 512
#define CROWD 140 /* more than may be pending */
#define SECOND_MS 1000
#define CONNECT_MS 1000

static unsigned fds_before;
static int allocs_left = -1; /* until one fails; -1: none does */

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);

static bool alloc_fails(void)
{
    return allocs_left >= 0 && allocs_left-- == 0;
}

void *__wrap_malloc(size_t size)
{
    return alloc_fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return alloc_fails() ? NULL : __real_calloc(count, size);
}

static size_t send_most; /* bytes of one send(); 0: all */

ssize_t __real_send(int fd, const void *bytes, size_t len, int flags);
ssize_t __wrap_send(int fd, const void *bytes, size_t len, int flags);

ssize_t __wrap_send(int fd, const void *bytes, size_t len, int flags)
{
    return __real_send(fd, bytes, send_most != 0 && len > send_most ? send_most : len, flags);
}

static bool another_user; /* at the other end of each unix socket */

bool __real_sl_host_same_user(int fd, struct ucred *peer);
bool __wrap_sl_host_same_user(int fd, struct ucred *peer);

bool __wrap_sl_host_same_user(int fd, struct ucred *peer)
{
    return __real_sl_host_same_user(fd, peer) && !another_user;
}

static void no_log(void *arg, enum sl_log_level level, const char *area, const char *line)
{
    (void)arg, (void)level, (void)area, (void)line;
}

static unsigned count_fds(void)
{
    unsigned count = 0;

    for (int fd = 0; fd < FDS_MAX; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static int start(void **state)
{
    bool tcp = *state != NULL;

    sl_log_set_sink(no_log, NULL);
    fds_before = count_fds();
    sides_open(tcp);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    allocs_left = -1;
    send_most = 0;
    another_user = false;
    sides_close();
    sl_log_set_sink(NULL, NULL);
    return count_fds() == fds_before ? 0 : -1;
}

static void connect_one(uint32_t from, uint32_t to, bool patient)
{
    assert_int_equal(sl_wireup_connect(sides[from].wireup, to, patient), 0);
}

static bool idle(void)
{
    unsigned busy = 0;

    for (uint32_t r = 0; r < RANKS; r++)
        busy += sides[r].wireup != NULL ? sl_wireup_busy(sides[r].wireup) : 0;
    return busy == 0;
}

/* ---- endpoints ---- */

static void check_connects(uint32_t from, uint32_t to)
{
    connect_one(from, to, false);
    PUMP_UNTIL(CONNECT_MS, are_connected(&sides[from], &sides[to]) && idle());
    assert_int_equal(ep_count(), 2);
    assert_int_equal(transport_of(&sides[0], 1), 0);
    assert_int_equal(sides[0].failures + sides[1].failures, 0);
}

static void an_endpoint_comes_about_from_the_lower_rank(void **state)
{
    (void)state;
    check_connects(0, 1);
}

static void an_endpoint_comes_about_from_the_higher_rank(void **state)
{
    (void)state;
    check_connects(1, 0);
}

static void words_leave_in_pieces_and_arrive_whole(void **state)
{
    (void)state;
    send_most = 7;
    check_connects(0, 1);
}

static void all_pairs_connect_at_once(void **state)
{
    (void)state;
    for (uint32_t a = 0; a < RANKS; a++)
        for (uint32_t b = 0; b < RANKS; b++)
            if (a != b)
                connect_one(a, b, false);
    PUMP_UNTIL(CONNECT_MS, idle());
    assert_int_equal(ep_count(), RANKS * (RANKS - 1));
    for (uint32_t r = 0; r < RANKS; r++) {
        assert_int_equal(sides[r].ups, RANKS - 1);
        assert_int_equal(sides[r].failures, 0);
    }
}

/* Whoever moves when, and however far apart they begin. */
static void two_that_dial_each_other_get_one_endpoint_each(void **state)
{
    struct sl_rng rng;

    (void)state;
    sl_rng_init(&rng, 11);
    for (unsigned round = 0; round < 400; round++) {
        unsigned first = (unsigned)sl_rng_u64(&rng) & 1, later = (unsigned)sl_rng_u64(&rng) % 800;
        unsigned ticks = 0;

        connect_one(first, !first, false);
        for (; !idle() || ticks <= later; ticks++) {
            if (ticks == later && sides[!first].eps[first] == NULL)
                connect_one(!first, first, false);
            for (uint64_t turns = sl_rng_u64(&rng) % 8; turns > 0; turns--)
                pump_one(&sides[sl_rng_u64(&rng) & 1]);
            now_ns += TICK_NS;
            assert_true(ticks < 100000);
        }
        assert_true(are_connected(&sides[0], &sides[1]));
        assert_int_equal(ep_count(), 2);
        assert_int_equal(sides[0].failures + sides[1].failures, 0);
        for (unsigned r = 0; r < 2; r++) {
            sides[r].eps[!r]->iface->ops->ep_destroy(sides[r].eps[!r]);
            sides[r].eps[!r] = NULL;
            sides[r].ups = 0;
        }
    }
}

static void later(uint64_t ms)
{
    now_ns += ms * SL_NS_PER_MS;
    pump_one(&sides[0]);
}

static bool has_dialed(uint32_t from, uint32_t to)
{
    return sl_wireup_at(sides[from].wireup, to)[0] != '\0';
}

static void the_lower_rank_does_not_dial_while_others_dials_come_in(void **state)
{
    (void)state;
    connect_one(0, 1, false);
    connect_one(0, 2, false);
    connect_one(2, 0, false);
    pump_one(&sides[2]);
    later(30); /* which lets the third one in */
    assert_false(has_dialed(0, 1));
    PUMP_UNTIL(CONNECT_MS, sides[0].ups == 2 && idle());
}

/* Ranks that share its core have had no turn meanwhile. */
static void the_lower_rank_polls_some_times_before_it_dials(void **state)
{
    (void)state;
    connect_one(0, 1, false);
    connect_one(0, 2, false);
    later(50);
    later(50);
    assert_false(has_dialed(0, 1) || has_dialed(0, 2));
    for (unsigned polls = 0; polls < 4; polls++)
        later(50);
    assert_true(has_dialed(0, 1) && has_dialed(0, 2));
    PUMP_UNTIL(CONNECT_MS, sides[0].ups == 2 && idle());
}

/* ---- transports ---- */

static void check_second(unsigned at, enum fault fault, uint32_t from)
{
    sides[at].faults[0] = fault;
    connect_one(from, !from, false);
    PUMP_UNTIL(CONNECT_MS, are_connected(&sides[0], &sides[1]) && idle());
    assert_int_equal(transport_of(&sides[0], 1), 1);
    assert_int_equal(transport_of(&sides[1], 0), 1);
    assert_int_equal(ep_count(), 2);
    for (unsigned r = 0; r < 2; r++) {
        sides[r].eps[!r]->iface->ops->ep_destroy(sides[r].eps[!r]);
        sides[r].eps[!r] = NULL;
        sides[r].ups = 0;
        sides[r].faults[0] = WORKS;
    }
}

static void the_second_transport_is_used_where_the_first_fails(void **state)
{
    (void)state;
    for (enum fault fault = NO_CREATE; fault <= LOST; fault++)
        for (unsigned at = 0; at < 2; at++)
            for (uint32_t from = 0; from < 2; from++)
                check_second(at, fault, from);
}

static void a_transport_that_one_side_lacks_is_not_tried(void **state)
{
    (void)state;
    sides[1].candidates = 2;
    connect_one(0, 1, false);
    PUMP_UNTIL(CONNECT_MS, are_connected(&sides[0], &sides[1]));
    assert_int_equal(transport_of(&sides[0], 1), 1);
}

/* Faults at either side or both; both owners hear of both transports. */
static void without_a_transport_both_owners_hear_why(void **state)
{
    (void)state;
    for (unsigned bits = 0; bits < 8; bits++) {
        uint32_t from = bits & 1;

        sides[bits >> 1 & 1].faults[0] = NO_LINK;
        sides[bits >> 2 & 1].faults[1] = NO_CONNECT;
        connect_one(from, !from, false);
        PUMP_UNTIL(CONNECT_MS, sides[0].failures == 1 && sides[1].failures == 1 && idle());
        for (unsigned r = 0; r < 2; r++) {
            assert_int_equal(sides[r].err, -EHOSTUNREACH);
            assert_non_null(strstr(sides[r].why, "first: the cable is cut"));
            assert_non_null(strstr(sides[r].why, "second: its address is no address"));
            sides[r].failures = 0;
            memset(sides[r].faults, 0, sizeof(sides[r].faults));
        }
        assert_int_equal(ep_count(), 0);
    }
}

/* Both at the acceptor, both at the dialer, and one at each. */
static void reasons_of_any_length_reach_both_owners_whole(void **state)
{
    char want[SL_ERROR_TEXT_MAX];

    (void)state;
    memset(long_text, 'x', sizeof(long_text) - 1);
    long_text[0] = '<', long_text[sizeof(long_text) - 2] = '>';
    snprintf(want, sizeof(want), "; first: %s; second: %s", long_text, long_text);
    for (unsigned bits = 0; bits < 8; bits++) {
        uint32_t from = bits & 1;

        sides[bits >> 1 & 1].faults[0] = TALKS;
        sides[bits >> 2 & 1].faults[1] = TALKS;
        connect_one(from, !from, false);
        PUMP_UNTIL(CONNECT_MS, sides[0].failures == 1 && sides[1].failures == 1 && idle());
        for (unsigned r = 0; r < 2; r++) {
            assert_string_equal(sides[r].why, want);
            sides[r].failures = 0;
            memset(sides[r].faults, 0, sizeof(sides[r].faults));
        }
    }
}

/* ---- peers that are not there ---- */

static void a_peer_that_has_closed_is_refused_at_once(void **state)
{
    uint64_t began_ns = now_ns;

    (void)state;
    side_close(&sides[1]);
    connect_one(0, 1, true);
    PUMP_UNTIL(SECOND_MS, sides[0].failures == 1);
    assert_int_equal(sides[0].err, -ECONNREFUSED);
    assert_true(now_ns - began_ns < 200 * SL_NS_PER_MS);
    assert_true(idle());
}

static void turn(struct side *side)
{
    now_ns += TICK_NS;
    pump_one(side);
}

/* The peer gives up and hangs up while its offer is on its way: what answers it finds nobody. */
static void a_refusal_is_read_though_nothing_can_be_sent_any_more(void **state)
{
    (void)state;
    sides[0].candidates = 1;
    connect_one(1, 0, false);
    for (unsigned i = 0; ep_count() == 0; i++) {
        assert_true(i < 1000);
        turn(&sides[i % 2]);
    }
    sl_wireup_lost(sides[0].wireup, 1, "the device went");
    turn(&sides[0]);
    assert_int_equal(sides[0].failures, 1);
    turn(&sides[1]);
    assert_int_equal(sides[1].failures, 1);
    assert_int_equal(sides[1].err, -EHOSTUNREACH);
    assert_string_equal(sides[1].why, "; first: the device went");
    assert_true(idle());
    assert_int_equal(ep_count(), 0);
}

static void a_silent_peer_is_given_up_by_who_is_not_patient(void **state)
{
    uint64_t wait_ns = (uint64_t)sides[0].config.connect_timeout_ms * SL_NS_PER_MS;
    uint64_t began_ns = now_ns;

    (void)state;
    connect_one(0, 1, false);
    while (sides[0].failures == 0 && now_ns < began_ns + 2 * wait_ns) {
        pump_one(&sides[0]);
        now_ns += SL_NS_PER_MS;
    }
    assert_int_equal(sides[0].err, -ETIMEDOUT);
    assert_true(now_ns - began_ns >= wait_ns);
    assert_non_null(strstr(sides[0].why, "it does not answer"));
}

static void a_patient_dial_waits_for_a_peer_that_computes(void **state)
{
    uint64_t wait_ns = (uint64_t)sides[0].config.connect_timeout_ms * SL_NS_PER_MS;
    uint64_t began_ns = now_ns;

    (void)state;
    connect_one(0, 1, true);
    while (now_ns < began_ns + 10 * wait_ns) {
        pump_one(&sides[0]);
        now_ns += 10 * SL_NS_PER_MS;
    }
    assert_int_equal(sides[0].failures, 0);
    PUMP_UNTIL(CONNECT_MS, are_connected(&sides[0], &sides[1]));
}

static void a_peer_that_ends_in_the_middle_is_no_longer_waited_for(void **state)
{
    (void)state;
    connect_one(1, 0, true);
    for (unsigned i = 0; i < 3; i++) {
        pump_one(&sides[1]);
        pump_one(&sides[0]);
        now_ns += TICK_NS;
    }
    side_close(&sides[0]);
    PUMP_UNTIL(SECOND_MS, sides[1].failures == 1);
    assert_int_equal(sides[1].err, -ECONNREFUSED);
}

/* The link whose failure it hears of is freed around it. */
static void a_dial_that_an_owner_begins_in_failed_goes_at_once(void **state)
{
    (void)state;
    sides[2].next = 0;
    side_close(&sides[1]);
    connect_one(2, 1, false);
    PUMP_UNTIL(SECOND_MS, sides[2].failures == 1);
    PUMP_UNTIL(5, are_connected(&sides[2], &sides[0]));
}

/* ---- listening ---- */

/* Peers know one port: half of the places would be none. */
static void a_port_that_is_taken_at_one_place_is_not_used(void **state)
{
    struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    socklen_t len = sizeof(at);
    struct side *side = &sides[2];
    char range[32];

    (void)state;
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof(at)) != 0)
        skip();
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &len), 0);
    snprintf(range, sizeof(range), "%u-%u", ntohs(at.sin6_port), ntohs(at.sin6_port));
    assert_int_equal(sl_config_set(&side->config, "PORT_RANGE", range), 0);
    side_close(side);
    assert_int_equal(sl_wireup_open(&side->worker, &sl_wire_sockets, false,
                                    &(struct sl_wireup_owner){.arg = side}, &addrs[2],
                                    &side->wireup),
                     -EADDRINUSE);
    close(fd);
}

/* ---- strangers ---- */

static int knock(uint32_t rank)
{
    struct sockaddr_un name;
    socklen_t len;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    assert_true(fd >= 0);
    assert_int_equal(sl_wireup_local_name(addrs[rank].id, &name, &len), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&name, len), 0);
    return fd;
}

/* Who knows two ids can take a rank's place where there is no secret. */
static void names_of_sockets_do_not_tell_ids(void **state)
{
    char line[512], id[2 * SL_WIREUP_ID_BYTES + 1] = "";
    FILE *file = fopen("/proc/net/unix", "re");
    unsigned sockets = 0;

    (void)state;
    assert_non_null(file);
    for (unsigned i = 0; i < SL_WIREUP_ID_BYTES; i++)
        snprintf(id + 2 * i, 3, "%02x", addrs[0].id[i]);
    while (fgets(line, sizeof(line), file) != NULL) {
        sockets += strstr(line, "@sluice-wireup-") != NULL;
        assert_null(strstr(line, id));
    }
    fclose(file);
    assert_true(sockets >= RANKS);
}

static void send_word(int fd, const struct sl_wireup_word *word)
{
    uint8_t bytes[SL_WIREUP_WORD_MAX];
    size_t len = sl_wireup_word_encode(word, bytes);

    assert_int_equal(send(fd, bytes, len, MSG_NOSIGNAL), (ssize_t)len);
}

/* What was said last, before the end: its kind; 0: nothing. */
static int heard_last(int fd, struct sl_wireup_word *out)
{
    uint8_t bytes[1024];
    ssize_t got = recv(fd, bytes, sizeof(bytes), 0);
    size_t at = 0, len = got > 0 ? (size_t)got : 0;
    int kind = 0;

    while (at < len) {
        int word = sl_wireup_word_length(bytes + at, len - at, false);

        assert_true(word > 0 && at + (size_t)word <= len);
        assert_int_equal(sl_wireup_word_decode(bytes + at, (size_t)word, out), 0);
        kind = (int)out->kind;
        at += (size_t)word;
    }
    return kind;
}

/* Until it answers that. */
static void wait_for(int fd, int kind, struct sl_wireup_word *out)
{
    char byte;

    PUMP_UNTIL(10, recv(fd, &byte, 1, MSG_PEEK) == 1);
    assert_int_equal(heard_last(fd, out), kind);
}

static bool is_over(int fd)
{
    char byte;

    return recv(fd, &byte, 1, MSG_PEEK) == 0;
}

/* Of rank 1 to rank 0, all right. */
static struct sl_wireup_word good_hello(void)
{
    struct sl_wireup_word word = {.kind = SL_WIREUP_HELLO};

    word.hello = (struct sl_wireup_hello){
        .version = SL_WIREUP_VERSION, .from = 1, .to = 0, .transports = 3, .group = 99};
    memcpy(word.hello.from_id, addrs[1].id, sizeof(word.hello.from_id));
    memcpy(word.hello.to_id, addrs[0].id, sizeof(word.hello.to_id));
    return word;
}

static void check_refused(const struct sl_wireup_word *word, int code, const char *why)
{
    struct sl_wireup_word answer = {.kind = SL_WIREUP_HELLO};
    int fd = knock(0);

    send_word(fd, word);
    wait_for(fd, SL_WIREUP_REFUSE, &answer);
    assert_int_equal(answer.code, code);
    assert_non_null(strstr(answer.text, why));
    assert_true(is_over(fd) && idle());
    close(fd);
}

static void a_wrong_hello_is_refused_at_once(void **state)
{
    struct sl_wireup_word word = good_hello();

    (void)state;
    word.hello.version++;
    check_refused(&word, -EPROTO, "another version");
    word = good_hello();
    word.hello.to_id[3] ^= 1;
    check_refused(&word, -ECONNREFUSED, "somebody else");
    word = good_hello();
    word.hello.from_id[15] ^= 1;
    check_refused(&word, -ECONNREFUSED, "somebody else");
    word = good_hello();
    word.hello.from = RANKS;
    check_refused(&word, -ECONNREFUSED, "somebody else");
    word = good_hello();
    word.hello.to = 1;
    check_refused(&word, -ECONNREFUSED, "somebody else");
    word = good_hello();
    word.hello.group = 98;
    check_refused(&word, -ECONNREFUSED, "somebody else");
    word.kind = SL_WIREUP_UP;
    check_refused(&word, -EPROTO, "does not begin with a hello");
}

static void garbage_is_shown_out_at_once(void **state)
{
    int fd = knock(0);

    (void)state;
    assert_int_equal(send(fd, "GET / HTTP/1.1\r\n\r\n", 18, MSG_NOSIGNAL), 18);
    PUMP_UNTIL(1, is_over(fd));
    assert_true(idle());
    close(fd);
}

static void who_cannot_prove_it_is_refused(void **state)
{
    struct sl_wireup_word word = good_hello();
    int fd = knock(0);

    (void)state;
    send_word(fd, &word);
    wait_for(fd, SL_WIREUP_CHALLENGE, &word);
    memset(&word, 0, sizeof(word));
    word.kind = SL_WIREUP_PROOF;
    send_word(fd, &word);
    wait_for(fd, SL_WIREUP_REFUSE, &word);
    assert_non_null(strstr(word.text, "cannot prove"));
    assert_int_equal(sides[0].ups + sides[0].failures, 0);
    close(fd);
}

static void a_rank_with_another_key_is_not_connected(void **state)
{
    (void)state;
    sides[1].worker.has_session = true;
    memset(sides[1].worker.session, 7, sizeof(sides[1].worker.session));
    connect_one(1, 0, false);
    PUMP_UNTIL(SECOND_MS, sides[1].failures == 1);
    assert_int_equal(ep_count(), 0);
    assert_int_equal(sides[0].ups + sides[0].failures, 0);
    PUMP_UNTIL(10, idle());
}

static void ranks_with_one_key_connect(void **state)
{
    (void)state;
    for (unsigned r = 0; r < 2; r++) {
        sides[r].worker.has_session = true;
        memset(sides[r].worker.session, 7, sizeof(sides[r].worker.session));
    }
    check_connects(1, 0);
}

/* One has heard everything of a connection, and says it again. */
static void another_user_of_this_host_is_shown_out(void **state)
{
    int fd;

    (void)state;
    another_user = true;
    fd = knock(0);
    PUMP_UNTIL(10, is_over(fd));
    close(fd);
}

static void a_name_that_another_user_has_is_not_believed(void **state)
{
    uint64_t wait_ns = (uint64_t)sides[0].config.connect_timeout_ms * SL_NS_PER_MS;
    uint64_t began_ns = now_ns;

    (void)state;
    another_user = true;
    connect_one(0, 1, false);
    while (sides[0].failures == 0 && now_ns < began_ns + 2 * wait_ns) {
        pump_one(&sides[0]);
        now_ns += SL_NS_PER_MS;
    }
    if (strstr(sides[0].why, "has its name, not one of user") == NULL)
        fail_msg("%s", sides[0].why);
}

static void who_is_connected_is_not_connected_again(void **state)
{
    (void)state;
    check_connects(0, 1);
    connect_one(1, 0, false);
    PUMP_UNTIL(CONNECT_MS, sides[1].failures == 1);
    assert_non_null(strstr(sides[1].why, "it is connected already"));
    assert_int_equal(sides[0].ups, 1);
    assert_int_equal(ep_count(), 2);
}

/* Before its proof, and of a transport that there is not. */
static void an_offer_that_cannot_be_is_refused(void **state)
{
    static const uint8_t kinds[] = {KINDS, 31, 32, 255};
    struct sl_wireup_word offer = {.kind = SL_WIREUP_OFFER};
    struct sl_wireup_link *link;

    (void)state;
    connect_one(0, 1, false);
    link = sl_wireup_link_find(sides[0].wireup, 1, NULL);
    for (int i = 0; i < 1000 && link->pipe == NULL; i++) { /* rank 1 does not move */
        pump_one(&sides[0]);
        now_ns += SL_NS_PER_MS;
    }
    assert_non_null(link->pipe);
    assert_int_equal(sl_wireup_dial_word(link, &offer), -EPROTO);
    assert_int_equal(ep_count(), 0);
    link->sealed = true;
    for (unsigned i = 0; i < sizeof(kinds); i++) {
        offer.transport = kinds[i];
        assert_int_equal(sl_wireup_dial_word(link, &offer), -EPROTO);
    }
    assert_int_equal(ep_count(), 0);
    link->sealed = false;
}

static void a_recorded_proof_is_worth_nothing(void **state)
{
    struct sl_wireup_word hello = good_hello(), word, proof = {.kind = SL_WIREUP_PROOF};
    uint8_t key[SL_DIGEST_BYTES];
    int first = knock(0), again = knock(0);

    (void)state;
    send_word(first, &hello);
    wait_for(first, SL_WIREUP_CHALLENGE, &word);
    assert_int_equal(sl_wireup_key(NULL, &hello.hello, key), 0);
    assert_int_equal(sl_wireup_proof(key, false, &hello.hello, word.nonce, proof.proof), 0);
    send_word(again, &hello);
    wait_for(again, SL_WIREUP_CHALLENGE, &word);
    send_word(again, &proof);
    wait_for(again, SL_WIREUP_REFUSE, &word);
    assert_int_equal(ep_count(), 0);
    send_word(first, &proof); /* whose nonce it answers: this one is taken for rank 1 */
    PUMP_UNTIL(10, ep_count() == 1);
    close(first);
    close(again);
    PUMP_UNTIL(10, idle());
    assert_int_equal(ep_count(), 0);
}

static void silence_is_shown_out_after_its_time(void **state)
{
    uint64_t began_ns = now_ns;
    int fd = knock(0);

    (void)state;
    PUMP_UNTIL(10, sl_wireup_busy(sides[0].wireup) == 1);
    PUMP_UNTIL(6 * SECOND_MS, is_over(fd));
    assert_true(now_ns - began_ns >= 4 * SL_NS_PER_S);
    assert_true(idle());
    close(fd);
}

static void a_silent_crowd_does_not_keep_a_peer_out(void **state)
{
    int fds[CROWD];

    (void)state;
    for (unsigned i = 0; i < CROWD; i++)
        fds[i] = knock(0);
    pump();
    assert_true(sl_wireup_busy(sides[0].wireup) >= 64);
    connect_one(1, 0, false);
    PUMP_UNTIL(CONNECT_MS, are_connected(&sides[0], &sides[1]));
    for (unsigned i = 0; i < CROWD; i++)
        close(fds[i]);
    PUMP_UNTIL(SECOND_MS, idle());
}

/* ---- memory ---- */

/* The first allocation fails, then the second, to the end: it connects later, or says -ENOMEM. */
static void without_memory_it_says_so_or_tries_again(void **state)
{
    unsigned connected = 0;

    (void)state;
    for (int n = 0; connected < 3; n++) {
        int err;

        assert_true(n < 500);
        for (unsigned r = 0; r < 2; r++)
            sides[r].ups = sides[r].failures = 0;
        allocs_left = n;
        err = sl_wireup_connect(sides[0].wireup, 1, false);
        assert_true(err == 0 || err == -ENOMEM);
        for (unsigned i = 0; i < 20000 && err == 0 && (!idle() || i < 100); i++)
            pump();
        connected = allocs_left >= 0 ? connected + 1 : 0; /* no allocation failed any more */
        allocs_left = -1;
        assert_true(idle());
        if (sides[0].eps[1] == NULL) {
            assert_int_equal(ep_count(), 0);
            assert_true(err == -ENOMEM || (sides[0].failures == 1 && sides[0].err == -ENOMEM) ||
                        (sides[1].failures == 1 && sides[1].err == -ENOMEM));
            continue;
        }
        assert_true(are_connected(&sides[0], &sides[1]));
        for (unsigned r = 0; r < 2; r++) {
            sides[r].eps[!r]->iface->ops->ep_destroy(sides[r].eps[!r]);
            sides[r].eps[!r] = NULL;
        }
    }
}

/* The acceptor's last word is that no transport is left; the dialer knows better why. */
static void a_dialer_that_lacks_memory_says_so(void **state)
{
    (void)state;
    for (uint32_t from = 0; from < 2; from++) {
        sides[from].faults[0] = sides[from].faults[1] = NO_MEMORY;
        connect_one(from, !from, false);
        PUMP_UNTIL(CONNECT_MS, sides[0].failures == 1 && sides[1].failures == 1 && idle());
        assert_int_equal(sides[from].err, -ENOMEM);
        assert_int_equal(sides[!from].err, -EHOSTUNREACH);
        sides[0].failures = sides[1].failures = 0;
        memset(sides[from].faults, 0, sizeof(sides[from].faults));
    }
}

/* Whoever lacks memory, for whatever: neither end is left with an endpoint, or a wait, alone. */
static void two_that_dial_each_other_and_lack_memory_agree(void **state)
{
    struct sl_rng rng;

    (void)state;
    sl_rng_init(&rng, 5);
    for (unsigned round = 0; round < 2000; round++) {
        unsigned first = (unsigned)sl_rng_u64(&rng) & 1, later = (unsigned)sl_rng_u64(&rng) % 500;
        int lacks = (int)sl_rng_below(&rng, 90);

        connect_one(first, !first, false);
        for (unsigned tick = 0; tick <= later || !idle(); tick++) {
            if (tick == later && sides[!first].eps[first] == NULL &&
                sides[0].failures + sides[1].failures == 0)
                connect_one(!first, first, false);
            if (tick == 0)
                allocs_left = lacks;
            for (uint64_t turns = sl_rng_u64(&rng) % 8; turns > 0; turns--)
                pump_one(&sides[sl_rng_u64(&rng) & 1]);
            now_ns += TICK_NS;
            assert_true(tick < 2000); /* far less than the deadline */
        }
        allocs_left = -1;
        if (sides[0].eps[1] != NULL)
            assert_true(are_connected(&sides[0], &sides[1]));
        else
            assert_true(sides[0].err == -ENOMEM || sides[1].err == -ENOMEM);
        assert_int_equal(ep_count(), sides[0].eps[1] != NULL ? 2 : 0);
        for (unsigned r = 0; r < 2; r++) {
            if (sides[r].eps[!r] != NULL)
                sides[r].eps[!r]->iface->ops->ep_destroy(sides[r].eps[!r]);
            sides[r].eps[!r] = NULL;
            sides[r].ups = sides[r].failures = 0;
            sides[r].err = 0;
        }
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, start, stop)
#define TCP_CASE(name)                                                                             \
    {                                                                                              \
#name "_over_tcp", name, start, stop, &fds_before                                          \
    }
    const struct CMUnitTest tests[] = {
        CASE(an_endpoint_comes_about_from_the_lower_rank),
        CASE(an_endpoint_comes_about_from_the_higher_rank),
        TCP_CASE(an_endpoint_comes_about_from_the_higher_rank),
        CASE(words_leave_in_pieces_and_arrive_whole),
        CASE(all_pairs_connect_at_once),
        TCP_CASE(all_pairs_connect_at_once),
        CASE(two_that_dial_each_other_get_one_endpoint_each),
        CASE(the_lower_rank_does_not_dial_while_others_dials_come_in),
        CASE(the_lower_rank_polls_some_times_before_it_dials),
        CASE(the_second_transport_is_used_where_the_first_fails),
        CASE(a_transport_that_one_side_lacks_is_not_tried),
        CASE(without_a_transport_both_owners_hear_why),
        CASE(reasons_of_any_length_reach_both_owners_whole),
        CASE(a_peer_that_has_closed_is_refused_at_once),
        TCP_CASE(a_peer_that_has_closed_is_refused_at_once),
        CASE(a_refusal_is_read_though_nothing_can_be_sent_any_more),
        CASE(a_silent_peer_is_given_up_by_who_is_not_patient),
        CASE(a_patient_dial_waits_for_a_peer_that_computes),
        CASE(a_peer_that_ends_in_the_middle_is_no_longer_waited_for),
        CASE(a_dial_that_an_owner_begins_in_failed_goes_at_once),
        CASE(a_port_that_is_taken_at_one_place_is_not_used),
        CASE(names_of_sockets_do_not_tell_ids),
        CASE(a_wrong_hello_is_refused_at_once),
        CASE(garbage_is_shown_out_at_once),
        CASE(who_cannot_prove_it_is_refused),
        CASE(a_rank_with_another_key_is_not_connected),
        CASE(ranks_with_one_key_connect),
        CASE(another_user_of_this_host_is_shown_out),
        CASE(a_name_that_another_user_has_is_not_believed),
        CASE(who_is_connected_is_not_connected_again),
        CASE(an_offer_that_cannot_be_is_refused),
        CASE(a_recorded_proof_is_worth_nothing),
        CASE(silence_is_shown_out_after_its_time),
        CASE(a_silent_crowd_does_not_keep_a_peer_out),
        CASE(without_memory_it_says_so_or_tries_again),
        CASE(a_dialer_that_lacks_memory_says_so),
        CASE(two_that_dial_each_other_and_lack_memory_agree),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
