/* SPDX-License-Identifier: Apache-2.0 */
/* The verdict on a run: who has to end, how, when, and in which words. */
#include "tests/fault/fault.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool fault_has_strangers(const struct fault_run *run)
{
    return run->kind == FAULT_GARBAGE || run->kind == FAULT_SLOW;
}

bool fault_harms_nobody(const struct fault_run *run)
{
    return fault_has_strangers(run) || run->kind == FAULT_LINK ||
           (run->kind == FAULT_GONE && run->rails > 1);
}

static bool names(const char *text, int rank)
{
    char name[16];
    const char *at = text;

    snprintf(name, sizeof(name), "rank %d", rank);
    while ((at = strstr(at, name)) != NULL) {
        at += strlen(name);
        if (*at < '0' || *at > '9')
            return true;
    }
    return false;
}

static bool right_code(const struct fault_run *run, int code)
{
    switch (run->kind) {
    case FAULT_KILL:
    case FAULT_RESET: return code == -ECONNRESET;
    case FAULT_STOP: return code == -ETIMEDOUT;
    case FAULT_HALF: return code == -ETIMEDOUT || code == -ECONNRESET;
    case FAULT_GONE: return code == -ETIMEDOUT || code == -EHOSTUNREACH;
    case FAULT_ABORT: return code == -ECANCELED;
    case FAULT_DESTROY: return code == -ECANCELED || code == -ECONNRESET;
    default: return code == 0;
    }
}

/* Of ports, the one to the rank that it waited for: their names end with both ranks' numbers. */
static bool names_port(const char *here, int rank)
{
    const char *peer = strstr(here, "rank ");
    char port[24];

    if (peer == NULL || strstr(peer, " by dpdk") == NULL)
        return true;
    snprintf(port, sizeof(port), "_%d_%d ", rank, atoi(peer + strlen("rank ")));
    return strstr(here, "net_memif_") != NULL && strstr(here, port) != NULL &&
           strstr(here, " paths up") != NULL;
}

static bool judge_error(const struct fault_run *run, int rank, char *why, size_t cap)
{
    const struct rank_report *report = &run->report[rank];
    const char *here = strstr(report->text, "; here: ");
    /* Of a connection or link both ends are as good as each other. */
    bool any = run->kind == FAULT_RESET || run->kind == FAULT_GONE;
    char head[640];

    snprintf(head, sizeof(head), "%.*s",
             here != NULL ? (int)(here - report->text) : (int)sizeof(head) - 1, report->text);
    if (!right_code(run, report->code))
        snprintf(why, cap, "rank %d ended with %d: %s", rank, report->code, report->text);
    else if (any ? strstr(head, "rank ") == NULL : !names(head, run->victim))
        snprintf(why, cap, "rank %d does not name rank %d: %s", rank, run->victim, report->text);
    else if (here != NULL && strstr(here, " at step ") == NULL)
        snprintf(why, cap, "rank %d does not name the step: %s", rank, report->text);
    else if (here != NULL && !names_port(here, rank))
        snprintf(why, cap, "rank %d does not name the port: %s", rank, report->text);
    return why[0] == '\0';
}

bool fault_judge(const struct fault_run *run, char *why, size_t cap, uint64_t *worst_ns)
{
    uint64_t fired = atomic_load(&run->fired_ns), allowed = SLACK_MS * NS_PER_MS;

    if (run->kind == FAULT_STOP || run->kind == FAULT_HALF || run->kind == FAULT_GONE)
        allowed += TIMEOUT_MS * NS_PER_MS;
    *worst_ns = 0;
    for (int i = 0; i < run->ranks; i++) {
        const struct rank_report *report = &run->report[i];
        uint64_t ended = atomic_load(&report->ended_ns);
        bool is_victim = i == run->victim && !fault_harms_nobody(run);

        if (is_victim && run->kind == FAULT_KILL)
            continue;
        if (report->complaint[0] != '\0') {
            snprintf(why, cap, "rank %d: %s: %.300s", i, report->complaint, report->text);
            return false;
        }
        if (ended == 0) {
            snprintf(why, cap, "rank %d did not end", i);
            return false;
        }
        if (fault_harms_nobody(run)) {
            *worst_ns = report->stall_ns > *worst_ns ? report->stall_ns : *worst_ns;
            if (report->code == 0)
                continue;
            snprintf(why, cap, "rank %d ended with %d: %s", i, report->code, report->text);
            return false;
        }
        /* One that was stopped, cut off or left learns in its own way. */
        if (is_victim && run->kind != FAULT_ABORT && run->kind != FAULT_RESET &&
            run->kind != FAULT_GONE) {
            if (report->code != 0 || run->kind == FAULT_DESTROY)
                continue;
            snprintf(why, cap, "rank %d, the victim, ended without an error", i);
            return false;
        }
        if (!judge_error(run, i, why, cap))
            return false;
        uint64_t took = ended > fired ? ended - fired : 0;

        *worst_ns = took > *worst_ns ? took : *worst_ns;
        if (took > allowed) {
            snprintf(why, cap, "rank %d ended %llu ms after the fault, but %llu ms are allowed: %s",
                     i, (unsigned long long)(took / NS_PER_MS),
                     (unsigned long long)(allowed / NS_PER_MS), report->text);
            return false;
        }
    }
    return true;
}
