/* SPDX-License-Identifier: Apache-2.0 */
/* Tables and memory of a proof's run: numbers steps, channels and dependencies over all ranks. */
#include "testing/check_run.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Larger clocks would make the proof slow; see clock_words. */
#define CLOCK_WORDS_MAX 4096
#define CLOCK_BYTES_MAX (UINT64_C(256) << 20)

static int take(void **out, size_t count, size_t item)
{
    *out = calloc(count > 0 ? count : 1, item);
    return *out != NULL ? 0 : sl_fail(-ENOMEM, "no memory to prove a schedule");
}

static void number_lines(struct sl_run *run)
{
    uint32_t at = 0;

    for (uint32_t i = 0; i < run->step_count; i++)
        run->lines[run->steps[i].line].count++;
    for (uint32_t l = 0; l < run->line_count; l++) {
        run->lines[l].first = at;
        at += run->lines[l].count;
        run->lines[l].count = 0;
        run->lines[l].waiter_next = SL_SYM_NONE;
    }
    uint32_t *asyncs = run->line_clocks; /* scratch: all zero now, and cleared below */
    uint32_t jobs = 0;
    for (uint32_t i = 0; i < run->step_count; i++) {
        struct sl_run_line *line = &run->lines[run->steps[i].line];
        run->steps[i].place = line->count;
        run->steps[i].async_place = asyncs[run->steps[i].line];
        if (sl_run_data(run, i)->runner != 0)
            run->steps[i].async_place = jobs++;
        else
            asyncs[run->steps[i].line] += sl_step_is_async(sl_run_data(run, i));
        run->line_steps[line->first + line->count++] = i;
    }
    memset(asyncs, 0, run->line_count * sizeof(*asyncs));
}

/* Who waits for whom, by counting: first how many, then the lists. */
static void number_deps(struct sl_run *run)
{
    uint32_t at = 0, posts = 0;

    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t r = 0; r < run->size; r++) {
            const struct sl_schedule *schedule = &run->schedules[r];
            uint32_t base = run->ranks[r].base;
            for (uint32_t i = 0; i < schedule->step_count; i++) {
                const struct sl_step *step = &schedule->steps[i];
                for (uint32_t d = 0; d < step->dep_count; d++) {
                    struct sl_run_step *dep =
                        &run->steps[base + schedule->deps[step->dep_first + d]];
                    if (pass == 1)
                        run->outs[dep->out_first + dep->out_count] = base + i;
                    dep->out_count++;
                }
                run->steps[base + i].left = step->dep_count;
            }
        }
        for (uint32_t i = 0; pass == 0 && i < run->step_count; i++) {
            run->steps[i].out_first = at;
            at += run->steps[i].out_count;
            run->steps[i].out_count = 0;
        }
    }
    for (uint32_t r = 0; r < run->size; r++) {
        run->ranks[r].post_first = posts;
        for (uint32_t i = 0; i < run->schedules[r].step_count; i++) {
            if (sl_step_row(&run->schedules[r].steps[i])->tells)
                run->posts[posts++] = run->ranks[r].base + i;
        }
        run->ranks[r].post_count = posts - run->ranks[r].post_first;
    }
}

/* Clocks are kept of the steps that others may ask for. */
static int clocks_init(struct sl_run *run)
{
    uint64_t slots = 0, words = 2 * (uint64_t)run->line_count;

    for (uint32_t i = 0; i < run->step_count; i++)
        words += sl_run_data(run, i)->runner != 0;
    for (uint32_t i = 0; i < run->step_count; i++) {
        const struct sl_step *step = sl_run_data(run, i);
        bool wanted =
            run->steps[i].out_count > 0 || sl_step_is_async(step) || sl_step_row(step)->tells;
        run->steps[i].clock = wanted ? (uint32_t)slots++ : SL_SYM_NONE;
    }
    if (words > CLOCK_WORDS_MAX || slots * words * sizeof(uint32_t) > CLOCK_BYTES_MAX)
        return 0;
    run->clock_words = (uint32_t)words;
    /* Slots are written before they are read: no need for zeroes. */
    /* NOLINTNEXTLINE(clang-analyzer-optin.portability.UnixAPI): a rank has a step, so words > 0 */
    run->clocks = malloc((slots > 0 ? slots : 1) * words * sizeof(uint32_t));
    if (run->clocks == NULL)
        return sl_fail(-ENOMEM, "no memory to prove a schedule");
    free(run->line_clocks);
    run->line_clocks = NULL;
    return take((void **)&run->line_clocks, (size_t)run->line_count * words, sizeof(uint32_t));
}

