/* SPDX-License-Identifier: Apache-2.0 */
/* Holds, prints and identifies schedules; builders (ring.c, direct.c, …) fill them. */
#include "schedules/schedule.h"

#include "core/err.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char *const coll_names[SL_COLL_COUNT] = {
    [SL_ALLREDUCE] = "allreduce",
    [SL_REDUCE_SCATTER] = "reduce_scatter",
    [SL_ALL_GATHER] = "all_gather",
    [SL_BROADCAST] = "broadcast",
    [SL_REDUCE] = "reduce",
    [SL_GATHER] = "gather",
    [SL_SCATTER] = "scatter",
    [SL_ALL_TO_ALL] = "all_to_all",
    [SL_ALL_TO_ALL_V] = "all_to_all_v",
    [SL_BARRIER] = "barrier",
    [SL_SEND] = "send",
    [SL_RECV] = "recv",
};

const char *sl_coll_name(enum sl_coll coll)
{
    return (unsigned)coll < SL_COLL_COUNT ? coll_names[coll] : "?";
}

bool sl_coll_reduces(enum sl_coll coll)
{
    return coll == SL_ALLREDUCE || coll == SL_REDUCE_SCATTER || coll == SL_REDUCE;
}

bool sl_coll_has_root(enum sl_coll coll)
{
    return coll == SL_BROADCAST || coll == SL_REDUCE || coll == SL_GATHER || coll == SL_SCATTER;
}

void sl_schedule_init(struct sl_schedule *schedule, const char *algo)
{
    *schedule = (struct sl_schedule){.algo = algo};
}

void sl_schedule_fini(struct sl_schedule *schedule)
{
    free(schedule->steps);
    free(schedule->deps);
    free(schedule->group);
    *schedule = (struct sl_schedule){.algo = schedule->algo};
}

/* Makes room for one more of `item` bytes behind count. */
static int grow(void **items, size_t item, uint32_t count, uint32_t *cap)
{
    uint32_t next = *cap == 0 ? 32 : *cap * 2;

    if (SL_LIKELY(count < *cap))
        return 0;
    if (*cap > UINT32_MAX / 4)
        return sl_fail(-ENOMEM, "a schedule of %" PRIu32 " steps is too long; raise the chunk size",
                       count);
    void *bigger = realloc(*items, next * item);
    if (bigger == NULL)
        return sl_fail(-ENOMEM, "no memory for a schedule of %" PRIu32 " steps", next);
    *items = bigger;
    *cap = next;
    return 0;
}

uint32_t sl_schedule_add(struct sl_schedule *schedule, const struct sl_step *step)
{
    if (schedule->error == 0)
        schedule->error = grow((void **)&schedule->steps, sizeof(*step), schedule->step_count,
                               &schedule->step_cap);
    if (schedule->error != 0)
        return 0;
    struct sl_step *place = &schedule->steps[schedule->step_count];

    *place = *step;
    place->dep_first = schedule->dep_count;
    place->dep_count = 0;
    if (step->channel >= schedule->channel_count)
        schedule->channel_count = step->channel + 1u;
    return schedule->step_count++;
}

void sl_schedule_depend(struct sl_schedule *schedule, uint32_t dep)
{
    if (schedule->error == 0)
        schedule->error =
            grow((void **)&schedule->deps, sizeof(dep), schedule->dep_count, &schedule->dep_cap);
    if (schedule->error != 0)
        return;
    schedule->deps[schedule->dep_count++] = dep;
    schedule->steps[schedule->step_count - 1].dep_count++;
}

int sl_schedule_finish(struct sl_schedule *schedule)
{
    return schedule->error;
}

static void print_place(FILE *out, unsigned buf, uint64_t off, uint64_t count)
{
    const char *name = sl_buf_name(buf);

    if (name != NULL)
        fprintf(out, " %s[%" PRIu64 "..%" PRIu64 ")", name, off, off + count);
    else
        fprintf(out, " buffer %u?", buf);
}

