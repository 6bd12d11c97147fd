/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a file, takes gzip off, and finds who can read it by its first bytes. */
#include "monitor/read/read.h"
#include "core/err.h"
#include "monitor/read/formats.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

/* A trace of Kineto lists process groups as the Flight Recorder's JSON does: it is asked before;
 * and NCCL's is a Chrome trace, too. */
const struct sl_read_format *const sl_read_formats[] = {&sl_read_flight,
                                                        &sl_read_nccl_trace,
                                                        &sl_read_trace,
                                                        &sl_read_flight_json,
                                                        &sl_read_ras,
                                                        &sl_read_inspector,
                                                        &sl_read_xpu_timer,
                                                        &sl_read_minibatch,
                                                        &sl_read_inspector_prom,
                                                        &sl_read_nccl,
                                                        &sl_read_bench,
                                                        &sl_read_page,
                                                        &sl_read_status,
                                                        &sl_read_agent_ranks,
                                                        &sl_read_probe,
                                                        &sl_read_observations,
                                                        &sl_read_agent,
                                                        &sl_read_agent_lines,
                                                        &sl_read_history,
                                                        &sl_read_edges,
                                                        &sl_read_ibnetdiscover,
                                                        NULL};

/* ---- the bytes of a file ---- */

struct file {
    struct sl_read_in in;
    int fd;         /* or -1: */
    const char *at; /* bytes in memory */
    size_t left;
    bool is_gzip, is_begun; /* is_begun: inside a member */
    bool is_end;
    z_stream z;
    unsigned char raw[64 << 10];
    char head[SL_READ_HEAD];
    size_t head_len, head_at;
};

static long read_raw(struct file *file, void *buffer, size_t cap)
{
    ssize_t got;

    if (file->fd < 0) {
        got = (ssize_t)(file->left < cap ? file->left : cap);
        if (got > 0)
            memcpy(buffer, file->at, (size_t)got);
        file->at += got;
        file->left -= (size_t)got;
        return got;
    }
    do
        got = read(file->fd, buffer, cap);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return sl_fail(-errno, "%s cannot be read: %s", file->in.name, sluice_strerror(-errno));
    return got;
}

/* One step of zlib: how many bytes came out. Members may follow one another. */
static long inflate_some(struct file *file, void *buffer, size_t cap)
{
    int err;

    file->z.next_out = buffer;
    file->z.avail_out = (uInt)cap;
    err = inflate(&file->z, Z_NO_FLUSH);
    if (err == Z_STREAM_END) {
        file->is_begun = false;
        err = inflateReset(&file->z);
    }
    if (err != Z_OK && err != Z_BUF_ERROR)
        return sl_fail(err == Z_MEM_ERROR ? -ENOMEM : -EBADMSG, "%s is no whole gzip file: %s",
                       file->in.name, file->z.msg != NULL ? file->z.msg : "damaged");
    return (long)(cap - file->z.avail_out);
}

static long read_gzip(struct file *file, void *buffer, size_t cap)
{
    while (!file->is_end) {
        long got;

        if (file->z.avail_in == 0) {
            got = read_raw(file, file->raw, sizeof(file->raw));
            if (got < 0)
                return got;
            file->is_end = got == 0;
            if (got == 0 && file->is_begun)
                return sl_fail(-EBADMSG, "%s ends in the middle of its compressed data",
                               file->in.name);
            file->z.next_in = file->raw;
            file->z.avail_in = (uInt)got;
            file->is_begun = file->is_begun || got > 0;
            continue;
        }
        file->is_begun = true;
        got = inflate_some(file, buffer, cap);
        if (got != 0)
            return got;
    }
    return 0;
}

static long more(struct file *file, void *buffer, size_t cap)
{
    if (cap > (size_t)1 << 30)
        cap = (size_t)1 << 30;
    return file->is_gzip ? read_gzip(file, buffer, cap) : read_raw(file, buffer, cap);
}

