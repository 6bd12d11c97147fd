/* SPDX-License-Identifier: Apache-2.0 */
/* Who is slow: tables of times, and verdicts of those who stand out in them. */
#include "monitor/diagnosis/slow.h"
#include "core/err.h"
#include "monitor/diagnosis/change.h"
#include "monitor/diagnosis/peers.h"
#include "monitor/diagnosis/selftime.h"
#include "monitor/diagnosis/series.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANKS_PER_NODE 8 /* where hosts are not known */
#define TESTS 2          /* beside peers, and beside its own history */
#define SOON 3           /* ranks of a host that begin within so many steps of each other */
#define MATTERS 0.01     /* of a step: who costs less is not what makes the job slow */

struct slow {
    const struct sl_job *job;
    const struct sl_slow_options *options;
    struct sl_verdicts *verdicts;
    double ranks_per_node;
    double series; /* how many are tested */
};

/* A table that was judged, for its verdicts. */
struct view {
    const char *what, *unit; /* "its own work", "step" */
    const uint32_t *steps;   /* their numbers; NULL: at */
    const int64_t *at;       /* of a series */
    const int64_t *begin_ns; /* by rank and step, or NULL */
    double *took_s;          /* by rank and step, where begin_ns is; or NULL */
    uint32_t step_count;
    double threshold;
    struct sl_suspects found;
};

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

/* Ranks that a source speaks for, by the hosts that are known. */
static double count_ranks_per_node(const struct sl_job *job)
{
    uint32_t *hosts = reallocarray(NULL, job->rank_count + 1, sizeof(*hosts)), count = 0, nodes = 0;

    if (hosts == NULL)
        return RANKS_PER_NODE;
    for (uint32_t i = 0; i < job->rank_count; i++)
        if (job->ranks[i].is_told && job->ranks[i].host != 0)
            hosts[count++] = job->ranks[i].host;
    qsort(hosts, count, sizeof(*hosts), by_number);
    for (uint32_t i = 0; i < count; i++)
        nodes += i == 0 || hosts[i] != hosts[i - 1];
    free(hosts);
    return nodes > 0 ? (double)count / nodes : RANKS_PER_NODE;
}

/* ---- verdicts ---- */

/* Faults and false alarms of one node and day: their ratio, and the evidence beyond the threshold,
 * make the probability. Half of it where a rank could only be compared with itself. */
static double probability_of(const struct slow *slow, const struct view *view,
                             const struct sl_suspect *suspect)
{
    double wrong = exp(view->threshold - suspect->weight) / slow->options->node_days;
    double right = slow->options->faults / (slow->options->faults + wrong);

    return fmin(0.999, right) * (suspect->is_own ? 0.5 : 1);
}

static const char *place_of(const struct sl_job *job, uint32_t rank, char *text, size_t cap)
{
    const struct sl_job_rank *it = &job->ranks[rank];
    const char *host = sl_job_string(job, it->host), *process = sl_job_string(job, it->process);

    text[0] = '\0';
    if (it->replica != SL_JOB_NONE && it->stage != SL_JOB_NONE)
        sl_text_add(text, cap, " (data-parallel rank %u, stage %u)", it->replica, it->stage);
    if (host[0] != '\0')
        sl_text_add(text, cap, " on %.100s", host);
    if (process[0] != '\0')
        sl_text_add(text, cap, ", process %.100s", process);
    return text;
}

static long long number_of(const struct view *view, uint32_t step)
{
    return view->steps != NULL ? view->steps[step] : view->at[step];
}

static int say(const struct slow *slow, const struct view *view, const struct sl_suspect *suspect,
               struct sl_verdict *verdict)
{
    char place[256];
    int err;

