/* SPDX-License-Identifier: Apache-2.0 */
/* Files of elements and of frames, a piece at a time; "-" is the standard input or output. */
#ifndef SC_TOOLS_COMPRESS_FILES_H
#define SC_TOOLS_COMPRESS_FILES_H

#include "compress/frame.h"

#include <stdbool.h>
#include <stddef.h>

/* A buffer that grows, aligned to 64. */
struct file_room {
    void *at;
    size_t len;
};

struct file_in {
    const char *name;
    int fd;
};

struct file_out {
    const char *name;
    int fd;
    bool is_ours; /* made by us: taken away again when all does not go well */
};

int file_open(const char *name, struct file_in *out);
void file_close(struct file_in *in);

/* in: the file that is read, which must not be the same. */
int file_create(const char *name, const struct file_in *in, struct file_out *out);
int file_write(struct file_out *out, const void *bytes, size_t len);
/* done: all was written. Otherwise the file goes. */
int file_finish(struct file_out *out, bool done);

/* Up to len bytes, fewer only at the end. *got: how many. */
int file_read(struct file_in *in, void *to, size_t len, size_t *got);

int file_room_grow(struct file_room *room, size_t len);
void file_room_free(struct file_room *room);

/* The next frame, whole, in room. *end: there was none. */
int file_read_frame(struct file_in *in, struct file_room *room, struct sl_frame *out, bool *end);

#endif