static int memory_init(struct sl_run *run, uint32_t r)
{
    const struct sl_shape *shape = &run->shapes[r];
    const struct sl_schedule *schedule = &run->schedules[r];
    struct sl_run_rank *rank = &run->ranks[r];
    uint64_t in = sl_shape_in_count(shape), out = sl_shape_out_count(shape);
    int rc;

    rank->alias = shape->in_place;
    if (rank->alias && (shape->coll == SL_ALL_GATHER || shape->coll == SL_GATHER))
        rank->in_base = out > 0 ? r * shape->count : 0;
    if (rank->alias && (shape->coll == SL_REDUCE_SCATTER || shape->coll == SL_SCATTER))
        rank->out_base = in > 0 ? r * shape->count : 0;
    uint64_t in_end = rank->in_base + in, out_end = rank->out_base + out;
    uint8_t home = rank->alias ? SL_BUF_OUT : SL_BUF_IN;
    if (rank->alias && in_end > out_end)
        out_end = in_end;
    if ((rc = sl_sym_region_init(&rank->regions[SL_BUF_IN], rank->alias ? 0 : in)) != 0 ||
        (rc = sl_sym_region_init(&rank->regions[SL_BUF_OUT], out_end)) != 0 ||
        (rc = sl_sym_region_init(&rank->regions[SL_BUF_TMP], schedule->tmp_count)) != 0 ||
        (rc = sl_sym_region_init(&rank->regions[SL_BUF_WIN], schedule->win_count)) != 0 ||
        (rc = sl_sym_region_init(&rank->regions[SL_BUF_WIRE], schedule->wire_bytes)) != 0)
        return rc;
    uint32_t first = sl_sym_split(&rank->regions[home], rank->in_base);
    uint32_t last = sl_sym_split(&rank->regions[home], rank->in_base + in);
    if (first == SL_SYM_NONE || last == SL_SYM_NONE)
        return -ENOMEM;
    if (in == 0)
        return 0;
    run->strip.count = 0;
    if ((rc = sl_sym_strip_add(&run->strip, in, r + 1, 0)) != 0)
        return rc;
    return sl_sym_replace(&rank->regions[home], first, last, &run->strip, SL_SYM_NONE);
}

static int tables_init(struct sl_run *run)
{
    size_t deps = 0;
    int rc;

    for (uint32_t r = 0; r < run->size; r++)
        deps += run->schedules[r].dep_count;
    if ((rc = take((void **)&run->pairs, (size_t)run->size * run->size, sizeof(*run->pairs))) ||
        (rc = take((void **)&run->lines, run->line_count, sizeof(*run->lines))) ||
        (rc = take((void **)&run->line_clocks, run->line_count, sizeof(uint32_t))) ||
        (rc = take((void **)&run->steps, run->step_count, sizeof(*run->steps))) ||
        (rc = take((void **)&run->line_steps, run->step_count, sizeof(uint32_t))) ||
        (rc = take((void **)&run->posts, run->step_count, sizeof(uint32_t))) ||
        (rc = take((void **)&run->outs, deps, sizeof(uint32_t))) ||
        (rc = take((void **)&run->ready, (size_t)run->line_count + run->step_count,
                   sizeof(*run->ready))))
        return rc;
    for (size_t i = 0; i < (size_t)run->size * run->size; i++)
        run->pairs[i] = (struct sl_run_pair){SL_SYM_NONE, SL_SYM_NONE, SL_SYM_NONE, SL_SYM_NONE, 0};
    return 0;
}

int sl_run_init(struct sl_run *run, const struct sl_shape *shapes,
                const struct sl_schedule *schedules, uint64_t seed)
{
    uint32_t size = shapes[0].size;
    int rc;

    *run = (struct sl_run){.shapes = shapes, .schedules = schedules, .size = size};
    sl_rng_init(&run->rng, seed);
    if ((rc = take((void **)&run->ranks, size, sizeof(*run->ranks))) != 0)
        return rc;
    for (uint32_t r = 0; r < size; r++) {
        run->ranks[r].base = run->step_count;
        run->ranks[r].line_base = run->line_count;
        run->ranks[r].waiters = run->ranks[r].last_post = SL_SYM_NONE;
        run->step_count += schedules[r].step_count;
        run->line_count += schedules[r].channel_count;
    }
    if ((rc = tables_init(run)) != 0 || (rc = sl_sym_nodes_init(&run->nodes, size)) != 0)
        return rc;
    for (uint32_t r = 0; r < size; r++) {
        for (uint32_t i = 0; i < schedules[r].step_count; i++)
            run->steps[run->ranks[r].base + i].line =
                run->ranks[r].line_base + schedules[r].steps[i].channel;
        for (uint32_t c = 0; c < schedules[r].channel_count; c++)
            run->lines[run->ranks[r].line_base + c].rank = r;
        if ((rc = memory_init(run, r)) != 0)
            return rc;
    }
    number_lines(run);
    number_deps(run);
    return clocks_init(run);
}

void sl_run_fini(struct sl_run *run)
{
    for (uint32_t r = 0; run->ranks != NULL && r < run->size; r++) {
        for (unsigned b = 0; b < SL_BUF_COUNT; b++)
            free(run->ranks[r].regions[b].segs);
    }
    free(run->ranks);
    free(run->pairs);
    free(run->lines);
    free(run->steps);
    free(run->line_steps);
    free(run->posts);
    free(run->outs);
    free(run->ready);
    free(run->clocks);
    free(run->line_clocks);
    free(run->strip.parts);
    free(run->other.parts);
    free(run->result.parts);
    free(run->readers);
    sl_sym_nodes_fini(&run->nodes);
    sl_sym_codes_fini(&run->codes);
    *run = (struct sl_run){0};
}
