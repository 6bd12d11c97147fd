/* SPDX-License-Identifier: Apache-2.0 */
/* The entries of a Flight Recorder's dump: operations, in the order of their issue. */
#include "monitor/read/flight_ops.h"
#include "core/err.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct entry {
    uint32_t value; /* its dictionary */
    size_t number;
    char name[128];
    const struct sl_flight_group *group;
};

static int refuse(const struct sl_flight *flight, const struct entry *entry, const char *what)
{
    return sl_fail(-EBADMSG, "%s, entry %zu: %s", flight->file, entry->number, what);
}

static uint32_t get(const struct sl_flight *flight, const struct entry *entry, const char *key)
{
    return sl_value_get(&flight->values, entry->value, key);
}

/* JSON has 0 where pickles have None. */
static int64_t time_of(const struct sl_flight *flight, const struct entry *entry, const char *key)
{
    int64_t time;

    return sl_value_int(&flight->values, get(flight, entry, key), &time) && time > 0 ? time
                                                                                     : SL_JOB_NEVER;
}

/* ---- shapes ---- */

/* Bytes of an element, by PyTorch's name; 0: not known. */
static uint64_t size_of(const char *type)
{
    static const struct {
        const char *name;
        uint64_t bytes;
    } sizes[] = {{"Float8", 1}, {"BFloat16", 2}, {"Half", 2},         {"Float", 4},
                 {"Double", 8}, {"Byte", 1},     {"Char", 1},         {"Bool", 1},
                 {"Short", 2},  {"UInt16", 2},   {"UInt32", 4},       {"UInt64", 8},
                 {"Int", 4},    {"Long", 8},     {"ComplexFloat", 8}, {"ComplexDouble", 16}};

    for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        if (strncmp(type, sizes[i].name, strlen(sizes[i].name)) == 0)
            return sizes[i].bytes;
    return 0;
}

/* Elements of all tensors of a list of sizes. False: it is no such list, or there are too many. */
static bool count_elements(const struct sl_flight *flight, uint32_t sizes, uint64_t *out)
{
    const struct sl_values *values = &flight->values;
    uint32_t link = 0, tensor, inner, dimension;
    int64_t size;

    *out = 0;
    if (!sl_value_is(values, sizes, SL_VALUE_LIST))
        return false;
    while (sl_value_next(values, sizes, &link, &tensor)) {
        uint64_t count = 1;

        if (!sl_value_is(values, tensor, SL_VALUE_LIST))
            return false;
        for (inner = 0; sl_value_next(values, tensor, &inner, &dimension);)
            if (!sl_value_int(values, dimension, &size) || size < 0 ||
                __builtin_mul_overflow(count, (uint64_t)size, &count))
                return false;
        if (__builtin_add_overflow(*out, count, out))
            return false;
    }
    return true;
}

/* Which side of the operation is alike at all members, if any: uneven splits are good where each
 * rank has its own part. */
static const char *side_of(const struct entry *entry, uint8_t kind)
{
    bool is_base = strstr(entry->name, "_base") != NULL;

    switch (kind) {
    case SL_JOB_ALLREDUCE:
    case SL_JOB_BROADCAST:
    case SL_JOB_REDUCE: return "input_sizes";
    case SL_JOB_ALLGATHER: return is_base ? "input_sizes" : NULL;
    case SL_JOB_REDUCE_SCATTER: return is_base ? "output_sizes" : NULL;
    default: return NULL;
    }
}

static uint32_t first_member(const struct sl_flight *flight, uint32_t list)
{
    uint32_t link = 0, member;

    return sl_value_next(&flight->values, list, &link, &member) ? member : SL_VALUE_NONE;
}

static int set_shape(struct sl_flight *flight, const struct entry *entry, struct sl_job_op *op)
{
    const char *side = side_of(entry, op->kind);
    uint64_t count = 0, elements = 0;
    char type[32], shape[64];

    sl_flight_text(flight, first_member(flight, get(flight, entry, "input_dtypes")), type,
                   sizeof(type));
    if (count_elements(flight, get(flight, entry, "input_sizes"), &elements) &&
        __builtin_mul_overflow(elements, size_of(type), &op->bytes))
        op->bytes = 0;
    if (side != NULL && count_elements(flight, get(flight, entry, side), &count))
        snprintf(shape, sizeof(shape), "%" PRIu64 " x %s", count, type);
    else
        snprintf(shape, sizeof(shape), "%s", op->kind == SL_JOB_BARRIER ? "" : type);
    op->shape = sl_job_text(flight->job, shape, strlen(shape));
    return op->shape != SL_JOB_NONE ? 0 : sl_fail(-ENOMEM, "no memory for shapes");
}

/* ---- one entry ---- */

