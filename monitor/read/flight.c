/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PyTorch's Flight Recorder, versions 2.x, as a pickle or as JSON: one file a rank. It lists the
 * operations that a rank issued (all that it remembers, or those that have not ended), the members
 * of the rank's process groups, and the number of the last operation of each group.
 *
 * Which rank it is does not stand in it: the file's name ends with it (_dump_12), and the rank is a
 * member of all of its groups. Groups are counted by one number in "pg_config" and by another in
 * "pg_status"; entries tell both. Of a group without entries the order of both numbers tells, as
 * both count groups in the order in which they were made.
 */
#include "core/err.h"
#include "monitor/read/flight_ops.h"
#include "monitor/read/json.h"
#include "monitor/read/pickle.h"
#include "monitor/read/read.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GROUPS_MAX 4096 /* of one rank */

static int refuse(const struct sl_flight *flight, const char *what)
{
    return sl_fail(-EBADMSG, "%s: %s", flight->file, what);
}

static int too_many(const struct sl_flight *flight)
{
    return sl_fail(-ENOMEM, "%s holds more values than there is memory for", flight->file);
}

/* ---- process groups ---- */

/* "[0, 1, 2]", into flight->ranks. */
static int read_ranks(struct sl_flight *flight, const char *text, size_t len, uint32_t *count)
{
    size_t at = 1;

    *count = 0;
    if (len < 2 || text[0] != '[' || text[len - 1] != ']')
        return refuse(flight, "the ranks of a process group are no list");
    while (at < len - 1) {
        uint64_t rank = 0;
        size_t begin;

        while (text[at] == ' ' || (*count > 0 && text[at] == ','))
            at++;
        for (begin = at; text[at] >= '0' && text[at] <= '9' && rank <= SL_JOB_RANKS_MAX; at++)
            rank = rank * 10 + (uint64_t)(text[at] - '0');
        if (at == begin || rank >= SL_JOB_RANKS_MAX)
            return refuse(flight, "a process group has a member that is no rank");
        if (*count == flight->rank_cap) {
            size_t cap = flight->rank_cap == 0 ? 64 : flight->rank_cap * 2;
            uint32_t *ranks = reallocarray(flight->ranks, cap, sizeof(*ranks));

            if (ranks == NULL)
                return sl_fail(-ENOMEM, "no memory for the members of a process group");
            flight->ranks = ranks;
            flight->rank_cap = cap;
        }
        flight->ranks[(*count)++] = (uint32_t)rank;
    }
    return 0;
}

/* Two groups of one name with other members are two communicators. */
int sl_flight_comm(struct sl_flight *flight, struct sl_flight_group *group, uint32_t count)
{
    struct sl_job *job = flight->job;
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    char name[320];
    size_t len;
    int err;

    for (uint32_t i = 0; i < count; i++)
        hash = (hash ^ flight->ranks[i]) * 1099511628211u;
    snprintf(name, sizeof(name), "%.128s %.128s %016" PRIx64, group->name, group->desc, hash);
    err = sl_job_add_comm(job, sl_job_text(job, name, strlen(name)), &group->comm);
    if (err == 0 && count > 0)
        err = sl_job_set_members(job, group->comm, flight->ranks, count);
    if (err != 0)
        return err;
    if (group->desc[0] != '\0' && strcmp(group->desc, "undefined") != 0)
        len = (size_t)snprintf(name, sizeof(name), "%.128s (%.128s)", group->desc, group->name);
    else
        len = (size_t)snprintf(name, sizeof(name), "group %.128s", group->name);
    job->comms[group->comm].label = sl_job_text(job, name, len);
    return job->comms[group->comm].label != SL_JOB_NONE ? 0 : too_many(flight);
}

void sl_flight_text(const struct sl_flight *flight, uint32_t value, char *out, size_t cap)
{
    size_t len = 0;
    const char *text = sl_value_text(&flight->values, value, &len);

    len = text == NULL ? 0 : len < cap ? len : cap - 1;
    for (size_t i = 0; i < len; i++) /* it is printed */
        out[i] = (unsigned char)text[i] < ' ' ? '?' : text[i];
    out[len] = '\0';
}

int sl_flight_group(struct sl_flight *flight, const char *name, const char *desc,
                    struct sl_flight_group **out)
{
    struct sl_flight_group *groups;

