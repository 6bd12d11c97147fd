/* SPDX-License-Identifier: Apache-2.0 */
/* The sum over causes: fuse.h has the model, fuse_say.c the sentences. */
#include "monitor/diagnosis/fuse.h"
#include "core/err.h"
#include "monitor/diagnosis/digest.h"
#include "monitor/diagnosis/fuse_inside.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How well a part explains a class of verdict: as a rule, at times, seldom. Assumptions, of which
 * only the order of magnitude is meant. */
#define RULE 1.0
#define TIMES 0.3
#define SELDOM 0.03

static const double fits[SL_VERDICT_CLASSES][SL_FAULTS] = {
    /*                               GPU     NIC     cable   host    software */
    [SL_VERDICT_HOST_STALLED] = {TIMES, SELDOM, SELDOM, RULE, RULE},
    [SL_VERDICT_GPU_STUCK] = {RULE, SELDOM, SELDOM, SELDOM, TIMES},
    [SL_VERDICT_DEAD] = {TIMES, SELDOM, SELDOM, RULE, RULE},
    [SL_VERDICT_COMM_STUCK] = {TIMES, RULE, RULE, SELDOM, SELDOM},
    [SL_VERDICT_SLOW_RANK] = {RULE, SELDOM, SELDOM, RULE, TIMES},
    [SL_VERDICT_SLOW_SENDER] = {TIMES, RULE, RULE, TIMES, SELDOM},
    [SL_VERDICT_SLOW_RECEIVER] = {TIMES, RULE, RULE, TIMES, SELDOM},
    [SL_VERDICT_SLOW_LINK] = {SELDOM, RULE, RULE, SELDOM, SELDOM},
    [SL_VERDICT_SLOW_GROUP] = {SELDOM, RULE, RULE, SELDOM, SELDOM},
    [SL_VERDICT_NODE_SILENT] = {SELDOM, TIMES, TIMES, RULE, TIMES},
    [SL_VERDICT_NODE_FAULT] = {RULE, RULE, RULE, RULE, RULE},
};

#define DOUBT 0.001   /* that nothing of this is the cause */
#define SET_MAX 0.999 /* of the probability that a rule may claim for its set */

double sl_fuse_threshold(const struct sl_fuse_options *options)
{
    double incidents = options->incidents > 0 ? options->incidents : sl_prior_incidents();
    double threshold = 1 - options->false_isolations / incidents;

    return threshold < 0.5 ? 0.5 : threshold > 0.99999 ? 0.99999 : threshold;
}

/* ---- ids ---- */

static void digest_object(struct sl_digest *digest, const struct sl_job *job,
                          const struct sl_object *object)
{
    char text[80];

    snprintf(text, sizeof(text), "%u %u %u", object->kind, object->a, object->b);
    sl_digest_add_text(digest, text);
    sl_digest_add_text(digest, sl_job_string(job, object->name));
}

/* Which hang it is, for who looks again and again: who hangs begins nothing more, and being slow
 * goes on. */
static void digest_watched(struct sl_digest *digest, const struct sl_job *job,
                           const struct sl_verdict *verdict)
{
    bool is_rank = verdict->accused.kind == SL_OBJECT_RANK && verdict->accused.a < job->rank_count;
    uint64_t begun = 0;
    char text[32];

    if (verdict->cls >= SL_VERDICT_SLOW_RANK)
        return;
    for (uint32_t r = 0; r < job->rank_count; r++)
        if (!is_rank || r == verdict->accused.a)
            begun += job->ranks[r].begun;
    snprintf(text, sizeof(text), "begun %llu", (unsigned long long)begun);
    sl_digest_add_text(digest, text);
}

/* Class, object and episode: what comes in later of the same incident leaves it. */
static void make_id(const struct sl_fuse *fuse, struct sl_verdict *verdict)
{
    struct sl_digest digest;
    char text[SL_DIGEST_TEXT];

    sl_digest_begin(&digest);
    sl_digest_add_text(&digest, fuse->options->scope != NULL ? fuse->options->scope : "");
    sl_digest_add_text(&digest, sl_verdict_class_name(verdict->cls));
    digest_object(&digest, fuse->job, &verdict->accused);
    if (verdict->episode[0] != '\0') {
        sl_digest_add_text(&digest, verdict->episode);
    } else if (fuse->job->is_watched) {
        digest_watched(&digest, fuse->job, verdict);
    } else if (verdict->since_ns != SL_JOB_NEVER) {
        snprintf(text, sizeof(text), "%lld", (long long)verdict->since_ns);
        sl_digest_add_text(&digest, text);
    } else {
        sl_digest_add_text(&digest, verdict->evidence_count > 0 ? verdict->evidence[0] : "");
    }
    sl_digest_end(&digest, text);
    memcpy(verdict->id, text, SL_VERDICT_ID - 1);
    verdict->id[SL_VERDICT_ID - 1] = '\0';
}

