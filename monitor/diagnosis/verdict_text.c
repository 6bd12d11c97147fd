/* SPDX-License-Identifier: Apache-2.0 */
/* Verdicts as text and as JSON. */
#include "monitor/diagnosis/verdict_text.h"
#include "core/err.h"

#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SHOWN 16 /* others, in text */

static const char *const kinds[] = {
    [SL_OBJECT_RANK] = "rank", [SL_OBJECT_HOST] = "host",     [SL_OBJECT_NIC] = "nic",
    [SL_OBJECT_LINK] = "link", [SL_OBJECT_SWITCH] = "switch", [SL_OBJECT_PROGRAM] = "program",
    [SL_OBJECT_RAIL] = "rail", [SL_OBJECT_PLANE] = "plane"};

static const char *host_of(const struct sl_job *job, uint32_t rank)
{
    return rank < job->rank_count ? sl_job_string(job, job->ranks[rank].host) : "";
}

void sl_object_text(const struct sl_job *job, const struct sl_object *object, char *out, size_t cap)
{
    const char *name = sl_job_string(job, object->name), *host = host_of(job, object->a);

    out[0] = '\0';
    switch (object->kind) {
    case SL_OBJECT_RANK:
        sl_text_add(out, cap, host[0] != '\0' ? "rank %u (host %s)" : "rank %u", object->a, host);
        break;
    case SL_OBJECT_LINK:
        sl_text_add(out, cap, "the link from rank %u to rank %u", object->a, object->b);
        if (name[0] != '\0')
            sl_text_add(out, cap, " (%s)", name);
        break;
    case SL_OBJECT_PROGRAM: sl_text_add(out, cap, "the program"); break;
    default:
        sl_text_add(out, cap, "%s%s%s", kinds[object->kind], name[0] != '\0' ? " " : "", name);
        if (object->a != SL_JOB_NONE)
            sl_text_add(out, cap, " of rank %u", object->a);
        if (object->a != SL_JOB_NONE && host[0] != '\0')
            sl_text_add(out, cap, " (host %s)", host);
    }
}

/* Clocks that begin with the job, as those of traces, tell no date. */
static bool is_date(int64_t ns)
{
    return ns >= 1000000000000000;
}

/* "2026-11-26T14:03:05.250Z" */
static const char *time_text(int64_t ns, char out[40])
{
    time_t seconds = (time_t)(ns / 1000000000);
    struct tm tm;
    char date[32];

    if (gmtime_r(&seconds, &tm) == NULL ||
        strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &tm) == 0)
        return "";
    snprintf(out, 40, "%s.%03dZ", date, (int)(ns / 1000000 % 1000));
    return out;
}

/* What sl_fuse() found. */
static void print_fused(const struct sl_job *job, const struct sl_verdict *verdict, FILE *out)
{
    char object[256];

    if (verdict->cause_count > 0)
        fputs("  cause: ", out);
    for (uint32_t i = 0; i < verdict->cause_count && i < 3; i++) {
        const struct sl_cause *cause = &verdict->causes[i];
        bool is_accused = sl_object_order(&cause->object, &verdict->accused) == 0;

        sl_object_text(job, &cause->object, object, sizeof(object));
        fprintf(out, "%s%s%s%s %.0f %%", i > 0 ? ", " : "", sl_fault_name(cause->fault),
                is_accused ? "" : " of ", is_accused ? "" : object, cause->probability * 100);
    }
    if (verdict->cause_count > 0)
        fprintf(out, "; elsewhere %.0f %%\n", verdict->elsewhere * 100);
    if (verdict->node != 0)
        fprintf(out,
                "  isolate %s: %s, its hardware is at fault with %.1f %% (%.1f %% are needed)\n",
                sl_job_string(job, verdict->node), verdict->act ? "yes" : "no",
                verdict->node_probability * 100, verdict->threshold * 100);
    fprintf(out, "  id %s\n", verdict->id);
}

static void print_one(const struct sl_job *job, const struct sl_verdict *verdict, FILE *out)
{
    char object[256], since[40];

    if (verdict->cls == SL_VERDICT_NOT_HUNG) {
        fputs("not_hung", out);
    } else {
        sl_object_text(job, &verdict->accused, object, sizeof(object));
        fprintf(out, "%s: %s, %.0f %%", sl_verdict_class_name(verdict->cls), object,
                verdict->probability * 100);
    }
    if (is_date(verdict->since_ns))
        fprintf(out, ", since %s", time_text(verdict->since_ns, since));
    fputc('\n', out);
    for (uint32_t i = 0; i < verdict->other_count && i < SHOWN; i++) {
        sl_object_text(job, &verdict->others[i], object, sizeof(object));
        fprintf(out, "%s%s", i == 0 ? "  or " : ", ", object);
    }
    if (verdict->other_count > SHOWN)
        fprintf(out, ", ... (%u in all)", verdict->other_count);
    if (verdict->other_count > 0)
        fputc('\n', out);
    for (uint32_t i = 0; i < verdict->evidence_count; i++)
        fprintf(out, "  - %s\n", verdict->evidence[i]);
    if (verdict->id[0] != '\0' && verdict->cls != SL_VERDICT_NOT_HUNG)
        print_fused(job, verdict, out);
}

