/* SPDX-License-Identifier: Apache-2.0 */
/* What linux/tls.h and net/tls/ of Linux promise, as far as the transport asks for it; by OpenSSL's
 * ciphers. */
#include "tests/fake/fake_kernel_tls.h"

#include <errno.h>
#include <linux/tls.h>
#include <netinet/in.h>
#include <openssl/evp.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

#define LEVEL_TLS 282
#define ULP 31
#define SOCKETS 64
#define PLAIN 16384
#define WIRE (PLAIN + 256 + 5)

int __real_setsockopt(int fd, int level, int name, const void *value, socklen_t len);
ssize_t __real_sendmsg(int fd, const struct msghdr *msg, int flags);
ssize_t __real_recvmsg(int fd, struct msghdr *msg, int flags);
int __real_poll(struct pollfd *polled, nfds_t count, int timeout);
int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t len);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *msg, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *msg, int flags);
int __wrap_poll(struct pollfd *polled, nfds_t count, int timeout);

struct dir {
    bool set;
    const EVP_CIPHER *cipher;
    uint8_t key[32], iv[12];
    uint64_t number;
};

struct fake_socket {
    bool ulp;
    struct dir tx, rx;
    bool awaits_key; /* a KeyUpdate came, and no new key yet */
    size_t wire_len, plain_pos, plain_end;
    uint8_t type, wire[WIRE], plain[WIRE]; /* the record that came, and what it held */
};

struct fake_kernel fake_kernel;
static struct fake_socket sockets[SOCKETS];
static int first_fd = -1;

void fake_kernel_reset(enum fake_kernel_tls tls)
{
    memset(sockets, 0, sizeof(sockets));
    fake_kernel = (struct fake_kernel){.tls = tls};
    first_fd = -1;
}

static struct fake_socket *socket_of(int fd)
{
    return fd >= 0 && fd < SOCKETS && sockets[fd].ulp ? &sockets[fd] : NULL;
}

static int refuse(int err)
{
    errno = err;
    return -1;
}

static int take_key(struct fake_socket *s, struct dir *dir, const void *value, socklen_t len,
                    bool may_change)
{
    const struct tls_crypto_info *info = value;

    if (info->version != TLS_1_3_VERSION)
        return refuse(EINVAL);
    if (dir->set && !may_change)
        return refuse(EBUSY);
    if (info->cipher_type == TLS_CIPHER_AES_GCM_128 &&
        len == sizeof(struct tls12_crypto_info_aes_gcm_128)) {
        const struct tls12_crypto_info_aes_gcm_128 *aes = value;

        dir->cipher = EVP_aes_128_gcm();
        memcpy(dir->key, aes->key, sizeof(aes->key));
        memcpy(dir->iv, aes->salt, 4);
        memcpy(dir->iv + 4, aes->iv, 8);
    } else if (info->cipher_type == TLS_CIPHER_AES_GCM_256 &&
               len == sizeof(struct tls12_crypto_info_aes_gcm_256)) {
        const struct tls12_crypto_info_aes_gcm_256 *aes = value;

        dir->cipher = EVP_aes_256_gcm();
        memcpy(dir->key, aes->key, sizeof(aes->key));
        memcpy(dir->iv, aes->salt, 4);
        memcpy(dir->iv + 4, aes->iv, 8);
    } else if (info->cipher_type == TLS_CIPHER_CHACHA20_POLY1305 &&
               fake_kernel.tls != FAKE_NO_CHACHA &&
               len == sizeof(struct tls12_crypto_info_chacha20_poly1305)) {
        const struct tls12_crypto_info_chacha20_poly1305 *chacha = value;

        dir->cipher = EVP_chacha20_poly1305();
        memcpy(dir->key, chacha->key, sizeof(chacha->key));
        memcpy(dir->iv, chacha->iv, sizeof(chacha->iv));
    } else {
        return refuse(EINVAL);
    }
    dir->set = true;
    dir->number = 0;
    if (dir == &s->rx)
        s->awaits_key = false;
    fake_kernel.keys++;
    return 0;
}

int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
    struct fake_socket *s = socket_of(fd);

    if (fake_kernel.tls == FAKE_OFF)
        return __real_setsockopt(fd, level, name, value, len);
    if (level == IPPROTO_TCP && name == ULP) {
        if (fake_kernel.tls == FAKE_NO_TLS || fd >= SOCKETS)
            return refuse(ENOENT);
        memset(&sockets[fd], 0, sizeof(sockets[fd]));
        sockets[fd].ulp = true;
        if (first_fd < 0)
            first_fd = fd;
        return 0;
    }
    if (level != LEVEL_TLS)
        return __real_setsockopt(fd, level, name, value, len);
    if (s == NULL)
        return refuse(ENOPROTOOPT);
    bool may_change = fake_kernel.tls == FAKE_NEW_KEYS && !(fake_kernel.nic && fd != first_fd);

    if (name == TLS_TX || name == TLS_RX)
        return take_key(s, name == TLS_TX ? &s->tx : &s->rx, value, len, may_change);
    return name == TLS_RX_EXPECT_NO_PAD ? 0 : refuse(ENOPROTOOPT);
}