/* First what was looked at. */
static long more_in(struct sl_read_in *in, void *buffer, size_t cap)
{
    struct file *file = (struct file *)in;
    size_t left = file->head_len - file->head_at;

    if (left == 0)
        return more(file, buffer, cap);
    left = left < cap ? left : cap;
    memcpy(buffer, file->head + file->head_at, left);
    file->head_at += left;
    return (long)left;
}

static int fill_head(struct file *file)
{
    while (file->head_len < sizeof(file->head)) {
        long got = more(file, file->head + file->head_len, sizeof(file->head) - file->head_len);

        if (got < 0)
            return (int)got;
        if (got == 0)
            return 0;
        file->head_len += (size_t)got;
    }
    return 0;
}

/* Looks whether it is compressed. */
static int begin(struct file *file)
{
    long got = read_raw(file, file->raw, sizeof(file->raw));

    if (got < 0)
        return (int)got;
    file->is_gzip = got >= 2 && file->raw[0] == 0x1f && file->raw[1] == 0x8b;
    if (!file->is_gzip) {
        memcpy(file->head, file->raw, (size_t)got);
        file->head_len = (size_t)got;
        return got == 0 ? 0 : fill_head(file);
    }
    if (inflateInit2(&file->z, 15 + 16) != Z_OK) {
        file->is_gzip = false;
        return sl_fail(-ENOMEM, "no memory to read %s", file->in.name);
    }
    file->z.next_in = file->raw;
    file->z.avail_in = (uInt)got;
    return fill_head(file);
}

/* ---- who reads it ---- */

static int refuse(const char *name)
{
    char known[512] = "";

    for (unsigned i = 0; sl_read_formats[i] != NULL; i++)
        sl_text_add(known, sizeof(known), "%s%s", i > 0 ? ", " : "", sl_read_formats[i]->name);
    return sl_fail(-EBADMSG, "%s is of no format that is known here (%s)", name, known);
}

static int read_in(struct sl_job *job, struct sl_read_in *in, const char *head, size_t len)
{
    if (len == 0)
        return sl_fail(-EBADMSG, "%s is empty", in->name);
    for (unsigned i = 0; sl_read_formats[i] != NULL; i++)
        if (sl_read_formats[i]->is(head, len))
            return sl_read_formats[i]->read(job, in);
    return refuse(in->name);
}

/* The file is open. */
static int read_open(struct file *file, sl_reader *reader, void *context)
{
    int err = begin(file);

    file->in.fd = file->is_gzip ? NULL : &file->fd;
    if (err == 0)
        err = reader(&file->in, file->head, file->head_len, context);
    if (file->is_gzip)
        inflateEnd(&file->z);
    return err;
}

static struct file *file_new(const char *name)
{
    struct file *file = calloc(1, sizeof(*file));

    if (file == NULL) {
        sl_fail(-ENOMEM, "no memory to read %s", name);
        return NULL;
    }
    file->in = (struct sl_read_in){.name = name, .more = more_in};
    file->fd = -1;
    return file;
}

int sl_read_with(const char *path, sl_reader *reader, void *context)
{
    struct file *file = file_new(path);
    int err;

    if (file == NULL)
        return -ENOMEM;
    file->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (file->fd < 0) {
        err = sl_fail(-errno, "%s cannot be opened: %s", path, sluice_strerror(-errno));
    } else {
        err = read_open(file, reader, context);
        close(file->fd);
    }
    free(file);
    return err;
}

static int read_job(struct sl_read_in *in, const char *head, size_t len, void *context)
{
    return read_in(context, in, head, len);
}

int sl_read_file(struct sl_job *job, const char *path)
{
    return sl_read_with(path, read_job, job);
}

int sl_read_bytes(struct sl_job *job, const char *name, const void *bytes, size_t len)
{
    struct file *file = file_new(name);
    int err;

    if (file == NULL)
        return -ENOMEM;
    file->at = bytes;
    file->left = len;
    err = read_open(file, read_job, job);
    free(file);
    return err;
}
