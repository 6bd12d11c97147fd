/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs that tests make up, a call at a time. */
#ifndef SL_TESTS_DIAGNOSIS_JOB_MAKER_H
#define SL_TESTS_DIAGNOSIS_JOB_MAKER_H

#include "monitor/diagnosis/hang.h"
#include "monitor/diagnosis/job.h"

/* The communicator of these members, which all are ranks that some source speaks for. */
uint32_t make_comm(struct sl_job *job, const char *name, const uint32_t *ranks, uint32_t count);
#define MAKE_COMM(job, name, ...)                                                                  \
    make_comm(job, name, (const uint32_t[]){__VA_ARGS__},                                          \
              sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))

/* A call at `at` seconds. */
void make_op(struct sl_job *job, uint32_t rank, uint32_t comm, int kind, uint64_t seq, int state,
             int64_t at);
void make_shaped(struct sl_job *job, uint32_t rank, uint32_t comm, int kind, uint64_t seq,
                 const char *shape, int64_t at);
void make_message(struct sl_job *job, uint32_t rank, uint32_t comm, int kind, uint32_t peer,
                  uint64_t seq, int state, int64_t at, bool is_own);

/* Seals the job and judges it, as seen at `now` seconds (-1: not known). */
void judge_job(struct sl_job *job, int64_t now, struct sl_verdicts *out);
/* "host_stalled 3" of each verdict, with a comma between them; of a link "comm_stuck 1>2". */
const char *verdicts_text(const struct sl_verdicts *verdicts);
bool verdicts_say(const struct sl_verdicts *verdicts, const char *words);

#endif
