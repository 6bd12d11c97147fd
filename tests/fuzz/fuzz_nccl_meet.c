/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two ends of the NCCL plugin that connect through somebody who hands their bytes on as he likes:
 * later, in parts, twice, not at all, with words of his own between them, beside strangers who
 * connect to the listener. Three bytes a step.
 *
 * Once they are connected the same bytes are words about channels of their endpoint, beside true
 * ones.
 *
 * However it goes: calls return at once, and what they leave behind is freed with the context.
 */
#include "core/clock.h"
#include "core/err.h"
#include "core/wireup_addr.h"
#include "core/wireup_word.h"
#include "tools/nccl/abi_v11.h"
#include "tools/nccl/flow.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define STEPS_MAX 96
#define CALLS 4              /* a step */
#define HONEST_STEPS 400     /* at the end, at most */
#define STEP_NS SL_NS_PER_MS /* that a step takes, for the plugin */
#define STRANGERS 4
#define CHUNK 1024

extern const struct sl_nccl_net_v11 ncclNetPlugin_v11;
static const struct sl_nccl_net_v11 *const net = &ncclNetPlugin_v11;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void ignore(enum sl_nccl_log_level level, unsigned long flags, const char *file, int line,
                   const char *fmt, ...)
{
    (void)level, (void)flags, (void)file, (void)line, (void)fmt;
}

/* The clock is the machine's, and so far ahead of it: places are dialed again after a while. */
static uint64_t skew_ns;

int __real_clock_gettime(clockid_t id, struct timespec *out);
int __wrap_clock_gettime(clockid_t id, struct timespec *out);
int __wrap_clock_gettime(clockid_t id, struct timespec *out)
{
    int rc = __real_clock_gettime(id, out);
    uint64_t ns = (uint64_t)out->tv_nsec + skew_ns;

    out->tv_sec += (time_t)(ns / SL_NS_PER_S);
    out->tv_nsec = (long)(ns % SL_NS_PER_S);
    return rc;
}

/* As if there were no unix sockets, which nobody could stand between. */
int __wrap_sl_wireup_local_name(const uint8_t *id, struct sockaddr_un *out, socklen_t *len);
int __wrap_sl_wireup_local_name(const uint8_t *id, struct sockaddr_un *out, socklen_t *len)
{
    (void)id, (void)out, (void)len;
    return sl_fail(-ENOTSUP, "there are no unix sockets");
}

/* The one between: side 0 is the end that connects, side 1 the listener. */
static struct {
    int door, side[2], strangers[STRANGERS];
    uint16_t port; /* the listener's own */
    uint8_t id[SL_WIREUP_ID_BYTES];
    uint8_t last[2][CHUNK];
    size_t last_len[2];
} between;

