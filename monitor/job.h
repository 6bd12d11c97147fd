/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work that may hang, in a child process: the agent's loop never waits for it.
 *
 * A thread would be cheaper to start, but nothing ends a thread that waits in a resolver, in the
 * kernel or for a program that does; a process can be killed, and so can what it has started, as it
 * is the leader of a process group. It also brings what the work needs (libcurl, TLS) and takes it
 * along when it ends. It dies with the agent.
 */
#ifndef SL_MONITOR_JOB_H
#define SL_MONITOR_JOB_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct sl_job {
    pid_t pid;   /* 0: none */
    pid_t group; /* of the last one, of which something may still be there; 0: nothing */
    int fd;
    uint64_t deadline_ns;
};

/* In the child, which has nothing of the agent open but its standard error. *answer goes back. */
typedef void (*sl_job_work)(const void *arg, void *answer);

#define SL_JOB_ANSWER PIPE_BUF /* bytes at most, so that it comes whole */
#define SL_JOB_INIT                                                                                \
    {                                                                                              \
        .fd = -1                                                                                   \
    }

/* Borrows arg. now_ns and deadline_ns: of CLOCK_MONOTONIC, or of whichever clock the owner has. */
int sl_job_start(struct sl_job *job, sl_job_work work, const void *arg, size_t answer_len,
                 uint64_t deadline_ns);
/* 1: it is over, and *answer is there. 0: it still works. -ETIMEDOUT: it was killed. -EIO: it ended
 * without an answer. Never waits. */
int sl_job_poll(struct sl_job *job, uint64_t now_ns, void *answer, size_t answer_len);
/* Kills it, if there is one. */
void sl_job_kill(struct sl_job *job);
/* Nothing of the last one is left: not even a program that cannot be killed, as it waits in the
 * kernel. */
bool sl_job_is_gone(struct sl_job *job);

/* ---- in the child ---- */

struct sl_job_output {
    char *text; /* of standard output; ended; free() */
    size_t len;
    char error[256]; /* the beginning of standard error, on one line */
    int status;      /* of its exit; 128 + N: signal N */
};

#define SL_JOB_OUTPUT_MAX (16 << 20)

/* Runs a program, found in PATH, without a shell. environment: NULL: that of the agent. 0: it
 * ended, out->status says how. -ETIMEDOUT: not by deadline_ns of CLOCK_MONOTONIC, and it was
 * killed. -ENOENT, -EACCES. What it has started ends with the job. */
int sl_job_run(const char *const *argv, const char *const *environment, uint64_t deadline_ns,
               struct sl_job_output *out);
uint64_t sl_job_now(void); /* CLOCK_MONOTONIC */

#endif
