/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TLS records made and opened by the kernel.
 *
 * The kernel gets the traffic secrets' keys when the handshake is over; from there on the socket
 * takes and gives plain bytes. Three things are left to do here: to tell records that hold no data
 * by the control message that comes with them, to change keys (where the kernel can), and not to
 * count bytes as sent that a close would still lose.
 */
#include "tcp/tls_kernel.h"

#include "core/err.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Of linux/tls.h: that of an older build machine knows less than the kernel where this runs. */
#define LEVEL_TLS 282
#define TLS_SET_TX 1
#define TLS_SET_RX 2
#define TLS_SET_RX_NO_PAD 4
#define TLS_CMSG_SET_TYPE 1
#define TLS_CMSG_GET_TYPE 2
#define TLS_1_3 0x0304
#ifndef TCP_ULP
#define TCP_ULP 31
#endif

#define OTHER_MAX 8 /* no record without data that means something is longer */
#define KEY_INFO_MAX 64

/* One byte beside the data: the type of the record. */
union type_control {
    char bytes[CMSG_SPACE(1)];
    struct cmsghdr align;
};

static const struct {
    uint16_t number;
    uint8_t salt; /* bytes of the IV that come behind the key; the others come before it */
} ciphers[SL_RECORD_SUITES] = {
    [SL_RECORD_AES_128] = {51, 4}, [SL_RECORD_AES_256] = {52, 4}, [SL_RECORD_CHACHA20] = {54, 0}};

/* As the kernel's structures have it: version, cipher, IV, key, salt, number of the next record.
 * Returns its length. */
static size_t key_info(enum sl_record_suite suite, const uint8_t *key,
                       const uint8_t iv[SL_RECORD_IV], uint8_t out[KEY_INFO_MAX])
{
    size_t key_len = sl_record_suites[suite].key_bytes, salt = ciphers[suite].salt, at = 4;
    uint16_t version = TLS_1_3, cipher = ciphers[suite].number;

    memset(out, 0, KEY_INFO_MAX);
    memcpy(out, &version, sizeof(version));
    memcpy(out + 2, &cipher, sizeof(cipher));
    memcpy(out + at, iv + salt, SL_RECORD_IV - salt);
    at += SL_RECORD_IV - salt;
    memcpy(out + at, key, key_len);
    at += key_len;
    memcpy(out + at, iv, salt);
    return at + salt + 8;
}

/* The key of the secret that holds. 0 or a negative errno, without a sentence. */
static int set_key(struct sl_record_dir *dir, int fd)
{
    uint8_t key[SL_RECORD_KEY_MAX], info[KEY_INFO_MAX];
    int err = sl_record_derive(dir, key, dir->iv);

    if (err == 0 && setsockopt(fd, LEVEL_TLS, dir->seals ? TLS_SET_TX : TLS_SET_RX, info,
                               (socklen_t)key_info(dir->suite, key, dir->iv, info)) != 0)
        err = -errno;
    explicit_bzero(key, sizeof(key));
    explicit_bzero(info, sizeof(info));
    dir->number = 0;
    return err;
}

/* ---- abilities of this kernel ---- */

static int look_error;
static bool look_new_keys;
static char look_why[200];

