/* SPDX-License-Identifier: Apache-2.0 */
/* Verdicts of slow communication, and what they stand on. */
#include "core/err.h"
#include "monitor/diagnosis/comm_inside.h"
#include "monitor/diagnosis/probe_plan.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define SHOWN 8    /* members of a set, in a sentence */
#define OTHERS 256 /* of a verdict */

/* "1.5 ms". */
static const char *time_text(double seconds, char out[32])
{
    static const struct {
        double least;
        const char *unit;
    } units[] = {{1, "s"}, {1e-3, "ms"}, {1e-6, "us"}, {0, "ns"}};
    unsigned i = 0;

    while (units[i].least > 0 && seconds < units[i].least * 0.9995)
        i++;
    out[0] = '\0';
    sl_text_add(out, 32, "%.3g %s", units[i].least > 0 ? seconds / units[i].least : seconds * 1e9,
                units[i].unit);
    return out;
}

static double probability_of(const struct sl_comm_view *view, const struct sl_ambiguity *ambiguity,
                             const struct sl_comm_fault *fault, const struct sl_comm_weight *weight)
{
    double wrong = exp(weight->threshold - weight->evidence) / view->options->node_days;
    double right = view->options->faults / (view->options->faults + wrong), all = 0;

    for (uint32_t i = 0; i < fault->set_count; i++)
        all += sl_element_prior(&ambiguity->candidates[fault->set[i]].element);
    return fmin(0.999, right) * sl_element_prior(&ambiguity->candidates[fault->set[0]].element) /
           all;
}

static int say_ratio(const struct sl_comm_view *view, const struct sl_candidate *candidate,
                     const struct sl_comm_weight *weight, struct sl_verdict *verdict)
{
    double each = weight->seconds / fmax(weight->messages, 1);
    char name[256], now[32], else_[32];

    sl_element_text(view->places, &candidate->element, name, sizeof(name));
    return sl_verdict_say(
        verdict,
        "%s: %s take %.3g times what those of their size take elsewhere%s, %s in place of %s each "
        "(%.0f messages, %.3g bytes, %u pair%s of ranks); healthy parts differ by a spread of "
        "%.1f %%",
        name, view->state == SL_JOB_WAIT_FLUSH ? "flushes into GPU memory" : "messages",
        weight->ratio, view->round > 0 ? ", beyond what the other verdicts explain" : "",
        time_text(each, now), time_text(each / weight->ratio, else_), weight->messages,
        weight->bytes, candidate->hot, candidate->hot == 1 ? "" : "s", 100 * expm1(weight->spread));
}

static int say_set(const struct sl_comm_view *view, const struct sl_ambiguity *ambiguity,
                   const struct sl_comm_fault *fault, struct sl_verdict *verdict)
{
    char list[1024] = "", name[256];

    if (fault->set_count < 2)
        return 0;
    for (uint32_t i = 0; i < fault->set_count && i < SHOWN; i++) {
        sl_element_text(view->places, &ambiguity->candidates[fault->set[i]].element, name,
                        sizeof(name));
        sl_text_add(list, sizeof(list), "%s%s", i > 0 ? "; " : "", name);
    }
    if (fault->set_count > SHOWN)
        sl_text_add(list, sizeof(list), "; and %u more", fault->set_count - SHOWN);
    return sl_verdict_say(verdict, "nothing that was seen tells these apart: %s", list);
}

static int say_probes(const struct sl_comm_view *view, const struct sl_ambiguity *ambiguity,
                      const struct sl_comm_fault *fault, const uint8_t *is_bad,
                      struct sl_verdict *verdict)
{
    struct sl_element set[SL_PROBE_SET_MAX];
    uint32_t count = fault->set_count < SL_PROBE_SET_MAX ? fault->set_count : SL_PROBE_SET_MAX;
    struct sl_probe_plan plan;
    char list[1024] = "";
    int err;

    for (uint32_t i = 0; i < count; i++)
        set[i] = ambiguity->candidates[fault->set[i]].element;
    err = sl_probe_plan(view->places, set, count, is_bad, &plan);
    if (err != 0 || plan.count == 0)
        return err;
    for (uint32_t i = 0; i < plan.count; i++) {
        const struct sl_probe *probe = &plan.probes[i];
        const char *path = view->places->path_count > 1
                               ? sl_job_string(view->job, view->matrix->paths[probe->path])
                               : "";

        sl_text_add(list, sizeof(list), "%srank %u to rank %u%s%.60s", i > 0 ? ", " : "",
                    probe->src, probe->dst, path[0] != '\0' ? " on " : "", path);
    }
    if (plan.parts < fault->set_count)
        return sl_verdict_say(verdict, "to narrow it to one of %u parts of the set, probe %s",
                              plan.parts, list);
    return sl_verdict_say(verdict, "to tell them apart, probe %s", list);
}

static int say_evidence(const struct sl_comm_view *view, const struct sl_comm_weight *weight,
                        struct sl_verdict *verdict)
{
    int err = sl_verdict_say(verdict,
                             "evidence e^%.1f, where e^%.1f gives one false alarm in %.0f "
                             "node-days%s",
                             weight->evidence, weight->threshold, view->options->node_days,
                             view->tiers > 1 ? "; ports are of several speeds, and each was "
                                               "compared with those of its own"
                                             : "");

    if (err == 0 && weight->lost > 0)
        err = sl_verdict_say(verdict, "%.0f of its packets or messages were lost and sent again",
                             weight->lost);
    return err;
}

int sl_comm_say(const struct sl_comm_view *view, const struct sl_ambiguity *ambiguity,
                const struct sl_comm_fault *fault, const struct sl_comm_weight *weight,
                const uint8_t *is_bad)
{
    const struct sl_candidate *accused = &ambiguity->candidates[fault->set[0]];
    struct sl_verdict *verdict = sl_verdict_add(view->verdicts, sl_element_class(&accused->element),
                                                sl_element_object(view->places, &accused->element),
                                                probability_of(view, ambiguity, fault, weight));
    int err = verdict == NULL ? -ENOMEM : 0;

    for (uint32_t i = 1; i < fault->set_count && i <= OTHERS && err == 0; i++)
        err = sl_verdict_other(
            verdict,
            sl_element_object(view->places, &ambiguity->candidates[fault->set[i]].element));
    if (err == 0)
        err = say_ratio(view, accused, weight, verdict);
    if (err == 0)
        err = say_set(view, ambiguity, fault, verdict);
    if (err == 0)
        err = say_probes(view, ambiguity, fault, is_bad, verdict);
    if (err == 0)
        err = say_evidence(view, weight, verdict);
    return err;
}
