/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slurm, by scontrol and sinfo: a node is drained with a reason that begins with a mark of ours,
 * and only one with such a reason is undrained. Whoever changes the reason has the node.
 */
#include "monitor/isolate_plug.h"
#include "monitor/isolate_slurm.h"
#include "monitor/child.h"

#include "core/err.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SETTLE_NS                                                                                  \
    2100000000 /* times of reasons are seconds: those of the same one are there then */
#define PROGRAM (SL_MON_PATH + 16)

struct slurm {
    const struct sl_isolate_order *order;
};

static const char prefix[] = "sluice[";

/* ---- what it says ---- */

bool sl_slurm_mark(const char *reason, char *out, size_t cap)
{
    const char *from = reason + sizeof(prefix) - 1, *end;

    if (strncmp(reason, prefix, sizeof(prefix) - 1) != 0)
        return false;
    end = strchr(from, ']');
    if (end == NULL || !sl_isolate_is_mark(from, (size_t)(end - from)))
        return false;
    snprintf(out, cap, "%.*s", (int)(end - from), from);
    return true;
}

/* "drained*", "draining@", "down". */
static bool is_out(const char *state, size_t len)
{
    static const char *const words[] = {"drained", "draining", "down", "fail", "failing", "error"};

    while (len > 0 && strchr("*~#!%$@^-", state[len - 1]) != NULL)
        len--;
    for (unsigned i = 0; i < SL_ARRAY_LEN(words); i++)
        if (strlen(words[i]) == len && strncmp(state, words[i], len) == 0)
            return true;
    return false;
}

static bool is_drained(const char *state, size_t len)
{
    return (len >= 7 && strncmp(state, "drained", 7) == 0) ||
           (len >= 8 && strncmp(state, "draining", 8) == 0);
}

/* A row of sinfo: name, state, time of the reason, reason; between bars. */
struct row {
    const char *name, *state, *time, *reason;
    size_t name_len, state_len, time_len, reason_len;
};

static bool next_row(const char **at, struct row *out)
{
    const char *line = *at, *end = strchr(line, '\n');
    const char *bars[3], *from = line;

    if (*line == '\0')
        return false;
    if (end == NULL)
        end = line + strlen(line);
    *at = *end == '\n' ? end + 1 : end;
    memset(out, 0, sizeof(*out));
    out->name = out->state = out->time = out->reason = "";
    for (unsigned i = 0; i < 3; i++) {
        bars[i] = memchr(from, '|', (size_t)(end - from));
        if (bars[i] == NULL)
            return true; /* an empty row: it counts for nothing */
        from = bars[i] + 1;
    }
    *out = (struct row){.name = line,
                        .name_len = (size_t)(bars[0] - line),
                        .state = bars[0] + 1,
                        .state_len = (size_t)(bars[1] - bars[0] - 1),
                        .time = bars[1] + 1,
                        .time_len = (size_t)(bars[2] - bars[1] - 1),
                        .reason = bars[2] + 1,
                        .reason_len = (size_t)(end - bars[2] - 1)};
    return true;
}

static bool is_named(const struct row *row, const char *name)
{
    return row->name_len == strlen(name) && strncmp(row->name, name, row->name_len) == 0;
}

static bool has_mark(const struct row *row, char *out, size_t cap)
{
    char reason[SL_MON_TEXT];

    snprintf(reason, sizeof(reason), "%.*s",
             (int)(row->reason_len < sizeof(reason) ? row->reason_len : sizeof(reason) - 1),
             row->reason);
    return sl_slurm_mark(reason, out, cap);
}

/* By time, which is text of one form, then by name. What is out by others was always before. */
static bool is_before(const struct row *a, const struct row *b)
{
    size_t len = a->time_len < b->time_len ? a->time_len : b->time_len;
    int order = strncmp(a->time, b->time, len);

    if (order == 0 && a->time_len == b->time_len) {
        len = a->name_len < b->name_len ? a->name_len : b->name_len;
        order = strncmp(a->name, b->name, len);
        return order != 0 ? order < 0 : a->name_len < b->name_len;
    }
    return order != 0 ? order < 0 : a->time_len < b->time_len;
}

static void see_own(const struct row *own, struct sl_isolate_view *out)
{
    if (!is_drained(own->state, own->state_len))
        out->node = SL_ISOLATE_IS_IN; /* or down, which is not a matter of ours */
    else if (has_mark(own, out->mark, sizeof(out->mark)))
        out->node = SL_ISOLATE_OUT_BY_US;
    else
        out->node = SL_ISOLATE_OUT_BY_OTHERS;
}

