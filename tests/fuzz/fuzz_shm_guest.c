/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strangers and hostile peers at the sockets of shm: several connections to the listener of an
 * endpoint, each with messages in any order, with any descriptors, before and after the endpoint is
 * told to connect; or, where the endpoint dials, what answers it. Six bytes a step.
 *
 * However it goes: descriptors that are not the endpoint's stay open, and what it took is closed
 * with it.
 */
#include "tests/unit/shm/side.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define STEPS_MAX 48
#define STEP_BYTES 6
#define SOCKETS 3
#define FDS_MAX 256
#define KINDS 4

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct side victim;
static struct sl_addr peer_addr;
static struct shm_addr ours,
    theirs; /* the victim's address, and the one that it is to connect to */
static int door, sockets[SOCKETS];
static int files[KINDS]; /* a segment of the least size, a page, an event, a file of one byte */
static bool asked;

static void descriptors(bool out[FDS_MAX])
{
    for (int fd = 0; fd < FDS_MAX; fd++)
        out[fd] = fcntl(fd, F_GETFD) >= 0;
}

static socklen_t name_of(const struct shm_addr *addr, struct sockaddr_un *out)
{
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(out->sun_path + 1, addr->name, addr->name_len);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + addr->name_len);
}

/* Dials the victim, or lets it in where it dials. */
static void open_socket(int *fd)
{
    struct sockaddr_un to;
    socklen_t len = name_of(&ours, &to);

    if (*fd >= 0)
        return;
    *fd = accept4(door, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (*fd >= 0)
        return;
    *fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    sl_assert(*fd >= 0);
    if (connect(*fd, (struct sockaddr *)&to, len) != 0) {
        close(*fd);
        *fd = -1;
    }
}

static void fill_hello(const uint8_t *s, struct shm_hello *hello)
{
    memcpy(hello->to, ours.token, sizeof(hello->to));
    memcpy(hello->from, theirs.token, sizeof(hello->from));
    if ((s[3] & 1) != 0)
        hello->to[s[3] >> 4] ^= 1;
    if ((s[3] & 2) != 0)
        hello->from[s[3] >> 4] ^= 1;
    hello->ring_bytes = (s[3] & 4) != 0 ? (uint32_t)s[4] << (s[5] & 23) : SHM_RING_MIN;
    hello->cells = (s[3] & 8) != 0 ? (uint32_t)s[5] << (s[4] & 7) : SHM_CELLS_MIN;
    hello->trial_addr = s[5];
}

static size_t fill(const uint8_t *s, struct shm_msg *msg)
{
    *msg = (struct shm_msg){.head = {.magic = SHM_MAGIC,
                                     .version = SHM_VERSION,
                                     .type = s[1] % (SHM_MSG_TYPE_COUNT + 1)}};
    switch (msg->head.type) {
    case SHM_HELLO:
    case SHM_WELCOME: fill_hello(s, &msg->hello); return SHM_MSG_LEN(sizeof(msg->hello));
    case SHM_REFUSE:
        memcpy(msg->refuse.to, ours.token, sizeof(msg->refuse.to));
        memcpy(msg->refuse.from, theirs.token, sizeof(msg->refuse.from));
        msg->refuse.code = -(int32_t)s[4];
        memset(msg->refuse.text, 'x', s[5] % SHM_TEXT_MAX);
        return SHM_MSG_LEN(sizeof(msg->refuse));
    case SHM_REGION:
        msg->region = (struct shm_region_msg){
            .id = s[3], .len = (uint64_t)s[4] << (s[5] & 63), .fd_off = s[5] & 0x80};
        return SHM_MSG_LEN(sizeof(msg->region));
    case SHM_DROP: msg->region.id = s[3]; return SHM_MSG_LEN(sizeof(msg->region.id));
    case SHM_CTRL: return SHM_MSG_LEN(s[4] % SL_CTRL_MAX);
    default: return SHM_MSG_LEN(s[4] % 32);
    }
}

/* s[2]: how many descriptors, and which comes first; the true ones of a hello are 3 from 0. */
static void say(int fd, const uint8_t *s)
{
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(6 * sizeof(int))];
    } control = {0};
    struct shm_msg msg;
    struct iovec part = {.iov_base = &msg, .iov_len = fill(s, &msg)};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
    size_t count = s[2] % 7;
    int fds[6];

    for (size_t i = 0; i < count; i++)
        fds[i] = files[((s[2] >> 4) + i) % KINDS];
    if (count > 0) {
        header.msg_control = &control;
        header.msg_controllen = CMSG_SPACE(count * sizeof(int));
        control.align = (struct cmsghdr){.cmsg_level = SOL_SOCKET,
                                         .cmsg_type = SCM_RIGHTS,
                                         .cmsg_len = CMSG_LEN(count * sizeof(int))};
        memcpy(CMSG_DATA(&control.align), fds, count * sizeof(int));
    }
    if ((s[5] & 0xe0) == 0xe0)
        part.iov_len -= 1;
    (void)!sendmsg(fd, &header, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void run_step(const uint8_t *s)
{
    int *fd = &sockets[s[0] / 8 % SOCKETS];

    switch (s[0] % 8) {
    case 0: open_socket(fd); break;
    case 1:
        if (!asked)
            asked = sl_shm_ops.ep_connect(victim.ep, &peer_addr, &victim.connected) == 0;
        break;
    case 2:
        if (*fd >= 0)
            close(*fd);
        *fd = -1;
        break;
    case 3:
    case 4:
    case 5:
        open_socket(fd);
        if (*fd >= 0)
            say(*fd, s);
        break;
    default:
        for (unsigned i = 0; i < 1u + s[1] % 8; i++)
            sl_shm_ops.progress(victim.iface, 64);
    }
}

/* The peer's address: of a door of ours, with a token above or below the victim's. */
static void stand_at_door(bool victim_dials)
{
    struct sockaddr_un at;
    socklen_t len;

    theirs = ours;
    theirs.name_len =
        (uint16_t)snprintf(theirs.name, sizeof(theirs.name), "sluice-fuzz-%d", (int)getpid());
    memset(theirs.token, victim_dials ? 0xff : 0, sizeof(theirs.token));
    shm_addr_pack(&theirs, &peer_addr);
    len = name_of(&theirs, &at);
    door = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    sl_assert(door >= 0 && bind(door, (struct sockaddr *)&at, len) == 0 && listen(door, 8) == 0);
}

static void make_files(void)
{
    size_t lens[] = {shm_segment_len(SHM_RING_MIN, SHM_CELLS_MIN), sizeof(struct shm_page)};

    for (unsigned i = 0; i < 2; i++)
        sl_assert(shm_file_create("a test's file", "", lens[i], lens[i], &files[i]) == 0);
    files[2] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    sl_assert(files[2] >= 0 && shm_file_create("a test's file", "", 1, 1, &files[3]) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bool before[FDS_MAX], after[FDS_MAX];

    asked = false;
    for (unsigned i = 0; i < SOCKETS; i++)
        sockets[i] = -1;
    descriptors(before);
    side_open(&victim);
    victim.config.connect_timeout_ms = 60000;
    sl_assert(shm_addr_parse(&victim.addr, &ours) == 0);
    stand_at_door(size > 0 && (data[0] & 1) != 0);
    make_files();
    if (size > 0)
        data++, size--;
    for (unsigned i = 0; i < STEPS_MAX && size >= STEP_BYTES;
         i++, data += STEP_BYTES, size -= STEP_BYTES)
        run_step(data);
    for (unsigned i = 0; i < 4; i++)
        sl_shm_ops.progress(victim.iface, 64);
    side_close(&victim);
    for (unsigned i = 0; i < SOCKETS; i++)
        if (sockets[i] >= 0)
            close(sockets[i]);
    for (unsigned i = 0; i < KINDS; i++)
        sl_assert(close(files[i]) == 0);
    sl_assert(close(door) == 0);
    descriptors(after);
    sl_assert(memcmp(before, after, sizeof(before)) == 0);
    return 0;
}