/* "(name, description)". */
static int find_group(struct sl_flight *flight, struct entry *entry)
{
    const struct sl_values *values = &flight->values;
    uint32_t pair = get(flight, entry, "process_group"), link = 0, part;
    char name[SL_FLIGHT_NAME] = "", desc[SL_FLIGHT_NAME] = "";
    struct sl_flight_group *group;
    int64_t id;
    int err;

    if (sl_value_next(values, pair, &link, &part))
        sl_flight_text(flight, part, name, sizeof(name));
    if (sl_value_next(values, pair, &link, &part))
        sl_flight_text(flight, part, desc, sizeof(desc));
    if (name[0] == '\0')
        return refuse(flight, entry, "it names no process group");
    err = sl_flight_group(flight, name, desc, &group);
    if (err == 0 && group->comm == SL_JOB_NONE)
        err = sl_flight_comm(flight, group, 0);
    if (err == 0 && sl_value_int(values, get(flight, entry, "pg_id"), &id) && id >= 0)
        group->status_id = id;
    entry->group = group;
    return err;
}

/* "send 0->3", "recv 3<-0": ranks of the group, the own one first. */
static bool find_peer(const struct sl_flight *flight, const struct entry *entry, uint32_t *peer)
{
    const struct sl_job_comm *comm = &flight->job->comms[entry->group->comm];
    const char *at = strchr(entry->name, ' ');
    unsigned long own, other;
    char *end;

    if (at == NULL || at[1] < '0' || at[1] > '9')
        return false;
    own = strtoul(at + 1, &end, 10);
    if ((strncmp(end, "->", 2) != 0 && strncmp(end, "<-", 2) != 0) || end[2] < '0' || end[2] > '9')
        return false;
    other = strtoul(end + 2, &end, 10);
    if (*end != '\0' || own >= comm->member_count || other >= comm->member_count ||
        comm->members[own] != flight->rank || comm->members[other] == flight->rank)
        return false;
    *peer = comm->members[other];
    return true;
}

static int set_state(const struct sl_flight *flight, const struct entry *entry,
                     struct sl_job_op *op)
{
    char state[16];

    sl_flight_text(flight, get(flight, entry, "state"), state, sizeof(state));
    if (strcmp(state, "completed") == 0)
        op->state = SL_JOB_DONE;
    else if (strcmp(state, "started") == 0)
        op->state = SL_JOB_STARTED;
    else if (strcmp(state, "scheduled") == 0)
        op->state = SL_JOB_ISSUED;
    else
        return refuse(flight, entry, "its state is none of scheduled, started, completed");
    return 0;
}

static int set_kind(const struct sl_flight *flight, const struct entry *entry, struct sl_job_op *op)
{
    bool is_message = sl_value_true(&flight->values, get(flight, entry, "is_p2p"));
    int64_t seq;

    op->kind = sl_job_kind_of(entry->name, strlen(entry->name));
    op->comm = entry->group->comm;
    if (!sl_value_int(&flight->values,
                      get(flight, entry, is_message ? "p2p_seq_id" : "collective_seq_id"), &seq) ||
        seq < 0)
        return refuse(flight, entry, "it has no number");
    op->seq = (uint64_t)seq;
    if (is_message != (op->kind == SL_JOB_SEND || op->kind == SL_JOB_RECV) ||
        (is_message && !find_peer(flight, entry, &op->peer))) {
        /* The end of a batch of messages, say: nobody can wait for it. */
        op->kind = SL_JOB_OTHER;
        op->comm = is_message ? SL_JOB_NONE : op->comm;
    }
    op->is_seq_own = is_message;
    return 0;
}

static int add_entry(struct sl_flight *flight, struct entry *entry)
{
    struct sl_job_op op = {.rank = flight->rank, .peer = SL_JOB_NONE, .step = SL_JOB_NONE};
    int err;

    if (!sl_value_is(&flight->values, entry->value, SL_VALUE_DICT))
        return refuse(flight, entry, "it is no dictionary");
    sl_flight_text(flight, get(flight, entry, "profiling_name"), entry->name, sizeof(entry->name));
    op.issue_ns = time_of(flight, entry, "time_created_ns");
    op.start_ns = time_of(flight, entry, "time_discovered_started_ns");
    op.end_ns = time_of(flight, entry, "time_discovered_completed_ns");
    op.name = sl_job_text(flight->job, entry->name, strlen(entry->name));
    if (op.name == SL_JOB_NONE)
        return sl_fail(-ENOMEM, "no memory for names");
    err = find_group(flight, entry);
    if (err == 0)
        err = set_state(flight, entry, &op);
    if (err == 0)
        err = set_kind(flight, entry, &op);
    if (err == 0)
        err = set_shape(flight, entry, &op);
    return err == 0 ? sl_job_add_op(flight->job, &op) : err;
}

int sl_flight_entries(struct sl_flight *flight)
{
    uint32_t entries = sl_value_get(&flight->values, flight->root, "entries"), link = 0;
    struct entry entry = {.number = 0};
    int err = 0;

    if (entries != SL_VALUE_NONE && !sl_value_is(&flight->values, entries, SL_VALUE_LIST))
        return sl_fail(-EBADMSG, "%s: \"entries\" is no list", flight->file);
    while (err == 0 && sl_value_next(&flight->values, entries, &link, &entry.value)) {
        err = add_entry(flight, &entry);
        entry.number++;
    }
    return err;
}
