/* SPDX-License-Identifier: Apache-2.0 */
/* The evidence of a node, in sentences. */
#include "core/err.h"
#include "monitor/diagnosis/fuse_inside.h"

#include <limits.h>
#include <stdio.h>

#define SHOWN 6 /* conditions of a host */

static const char *const parts[SL_FAULTS] = {"a GPU",    "a NIC",    "a cable",
                                             "the host", "software", "the fabric"};

/* " 3 min before it", " during it", "" where times are not known. */
static const char *when_of(const struct sl_verdict *verdict, const struct sl_job_event *event,
                           char out[64])
{
    int64_t since = verdict->since_ns;
    const char *side = "before";
    double gap;

    out[0] = '\0';
    if (since == SL_JOB_NEVER || event->at_ns == SL_JOB_NEVER)
        return out;
    if (event->at_ns <= since && event->end_ns >= since) {
        snprintf(out, 64, ", when it began");
        return out;
    }
    gap = ((double)since - (double)event->end_ns) / 1e9;
    if (gap < 0) {
        gap = ((double)event->at_ns - (double)since) / 1e9;
        side = "after";
    }
    snprintf(out, 64, gap < 120 ? ", %.0f s %s it began" : ", %.0f min %s it began",
             gap < 120 ? gap : gap / 60, side);
    return out;
}

static int say_condition(const struct sl_fuse *fuse, struct sl_verdict *verdict,
                         const struct sl_evidence *it)
{
    const struct sl_job *job = fuse->job;
    const struct sl_job_event *event = &job->events[it->event];
    const char *text = sl_job_string(job, event->text);
    unsigned best = 0;
    char when[64];

    for (unsigned f = 1; f < SL_FAULTS; f++)
        best = it->ratio[f] > it->ratio[best] ? f : best;
    return sl_verdict_say(
        verdict, "%.200s: %.40s %.100s, %.60s%s%.300s%s: %.3g times likelier where %s is at fault",
        sl_job_string(job, it->host), sl_job_string(job, event->kind),
        sl_job_string(job, event->subject), sl_job_string(job, event->check),
        text[0] != '\0' ? ", " : "", text, when_of(verdict, event, when), it->ratio[best],
        parts[best]);
}

/* The strongest of each family. */
static int say_host(const struct sl_fuse *fuse, struct sl_verdict *verdict, uint32_t host,
                    const char *device)
{
    size_t first, count = sl_evidence_of(&fuse->evidence, host, &first);
    unsigned shown = 0, family = UINT_MAX;
    int err = 0;

    for (size_t i = first; i < first + count && shown < SHOWN && err == 0; i++) {
        const struct sl_evidence *it = &fuse->evidence.list[i];

        if (it->family == family || sl_evidence_is_elsewhere(fuse->job, it, device))
            continue;
        family = it->family;
        err = say_condition(fuse, verdict, it);
        shown++;
    }
    if (err == 0 && count == 0 && sl_evidence_heard(&fuse->evidence, host))
        err = sl_verdict_say(verdict,
                             "%.200s: its agent answers and finds nothing wrong, which it would of "
                             "%.0f %% of faults of GPUs and of %.0f %% of cables and NICs",
                             sl_job_string(fuse->job, host),
                             100 * (1 - sl_evidence_silence(SL_FAULT_GPU)),
                             100 * (1 - sl_evidence_silence(SL_FAULT_CABLE)));
    return err;
}

static int say_history(const struct sl_fuse *fuse, struct sl_verdict *verdict, uint32_t host)
{
    uint32_t count;
    double factor = sl_lemon_factor(&fuse->lemons, host, &count);

    if (count == 0)
        return 0;
    return sl_verdict_say(verdict,
                          "%.200s had %u fault%s before: with older ones counting less, it fails "
                          "%.2g times as often as others",
                          sl_job_string(fuse->job, host), count, count == 1 ? "" : "s", factor);
}

int sl_fuse_say(const struct sl_fuse *fuse, struct sl_verdict *verdict, const struct sl_sum *sum)
{
    const struct sl_object *object = &sum->objects[0].object;
    const struct sl_job *job = fuse->job;
    uint32_t hosts[2] = {sl_fuse_host_of(job, object), 0};
    int err = 0;

    if (object->kind == SL_OBJECT_LINK) {
        hosts[0] = object->a < job->rank_count ? job->ranks[object->a].host : 0;
        hosts[1] = object->b < job->rank_count ? job->ranks[object->b].host : 0;
    }
    for (unsigned i = 0; i < 2 && err == 0; i++) {
        if (hosts[i] == 0 || (i == 1 && hosts[1] == hosts[0]))
            continue;
        err = say_host(fuse, verdict, hosts[i], sl_fuse_device_of(job, object));
        if (err == 0)
            err = say_history(fuse, verdict, hosts[i]);
    }
    return err;
}
