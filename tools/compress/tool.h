/* SPDX-License-Identifier: Apache-2.0 */
/* sluice-compress: what its commands share. */
#ifndef SC_TOOLS_COMPRESS_TOOL_H
#define SC_TOOLS_COMPRESS_TOOL_H

#include "compress/codec.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { TOOL_DONE = 0, TOOL_FAILED = 1, TOOL_ARGUMENTS = 2 };

/* Elements of a frame in a file: 64 MiB of f32. The last frame has what is left. */
#define TOOL_FRAME_ELEMENTS ((size_t)16 << 20)

struct tool_options {
    const char *codecs[64]; /* of --codec */
    unsigned codec_count;
    const char *original;
    double link_bytes_per_second; /* of --link */
    size_t bytes;                 /* of --mib: elements that are measured */
    bool json;
    char **files; /* what follows the options */
    int file_count;
};

/* Each returns the exit status, after a sentence on stderr where it is not 0. */
int tool_encode(const struct tool_options *options);
int tool_decode(const struct tool_options *options);
int tool_inspect(const struct tool_options *options);
int tool_table(const struct tool_options *options);

/* The thread's last error goes to stderr. Returns TOOL_FAILED. */
int tool_complain(void);

#endif
