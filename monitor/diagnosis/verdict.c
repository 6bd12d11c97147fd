/* SPDX-License-Identifier: Apache-2.0 */
/* A list of verdicts, in an order that does not depend on which rule spoke first. */
#include "monitor/diagnosis/verdict.h"
#include "core/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[SL_VERDICT_CLASSES] = {
    [SL_VERDICT_NOT_HUNG] = "not_hung",       [SL_VERDICT_HOST_STALLED] = "host_stalled",
    [SL_VERDICT_GPU_STUCK] = "gpu_stuck",     [SL_VERDICT_DEAD] = "dead",
    [SL_VERDICT_COMM_STUCK] = "comm_stuck",   [SL_VERDICT_DEADLOCK] = "deadlock",
    [SL_VERDICT_MISMATCH] = "mismatch",       [SL_VERDICT_SLOW_RANK] = "slow_rank",
    [SL_VERDICT_SLOW_SENDER] = "slow_sender", [SL_VERDICT_SLOW_RECEIVER] = "slow_receiver",
    [SL_VERDICT_SLOW_LINK] = "slow_link",     [SL_VERDICT_SLOW_GROUP] = "slow_group",
    [SL_VERDICT_NODE_SILENT] = "node_silent", [SL_VERDICT_NODE_FAULT] = "node_fault",
};

const char *sl_verdict_class_name(enum sl_verdict_class cls)
{
    return (unsigned)cls < SL_VERDICT_CLASSES ? names[cls] : "unknown";
}

const char *sl_fault_name(enum sl_fault fault)
{
    static const char *const faults[SL_FAULTS] = {"gpu",  "nic",      "cable",
                                                  "host", "software", "fabric"};

    return (unsigned)fault < SL_FAULTS ? faults[fault] : "unknown";
}

/* Room for one more where there is none: at 4, 8, 16, ... */
static void *grow(void *list, uint32_t count, size_t size)
{
    void *more = list;

    if (count == 0 || (count >= 4 && (count & (count - 1)) == 0))
        more = reallocarray(list, count < 4 ? 4 : (size_t)count * 2, size);
    if (more == NULL)
        sl_fail(-ENOMEM, "no memory for a verdict");
    return more;
}

struct sl_verdict *sl_verdict_add(struct sl_verdicts *verdicts, enum sl_verdict_class cls,
                                  struct sl_object accused, double probability)
{
    struct sl_verdict *list = grow(verdicts->list, verdicts->count, sizeof(*list));

    if (list == NULL)
        return NULL;
    verdicts->list = list;
    list += verdicts->count++;
    *list = (struct sl_verdict){
        .cls = cls, .accused = accused, .probability = probability, .since_ns = SL_JOB_NEVER};
    return list;
}

int sl_verdict_other(struct sl_verdict *verdict, struct sl_object object)
{
    struct sl_object *others = grow(verdict->others, verdict->other_count, sizeof(*others));

    if (others == NULL)
        return -ENOMEM;
    verdict->others = others;
    others[verdict->other_count++] = object;
    return 0;
}

int sl_verdict_say(struct sl_verdict *verdict, const char *format, ...)
{
    char **evidence = grow(verdict->evidence, verdict->evidence_count, sizeof(*evidence));
    va_list args;
    int len;

    if (evidence == NULL)
        return -ENOMEM;
    verdict->evidence = evidence;
    va_start(args, format);
    len = vasprintf(&evidence[verdict->evidence_count], format, args);
    va_end(args);
    if (len < 0)
        return sl_fail(-ENOMEM, "no memory for what a verdict stands on");
    verdict->evidence_count++;
    return 0;
}

static int by_u32(uint32_t a, uint32_t b)
{
    return a < b ? -1 : a > b;
}

int sl_object_order(const struct sl_object *a, const struct sl_object *b)
{
    int order = by_u32(a->kind, b->kind);

    if (order == 0)
        order = by_u32(a->a, b->a);
    if (order == 0)
        order = by_u32(a->b, b->b);
    return order != 0 ? order : by_u32(a->name, b->name);
}

static int by_verdict(const void *a, const void *b)
{
    const struct sl_verdict *x = a, *y = b;
    int order = by_u32(x->cls, y->cls);

    if (order == 0)
        order = sl_object_order(&x->accused, &y->accused);
    return order != 0 ? order : strcmp(x->episode, y->episode);
}

void sl_verdicts_sort(struct sl_verdicts *verdicts)
{
    if (verdicts->count > 0)
        qsort(verdicts->list, verdicts->count, sizeof(*verdicts->list), by_verdict);
}

static void free_one(struct sl_verdict *verdict)
{
    for (uint32_t k = 0; k < verdict->evidence_count; k++)
        free(verdict->evidence[k]);
    free(verdict->evidence);
    free(verdict->others);
    free(verdict->causes);
}

void sl_verdicts_drop(struct sl_verdicts *verdicts, enum sl_verdict_class cls)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < verdicts->count; i++)
        kept += verdicts->list[i].cls != cls;
    if (kept == 0 || kept == verdicts->count)
        return;
    kept = 0;
    for (uint32_t i = 0; i < verdicts->count; i++)
        if (verdicts->list[i].cls == cls)
            free_one(&verdicts->list[i]);
        else
            verdicts->list[kept++] = verdicts->list[i];
    verdicts->count = kept;
}

void sl_verdicts_free(struct sl_verdicts *verdicts)
{
    for (uint32_t i = 0; i < verdicts->count; i++)
        free_one(&verdicts->list[i]);
    free(verdicts->list);
    *verdicts = (struct sl_verdicts){.list = NULL};
}
