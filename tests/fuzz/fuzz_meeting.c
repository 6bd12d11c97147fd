/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The meeting as a state machine: rank 0 of six in a thread, met by several connections with
 * hellos and frames in any order; or rank 1, which has a child and meets a rank 0 that answers what
 * it likes. The first byte chooses side and secret, four more a step.
 *
 * However it goes, it ends soon after its deadline, in a sentence that a terminal may show, and
 * leaves no descriptor.
 */
#include "core/err.h"
#include "launch/nearby.h"
#include "launch/rendezvous.h"
#include "launch/wire.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define STEPS_MAX 40
#define STEP_BYTES 4
#define SOCKETS 5
#define FDS_MAX 128
#define SHARE 24
#define RANKS 6
#define DEADLINE_MS 25

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct actor {
    struct sl_party party;
    struct sl_listeners listeners;
    struct sl_root root;
    char why[1024];
    int err;
};

static int door, sockets[SOCKETS];
static struct sl_hello hellos[SOCKETS]; /* the last ones said there */
static struct sl_terms terms[SOCKETS];
static struct sl_meeting_keys keys[SOCKETS];
static uint16_t port; /* of rank 0 */

static void descriptors(bool out[FDS_MAX])
{
    for (int fd = 0; fd < FDS_MAX; fd++)
        out[fd] = fcntl(fd, F_GETFD) >= 0;
}

static void *act(void *arg)
{
    struct actor *a = arg;
    struct sl_places places = {.root = &a->root};
    struct sl_exchange *exchange = NULL;
    uint8_t in[SHARE] = "share", out[RANKS * SHARE];

    a->err = a->party.rank == 0 ? sl_rendezvous_host(&a->party, &a->listeners, &exchange)
                                : sl_rendezvous_join(&a->party, &places, &exchange);
    for (int i = 0; i < 2 && a->err == 0; i++)
        a->err = exchange->allgather(exchange, in, sizeof(in), out);
    if (a->err != 0)
        snprintf(a->why, sizeof(a->why), "%s", sluice_last_error());
    if (exchange != NULL)
        exchange->close(exchange);
    return NULL;
}

