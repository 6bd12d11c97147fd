/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of others, into a job (monitor/diagnosis/job.h): strict, streaming, for files of any size. A
 * file is known by its beginning, not by its name; gzip is taken off. Nothing in a file is executed,
 * nothing is allocated by what a file merely claims.
 */
#ifndef SL_MONITOR_READ_H
#define SL_MONITOR_READ_H

#include "monitor/diagnosis/job.h"

#include <stdio.h>

/* Bytes of a file, one after another. */
struct sl_read_in {
    const char *name; /* for sentences */
    /* At most cap bytes: how many, 0 at the end, or a negative error. */
    long (*more)(struct sl_read_in *in, void *buffer, size_t cap);
};

struct sl_read_format {
    const char *name; /* "flight-recorder", ... */
    /* Is it this one, by its first bytes (at most 64 KiB)? */
    bool (*is)(const char *head, size_t len);
    /* -EBADMSG with a sentence that names the file and where in it. */
    int (*read)(struct sl_job *job, struct sl_read_in *in);
};

/* Reads a file of any known format. -EBADMSG, -ENOENT, ...; the sentence says which formats there are. */
int sl_read_file(struct sl_job *job, const char *path);
/* All formats, NULL at the end. */
extern const struct sl_read_format *const sl_read_formats[];

#endif
