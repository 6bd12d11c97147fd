/* SPDX-License-Identifier: Apache-2.0 */
/* Files of elements and of frames. */
#include "tools/compress/files.h"

#include "core/err.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAYLOAD_AT 16             /* in a frame's header */
#define GROWTH ((size_t)64 << 20) /* a length that a file claims is believed by as much at a time */
#define NAME(file) (strcmp((file)->name, "-") == 0 ? "standard input" : (file)->name)

int file_open(const char *name, struct file_in *out)
{
    *out = (struct file_in){.name = name, .fd = STDIN_FILENO};
    if (strcmp(name, "-") == 0)
        return 0;
    out->fd = open(name, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    return out->fd >= 0 ? 0 : sl_fail(-errno, "%s: %s", name, strerror(errno));
}

void file_close(struct file_in *in)
{
    if (in->fd > STDIN_FILENO)
        close(in->fd);
    in->fd = -1;
}

static bool is_same(int a, int b)
{
    struct stat x, y;

    return fstat(a, &x) == 0 && fstat(b, &y) == 0 && S_ISREG(x.st_mode) && x.st_dev == y.st_dev &&
           x.st_ino == y.st_ino;
}

int file_create(const char *name, const struct file_in *in, struct file_out *out)
{
    struct stat st;
    bool was_there = stat(name, &st) == 0;

    *out = (struct file_out){.name = name, .fd = STDOUT_FILENO};
    if (strcmp(name, "-") == 0)
        return isatty(STDOUT_FILENO)
                   ? sl_fail(-EINVAL, "standard output is a terminal: give a file's name")
                   : 0;
    /* It is cut only after it is known to be another file than the one that is read. */
    out->fd = open(name, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY, 0666);
    if (out->fd < 0)
        return sl_fail(-errno, "%s: %s", name, strerror(errno));
    if (is_same(in->fd, out->fd)) {
        close(out->fd);
        return sl_fail(-EINVAL, "%s is both read and written", name);
    }
    out->is_ours = !was_there || S_ISREG(st.st_mode);
    if (out->is_ours && ftruncate(out->fd, 0) != 0) {
        int err = sl_fail(-errno, "%s: %s", name, strerror(errno));

        close(out->fd);
        return err;
    }
    return 0;
}

int file_write(struct file_out *out, const void *bytes, size_t len)
{
    const char *p = bytes;

    while (len > 0) {
        ssize_t n = write(out->fd, p, len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return sl_fail(-errno, "%s: %s", out->name, strerror(errno));
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

int file_finish(struct file_out *out, bool done)
{
    int err = 0;

    if (out->fd != STDOUT_FILENO && close(out->fd) != 0 && done) {
        err = sl_fail(-errno, "%s: %s", out->name, strerror(errno));
        done = false;
    }
    if (!done && out->is_ours)
        unlink(out->name);
    return err;
}

int file_read(struct file_in *in, void *to, size_t len, size_t *got)
{
    *got = 0;
    while (*got < len) {
        ssize_t n = read(in->fd, (char *)to + *got, len - *got);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return sl_fail(-errno, "%s: %s", NAME(in), strerror(errno));
        if (n == 0)
            break;
        *got += (size_t)n;
    }
    return 0;
}

int file_room_grow(struct file_room *room, size_t len)
{
    void *more;

    if (len <= room->len)
        return 0;
    len = (len + 63) / 64 * 64;
    more = aligned_alloc(64, len);
    if (more == NULL)
        return sl_fail(-ENOMEM, "there is no memory for %zu bytes", len);
    if (room->len > 0)
        memcpy(more, room->at, room->len);
    free(room->at);
    *room = (struct file_room){.at = more, .len = len};
    return 0;
}

void file_room_free(struct file_room *room)
{
    free(room->at);
    *room = (struct file_room){0};
}

/* The rest of a frame of which the header is in room. */
static int read_payload(struct file_in *in, struct file_room *room, uint64_t payload, size_t *len)
{
    while (payload > 0) {
        size_t want = payload < GROWTH ? (size_t)payload : GROWTH, got;
        /* Twice as much each time: a large frame is not copied at every step. */
        size_t room_len = *len + want > room->len ? 2 * *len + want : room->len;
        int err = file_room_grow(room, *len + want > room->len ? room_len : 0);

        if (err == 0)
            err = file_read(in, (char *)room->at + *len, want, &got);
        if (err != 0)
            return err;
        *len += got;
        payload -= got;
        if (got < want)
            break;
    }
    return 0;
}

int file_read_frame(struct file_in *in, struct file_room *room, struct sl_frame *out, bool *end)
{
    uint64_t payload = 0;
    size_t len;
    int err = file_room_grow(room, SL_FRAME_HEAD);

    if (err == 0)
        err = file_read(in, room->at, SL_FRAME_HEAD, &len);
    if (err != 0)
        return err;
    *end = len == 0;
    if (*end)
        return 0;
    uint32_t magic = 0;

    memcpy(&magic, room->at, 4);
    if (len == SL_FRAME_HEAD && magic == SL_FRAME_MAGIC)
        memcpy(&payload, (const char *)room->at + PAYLOAD_AT, 8);
    err = read_payload(in, room, payload, &len);
    if (err == 0)
        err = sl_frame_read(room->at, len, out);
    if (err == -EBADMSG) {
        struct sl_error why;

        sl_error_take(err, &why);
        return sl_fail(err, "%s: %s", NAME(in), why.text);
    }
    return err;
}