int sl_slurm_view(const char *text, const char *node, struct sl_isolate_view *out)
{
    struct sl_isolate_view view = {.all = 0};
    struct row row, own = {.name = NULL}, last = {.name = ""};
    char mark[SL_ISOLATE_MARK];

    for (const char *at = text; next_row(&at, &row);)
        if (is_named(&row, node))
            own = row;
    if (own.name == NULL)
        return sl_fail(-ENOENT, "sinfo shows no node %s: [isolate] node names it as Slurm does",
                       node);
    see_own(&own, &view);
    for (const char *at = text; next_row(&at, &row);) {
        bool is_again =
            row.name_len == last.name_len && strncmp(row.name, last.name, row.name_len) == 0;

        last = row; /* once for each partition, one after the other */
        if (row.name_len == 0 || is_again)
            continue;
        view.all++;
        if (is_named(&row, node) || !is_out(row.state, row.state_len))
            continue;
        if (view.node != SL_ISOLATE_OUT_BY_US || !has_mark(&row, mark, sizeof(mark)) ||
            is_before(&row, &own))
            view.before++;
    }
    *out = view;
    return 0;
}

/* ---- asking it ---- */

static const char *program(const struct slurm *slurm, const char *name, char *room)
{
    const char *folder = slurm->order->config->isolate_slurm_bin;

    snprintf(room, PROGRAM, "%s%s%s", folder, folder[0] != '\0' ? "/" : "", name);
    return room;
}

static int run(const struct slurm *slurm, const char *const *argv, struct sl_mon_child_output *out)
{
    int err = sl_mon_child_run(argv, NULL, slurm->order->deadline_ns, out);

    if (err == -ENOENT)
        return sl_fail(err,
                       "there is no %s: Slurm's clients are missing (slurm-client), or "
                       "[isolate] slurm_bin is to say where they are",
                       argv[0]);
    if (err != 0)
        return err;
    if (out->status == 0)
        return 0;
    free(out->text);
    out->text = NULL;
    return sl_fail(-EIO, "%s %s ended with status %d%s%.200s", argv[0], argv[1], out->status,
                   out->error[0] != '\0' ? ": " : "", out->error);
}

static int look(void *arg, struct sl_isolate_view *out)
{
    const struct slurm *slurm = arg;
    char room[PROGRAM];
    /* -a: hidden partitions, too; -S N: the rows of one node follow one another. */
    const char *const argv[] = {
        program(slurm, "sinfo", room), "-haN", "-S", "N", "-o", "%N|%T|%H|%E", NULL};
    struct sl_mon_child_output output;
    int err = run(slurm, argv, &output);

    if (err != 0)
        return err;
    err = sl_slurm_view(output.text, slurm->order->node, out);
    free(output.text);
    return err;
}

static int update(const struct slurm *slurm, const char *state, const char *reason)
{
    char room[PROGRAM], node[SL_MON_NAME + 16], words[32], why[2 * SL_MON_TEXT];
    const char *argv[] = {program(slurm, "scontrol", room), "update", node, words, NULL, NULL};
    struct sl_mon_child_output output;
    int err;

    snprintf(node, sizeof(node), "nodename=%s", slurm->order->node);
    snprintf(words, sizeof(words), "state=%s", state);
    if (reason != NULL) {
        snprintf(why, sizeof(why), "reason=%s", reason);
        argv[4] = why;
    }
    err = run(slurm, argv, &output);
    if (err == 0)
        free(output.text);
    return err;
}

static int take_out(void *arg)
{
    const struct slurm *slurm = arg;
    char reason[2 * SL_MON_TEXT], why[SL_MON_TEXT];

    sl_isolate_reason(&slurm->order->action, why, sizeof(why));
    snprintf(reason, sizeof(reason), "%s%s]: %s", prefix, slurm->order->mark, why);
    return update(slurm, "drain", reason);
}

/* Not "resume": that would bring back a node that is down meanwhile, too. */
static int bring_back(void *arg)
{
    return update(arg, "undrain", NULL);
}

static void settle(void *arg)
{
    const struct timespec pause = {.tv_sec = SETTLE_NS / 1000000000,
                                   .tv_nsec = SETTLE_NS % 1000000000};

    (void)arg;
    (void)nanosleep(&pause, NULL);
}

static const struct sl_isolate_ops ops = {
    .look = look, .out = take_out, .back = bring_back, .settle = settle};

static void act(const struct sl_isolate_order *order, struct sl_isolate_answer *out)
{
    struct slurm slurm = {.order = order};

    sl_isolate_act(&ops, &slurm, order, out);
}

static void find(const struct sl_isolate_order *order, struct sl_isolate_answer *out)
{
    struct slurm slurm = {.order = order};

    sl_isolate_look(&ops, &slurm, out);
}

static int check(const struct sl_mon_config *config)
{
    (void)config;
    return 0; /* Slurm's programs may be installed later */
}

const struct sl_isolate_plug sl_isolate_slurm = {
    .name = "slurm", .check = check, .act = act, .find = find};