/* ---- objects and nodes ---- */

uint32_t sl_fuse_host_of(const struct sl_job *job, const struct sl_object *object)
{
    if (object->kind == SL_OBJECT_HOST)
        return object->name;
    if ((object->kind == SL_OBJECT_RANK || object->kind == SL_OBJECT_NIC) &&
        object->a < job->rank_count)
        return job->ranks[object->a].host;
    return 0;
}

const char *sl_fuse_device_of(const struct sl_job *job, const struct sl_object *object)
{
    if (object->kind == SL_OBJECT_RANK && object->a < job->rank_count)
        return sl_job_string(job, job->ranks[object->a].process);
    return object->kind == SL_OBJECT_NIC || object->kind == SL_OBJECT_LINK
               ? sl_job_string(job, object->name)
               : "";
}

/* A part of it can be at fault, so that the tables speak of it. */
static bool is_of_node(const struct sl_object *object)
{
    return object->kind == SL_OBJECT_RANK || object->kind == SL_OBJECT_HOST ||
           object->kind == SL_OBJECT_NIC || object->kind == SL_OBJECT_LINK;
}

/* What can be at fault of such an object. */
static bool has_part(const struct sl_object *object, unsigned fault)
{
    if (object->kind == SL_OBJECT_NIC)
        return fault == SL_FAULT_NIC || fault == SL_FAULT_CABLE;
    if (object->kind == SL_OBJECT_LINK)
        return fault == SL_FAULT_NIC || fault == SL_FAULT_CABLE;
    return true;
}

/* By what the object's odds are multiplied: of a link that at either end. */
static void weigh(const struct sl_fuse *fuse, const struct sl_object *object, double out[SL_FAULTS])
{
    const struct sl_job *job = fuse->job;
    uint32_t hosts[2] = {sl_fuse_host_of(job, object), 0};
    const char *device = sl_fuse_device_of(job, object);
    double more[SL_FAULTS];

    if (object->kind == SL_OBJECT_LINK) {
        hosts[0] = object->a < job->rank_count ? job->ranks[object->a].host : 0;
        hosts[1] = object->b < job->rank_count ? job->ranks[object->b].host : 0;
    }
    sl_evidence_weigh(&fuse->evidence, job, hosts[0], device, out);
    for (unsigned f = 0; f < SL_FAULTS; f++)
        out[f] *= sl_lemon_factor(&fuse->lemons, hosts[0], NULL);
    if (hosts[1] == 0 || hosts[1] == hosts[0])
        return;
    sl_evidence_weigh(&fuse->evidence, job, hosts[1], device, more);
    for (unsigned f = 0; f < SL_FAULTS; f++) {
        more[f] *= sl_lemon_factor(&fuse->lemons, hosts[1], NULL);
        out[f] = out[f] > more[f] ? out[f] : more[f];
    }
}

/* ---- the sum ---- */

static int add_cause(struct sl_sum *sum, struct sl_object object, const double parts[SL_FAULTS])
{
    double all = 0;

    for (unsigned f = 0; f < SL_FAULTS; f++)
        all += parts[f];
    sum->objects[sum->count] =
        (struct sl_weighed){.object = object, .weight = all, .at = sum->count};
    memcpy(sum->objects[sum->count].parts, parts, sizeof(sum->objects[0].parts));
    sum->count++;
    sum->all += all;
    return 0;
}

/* The shares of parts in what such a verdict comes from, for an object; their sum. */
static double prior_parts(const struct sl_verdict *verdict, const struct sl_object *object,
                          double out[SL_FAULTS])
{
    double sum = 0;

    for (unsigned f = 0; f < SL_FAULTS; f++) {
        out[f] = has_part(object, f) ? sl_prior_rate((enum sl_fault)f) * fits[verdict->cls][f] : 0;
        sum += out[f];
    }
    return sum;
}

static void add_set(const struct sl_fuse *fuse, const struct sl_verdict *verdict,
                    struct sl_sum *sum, double share)
{
    double parts[SL_FAULTS], ratios[SL_FAULTS];

    for (uint32_t i = 0; i <= verdict->other_count; i++) {
        struct sl_object object = i == 0 ? verdict->accused : verdict->others[i - 1];
        double all = prior_parts(verdict, &object, parts);

        /* Objects of a set are alike for the rule, before their nodes count. */
        weigh(fuse, &object, ratios);
        for (unsigned f = 0; f < SL_FAULTS; f++)
            parts[f] = is_of_node(&object) ? share * parts[f] / all * ratios[f] : 0;
        if (!is_of_node(&object))
            parts[SL_FAULT_FABRIC] = share;
        add_cause(sum, object, parts);
    }
}