    place_of(slow->job, suspect->rank, place, sizeof(place));
    if (suspect->is_own)
        err = sl_verdict_say(verdict,
                             "rank %u%s: %s takes %.2f times what it took before, from %s %lld on; "
                             "%u ranks do the same as it does, too few to compare",
                             suspect->rank, place, view->what, suspect->ratio, view->unit,
                             number_of(view, suspect->onset), suspect->peer_count);
    else
        err =
            sl_verdict_say(verdict,
                           "rank %u%s: %s takes %.2f times that of the %u ranks that do the same, "
                           "from %s %lld on; they differ by at most %.1f %%",
                           suspect->rank, place, view->what, suspect->ratio, suspect->peer_count,
                           view->unit, number_of(view, suspect->onset), suspect->spread * 100);
    if (err == 0)
        err = sl_verdict_say(
            verdict,
            "seen at %s %lld, after %u of them; evidence e^%.1f, where e^%.1f gives "
            "one false alarm in %.0f node-days",
            view->unit, number_of(view, suspect->alarm), suspect->alarm - suspect->onset + 1,
            suspect->weight, view->threshold, slow->options->node_days);
    return err;
}

static int64_t since(const struct view *view, const struct sl_suspect *suspect)
{
    if (view->begin_ns != NULL)
        return view->begin_ns[(size_t)suspect->rank * view->step_count + suspect->onset];
    return sl_series_is_time(view->at[suspect->onset]) ? view->at[suspect->onset] : SL_JOB_NEVER;
}

static struct sl_verdict *verdict_of(const struct slow *slow, struct sl_object object)
{
    for (uint32_t i = 0; i < slow->verdicts->count; i++) {
        struct sl_verdict *it = &slow->verdicts->list[i];

        if (it->cls == SL_VERDICT_SLOW_RANK && it->accused.kind == object.kind &&
            it->accused.a == object.a && it->accused.name == object.name)
            return it;
    }
    return NULL;
}

static int accuse(const struct slow *slow, const struct view *view,
                  const struct sl_suspect *suspect, struct sl_object object)
{
    struct sl_verdict *verdict = verdict_of(slow, object);
    double probability = probability_of(slow, view, suspect);

    if (verdict == NULL) {
        verdict = sl_verdict_add(slow->verdicts, SL_VERDICT_SLOW_RANK, object, probability);
        if (verdict == NULL)
            return -ENOMEM;
        verdict->since_ns = since(view, suspect);
    }
    verdict->probability = fmax(verdict->probability, probability);
    return say(slow, view, suspect, verdict);
}

/* All ranks of the suspect's host that the table has, two at least, began together. */
static bool is_whole_host(const struct slow *slow, const struct view *view,
                          const struct sl_suspect *suspect, const uint8_t *has)
{
    uint32_t host = slow->job->ranks[suspect->rank].host, ranks = 0, suspects = 0;

    if (host == 0)
        return false;
    for (uint32_t i = 0; i < slow->job->rank_count; i++)
        ranks += has[i] && slow->job->ranks[i].host == host;
    for (uint32_t i = 0; i < view->found.count; i++) {
        const struct sl_suspect *it = &view->found.list[i];

        suspects += slow->job->ranks[it->rank].host == host && it->onset <= suspect->onset + SOON &&
                    suspect->onset <= it->onset + SOON;
    }
    return ranks >= 2 && suspects == ranks;
}

/* has: by rank, whether the table has values of it. */
static int give_verdicts(const struct slow *slow, const struct view *view, const uint8_t *has)
{
    for (uint32_t i = 0; i < view->found.count; i++) {
        const struct sl_suspect *it = &view->found.list[i];
        struct sl_object object = {.kind = SL_OBJECT_RANK, .a = it->rank, .b = SL_JOB_NONE};
        int err;

        if (is_whole_host(slow, view, it, has))
            object = (struct sl_object){.kind = SL_OBJECT_HOST,
                                        .a = SL_JOB_NONE,
                                        .b = SL_JOB_NONE,
                                        .name = slow->job->ranks[it->rank].host};
        err = accuse(slow, view, it, object);
        if (err != 0)
            return err;
    }
    return 0;
}

/* What the rank adds to its steps since the onset, to what these take. */
static bool does_matter(const struct view *view, const struct sl_suspect *suspect)
{
    size_t row = (size_t)suspect->rank * view->step_count;
    int64_t begin = view->begin_ns[row + suspect->onset],
            end = view->begin_ns[row + suspect->alarm];
    double took_s = 0;

    for (uint32_t i = suspect->onset; i < suspect->alarm; i++)
        if (!isnan(view->took_s[row + i]))
            took_s += view->took_s[row + i];
    if (begin == SL_JOB_NEVER || end == SL_JOB_NEVER || end <= begin)
        return true;
    return took_s * (1 - 1 / suspect->ratio) >= MATTERS * (double)(end - begin) / 1e9;
}