static void open_socket(int *fd)
{
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

    if (*fd >= 0)
        return;
    if (door >= 0) {
        *fd = accept4(door, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        return;
    }
    *fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    (void)!connect(*fd, (struct sockaddr *)&to, sizeof(to));
}

static void say(int fd, const void *bytes, size_t len)
{
    if (fd >= 0)
        (void)!send(fd, bytes, len, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void say_hello(unsigned at, const uint8_t *s, bool secret)
{
    static const uint8_t nonce[SL_NONCE_BYTES] = {1};

    terms[at] = (struct sl_terms){.rank = s[2] % (RANKS + 1),
                                  .size = s[3] == 0xff ? 1 << 30 : RANKS,
                                  .secret = "secret",
                                  .secret_len = secret != (s[3] == 0xfe) ? 6 : 0};
    terms[at].sealed = terms[at].secret_len > 0;
    sl_assert(sl_job_hash(s[3] == 0xfd ? "other" : "job", terms[at].job) == 0);
    sl_hello_make(&terms[at], nonce, &hellos[at]);
    say(sockets[at], hellos[at].bytes,
        s[3] == 0xfc ? s[2] % SL_HELLO_BYTES : sizeof(hellos[at].bytes));
}

/* The true one, to the challenge that lies there. */
static void prove(unsigned at)
{
    uint8_t challenge[SL_FRAME_BYTES + SL_NONCE_BYTES] = {0}, proof[SL_FRAME_BYTES + SL_MAC_BYTES];
    struct pollfd wait = {.fd = sockets[at], .events = POLLIN};

    if (sockets[at] < 0 || poll(&wait, 1, 5) != 1)
        return;
    (void)!recv(sockets[at], challenge, sizeof(challenge), MSG_DONTWAIT);
    sl_frame_make(SL_FRAME_PROOF, SL_MAC_BYTES, proof);
    sl_assert(
        sl_proof_make(&terms[at], false, &hellos[at], challenge + SL_FRAME_BYTES,
                      proof + SL_FRAME_BYTES) == 0 &&
        sl_meeting_keys_make(&terms[at], &hellos[at], challenge + SL_FRAME_BYTES, &keys[at]) == 0);
    say(sockets[at], proof, sizeof(proof));
}

/* A frame, its length true, short or absurd, its body of one byte repeated, or a sentence. */
static void say_frame(int fd, const uint8_t *s)
{
    enum sl_frame_kind kind = (enum sl_frame_kind)(1 + s[2] % SL_FRAME_MISSING);
    uint8_t bytes[SL_FRAME_BYTES + 4 + SL_SENTENCE_MAX];
    size_t len = kind == SL_FRAME_CHALLENGE ? SL_NONCE_BYTES
                 : kind == SL_FRAME_PROOF   ? SL_MAC_BYTES
                 : kind == SL_FRAME_WELCOME ? SL_WELCOME_BYTES
                 : kind == SL_FRAME_SEAT    ? 8
                 : kind == SL_FRAME_PARENT  ? (s[3] & 16) / 2
                 : kind == SL_FRAME_MISSING ? 8
                 : kind == SL_FRAME_GATHER  ? SL_SEQ_BYTES + SHARE
                 : kind == SL_FRAME_RESULT  ? SL_SEQ_BYTES + RANKS * SHARE
                                            : 0;

    memset(bytes + SL_FRAME_BYTES, 0, sizeof(bytes) - SL_FRAME_BYTES);
    if (kind == SL_FRAME_REFUSE || kind == SL_FRAME_FAILED)
        len = sl_sentence_make(-(int)s[3], "go\033[31maway\n", bytes + SL_FRAME_BYTES);
    else
        bytes[SL_FRAME_BYTES] = s[3] & 15;
    if (s[3] >= 0xc0)
        len = s[3] & 63;
    sl_frame_make(kind, s[3] == 0x80 ? UINT64_C(1) << 62 : len, bytes);
    say(fd, bytes, SL_FRAME_BYTES + len);
}

/* What rank 0 would say to the hello and the proof that lie there: so that what comes after is
 * heard, too. Sealed alike, by the job's key of no bytes but zeros. */
static void let_in(unsigned at, bool secret)
{
    static const struct sl_job_keys job;
    uint8_t frame[SL_FRAME_BYTES + SL_CONTROL_MAX] = {0}, mac[SL_MAC_BYTES];
    uint8_t nonce[SL_NONCE_BYTES] = {0}, proof[SL_FRAME_BYTES + SL_MAC_BYTES];
    struct pollfd wait = {.fd = sockets[at], .events = POLLIN};
    struct sl_hello hello;

    if (sockets[at] < 0 || poll(&wait, 1, 5) != 1 ||
        recv(sockets[at], hello.bytes, sizeof(hello.bytes), MSG_DONTWAIT) != sizeof(hello.bytes))
        return;
    sl_frame_make(SL_FRAME_CHALLENGE, SL_NONCE_BYTES, frame);
    say(sockets[at], frame, SL_FRAME_BYTES + SL_NONCE_BYTES);
    if (poll(&wait, 1, 5) != 1)
        return;
    (void)!recv(sockets[at], proof, sizeof(proof), MSG_DONTWAIT);
    terms[at] = (struct sl_terms){
        .size = RANKS, .secret = "secret", .secret_len = secret ? 6 : 0, .sealed = secret};
    sl_assert(sl_job_hash("job", terms[at].job) == 0 &&
              sl_proof_make(&terms[at], true, &hello, nonce, mac) == 0 &&
              sl_meeting_keys_make(&terms[at], &hello, nonce, &keys[at]) == 0);
    int len = sl_welcome_make(&keys[at], mac, &job, frame + SL_FRAME_BYTES);

    sl_assert(len > 0);
    sl_frame_make(SL_FRAME_WELCOME, (uint64_t)len, frame);
    say(sockets[at], frame, SL_FRAME_BYTES + (size_t)len);
}

/* A control message that is sealed right. */
static void say_sealed(unsigned at, const uint8_t *s, bool up)
{
    static const uint64_t numbers[] = {SL_NUMBER_SEAT, SL_NUMBER_OPENED, SL_NUMBER_FAILED,
                                       UINT64_C(1) << 62 | 1};
    uint8_t body[SL_CONTROL_MAX - SL_SEAL_BYTES] = {0}, frame[SL_FRAME_BYTES + SL_CONTROL_MAX];
    enum sl_frame_kind kind = (enum sl_frame_kind)(SL_FRAME_FAILED + s[2] % 7);
    size_t len = kind == SL_FRAME_FAILED ? sl_sentence_make(-110, "no\n", body) : s[3] % 17;

    body[0] = kind == SL_FRAME_FAILED ? body[0] : s[3];
    int all = sl_control_make(&keys[at], up, kind, numbers[s[2] / 7 % 4], body, len, frame);
    if (all > 0)
        say(sockets[at], frame, (size_t)all);
}

static void run_step(const uint8_t *s, bool secret)
{
    int *fd = &sockets[s[1] % SOCKETS];
    uint8_t heard[512];

    switch (s[0] % 9) {
    case 0:
        if (*fd >= 0)
            close(*fd);
        *fd = -1;
        break;
    case 1:
        open_socket(fd);
        say_hello(s[1] % SOCKETS, s, secret);
        break;
    case 2:
    case 3:
        open_socket(fd);
        say_frame(*fd, s);
        break;
    case 4: say(*fd, s, 4); break;
    case 5: prove(s[1] % SOCKETS); break;
    case 7:
        open_socket(fd);
        let_in(s[1] % SOCKETS, secret);
        break;
    case 8: say_sealed(s[1] % SOCKETS, s, door < 0); break;
    default:
        poll(NULL, 0, s[2] & 1);
        if (*fd >= 0)
            (void)!recv(*fd, heard, sizeof(heard), MSG_DONTWAIT);
    }
}

static void prepare(struct actor *a, bool hosts, bool secret)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(at);
    char name[SL_NEARBY_NAME_MAX];

    *a = (struct actor){
        .party = {hosts ? 0 : 1, RANKS, "job", secret ? "secret" : "", DEADLINE_MS, NULL}};
    door = -1;
    if (hosts) {
        sl_assert(sl_listen_any("", NULL, &a->listeners) == 0);
        port = (uint16_t)a->listeners.port;
        return;
    }
    door = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    sl_assert(door >= 0 && bind(door, (struct sockaddr *)&at, sizeof(at)) == 0 &&
              listen(door, 8) == 0 && getsockname(door, (struct sockaddr *)&at, &len) == 0);
    snprintf(a->root.host, sizeof(a->root.host), "127.0.0.1");
    a->root.port = ntohs(at.sin_port);
    if (!secret) { /* ranks of one host meet there then */
        close(door);
        sl_nearby_name(a->root.port, name);
        sl_assert(sl_nearby_listen(name, &door) == 0);
    }
}

static void drop(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bool before[FDS_MAX], after[FDS_MAX], secret = size > 0 && (data[0] & 2) != 0;
    struct actor actor;
    pthread_t thread;

    descriptors(before);
    for (unsigned i = 0; i < SOCKETS; i++)
        sockets[i] = -1;
    prepare(&actor, size == 0 || (data[0] & 1) == 0, secret);
    sl_assert(pthread_create(&thread, NULL, act, &actor) == 0);
    if (size > 0)
        data++, size--;
    for (unsigned i = 0; i < STEPS_MAX && size >= STEP_BYTES;
         i++, data += STEP_BYTES, size -= STEP_BYTES)
        run_step(data, secret);
    sl_assert(pthread_join(thread, NULL) == 0);
    for (const char *c = actor.why; *c != '\0'; c++)
        sl_assert((unsigned char)*c >= ' ' && *c != 127 && *c != '\033');
    sl_assert(actor.err == 0 || actor.why[0] != '\0');
    for (unsigned i = 0; i < SOCKETS; i++)
        drop(&sockets[i]);
    drop(&door);
    descriptors(after);
    sl_assert(memcmp(before, after, sizeof(before)) == 0);
    return 0;
}