static bool is_in_set(const struct sl_fuse *fuse, const struct sl_verdict *verdict, uint32_t host)
{
    for (uint32_t i = 0; i <= verdict->other_count; i++) {
        const struct sl_object *object = i == 0 ? &verdict->accused : &verdict->others[i - 1];

        if (sl_fuse_host_of(fuse->job, object) == host)
            return true;
        if (object->kind == SL_OBJECT_LINK &&
            ((object->a < fuse->job->rank_count && fuse->job->ranks[object->a].host == host) ||
             (object->b < fuse->job->rank_count && fuse->job->ranks[object->b].host == host)))
            return true;
    }
    return false;
}

/* The job's other hosts share what the rule leaves; of those that something was told of, or that
 * have a history, it is told apart. */
static void add_elsewhere(const struct sl_fuse *fuse, const struct sl_verdict *verdict,
                          struct sl_sum *sum, double share)
{
    double each = fuse->host_count > 0 ? share / fuse->host_count : 0;
    double parts[SL_FAULTS], ratios[SL_FAULTS], rest = share;

    for (uint32_t i = 0; i < fuse->host_count; i++) {
        struct sl_object object = {
            .kind = SL_OBJECT_HOST, .a = SL_JOB_NONE, .b = SL_JOB_NONE, .name = fuse->hosts[i]};
        size_t first;
        double all;

        if (sl_evidence_of(&fuse->evidence, fuse->hosts[i], &first) == 0 ||
            is_in_set(fuse, verdict, fuse->hosts[i]))
            continue;
        all = prior_parts(verdict, &object, parts);
        weigh(fuse, &object, ratios);
        for (unsigned f = 0; f < SL_FAULTS; f++)
            parts[f] = each * parts[f] / all * ratios[f];
        add_cause(sum, object, parts);
        rest -= each;
    }
    /* Whatever the product says, the model itself may be wrong. */
    sum->elsewhere = rest > DOUBT * sum->all ? rest : DOUBT * sum->all;
    sum->all += sum->elsewhere;
}

static int by_weight(const void *a, const void *b)
{
    const struct sl_weighed *x = a, *y = b;

    if (x->weight > y->weight || x->weight < y->weight)
        return x->weight > y->weight ? -1 : 1;
    return x->at < y->at ? -1 : 1;
}

/* The likeliest becomes the accused, the rest of the set stays; who is elsewhere joins the set only
 * as the accused. */
static int give_objects(struct sl_verdict *verdict, const struct sl_sum *sum, uint32_t set)
{
    uint32_t left = 0;

    if (sum->objects[0].at >= set && verdict->other_count < set) {
        /* The set has one more then. */
        int err = sl_verdict_other(verdict, sum->objects[0].object);

        if (err != 0)
            return err;
    }
    verdict->accused = sum->objects[0].object;
    for (uint32_t i = 1; i < sum->count; i++)
        if (sum->objects[i].at < set)
            verdict->others[left++] = sum->objects[i].object;
    return 0;
}

static int by_cause(const void *a, const void *b)
{
    const struct sl_cause *x = a, *y = b;
    int order;

    if (x->probability > y->probability || x->probability < y->probability)
        return x->probability > y->probability ? -1 : 1;
    order = sl_object_order(&x->object, &y->object);
    return order != 0 ? order : (int)x->fault - (int)y->fault;
}

static int give_causes(struct sl_verdict *verdict, const struct sl_sum *sum)
{
    struct sl_cause *causes;
    uint32_t count = 0, objects = sum->count < SL_CAUSES_MAX ? sum->count : SL_CAUSES_MAX;

    causes = calloc((size_t)objects * SL_FAULTS, sizeof(*causes));
    if (causes == NULL)
        return sl_fail(-ENOMEM, "no memory for the causes of a verdict");
    for (uint32_t i = 0; i < objects; i++)
        for (unsigned f = 0; f < SL_FAULTS; f++)
            if (sum->objects[i].parts[f] > 0)
                causes[count++] =
                    (struct sl_cause){.object = sum->objects[i].object,
                                      .fault = (uint8_t)f,
                                      .probability = sum->objects[i].parts[f] / sum->all};
    qsort(causes, count, sizeof(*causes), by_cause);
    verdict->causes = causes;
    verdict->cause_count = count < SL_CAUSES_MAX ? count : SL_CAUSES_MAX;
    return 0;
}

