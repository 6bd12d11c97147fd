/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of others, into a job (monitor/diagnosis/job.h): strict, streaming, for files of any size.
 * A file is known by its beginning, not by its name; gzip is taken off. Nothing in a file is
 * executed, nothing is allocated by what a file merely claims.
 */
#ifndef SL_MONITOR_READ_H
#define SL_MONITOR_READ_H

#include "monitor/diagnosis/job.h"

#include <string.h>

/* Bytes of a file, one after another. */
struct sl_read_in {
    const char *name; /* for sentences */
    /* At most cap bytes: how many, 0 at the end, or a negative error with its sentence. */
    long (*more)(struct sl_read_in *in, void *buffer, size_t cap);
    const int
        *fd; /* the file itself, for what is read by places; NULL: it is compressed, or none */
};

struct sl_read_format {
    const char *name; /* "flight-recorder", ... */
    /* Is it this one, by its first bytes (at most 64 KiB)? */
    bool (*is)(const char *head, size_t len);
    /* -EBADMSG with a sentence that names the file and where in it. */
    int (*read)(struct sl_job *job, struct sl_read_in *in);
};

#define SL_READ_HEAD ((size_t)64 << 10) /* bytes by which a file is known */

/* Reads a file of any known format. -EBADMSG, -ENOENT, ...; where nobody knows it, the sentence
 * says which formats there are. */
int sl_read_file(struct sl_job *job, const char *path);
/* What is no job's: the file's first bytes, which come again. */
typedef int sl_reader(struct sl_read_in *in, const char *head, size_t len, void *context);
int sl_read_with(const char *path, sl_reader *reader, void *context);
/* The same of bytes that lie in memory. */
int sl_read_bytes(struct sl_job *job, const char *name, const void *bytes, size_t len);
/* All formats, NULL at the end: the first that says yes reads. One file of this folder each. */
extern const struct sl_read_format *const sl_read_formats[];
extern const struct sl_read_format sl_read_flight, sl_read_flight_json, sl_read_ras;

/* Is the text somewhere in these bytes, which may be no text themselves? */
static inline bool sl_read_has(const char *head, size_t len, const char *text)
{
    return memmem(head, len, text, strlen(text)) != NULL;
}

#endif