void sl_verdicts_print(const struct sl_job *job, const struct sl_verdicts *verdicts, FILE *out)
{
    for (uint32_t i = 0; i < verdicts->count; i++)
        print_one(job, &verdicts->list[i], out);
}

/* ---- JSON ---- */

static void add_text(struct json_object *to, const char *key, const char *text)
{
    json_object_object_add(to, key, json_object_new_string(text));
}

static void add_number(struct json_object *to, const char *key, uint32_t number)
{
    json_object_object_add(to, key, json_object_new_int64(number));
}

static struct json_object *object_json(const struct sl_job *job, const struct sl_object *object)
{
    struct json_object *it = json_object_new_object();
    const char *name = sl_job_string(job, object->name), *host = host_of(job, object->a);

    add_text(it, "kind", kinds[object->kind]);
    if (object->kind == SL_OBJECT_LINK) {
        add_number(it, "from", object->a);
        add_number(it, "to", object->b);
    } else if (object->a != SL_JOB_NONE) {
        add_number(it, "rank", object->a);
    }
    if (host[0] != '\0')
        add_text(it, "host", host);
    if (name[0] != '\0')
        add_text(it, "name", name);
    return it;
}

static void add_share(struct json_object *to, const char *key, double share)
{
    char text[16];

    snprintf(text, sizeof(text), "%.3g", share);
    json_object_object_add(to, key, json_object_new_double_s(share, text));
}

static void add_fused(const struct sl_job *job, const struct sl_verdict *verdict,
                      struct json_object *it)
{
    struct json_object *causes = json_object_new_array();

    for (uint32_t i = 0; i < verdict->cause_count; i++) {
        struct json_object *cause = object_json(job, &verdict->causes[i].object);

        add_text(cause, "fault", sl_fault_name(verdict->causes[i].fault));
        add_share(cause, "probability", verdict->causes[i].probability);
        json_object_array_add(causes, cause);
    }
    json_object_object_add(it, "causes", causes);
    add_share(it, "elsewhere", verdict->elsewhere);
    json_object_object_add(
        it, "node",
        verdict->node != 0 ? json_object_new_string(sl_job_string(job, verdict->node)) : NULL);
    add_share(it, "node_probability", verdict->node_probability);
    add_share(it, "threshold", verdict->threshold);
    json_object_object_add(it, "act", json_object_new_boolean(verdict->act));
}

static struct json_object *verdict_json(const struct sl_job *job, const struct sl_verdict *verdict)
{
    struct json_object *it = json_object_new_object(), *others = json_object_new_array(),
                       *evidence = json_object_new_array();
    char since[40];

    if (verdict->id[0] != '\0')
        add_text(it, "id", verdict->id);
    add_text(it, "class", sl_verdict_class_name(verdict->cls));
    json_object_object_add(it, "accused", object_json(job, &verdict->accused));
    for (uint32_t i = 0; i < verdict->other_count; i++)
        json_object_array_add(others, object_json(job, &verdict->others[i]));
    json_object_object_add(it, "others", others);
    add_share(it, "probability", verdict->probability);
    json_object_object_add(it, "since",
                           is_date(verdict->since_ns)
                               ? json_object_new_string(time_text(verdict->since_ns, since))
                               : NULL);
    for (uint32_t i = 0; i < verdict->evidence_count; i++)
        json_object_array_add(evidence, json_object_new_string(verdict->evidence[i]));
    json_object_object_add(it, "evidence", evidence);
    if (verdict->id[0] != '\0')
        add_fused(job, verdict, it);
    return it;
}

struct json_object *sl_verdicts_json(const struct sl_job *job, const struct sl_verdicts *verdicts)
{
    struct json_object *list = json_object_new_array();

    for (uint32_t i = 0; i < verdicts->count; i++)
        json_object_array_add(list, verdict_json(job, &verdicts->list[i]));
    return list;
}

char *sl_verdicts_names(const struct sl_job *job, const struct sl_verdicts *verdicts)
{
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);

    if (out == NULL)
        return NULL;
    for (uint32_t i = 0; i < verdicts->count; i++) {
        const struct sl_verdict *it = &verdicts->list[i];
        char name[320];

        sl_object_text(job, &it->accused, name, sizeof(name));
        if (it->cls != SL_VERDICT_NOT_HUNG)
            fprintf(out, "%s %s\n", sl_verdict_class_name(it->cls), name);
    }
    return fclose(out) == 0 ? text : NULL;
}