/* The hardware of one node: all objects on it together. */
static void give_node(const struct sl_fuse *fuse, struct sl_verdict *verdict,
                      const struct sl_sum *sum)
{
    uint32_t host = sl_fuse_host_of(fuse->job, &verdict->accused);
    bool is_node = verdict->accused.kind == SL_OBJECT_RANK ||
                   verdict->accused.kind == SL_OBJECT_HOST ||
                   verdict->accused.kind == SL_OBJECT_NIC;
    double weight = 0;

    for (uint32_t i = 0; i < sum->count && is_node; i++)
        if (i == 0 || (host != 0 && sl_fuse_host_of(fuse->job, &sum->objects[i].object) == host))
            for (unsigned f = 0; f < SL_FAULT_SOFTWARE; f++)
                weight += sum->objects[i].parts[f];
    verdict->node = is_node ? host : 0;
    verdict->node_probability = weight / sum->all;
    verdict->threshold = sl_fuse_threshold(fuse->options);
    verdict->act = is_node && verdict->node_probability >= verdict->threshold;
}

/* Of many verdicts of one moment once. */
static int find_evidence(struct sl_fuse *fuse, int64_t when_ns)
{
    int err;

    if (fuse->has_evidence && fuse->when_ns == when_ns)
        return 0;
    sl_evidence_free(&fuse->evidence);
    err = sl_evidence_find(fuse->job, when_ns, &fuse->evidence);
    fuse->has_evidence = err == 0;
    fuse->when_ns = when_ns;
    return err;
}

static int fuse_one(struct sl_fuse *fuse, struct sl_verdict *verdict)
{
    uint32_t set = verdict->other_count + 1;
    struct sl_sum sum = {.count = 0};
    double share = verdict->probability * set;
    int err;

    make_id(fuse, verdict);
    if (verdict->cls == SL_VERDICT_NOT_HUNG || verdict->accused.kind == SL_OBJECT_PROGRAM)
        return 0;
    /* What is told of nodes alone is what they have now. */
    err = find_evidence(fuse, verdict->cls < SL_VERDICT_JOB_CLASSES ? verdict->since_ns
                                                                    : fuse->job->now_ns);
    if (err != 0)
        return err;
    sum.objects = reallocarray(NULL, (size_t)set + fuse->host_count, sizeof(*sum.objects));
    if (sum.objects == NULL)
        return sl_fail(-ENOMEM, "no memory for the causes of a verdict");
    share = share < SET_MAX ? share : SET_MAX;
    add_set(fuse, verdict, &sum, share / set);
    add_elsewhere(fuse, verdict, &sum, 1 - share);
    qsort(sum.objects, sum.count, sizeof(*sum.objects), by_weight);
    err = give_objects(verdict, &sum, set);
    if (err == 0)
        err = give_causes(verdict, &sum);
    if (err == 0) {
        verdict->probability = sum.objects[0].weight / sum.all;
        verdict->elsewhere = sum.elsewhere / sum.all;
        give_node(fuse, verdict, &sum);
        err = sl_fuse_say(fuse, verdict, &sum);
    }
    free(sum.objects);
    return err;
}

/* ---- the job's hosts ---- */

static int by_name(const void *a, const void *b, void *context)
{
    return strcmp(sl_job_string(context, *(const uint32_t *)a),
                  sl_job_string(context, *(const uint32_t *)b));
}

static int find_hosts(struct sl_fuse *fuse)
{
    const struct sl_job *job = fuse->job;
    uint32_t count = 0, kept = 0;

    fuse->hosts = reallocarray(NULL, (size_t)job->rank_count + 1, sizeof(*fuse->hosts));
    if (fuse->hosts == NULL)
        return sl_fail(-ENOMEM, "no memory for the hosts of a job");
    for (uint32_t r = 0; r < job->rank_count; r++)
        if (job->ranks[r].host != 0)
            fuse->hosts[count++] = job->ranks[r].host;
    qsort_r(fuse->hosts, count, sizeof(*fuse->hosts), by_name, (void *)(uintptr_t)job);
    for (uint32_t i = 0; i < count; i++)
        if (i == 0 || fuse->hosts[i] != fuse->hosts[kept - 1])
            fuse->hosts[kept++] = fuse->hosts[i];
    fuse->host_count = kept;
    return 0;
}

int sl_fuse(const struct sl_job *job, const struct sl_fuse_options *options,
            struct sl_verdicts *verdicts)
{
    struct sl_fuse fuse = {.job = job, .options = options};
    int err = find_hosts(&fuse);

    if (err == 0)
        err = sl_lemons_make(job, options->half_life_days, &fuse.lemons);
    for (uint32_t i = 0; i < verdicts->count && err == 0; i++)
        err = fuse_one(&fuse, &verdicts->list[i]);
    sl_evidence_free(&fuse.evidence);
    sl_lemons_free(&fuse.lemons);
    free(fuse.hosts);
    return err;
}
