/* SPDX-License-Identifier: Apache-2.0 */
/* Sends and receives until a deadline, or as much as is there. */
#include "launch/io.h"

#include "core/clock.h"
#include "core/err.h"

#include <poll.h>
#include <sys/socket.h>

#define POLL_MS_MAX 60000

uint64_t sl_io_now(void)
{
    return sl_now(&sl_clock_monotonic);
}

int sl_io_poll_ms(uint64_t until_ns)
{
    uint64_t at = sl_io_now();

    if (at >= until_ns)
        return 0;
    uint64_t ms = (until_ns - at) / SL_NS_PER_MS + 1;
    return ms > POLL_MS_MAX ? POLL_MS_MAX : (int)ms;
}

int sl_io_await(int fd, short events, uint64_t until_ns)
{
    for (;;) {
        struct pollfd wait = {.fd = fd, .events = events};
        int ms = sl_io_poll_ms(until_ns), n = poll(&wait, 1, ms);

        if (n > 0)
            return 0;
        if (n < 0 && errno != EINTR)
            return -errno;
        if (ms == 0)
            return -ETIMEDOUT;
    }
}

int sl_io_send(int fd, const void *bytes, size_t len, int flags, uint64_t until_ns)
{
    const char *at = bytes;

    while (len > 0) {
        ssize_t n = send(fd, at, len, MSG_NOSIGNAL | MSG_DONTWAIT | flags);

        if (n >= 0) {
            at += n;
            len -= (size_t)n;
            continue;
        }
        if (errno != EAGAIN && errno != EINTR)
            return -errno;
        int err = sl_io_await(fd, POLLOUT, until_ns);
        if (err != 0)
            return err;
    }
    return 0;
}

/* Until got bytes are there. 1: they are. */
static int read_until(struct sl_control *control, int fd, size_t until)
{
    while (control->got < until) {
        ssize_t n = recv(fd, control->bytes + control->got, until - control->got, MSG_DONTWAIT);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return 0;
        if (n <= 0)
            return n == 0 ? -ECONNRESET : -errno;
        control->got += (size_t)n;
    }
    return 1;
}

int sl_control_head(struct sl_control *control, int fd)
{
    bool judged = control->got >= SL_FRAME_BYTES;
    int err = read_until(control, fd, SL_FRAME_BYTES);

    if (err != 1 || judged)
        return err;
    err = sl_frame_parse(control->bytes, &control->frame);
    return err == 0 ? 1 : err;
}

int sl_control_read(struct sl_control *control, int fd)
{
    int err = sl_control_head(control, fd);

    if (err != 1)
        return err;
    if (control->frame.len > SL_CONTROL_MAX)
        return sl_fail(-EBADMSG, "a frame of kind %d has %llu bytes", (int)control->frame.kind,
                       (unsigned long long)control->frame.len);
    return read_until(control, fd, SL_FRAME_BYTES + control->frame.len);
}

int sl_control_send(int fd, const struct sl_meeting_keys *keys, bool up, enum sl_frame_kind kind,
                    uint64_t number, const void *body, size_t len)
{
    uint8_t bytes[SL_FRAME_BYTES + SL_CONTROL_MAX];
    int all = sl_control_make(keys, up, kind, number, body, len, bytes);
    ssize_t n = all > 0 ? send(fd, bytes, (size_t)all, MSG_NOSIGNAL | MSG_DONTWAIT) : all;

    if (all > 0 && n == all)
        return 0;
    return all < 0 ? all : n < 0 ? -errno : -EAGAIN;
}

int sl_control_failed(struct sl_control *control, const struct sl_meeting_keys *keys, bool up,
                      int from)
{
    char text[SL_SENTENCE_MAX + 1];
    size_t len;
    int code, err;

    if (sl_control_open(keys, up, SL_NUMBER_FAILED, control->bytes, &len) != 0)
        return sl_fail(-EBADMSG,
                       "it is over, but why was changed on the way or is not from rank %d", from);
    err = sl_sentence_parse(from, control->bytes + SL_FRAME_BYTES, len, &code, text);
    return err != 0 ? err : sl_fail_text(code, text);
}
