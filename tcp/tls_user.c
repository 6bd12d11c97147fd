/* SPDX-License-Identifier: Apache-2.0 */
/* A TLS connection's bytes in records that are made and opened here. */
#include "tcp/tls_inside.h"

#include "core/err.h"
#include "tcp/tls_kernel.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#define NEW_TICKET 4
#define KEY_UPDATE 24

/* One that asks for none in return. */
const uint8_t sl_tls_key_update[SL_TLS_KEY_UPDATE_BYTES] = {KEY_UPDATE, 0, 0, 1, 0};

enum sl_tls_other sl_tls_other(enum sl_record_type type, const uint8_t *bytes, size_t len)
{
    if (type == SL_RECORD_ALERT)
        return len == 2 && bytes[1] == 0 ? SL_TLS_OTHER_END : SL_TLS_OTHER_ALERT;
    if (type != SL_RECORD_HANDSHAKE || len == 0)
        return SL_TLS_OTHER_BAD;
    if (len == SL_TLS_KEY_UPDATE_BYTES && memcmp(bytes, sl_tls_key_update, len - 1) == 0 &&
        bytes[len - 1] <= 1)
        return SL_TLS_OTHER_KEY;
    return bytes[0] == NEW_TICKET ? SL_TLS_OTHER_TICKET : SL_TLS_OTHER_BAD;
}

/* A KeyUpdate that asks for none in return, and then the next key. */
static bool seal_key_update(struct sl_tls *tls)
{
    if (!sl_record_seal(&tls->tx, SL_RECORD_HANDSHAKE, sl_tls_key_update, SL_TLS_KEY_UPDATE_BYTES,
                        tls->out + tls->out_end))
        return false;
    tls->out_end += SL_TLS_KEY_UPDATE_BYTES + SL_RECORD_AROUND;
    return sl_record_rekey(&tls->tx) == 0;
}

/* As many records as there is room for. */
static bool seal_group(struct sl_tls *tls, const struct iovec *iov, unsigned count)
{
    tls->out_pos = tls->out_end = tls->out_plain = 0;
    if (sl_tls_key_is_old(tls) && !seal_key_update(tls))
        return false;
    for (unsigned i = 0; i < count; i++) {
        const uint8_t *bytes = iov[i].iov_base;

        for (size_t at = 0; at < iov[i].iov_len;) {
            size_t len =
                iov[i].iov_len - at < SL_RECORD_PLAIN ? iov[i].iov_len - at : SL_RECORD_PLAIN;

            if (tls->out_end + len + SL_RECORD_AROUND > SL_TLS_OUT_BYTES)
                return true;
            if (!sl_record_seal(&tls->tx, SL_RECORD_DATA, bytes + at, len, tls->out + tls->out_end))
                return false;
            tls->out_end += (uint32_t)(len + SL_RECORD_AROUND);
            tls->out_plain += (uint32_t)len;
            at += len;
        }
    }
    return true;
}

ssize_t sl_tls_send(struct sl_tls *tls, int fd, const struct iovec *iov, unsigned count)
{
    if (tls->in_kernel)
        return sl_tls_kernel_send(tls, fd, iov, count);
    if (tls->out_pos == tls->out_end && !seal_group(tls, iov, count)) {
        errno = EIO;
        return -1;
    }
    while (tls->out_pos < tls->out_end) {
        ssize_t n = send(fd, tls->out + tls->out_pos, tls->out_end - tls->out_pos,
                         MSG_DONTWAIT | MSG_NOSIGNAL);

        if (n < 0)
            return -1;
        tls->out_pos += (uint32_t)n;
    }
    return (ssize_t)tls->out_plain;
}

/* The record is no data. 1: handled; 0: the peer says that it ends; negative: not to be
 * understood. */
static int take_other(struct sl_tls *tls, enum sl_record_type type, const uint8_t *bytes,
                      size_t len)
{
    switch (sl_tls_other(type, bytes, len)) {
    case SL_TLS_OTHER_END: return 0;
    case SL_TLS_OTHER_ALERT: return -ECONNRESET;
    case SL_TLS_OTHER_KEY: return sl_record_rekey(&tls->rx) == 0 ? 1 : -EIO;
    case SL_TLS_OTHER_TICKET: return 1;
    default: return -EBADMSG;
    }
}