static int open_pair(int fd[2])
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(addr);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), err = 0;

    fd[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    fd[1] = -1;
    if (listener < 0 || fd[0] < 0 || bind(listener, (struct sockaddr *)&addr, len) != 0 ||
        listen(listener, 1) != 0 || getsockname(listener, (struct sockaddr *)&addr, &len) != 0 ||
        connect(fd[0], (struct sockaddr *)&addr, len) != 0 ||
        (fd[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) < 0)
        err = -errno;
    if (listener >= 0)
        close(listener);
    return err;
}

static int try_kernel(int fd)
{
    static const uint8_t key[SL_RECORD_KEY_MAX] = {1}, iv[SL_RECORD_IV] = {2};
    uint8_t info[KEY_INFO_MAX];
    socklen_t len = (socklen_t)key_info(SL_RECORD_CHACHA20, key, iv, info);

    if (setsockopt(fd, IPPROTO_TCP, TCP_ULP, "tls", sizeof("tls")) != 0)
        return sl_fail(-ENOTSUP,
                       "this kernel has no TLS (%s); where it is a module, as root: modprobe tls",
                       strerror(errno));
    if (setsockopt(fd, LEVEL_TLS, TLS_SET_TX, info, len) != 0 ||
        setsockopt(fd, LEVEL_TLS, TLS_SET_RX, info, len) != 0)
        return sl_fail(-ENOTSUP,
                       "this kernel's TLS has no ChaCha20-Poly1305 (%s); Linux 5.11 and later do",
                       strerror(errno));
    look_new_keys = setsockopt(fd, LEVEL_TLS, TLS_SET_TX, info, len) == 0;
    return 0;
}

static void look(void)
{
    int fd[2];
    int err = open_pair(fd);

    if (err != 0)
        look_error = sl_fail(-ENOTSUP, "the kernel's TLS cannot be tried: %s", strerror(-err));
    else
        look_error = try_kernel(fd[0]);
    if (look_error != 0)
        snprintf(look_why, sizeof(look_why), "%s", sluice_last_error());
    for (int i = 0; i < 2; i++)
        if (fd[i] >= 0)
            close(fd[i]);
}

int sl_tls_kernel_look(bool *takes_new_keys)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, look);
    if (look_error != 0)
        return sl_fail(look_error, "%s", look_why);
    *takes_new_keys = look_new_keys;
    return 0;
}

/* ---- a connection ---- */

int sl_tls_kernel_take(struct sl_tls *tls, int fd, const uint8_t *mine, const uint8_t *theirs)
{
    size_t len = sl_record_suites[tls->suite].hash_bytes;
    int on = 1, err = 0;

    tls->tx = (struct sl_record_dir){.openssl = tls->openssl, .suite = tls->suite, .seals = true};
    tls->rx = (struct sl_record_dir){.openssl = tls->openssl, .suite = tls->suite};
    memcpy(tls->tx.secret, mine, len);
    memcpy(tls->rx.secret, theirs, len);
    if (setsockopt(fd, IPPROTO_TCP, TCP_ULP, "tls", sizeof("tls")) != 0)
        err = -errno;
    err = err ?: set_key(&tls->tx, fd);
    err = err ?: set_key(&tls->rx, fd);
    if (err != 0)
        return sl_fail(err == -ENOTCONN ? -ECONNRESET : -ENOTSUP,
                       "the kernel does not take the keys of TLS (%s)", strerror(-err));
    /* A NIC that seals by itself keeps its first key for good. */
    if (!tls->agreed.keys_stay && set_key(&tls->tx, fd) != 0)
        return sl_fail(
            -ENOTSUP,
            "the NIC of this connection seals TLS records, and takes no new keys: switch that "
            "off (ethtool -K DEVICE tls-hw-tx-offload off), or use SLUICE_TCP_TLS_CIPHER=chacha20");
    /* No end of ours pads records: they can be opened straight to where they go (Linux 6.0). */
    setsockopt(fd, LEVEL_TLS, TLS_SET_RX_NO_PAD, &on, sizeof(on));
    return 0;
}

/* A kernel that could not put out all of a record keeps it, and drops it when the socket closes.
 * There is room again: it has, or a close finds room for the rest. */
static bool is_out(int fd)
{
    struct pollfd look = {.fd = fd, .events = POLLOUT};

    return poll(&look, 1, 0) > 0;
}

