/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A case: what came in of one job, the options, and what the rules make of it. The result is a pure
 * function of the set of inputs: neither their order nor that one came twice matters, so that two
 * instances that have the same set say the same, byte for byte, with the same ids.
 *
 *     struct sl_inputs *inputs = sl_inputs_new();
 *     sl_inputs_add(inputs, "h2.status.json", bytes, len);      as many as there are
 *     sl_case_judge(inputs, &options, &result);
 *     sl_case_write(inputs, &options, &result, "incident.case");
 *
 * A bundle (docs/diagnosis-verdicts.md has the form) keeps the inputs' bytes as they came, the
 * options and the result, with sums of all. No clock, no host's name, no program's version is in
 * it.
 */
#ifndef SL_MONITOR_CASES_CASE_H
#define SL_MONITOR_CASES_CASE_H

#include "monitor/cases/judge.h"
#include "monitor/diagnosis/digest.h"

#include <stdio.h>

#define SL_CASE_NAME_MAX 255
#define SL_CASE_SCOPE_MAX 127
#define SL_CASE_BYTES_MAX ((size_t)4 << 30) /* of all inputs of a bundle */

struct sl_input {
    char *name; /* without folders; a Flight Recorder's says the rank */
    char *bytes;
    size_t len;
    char sum[SL_DIGEST_TEXT];
};

struct sl_inputs {
    struct sl_input *list; /* by name (numbers in it by value), then by sum; each once */
    size_t count, cap, bytes;
};

struct sl_case_options {
    int64_t now_ns;                    /* when the job was looked at, or SL_JOB_NEVER */
    int64_t stall_ns;                  /* what is pending for less is no hang */
    double false_isolations;           /* a node and day, that are acceptable */
    char scope[SL_CASE_SCOPE_MAX + 1]; /* the job's name: part of ids. No controls */
};

#define SL_CASE_OPTIONS                                                                            \
    {                                                                                              \
        .now_ns = SL_JOB_NEVER, .stall_ns = SL_HANG_STALL_NS, .false_isolations = 1e-4             \
    }

struct sl_case_result {
    struct sl_job *job;
    struct sl_verdicts verdicts;
    char *text; /* JSON, a line for each verdict; ends with a line's end */
    size_t len;
};

/* NULL without memory. */
struct sl_inputs *sl_inputs_new(void);
void sl_inputs_free(struct sl_inputs *inputs);
/* Copies name (its last component) and bytes. -EINVAL: the name is empty, too long or has controls.
 * -EFBIG, -ENOMEM. */
int sl_inputs_add(struct sl_inputs *inputs, const char *name, const void *bytes, size_t len);
/* A file whole, as it is. -ENOENT, ... */
int sl_inputs_add_file(struct sl_inputs *inputs, const char *path);
/* The order of inputs: negative, 0, positive. */
int sl_input_order(const char *name_a, const char *sum_a, const char *name_b, const char *sum_b);

struct sl_judge_options sl_case_rules(const struct sl_case_options *options);
/* -EBADMSG: an input is of no known format, or damaged. -ENOMEM. The result is the caller's. */
int sl_case_judge(const struct sl_inputs *inputs, const struct sl_case_options *options,
                  struct sl_case_result *result);
void sl_case_result_free(struct sl_case_result *result);
/* The text of a result, of a job that was read in another way as well; NULL without memory. */
char *sl_case_text(const struct sl_job *job, size_t files, const struct sl_verdicts *verdicts,
                   size_t *len);

/* A bundle. -EIO, -ENOSPC, ... */
int sl_case_print(const struct sl_inputs *inputs, const struct sl_case_options *options,
                  const char *result, size_t result_len, FILE *file);
/* The same into a new file beside, then renamed. -EACCES, -ENOSPC, ... */
int sl_case_write(const struct sl_inputs *inputs, const struct sl_case_options *options,
                  const char *result, size_t result_len, const char *path);

/* What a bundle holds. */
struct sl_case {
    unsigned rules; /* that made the result */
    struct sl_case_options options;
    struct sl_inputs *inputs;
    char *result; /* ended by 0 */
    size_t result_len;
};

/* Strict: whatever differs from what sl_case_write() would write of it is -EBADMSG, with the place.
 * Nothing is allocated by what the bytes merely claim. */
int sl_case_parse(const char *name, const char *bytes, size_t len, struct sl_case *out);
int sl_case_read(const char *path, struct sl_case *out);
void sl_case_free(struct sl_case *it);
/* Is it a bundle of this form, by its first bytes? */
bool sl_case_is(const char *bytes, size_t len);

#endif