/* Opens the next record, into the room if that is enough, else to where it waits. Returns bytes in
 * the room, or
 * -EAGAIN: none is whole (or it would need the waiting place: may_wait); 0: the end, in *end;
 * negative. */
static ssize_t open_next(struct sl_tls *tls, uint8_t *room, size_t len, bool may_wait, bool *end)
{
    const uint8_t *record = tls->in + tls->in_pos;
    int whole = sl_record_len(record, tls->in_end - tls->in_pos);
    enum sl_record_type type = SL_RECORD_DATA;

    *end = false;
    if (whole < 0)
        return whole;
    if (whole == 0 || (uint32_t)whole > tls->in_end - tls->in_pos)
        return -EAGAIN;
    size_t plain = (size_t)whole - SL_RECORD_AROUND;
    bool fits = plain <= len;

    if (!fits && !may_wait)
        return -EAGAIN;
    int err = sl_record_open(&tls->rx, record, (size_t)whole, fits ? room : tls->plain, &type);

    if (err != 0)
        return err;
    tls->in_pos += (uint32_t)whole;
    if (type != SL_RECORD_DATA) {
        err = take_other(tls, type, fits ? room : tls->plain, plain);
        *end = err == 0;
        return err < 0 ? err : 0;
    }
    if (fits)
        return (ssize_t)plain;
    tls->plain_pos = 0;
    tls->plain_end = (uint32_t)plain;
    return 0;
}

static size_t take_waiting(struct sl_tls *tls, uint8_t *room, size_t len)
{
    size_t n = tls->plain_end - tls->plain_pos;

    if (n > len)
        n = len;
    memcpy(room, tls->plain + tls->plain_pos, n);
    tls->plain_pos += (uint32_t)n;
    return n;
}

/* Fills iov from received records. Bytes; -EAGAIN: there are none; 0 with *end; other errors. */
static ssize_t fill(struct sl_tls *tls, const struct iovec *iov, unsigned count, bool *end)
{
    size_t total = 0;

    *end = false;
    for (unsigned i = 0; i < count; i++) {
        uint8_t *room = iov[i].iov_base;
        size_t left = iov[i].iov_len;

        while (left > 0) {
            ssize_t n;

            if (tls->plain_pos < tls->plain_end)
                n = (ssize_t)take_waiting(tls, room, left);
            else
                n = open_next(tls, room, left, total == 0, end);
            if (*end || (n < 0 && total > 0 && n == -EAGAIN))
                return (ssize_t)total;
            if (n < 0)
                return n;
            room += n;
            left -= (size_t)n;
            total += (size_t)n;
        }
    }
    return (ssize_t)total;
}

/* 1: more of it came; 0: the end; negative. */
static int read_more(struct sl_tls *tls, int fd)
{
    if (tls->in_pos > 0) {
        memmove(tls->in, tls->in + tls->in_pos, tls->in_end - tls->in_pos);
        tls->in_end -= tls->in_pos;
        tls->in_pos = 0;
    }
    ssize_t n = recv(fd, tls->in + tls->in_end, SL_TLS_IN_BYTES - tls->in_end, MSG_DONTWAIT);

    if (n < 0)
        return -errno;
    tls->in_end += (uint32_t)n;
    return n > 0;
}

ssize_t sl_tls_recv(struct sl_tls *tls, int fd, const struct iovec *iov, unsigned count)
{
    if (tls->in_kernel)
        return sl_tls_kernel_recv(tls, fd, iov, count);
    for (;;) {
        bool end;
        ssize_t n = fill(tls, iov, count, &end);

        if (n > 0 || end)
            return n;
        if (n == -EAGAIN || n == 0)
            n = read_more(tls, fd);
        if (n == 0)
            return 0;
        if (n < 0) {
            errno = (int)-n;
            return -1;
        }
    }
}