/* 0, or -1 with errno. */
static int send_key_update(struct sl_tls *tls, int fd)
{
    union type_control control = {{0}};
    struct iovec iov = {(void *)(uintptr_t)sl_tls_key_update, SL_TLS_KEY_UPDATE_BYTES};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = &control,
                         .msg_controllen = sizeof(control)};
    struct cmsghdr *type = CMSG_FIRSTHDR(&msg);

    type->cmsg_level = LEVEL_TLS;
    type->cmsg_type = TLS_CMSG_SET_TYPE;
    type->cmsg_len = CMSG_LEN(1);
    *CMSG_DATA(type) = SL_RECORD_HANDSHAKE;
    msg.msg_controllen = type->cmsg_len;
    if (sendmsg(fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
        return -1;
    if (sl_record_next_secret(&tls->tx) == 0 && set_key(&tls->tx, fd) == 0)
        return 0;
    errno = EIO;
    return -1;
}

ssize_t sl_tls_kernel_send(struct sl_tls *tls, int fd, const struct iovec *iov, unsigned count)
{
    struct msghdr msg = {.msg_iov = (struct iovec *)(uintptr_t)iov, .msg_iovlen = count};

    if (tls->out_plain == 0) {
        if (sl_tls_key_is_old(tls) && send_key_update(tls, fd) != 0)
            return -1;
        ssize_t n = sendmsg(fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);

        if (n <= 0)
            return n;
        tls->tx.number += ((size_t)n + SL_RECORD_PLAIN - 1) / SL_RECORD_PLAIN;
        tls->out_plain = (uint32_t)n;
    }
    if (!is_out(fd)) {
        errno = EAGAIN;
        return -1;
    }
    uint32_t sent = tls->out_plain;

    tls->out_plain = 0;
    return (ssize_t)sent;
}

/* As recvmsg(), and the kind of the record. */
static ssize_t recv_typed(int fd, struct iovec *iov, unsigned count, enum sl_record_type *type)
{
    union type_control control;
    struct msghdr msg = {.msg_iov = iov,
                         .msg_iovlen = count,
                         .msg_control = &control,
                         .msg_controllen = sizeof(control)};
    ssize_t n = recvmsg(fd, &msg, MSG_DONTWAIT);

    if (n < 0) {
        /* Lengths and versions that no record has. */
        if (errno == EINVAL || errno == EMSGSIZE)
            errno = EBADMSG;
        return -1;
    }
    *type = SL_RECORD_DATA;
    for (struct cmsghdr *at = CMSG_FIRSTHDR(&msg); at != NULL; at = CMSG_NXTHDR(&msg, at))
        if (at->cmsg_level == LEVEL_TLS && at->cmsg_type == TLS_CMSG_GET_TYPE)
            *type = (enum sl_record_type) * CMSG_DATA(at);
    return n;
}

/* The front of a record that is none of the caller's: n bytes of it are in iov, more to come where
 * its room was too small for want. */
static size_t gather_other(int fd, const struct iovec *iov, size_t n, size_t want,
                           uint8_t out[OTHER_MAX])
{
    size_t got = 0;

    for (unsigned i = 0; got < n && got < OTHER_MAX; i++) {
        size_t len = iov[i].iov_len < n - got ? iov[i].iov_len : n - got;

        len = len < OTHER_MAX - got ? len : OTHER_MAX - got;
        memcpy(out + got, iov[i].iov_base, len);
        got += len;
    }
    while (got < want) {
        struct iovec rest = {out + got, want - got};
        enum sl_record_type type;
        ssize_t more = recv_typed(fd, &rest, 1, &type);

        if (more <= 0)
            break;
        got += (size_t)more;
    }
    return got;
}

static int take_key(struct sl_tls *tls, int fd)
{
    return !tls->agreed.keys_stay && sl_record_next_secret(&tls->rx) == 0 &&
                   set_key(&tls->rx, fd) == 0
               ? 0
               : -1;
}

ssize_t sl_tls_kernel_recv(struct sl_tls *tls, int fd, const struct iovec *iov, unsigned count)
{
    for (;;) {
        uint8_t other[OTHER_MAX];
        enum sl_record_type type;
        ssize_t n = recv_typed(fd, (struct iovec *)(uintptr_t)iov, count, &type);

        if (n <= 0 || type == SL_RECORD_DATA)
            return n;
        size_t len = gather_other(fd, iov, (size_t)n,
                                  type == SL_RECORD_ALERT ? 2 : SL_TLS_KEY_UPDATE_BYTES, other);

        switch (sl_tls_other(type, other, len)) {
        case SL_TLS_OTHER_END: return 0;
        case SL_TLS_OTHER_ALERT: errno = ECONNRESET; return -1;
        case SL_TLS_OTHER_TICKET: continue;
        case SL_TLS_OTHER_KEY:
            if (take_key(tls, fd) == 0)
                continue;
            break;
        default: break;
        }
        errno = EBADMSG;
        return -1;
    }
}