static void leave_out_what_does_not_matter(struct view *view)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < view->found.count; i++)
        if (does_matter(view, &view->found.list[i]))
            view->found.list[count++] = view->found.list[i];
    view->found.count = count;
}

static int judge(const struct slow *slow, struct view *view, struct sl_peers_table *table,
                 double step_s)
{
    uint8_t *has = calloc(table->rank_count + 1, sizeof(*has));
    int err;

    if (has == NULL)
        return sl_fail(-ENOMEM, "no memory to compare the ranks of a job");
    for (uint32_t rank = 0; rank < table->rank_count; rank++)
        for (uint32_t i = 0; i < table->step_count && !has[rank]; i++)
            has[rank] = table->values[(size_t)rank * table->step_count + i] > 0;
    view->step_count = table->step_count;
    view->threshold = sl_change_threshold(slow->options->node_days, slow->ranks_per_node,
                                          TESTS * slow->series, step_s > 0 ? step_s : 1);
    err = sl_peers_judge(table, view->threshold, slow->options->margin, &view->found);
    if (err == 0 && view->took_s != NULL)
        leave_out_what_does_not_matter(view);
    if (err == 0)
        err = give_verdicts(slow, view, has);
    free(view->found.list);
    free(has);
    return err;
}

/* ---- tables ---- */

static int judge_work(const struct slow *slow, struct sl_selftime *self)
{
    struct view view = {.what = "its own work, without what it waited for",
                        .unit = "step",
                        .steps = self->steps,
                        .begin_ns = self->begin_ns};
    struct sl_peers_table table = {.rank_count = self->rank_count,
                                   .step_count = self->step_count,
                                   .values = self->seconds,
                                   .roles = self->roles,
                                   .replicas = self->replicas,
                                   .ranks = slow->job->ranks};
    size_t count = (size_t)self->rank_count * self->step_count;
    int err;

    /* Those of the table become what is left of them. */
    view.took_s = reallocarray(NULL, count, sizeof(*view.took_s));
    if (view.took_s == NULL)
        return sl_fail(-ENOMEM, "no memory for what the ranks of a job did themselves");
    memcpy(view.took_s, self->seconds, count * sizeof(*view.took_s));
    err = judge(slow, &view, &table, self->step_s);
    free(view.took_s);
    return err;
}

static int judge_series(const struct slow *slow, struct sl_series *series)
{
    char what[128];
    struct view view = {.what = what, .unit = "sample", .at = series->at};
    struct sl_peers_table table = {.rank_count = slow->job->rank_count,
                                   .step_count = series->step_count,
                                   .values = series->values,
                                   .roles = series->roles,
                                   .ranks = slow->job->ranks};

    snprintf(what, sizeof(what), "%.100s", sl_job_string(slow->job, series->name));
    return judge(slow, &view, &table, series->step_s);
}

static int judge_samples(const struct slow *slow, struct sl_series_list *list)
{
    struct sl_series series;
    int err;

    for (;;) {
        err = sl_series_next(list, &series);
        if (err == 1 && series.step_count > 0)
            err = judge_series(slow, &series) == 0 ? 1 : -ENOMEM;
        sl_series_fini(&series);
        if (err <= 0)
            return err;
    }
}

int sl_slow_find(const struct sl_job *job, const struct sl_slow_options *options,
                 struct sl_verdicts *verdicts)
{
    struct slow slow = {.job = job, .options = options, .verdicts = verdicts};
    struct sl_series_list list;
    struct sl_selftime self;
    int err = sl_series_open(job, &list);

    if (err != 0)
        return err;
    err = sl_selftime_find(job, options->step_least_s, &self);
    if (err == 0) {
        slow.ranks_per_node =
            options->ranks_per_node > 0 ? options->ranks_per_node : count_ranks_per_node(job);
        slow.series = list.count + (self.step_count > 0);
        if (self.step_count > 0)
            err = judge_work(&slow, &self);
    }
    sl_selftime_fini(&self);
    if (err == 0)
        err = judge_samples(&slow, &list);
    sl_series_close(&list);
    return err;
}