static void print_peer(FILE *out, const char *word, uint32_t peer)
{
    if (peer == SL_PEER_GROUP)
        fprintf(out, " %s group", word);
    else
        fprintf(out, " %s %" PRIu32, word, peer);
}

static void print_flags(FILE *out, const struct sl_step *step)
{
    if ((step->flags & SL_STEP_REMOTE_FIRST) != 0)
        fprintf(out, " remote-first");
    if ((step->flags & SL_STEP_TO_WIN) != 0)
        fprintf(out, " to-win");
    if ((step->flags & SL_STEP_FINAL) != 0)
        fprintf(out, " final");
    if ((step->flags & SL_STEP_UP_TO) != 0)
        fprintf(out, " up-to");
    if (step->src_buf == SL_BUF_WIRE && step->length_from != 0)
        fprintf(out, " length-of %" PRIu32, step->length_from - 1);
    if (step->term != 0)
        fprintf(out, " term %u", step->term);
    if (step->stage != 0)
        fprintf(out, " stage %u", step->stage);
    if (step->stream != 0 || step->tile != 0)
        fprintf(out, " stream %" PRIu32 " tile %" PRIu32, step->stream, step->tile);
    if (step->runner != 0)
        fprintf(out, " by-runner %u", step->runner);
}

/* What a side of the step takes of its buffer, in the buffer's unit. */
static uint64_t extent(const struct sl_step *step, unsigned buf)
{
    return buf == SL_BUF_WIRE || sl_step_is_term_side(step, buf) ? step->wire_len : step->count;
}

static void print_step(const struct sl_schedule *schedule, uint32_t idx, FILE *out)
{
    static const struct sl_step_row unknown = {.src = true};
    const struct sl_step *step = &schedule->steps[idx];
    const struct sl_step_row *row = step->kind < SL_STEP_KIND_COUNT ? sl_step_row(step) : &unknown;

    fprintf(out, "%5" PRIu32 "  ch%-2u %-11s", idx, step->channel, sl_step_kind_name(step->kind));
    if (row->tells || row->waits)
        fprintf(out, " %" PRIu32, step->value);
    if (step->src_buf != SL_BUF_NONE)
        print_place(out, step->src_buf, step->src_off, extent(step, step->src_buf));
    if (row->peer_word != NULL)
        print_peer(out, row->peer_word, step->peer);
    if (row->reads_theirs)
        print_place(out, SL_BUF_WIN, step->win_off, step->count);
    if (step->dst_buf != SL_BUF_NONE) {
        fprintf(out, " →");
        print_place(out, step->dst_buf, step->dst_off, extent(step, step->dst_buf));
    }
    if ((row->src || row->dst) && step->src_buf == SL_BUF_NONE && step->dst_buf == SL_BUF_NONE)
        fprintf(out, " nothing");
    print_flags(out, step);
    for (uint32_t i = 0; i < step->dep_count; i++)
        fprintf(out, "%s%" PRIu32, i == 0 ? " after " : ",", schedule->deps[step->dep_first + i]);
    fputc('\n', out);
}

void sl_schedule_print(const struct sl_schedule *schedule, FILE *out)
{
    fprintf(out, "%s: %" PRIu32 " steps, %" PRIu32 " channels, tmp %" PRIu64, schedule->algo,
            schedule->step_count, schedule->channel_count, schedule->tmp_count);
    if (schedule->wide_tmp)
        fprintf(out, " of f32");
    if (schedule->in_bytes)
        fprintf(out, ", in bytes");
    if (schedule->wire_bytes != 0)
        fprintf(out, ", wire %" PRIu64 " bytes", schedule->wire_bytes);
    if (schedule->win_values != 0) {
        fprintf(out, ", window %" PRIu64 " to post %" PRIu32 ", group", schedule->win_count,
                schedule->win_values);
        for (uint32_t i = 0; i < schedule->group_count; i++)
            fprintf(out, " %" PRIu32, schedule->group[i]);
    }
    fputc('\n', out);
    for (uint32_t i = 0; i < schedule->step_count; i++)
        print_step(schedule, i, out);
}

