/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work that may hang, in a child process: the agent's loop never waits for it.
 *
 * A thread would be cheaper to start, but nothing ends a thread that waits in a resolver, in the
 * kernel or for a program that does; a process can be killed, and so can what it has started, as it
 * is the leader of a process group. It also brings what the work needs (libcurl, TLS) and takes it
 * along when it ends. It dies with the agent.
 */
#ifndef SL_MONITOR_CHILD_H
#define SL_MONITOR_CHILD_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct sl_mon_child {
    pid_t pid;   /* 0: none */
    pid_t group; /* of the last one, of which something may still be there; 0: nothing */
    int fd;
    uint64_t deadline_ns;
};

/* In the child, which has nothing of the agent open but its standard error. *answer goes back. */
typedef void (*sl_mon_child_work)(const void *arg, void *answer);

#define SL_MON_CHILD_ANSWER PIPE_BUF /* bytes at most, so that it comes whole */
#define SL_MON_CHILD_INIT                                                                          \
    {                                                                                              \
        .fd = -1                                                                                   \
    }

/* Borrows arg. now_ns and deadline_ns: of CLOCK_MONOTONIC, or of whichever clock the owner has. */
int sl_mon_child_start(struct sl_mon_child *child, sl_mon_child_work work, const void *arg,
                       size_t answer_len, uint64_t deadline_ns);
/* 1: it is over, and *answer is there. 0: it still works. -ETIMEDOUT: it was killed. -EIO: it ended
 * without an answer. Never waits. */
int sl_mon_child_poll(struct sl_mon_child *child, uint64_t now_ns, void *answer, size_t answer_len);
/* Kills it, if there is one. */
void sl_mon_child_kill(struct sl_mon_child *child);
/* Nothing of the last one is left: not even a program that cannot be killed, as it waits in the
 * kernel. */
bool sl_mon_child_is_gone(struct sl_mon_child *child);

/* ---- in the child ---- */

struct sl_mon_child_output {
    char *text; /* of standard output; ended; free() */
    size_t len;
    char error[256]; /* the beginning of standard error, on one line */
    int status;      /* of its exit; 128 + N: signal N */
};

#define SL_MON_CHILD_OUTPUT_MAX (16 << 20)

/* Runs a program, found in PATH, without a shell. environment: NULL: that of the agent. 0: it
 * ended, out->status says how. -ETIMEDOUT: not by deadline_ns of CLOCK_MONOTONIC, and it was
 * killed. -ENOENT, -EACCES. What it has started ends with the child process. */
int sl_mon_child_run(const char *const *argv, const char *const *environment, uint64_t deadline_ns,
                     struct sl_mon_child_output *out);
uint64_t sl_mon_child_now(void); /* CLOCK_MONOTONIC */

#endif