/* Small words must not wait for the other end's acknowledgement. */
static void hurry(int fd)
{
    int one = 1;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

static int dial(uint16_t port)
{
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    sl_assert(fd >= 0);
    hurry(fd);
    (void)!connect(fd, (struct sockaddr *)&to, sizeof(to));
    return fd;
}

static void drop(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void say(int fd, const void *bytes, size_t len)
{
    if (fd >= 0 && len > 0)
        (void)!send(fd, bytes, len, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void stand_between(uint8_t handle[SL_NCCL_HANDLE_BYTES])
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(at);
    struct sl_nccl_handle read;

    memset(&between, 0, sizeof(between));
    between.side[0] = between.side[1] = -1;
    memset(between.strangers, -1, sizeof(between.strangers));
    between.door = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    sl_assert(between.door >= 0 && bind(between.door, (struct sockaddr *)&at, sizeof(at)) == 0 &&
              listen(between.door, 8) == 0 &&
              getsockname(between.door, (struct sockaddr *)&at, &len) == 0);
    sl_assert(sl_nccl_handle_decode(handle, &read) == 0);
    between.port = read.addr.port;
    memcpy(between.id, read.addr.id, sizeof(between.id));
    read.addr.port = ntohs(at.sin_port);
    read.addr.place_count = 0;
    sl_assert(sl_wireup_place_add(&read.addr, (struct sockaddr_storage *)&at));
    sl_nccl_handle_encode(&read, handle);
}

static void let_in(void)
{
    int fd = accept4(between.door, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

    if (fd < 0)
        return;
    hurry(fd);
    drop(&between.side[0]);
    drop(&between.side[1]);
    between.side[0] = fd;
    between.side[1] = dial(between.port);
}

static void hand_on(unsigned from, size_t most)
{
    ssize_t n = between.side[from] >= 0 ? recv(between.side[from], between.last[from],
                                               most < CHUNK ? most : CHUNK, MSG_DONTWAIT)
                                        : 0;

    if (n <= 0)
        return;
    between.last_len[from] = (size_t)n;
    say(between.side[!from], between.last[from], (size_t)n);
}

/* A word that a peer could say at some other time. */
static void say_word(int fd, uint8_t a, uint8_t b)
{
    struct sl_wireup_word word = {.kind = (enum sl_wireup_kind)(1 + a % 9), .transport = b & 7};
    uint8_t bytes[SL_WIREUP_WORD_MAX];

    word.hello = (struct sl_wireup_hello){
        .version = SL_WIREUP_VERSION, .transports = UINT32_MAX / 255 * b, .group = b};
    memcpy(word.hello.to_id, between.id, sizeof(between.id));
    word.code = -(int32_t)b;
    word.addr.len = a >> 3 & 31;
    memset(word.addr.bytes, b, word.addr.len);
    memset(word.text, 'x', b);
    say(fd, bytes, sl_wireup_word_encode(&word, bytes));
}

static void run_step(const uint8_t step[3], uint8_t *handle, void *ctx, void *listen_comm,
                     void *comms[2])
{
    unsigned side = step[0] >> 7;
    int *stranger = &between.strangers[step[1] % STRANGERS];

    skew_ns += STEP_NS;
    switch (step[0] % 8) {
    case 0:
        for (int i = 0; i < CALLS && comms[0] == NULL; i++)
            net->connect(ctx, 0, handle, &comms[0], NULL);
        let_in();
        break;
    case 1:
        for (int i = 0; i < CALLS && comms[1] == NULL; i++)
            net->accept(listen_comm, &comms[1], NULL);
        break;
    case 2:
    case 3: hand_on(step[0] % 2, step[1] == 0 ? CHUNK : step[1]); break;
    case 4: say_word(between.side[side], step[1], step[2]); break;
    case 5: say(between.side[side], between.last[!side], between.last_len[!side]); break;
    case 6:
        if (*stranger < 0)
            *stranger = dial(between.port);
        if (step[2] & 1)
            say(*stranger, between.last[0], between.last_len[0]); /* what the true peer said */
        else
            say_word(*stranger, step[2], step[1]);
        break;
    default:
        if (step[1] & 1)
            drop(&between.side[side]);
        else
            drop(stranger);
    }
}

/* Words of one end to the other, and what comes of them. Returns a connection that was asked for by
 * one, or NULL. */
static void *hear_words(const uint8_t *data, size_t size, uint64_t token, void *comms[2],
                        void *listen_comm)
{
    void *more = NULL;

    for (; size >= 3; data += 3, size -= 3) {
        struct sl_nccl_comm *comm = comms[data[0] >> 7];
        uint8_t bytes[SL_NCCL_WORD_BYTES];
        const struct sl_nccl_word word = {.kind = (enum sl_nccl_word_kind)(data[0] % 6),
                                          .channel = data[1] % 16,
                                          .token = data[2] & 1 ? token : data[2] / 2};

        sl_nccl_word_encode(&word, bytes);
        sl_nccl_lock(comm->engine);
        if (comm->flow != NULL)
            sl_nccl_flow_hear(comm->flow, bytes, sizeof(bytes) - (data[2] == 0xff));
        sl_nccl_unlock(comm->engine);
        if (more == NULL && (data[2] & 2) != 0)
            net->accept(listen_comm, &more, NULL);
    }
    return more;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sl_nccl_net_config_v10 config = {.traffic_class = SL_NCCL_UNDEFINED};
    void *ctx = NULL, *listen_comm = NULL, *comms[2] = {NULL, NULL}, *more = NULL;
    uint8_t handle[SL_NCCL_HANDLE_BYTES];
    const uint8_t *whole = data;
    size_t whole_size = size;
    struct sl_nccl_handle to;

    setenv("SLUICE_TRANSPORT", "tcp", 1);
    setenv("SLUICE_INTERFACE", "lo", 1);
    setenv("SLUICE_TCP_ENGINE", "epoll", 1);
    setenv("SLUICE_LOG", "error", 1);
    sl_assert(net->init(&ctx, 1, &config, ignore, NULL) == SL_NCCL_SUCCESS);
    sl_assert(net->listen(ctx, 0, handle, &listen_comm) == SL_NCCL_SUCCESS);
    sl_assert(sl_nccl_handle_decode(handle, &to) == 0);
    stand_between(handle);
    for (unsigned i = 0; i < STEPS_MAX && size >= 3; i++, data += 3, size -= 3)
        run_step(data, handle, ctx, listen_comm, comms);
    for (unsigned i = 0; (comms[0] == NULL || comms[1] == NULL) && i < HONEST_STEPS; i++) {
        static const uint8_t honest[4][3] = {{0}, {2}, {1}, {3}};

        for (unsigned k = 0; k < 4; k++)
            run_step(honest[k], handle, ctx, listen_comm, comms);
    }
    if (comms[0] != NULL && comms[1] != NULL)
        more = hear_words(whole, whole_size, to.token, comms, listen_comm);
    for (unsigned i = 0; i < 2; i++)
        drop(&between.side[i]);
    for (unsigned i = 0; i < STRANGERS; i++)
        drop(&between.strangers[i]);
    drop(&between.door);
    if (comms[0] != NULL)
        net->close_send(comms[0]);
    if (comms[1] != NULL)
        net->close_recv(comms[1]);
    if (more != NULL)
        net->close_recv(more);
    net->close_listen(listen_comm);
    net->finalize(ctx);
    return 0;
}