    for (size_t i = 0; i < flight->group_count; i++)
        if (strcmp(flight->groups[i].name, name) == 0) {
            *out = &flight->groups[i];
            return 0;
        }
    if (flight->group_count == GROUPS_MAX)
        return refuse(flight, "it has too many process groups");
    groups = reallocarray(flight->groups, flight->group_count + 1, sizeof(*groups));
    if (groups == NULL)
        return sl_fail(-ENOMEM, "no memory for the process groups of %s", flight->file);
    flight->groups = groups;
    *out = &groups[flight->group_count++];
    **out = (struct sl_flight_group){.comm = SL_JOB_NONE, .status_id = -1};
    snprintf((*out)->name, sizeof((*out)->name), "%s", name);
    snprintf((*out)->desc, sizeof((*out)->desc), "%s", desc);
    return 0;
}

static int by_rank(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

/* Keeps, of the ranks that may be this file's, those that are members: the file's rank is in all of
 * its groups. */
static int narrow(struct sl_flight *flight, uint32_t count)
{
    uint32_t kept = 0;

    if (!flight->is_narrowed) {
        flight->own = reallocarray(NULL, count, sizeof(*flight->own));
        if (flight->own == NULL)
            return sl_fail(-ENOMEM, "no memory for the members of a process group");
        memcpy(flight->own, flight->ranks, count * sizeof(*flight->own));
        flight->own_count = count;
        flight->is_narrowed = true;
        return 0;
    }
    qsort(flight->ranks, count, sizeof(*flight->ranks), by_rank);
    for (uint32_t i = 0; i < flight->own_count; i++)
        if (bsearch(&flight->own[i], flight->ranks, count, sizeof(*flight->ranks), by_rank) != NULL)
            flight->own[kept++] = flight->own[i];
    flight->own_count = kept;
    return 0;
}

static int read_group(struct sl_flight *flight, uint32_t key, uint32_t config)
{
    const struct sl_values *values = &flight->values;
    struct sl_flight_group *group;
    char name[SL_FLIGHT_NAME], desc[SL_FLIGHT_NAME];
    uint32_t count = 0;
    const char *text;
    size_t len;
    int err;

    if (!sl_value_is(values, config, SL_VALUE_DICT))
        return refuse(flight, "\"pg_config\" has a group that is no dictionary");
    sl_flight_text(flight, key, name, sizeof(name));
    sl_flight_text(flight, sl_value_get(values, config, "desc"), desc, sizeof(desc));
    text = sl_value_text(values, sl_value_get(values, config, "ranks"), &len);
    if (name[0] == '\0' || text == NULL)
        return refuse(flight, "\"pg_config\" has a group without a name or ranks");
    err = read_ranks(flight, text, len, &count);
    if (err == 0)
        err = sl_flight_group(flight, name, desc, &group);
    if (err == 0)
        err = sl_flight_comm(flight, group, count);
    if (err == 0 && count > 0)
        err = narrow(flight, count);
    return err;
}

static int read_config(struct sl_flight *flight)
{
    uint32_t config = sl_value_get(&flight->values, flight->root, "pg_config"), link = 0, key,
             value;

    if (config != SL_VALUE_NONE && !sl_value_is(&flight->values, config, SL_VALUE_DICT))
        return refuse(flight, "\"pg_config\" is no dictionary");
    while (sl_value_next(&flight->values, config, &link, &key) &&
           sl_value_next(&flight->values, config, &link, &value)) {
        int err = read_group(flight, key, value);

        if (err != 0)
            return err;
    }
    return 0;
}

/* ---- which rank ---- */

/* The last number in the file's name, of which compression and kind are no part. */
static bool rank_in_name(const char *file, uint32_t *rank)
{
    const char *name = strrchr(file, '/') != NULL ? strrchr(file, '/') + 1 : file;
    size_t end = strlen(name), begin;

    while (end > 0 && (name[end - 1] < '0' || name[end - 1] > '9'))
        end--;
    for (begin = end; begin > 0 && name[begin - 1] >= '0' && name[begin - 1] <= '9';)
        begin--;
    if (begin == end || end - begin > 9)
        return false;
    *rank = (uint32_t)strtoul(name + begin, NULL, 10);
    return true;
}

static int find_rank(struct sl_flight *flight)
{
    int64_t told;
    uint32_t named = 0;
    bool is_named = rank_in_name(flight->file, &named), is_good;

    if (sl_value_int(&flight->values, sl_value_get(&flight->values, flight->root, "rank"), &told) &&
        told >= 0 && told < SL_JOB_RANKS_MAX) {
        flight->rank = (uint32_t)told;
        return 0;
    }
    is_good = is_named && named < SL_JOB_RANKS_MAX && !flight->is_narrowed;
    for (uint32_t i = 0; i < flight->own_count && is_named; i++)
        is_good = is_good || flight->own[i] == named;
    if (is_good || flight->own_count == 1) {
        flight->rank = is_good ? named : flight->own[0];
        return 0;
    }
    return refuse(flight, flight->own_count == 0 && flight->is_narrowed
                              ? "no rank is a member of all of its process groups"
                              : "it does not tell of which rank it is: the file's name has to end "
                                "with the rank, as _dump_12 does");
}

/* ---- the numbers of the last operations ---- */

static int by_number(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;

    return *x < *y ? -1 : *x > *y;
}

/* The groups' names as numbers, and the statuses' numbers, both ascending: they are the same groups
 * where there are as many, and where the entries do not say otherwise. */
static bool match_in_order(struct sl_flight *flight, const int64_t *ids, size_t count,
                           int64_t *names)
{
    bool is_good = count == flight->group_count;

    for (size_t i = 0; i < count && is_good; i++) {
        char *end;

        names[i] = strtoll(flight->groups[i].name, &end, 10);
        is_good = *end == '\0' && end != flight->groups[i].name;
    }
    if (is_good)
        qsort(names, count, sizeof(*names), by_number);
    for (size_t i = 0; i < count && is_good; i++)
        for (size_t k = 0; k < flight->group_count; k++) {
            struct sl_flight_group *group = &flight->groups[k];

            if (strtoll(group->name, NULL, 10) != names[i])
                continue;
            is_good = is_good && (group->status_id < 0 || group->status_id == ids[i]);
            group->order_id = ids[i];
        }
    return is_good;
}

/* 0: nothing was issued. */
static uint64_t number_of(const struct sl_flight *flight, uint32_t status, const char *key)
{
    int64_t number;

    return sl_value_int(&flight->values, sl_value_get(&flight->values, status, key), &number) &&
                   number > 0
               ? (uint64_t)number
               : 0;
}

static int add_status(struct sl_flight *flight, const struct sl_flight_group *group, int64_t id,
                      uint32_t all)
{
    char key[24];
    uint32_t status;
    struct sl_job_count count = {
        .rank = flight->rank, .comm = group->comm, .kind = SL_JOB_KINDS, .at_ns = SL_JOB_NEVER};

    snprintf(key, sizeof(key), "%" PRId64, id);
    status = sl_value_get(&flight->values, all, key);
    if (!sl_value_is(&flight->values, status, SL_VALUE_DICT))
        return 0;
    count.issued = number_of(flight, status, "last_enqueued_collective");
    count.done = number_of(flight, status, "last_completed_collective");
    return sl_job_add_count(flight->job, &count);
}

static int read_status(struct sl_flight *flight)
{
    const struct sl_values *values = &flight->values;
    uint32_t all = sl_value_get(values, flight->root, "pg_status"), link = 0, key, value;
    int64_t *ids;
    size_t count = 0;
    bool is_in_order;
    int err = 0;

    if (!sl_value_is(values, all, SL_VALUE_DICT))
        return 0;
    /* The statuses' numbers, and room for the groups' names. */
    ids = reallocarray(NULL, values->list[all].count + 2, sizeof(*ids));
    if (ids == NULL)
        return sl_fail(-ENOMEM, "no memory to read %s", flight->file);
    while (sl_value_next(values, all, &link, &key) && sl_value_next(values, all, &link, &value))
        if (sl_value_int(values, key, &ids[count]))
            count++;
    qsort(ids, count, sizeof(*ids), by_number);
    is_in_order = match_in_order(flight, ids, count, ids + count);
    for (size_t i = 0; i < flight->group_count && err == 0; i++) {
        const struct sl_flight_group *group = &flight->groups[i];

        if (group->status_id >= 0 || is_in_order)
            err = add_status(flight, group,
                             group->status_id >= 0 ? group->status_id : group->order_id, all);
    }
    free(ids);
    return err;
}

/* ---- the file ---- */

static int take(struct sl_flight *flight)
{
    const struct sl_values *values = &flight->values;
    char version[16];
    int err;

    if (!sl_value_is(values, flight->root, SL_VALUE_DICT))
        return refuse(flight, "the dump is no dictionary");
    sl_flight_text(flight, sl_value_get(values, flight->root, "version"), version, sizeof(version));
    if (strncmp(version, "2.", 2) != 0)
        return sl_fail(-EBADMSG,
                       "%s: version \"%s\" of Flight Recorder's dumps is not known, 2.x is",
                       flight->file, version);
    err = read_config(flight);
    if (err == 0)
        err = find_rank(flight);
    if (err == 0)
        err = sl_job_add_rank(flight->job, flight->rank);
    if (err == 0) {
        flight->job->ranks[flight->rank].is_told = true;
        err = sl_flight_entries(flight);
    }
    return err != 0 ? err : read_status(flight);
}

static int add_json(struct sl_flight *flight, struct sl_json *json, uint32_t *out)
{
    struct json_object *tree;
    int err = sl_json_value(json, &tree);

    if (err != 0)
        return err;
    *out = sl_value_add_json(&flight->values, tree);
    json_object_put(tree);
    return *out != SL_VALUE_NONE ? 0 : too_many(flight);
}

/* The entries one by one: json-c's trees take far more memory than values. */
static int read_list(struct sl_flight *flight, struct sl_json *json, uint32_t *out)
{
    uint32_t entry;
    int got = sl_json_open(json, '[');

    *out = sl_value_add(&flight->values, (struct sl_value){.type = SL_VALUE_LIST});
    if (got == 0 && *out == SL_VALUE_NONE)
        return too_many(flight);
    while (got == 0 && (got = sl_json_next(json, NULL, 0)) == 1) {
        got = add_json(flight, json, &entry);
        if (got == 0 && !sl_value_append(&flight->values, *out, entry))
            got = too_many(flight);
    }
    return got;
}

static int walk(struct sl_flight *flight, struct sl_json *json)
{
    char key[64];
    int got = sl_json_open(json, '{');

    flight->root = sl_value_add(&flight->values, (struct sl_value){.type = SL_VALUE_DICT});
    while (got == 0 && (got = sl_json_next(json, key, sizeof(key))) == 1) {
        uint32_t name = sl_value_add_text(&flight->values, key, strlen(key)), value;

        got = strcmp(key, "entries") == 0 ? read_list(flight, json, &value)
                                          : add_json(flight, json, &value);
        if (got == 0 && (flight->root == SL_VALUE_NONE || name == SL_VALUE_NONE ||
                         !sl_value_append(&flight->values, flight->root, name) ||
                         !sl_value_append(&flight->values, flight->root, value)))
            got = too_many(flight);
    }
    return got == 0 ? sl_json_end(json) : got;
}

static int finish(struct sl_flight *flight, int err)
{
    if (err == 0)
        err = take(flight);
    sl_values_fini(&flight->values);
    free(flight->groups);
    free(flight->ranks);
    free(flight->own);
    return err;
}

static int read_json(struct sl_job *job, struct sl_read_in *in)
{
    struct sl_flight flight = {.job = job, .file = in->name};
    struct sl_json *json = sl_json_new(in);
    int err;

    if (json == NULL)
        return sl_fail(-ENOMEM, "no memory to read %s", in->name);
    err = walk(&flight, json);
    sl_json_free(json);
    return finish(&flight, err);
}

static int read_pickle(struct sl_job *job, struct sl_read_in *in)
{
    struct sl_flight flight = {.job = job, .file = in->name};

    return finish(&flight, sl_pickle_read(in, &flight.values, &flight.root));
}

static char first_of(const char *head, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (strchr(" \t\r\n", head[i]) == NULL || head[i] == '\0')
            return head[i];
    return '\0';
}

/* No other format is a pickle: one that is no dump is refused with what is wrong with it. */
static bool is_pickle(const char *head, size_t len)
{
    return len >= 2 && (((unsigned char)head[0] == 0x80 && (unsigned char)head[1] <= 5) ||
                        (head[0] == '(' && head[1] == 'd') || head[0] == '}');
}

static bool is_json(const char *head, size_t len)
{
    return first_of(head, len) == '{' && (sl_read_has(head, len, "\"pg_config\"") ||
                                          sl_read_has(head, len, "\"collective_seq_id\""));
}

const struct sl_read_format sl_read_flight = {
    .name = "PyTorch Flight Recorder", .is = is_pickle, .read = read_pickle};
const struct sl_read_format sl_read_flight_json = {
    .name = "Flight Recorder in JSON", .is = is_json, .read = read_json};