/* FNV-1a over whole words, finished by murmur3's mixer: names a shape, guards against no enemy. */
static uint64_t hash_word(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0x100000001b3);
    return hash ^ (hash >> 29);
}

uint32_t sl_shape_hash(const struct sl_shape *shape, const char *algo)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    uint32_t first = shape->root, second = 0;
    enum sl_coll coll = shape->coll;

    /* The two ends of a message are one operation. */
    if (coll == SL_SEND || coll == SL_RECV) {
        first = coll == SL_SEND ? shape->rank : shape->root;
        second = coll == SL_SEND ? shape->root : shape->rank;
        coll = SL_SEND;
    }
    for (const char *c = algo; *c != '\0'; c++)
        hash = hash_word(hash, (unsigned char)*c);
    hash = hash_word(hash, (uint64_t)coll);
    hash = hash_word(hash, shape->size);
    hash = hash_word(hash, first);
    hash = hash_word(hash, second);
    hash = hash_word(hash, shape->count);
    hash = hash_word(hash, shape->esize);
    hash = hash_word(hash, shape->chunk);
    hash = hash_word(hash, shape->win_count);
    for (uint32_t i = 0; i < shape->size; i++)
        hash = hash_word(hash, shape->host == NULL ? 0 : shape->host[i]);
    for (uint32_t i = 0; i < shape->size && shape->speed != NULL; i++)
        hash = hash_word(hash, shape->speed[i]);
    if (shape->code != NULL)
        hash = hash_word(hash, shape->code->mark);
    if (shape->inner != NULL)
        hash = hash_word(hash, shape->inner->mark);
    for (uint32_t i = 0; i < SL_CODE_TERMS_MAX; i++)
        for (const char *c = shape->within[i] != NULL ? shape->within[i]->name : ""; *c != '\0';
             c++)
            hash = hash_word(hash, (uint64_t)(i + 1) << 8 | (unsigned char)*c);
    hash ^= hash >> 33;
    hash *= UINT64_C(0xff51afd7ed558ccd);
    hash ^= hash >> 33;
    return (uint32_t)hash;
}

static uint64_t v_extent(const struct sl_shape *shape, const uint64_t *counts, const uint64_t *offs)
{
    uint64_t extent = 0;

    for (uint32_t i = 0; i < shape->size; i++) {
        if (counts[i] > 0 && offs[i] + counts[i] > extent)
            extent = offs[i] + counts[i];
    }
    return extent;
}

uint64_t sl_shape_in_count(const struct sl_shape *shape)
{
    switch (shape->coll) {
    case SL_REDUCE_SCATTER:
    case SL_ALL_TO_ALL: return shape->count * shape->size;
    case SL_SCATTER: return shape->rank == shape->root ? shape->count * shape->size : 0;
    case SL_BROADCAST: return shape->rank == shape->root ? shape->count : 0;
    case SL_ALL_TO_ALL_V: return v_extent(shape, shape->in_counts, shape->in_offs);
    case SL_BARRIER:
    case SL_RECV: return 0;
    default: return shape->count;
    }
}

uint64_t sl_shape_out_count(const struct sl_shape *shape)
{
    switch (shape->coll) {
    case SL_ALL_GATHER:
    case SL_ALL_TO_ALL: return shape->count * shape->size;
    case SL_GATHER: return shape->rank == shape->root ? shape->count * shape->size : 0;
    case SL_REDUCE: return shape->rank == shape->root ? shape->count : 0;
    case SL_ALL_TO_ALL_V: return v_extent(shape, shape->out_counts, shape->out_offs);
    case SL_BARRIER:
    case SL_SEND: return 0;
    default: return shape->count;
    }
}
