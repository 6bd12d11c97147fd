/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets of a meeting: bytes with a deadline, and control messages as they come. */
#ifndef SL_LAUNCH_IO_H
#define SL_LAUNCH_IO_H

#include "launch/wire.h"

uint64_t sl_io_now(void);

/* What poll() may wait until then, at most a minute. */
int sl_io_poll_ms(uint64_t until_ns);

/* Waits for events of fd. 0: they are there; -ETIMEDOUT. */
int sl_io_await(int fd, short events, uint64_t until_ns);

/* All of it, or a negative errno without a sentence. */
int sl_io_send(int fd, const void *bytes, size_t len, int flags, uint64_t until_ns);

/* A frame as it arrives, its head first. */
struct sl_control {
    size_t got;
    struct sl_frame frame;
    uint8_t bytes[SL_FRAME_BYTES + SL_CONTROL_MAX];
};

/* Reads the head of a frame and no byte more. 1: it is there, in frame; 0: not yet. -ECONNRESET or
 * another errno, without a sentence: the stream has ended; -EBADMSG: not a frame. */
int sl_control_head(struct sl_control *control, int fd);

/* The same for a whole control message; -EBADMSG, too: it is longer than one. Begins the next one
 * by got = 0. */
int sl_control_read(struct sl_control *control, int fd);

/* A control message, sealed where keys are, as far as fd takes it at once. 0, or a negative errno
 * without a sentence. */
int sl_control_send(int fd, const struct sl_meeting_keys *keys, bool up, enum sl_frame_kind kind,
                    uint64_t number, const void *body, size_t len);

/* The sentence of a FAILED that was read becomes the last error. Returns its code; -EBADMSG: it was
 * changed, or is none. */
int sl_control_failed(struct sl_control *control, const struct sl_meeting_keys *keys, bool up,
                      int from);

#endif