/* Seals len bytes of in, or opens them; false: the tag is wrong. */
static bool crypt(struct dir *dir, bool seal, const uint8_t header[5], const uint8_t *bytes,
                  size_t len, uint8_t *result, uint8_t tag[16])
{
    EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
    uint8_t nonce[12];
    bool well;
    int n;

    memcpy(nonce, dir->iv, sizeof(nonce));
    for (unsigned i = 0; i < 8; i++)
        nonce[4 + i] ^= (uint8_t)(dir->number >> (56 - 8 * i));
    dir->number++;
    well = EVP_CipherInit_ex(ctx, dir->cipher, NULL, dir->key, nonce, seal) == 1 &&
           (seal || EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_TAG, 16, tag) == 1) &&
           EVP_CipherUpdate(ctx, NULL, &n, header, 5) == 1 &&
           EVP_CipherUpdate(ctx, result, &n, bytes, (int)len) == 1 &&
           EVP_CipherFinal_ex(ctx, result + n, &n) == 1 &&
           (!seal || EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_GET_TAG, 16, tag) == 1);
    EVP_CIPHER_CTX_free(ctx);
    return well;
}

ssize_t __wrap_sendmsg(int fd, const struct msghdr *msg, int flags)
{
    struct fake_socket *s = socket_of(fd);
    struct cmsghdr *control = CMSG_FIRSTHDR(msg);
    uint8_t type = control != NULL ? *CMSG_DATA(control) : 23, inner[PLAIN + 1], record[WIRE];
    size_t total = 0;

    if (s == NULL || !s->tx.set)
        return __real_sendmsg(fd, msg, flags);
    for (size_t i = 0, at = 0; i < msg->msg_iovlen;) {
        size_t len = 0;

        /* Records do not mind where a part of the vector ends. */
        for (; i < msg->msg_iovlen && len < PLAIN; i++, at = 0) {
            size_t n = msg->msg_iov[i].iov_len - at < PLAIN - len ? msg->msg_iov[i].iov_len - at
                                                                  : PLAIN - len;

            memcpy(inner + len, (const uint8_t *)msg->msg_iov[i].iov_base + at, n);
            len += n;
            at += n;
            if (at < msg->msg_iov[i].iov_len)
                break;
        }
        inner[len] = type;
        size_t body = len + 1 + 16;

        record[0] = 23;
        record[1] = record[2] = 3;
        record[3] = (uint8_t)(body >> 8);
        record[4] = (uint8_t)body;
        crypt(&s->tx, true, record, inner, len + 1, record + 5, record + 5 + len + 1);
        if (send(fd, record, 5 + body, MSG_NOSIGNAL) != (ssize_t)(5 + body))
            return refuse(EPIPE);
        total += len;
    }
    return (ssize_t)total;
}

/* One more record, opened. 1; 0: the end; -1 with errno. */
static int load(int fd, struct fake_socket *s, int flags)
{
    for (;;) {
        size_t want = s->wire_len < 5 ? 5 : 5 + (size_t)(s->wire[3] << 8 | s->wire[4]);

        if (s->wire_len >= 5 && (s->wire[0] != 23 || s->wire[1] != 3 || s->wire[2] != 3))
            return refuse(EINVAL);
        if (want > WIRE)
            return refuse(EMSGSIZE);
        if (s->wire_len >= 5 && s->wire_len == want)
            break;
        ssize_t n = recv(fd, s->wire + s->wire_len, want - s->wire_len, flags);

        if (n <= 0)
            return (int)n;
        s->wire_len += (size_t)n;
    }
    size_t body = s->wire_len - 5;

    s->wire_len = 0;
    if (body < 17 ||
        !crypt(&s->rx, false, s->wire, s->wire + 5, body - 16, s->plain, s->wire + 5 + body - 16))
        return refuse(EBADMSG);
    s->type = s->plain[body - 17];
    s->plain_pos = 0;
    s->plain_end = body - 17;
    if (s->type == 22 && s->plain[0] == 24 && fake_kernel.tls == FAKE_NEW_KEYS)
        s->awaits_key = true;
    return 1;
}

ssize_t __wrap_recvmsg(int fd, struct msghdr *msg, int flags)
{
    struct fake_socket *s = socket_of(fd);
    size_t got = 0, i = 0, at = 0;
    uint8_t type = 0;

    if (s == NULL || !s->rx.set)
        return __real_recvmsg(fd, msg, flags);
    while (i < msg->msg_iovlen) {
        if (at == msg->msg_iov[i].iov_len) {
            i++;
            at = 0;
            continue;
        }
        if (s->plain_pos == s->plain_end) {
            if (s->awaits_key)
                return got > 0 ? (ssize_t)got : refuse(EKEYEXPIRED);
            int err = load(fd, s, flags);

            if (err <= 0 && got == 0)
                return err;
            if (err <= 0)
                break;
        }
        if (got > 0 && s->type != type)
            break;
        type = s->type;
        size_t n = s->plain_end - s->plain_pos, room = msg->msg_iov[i].iov_len - at;

        n = n < room ? n : room;
        memcpy((uint8_t *)msg->msg_iov[i].iov_base + at, s->plain + s->plain_pos, n);
        s->plain_pos += n;
        at += n;
        got += n;
        if (type != 23)
            break; /* one such record at a time */
    }
    struct cmsghdr *control = CMSG_FIRSTHDR(msg);

    if (control == NULL)
        return type == 23 ? (ssize_t)got : refuse(EIO);
    control->cmsg_level = LEVEL_TLS;
    control->cmsg_type = TLS_GET_RECORD_TYPE;
    control->cmsg_len = CMSG_LEN(1);
    *CMSG_DATA(control) = type;
    return (ssize_t)got;
}

int __wrap_poll(struct pollfd *polled, nfds_t count, int timeout)
{
    if (count == 1 && polled->events == POLLOUT && fake_kernel.busy > 0) {
        fake_kernel.busy--;
        return 0;
    }
    return __real_poll(polled, count, timeout);
}
