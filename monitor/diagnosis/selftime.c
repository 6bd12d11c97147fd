/* SPDX-License-Identifier: Apache-2.0 */
/* Own time of each rank in each step. */
#include "monitor/diagnosis/selftime_part.h"
#include "core/err.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A table is at most so many times as large as what is known. */
#define CELLS_PER_PART 64
#define CELLS_FREE 65536
#define CUT_MAX 16 /* operations at the end that are left out to find steps */

struct finder {
    const struct sl_job *job;
    struct sl_selftime_part *parts;
    size_t count, cap;
    uint32_t *steps; /* by op: its step, told or found */
    uint32_t *stamp; /* by communicator: in which part it was seen last, and how often in it */
    uint32_t *often;
    uint32_t stamps;
};

/* Where the rank whose operations are gone through is. */
struct walk {
    bool has_compute;
    bool is_begun;
    int64_t free_ns, computed_ns; /* the ends of all before, and of computing alone */
    uint32_t sent[2];             /* messages in the part: to higher ranks, to lower ones */
    uint32_t received[2];
};

/* ---- roles ---- */

/* An operation by its place in its communicator, or among the messages of its direction: there the
 * program fixes the order. Across communicators it does not: such hashes are added up. */
static void add_role(struct finder *finder, struct walk *walk, const struct sl_job_op *op,
                     struct sl_selftime_part *part)
{
    uint64_t hash = sl_selftime_mix(0, op->kind);

    if (op->kind == SL_JOB_COMPUTE)
        return; /* readers join what is close together: how many there are says nothing */
    if (op->kind == SL_JOB_SEND || op->kind == SL_JOB_RECV) {
        unsigned to = op->peer < op->rank;
        uint32_t *count = op->kind == SL_JOB_SEND ? &walk->sent[to] : &walk->received[to];

        hash = sl_selftime_mix(sl_selftime_mix(hash, to), (*count)++);
    } else if (op->comm < finder->job->comm_count) {
        if (finder->stamp[op->comm] != finder->stamps) {
            finder->stamp[op->comm] = finder->stamps;
            finder->often[op->comm] = 0;
        }
        hash = sl_selftime_mix(sl_selftime_mix(hash, finder->job->comms[op->comm].member_count),
                               finder->often[op->comm]++);
    }
    part->rough += hash;
    part->whole += sl_selftime_mix(sl_selftime_mix(hash, op->bytes), op->shape);
}

/* ---- own time ---- */

/* When the rank came to an operation; SL_JOB_NEVER: what passed before is not known to be its
 * own. A host may call it while its GPU still computes: then it came when it started. */
static int64_t arrival_of(const struct walk *walk, const struct sl_job_op *op)
{
    int64_t start = op->start_ns;

    if (op->kind == SL_JOB_COMPUTE)
        return start != SL_JOB_NEVER ? start : op->issue_ns;
    if (op->issue_ns == SL_JOB_NEVER)
        return walk->has_compute ? SL_JOB_NEVER : start;
    return start > op->issue_ns ? start : op->issue_ns; /* SL_JOB_NEVER is less than any */
}

static double seconds(int64_t from, int64_t to)
{
    return to > from ? ((double)to - (double)from) * 1e-9 : 0;
}

/* is_after: it follows what came before, in this step or as the next step does. */
static double own_of(struct walk *walk, const struct sl_job_op *op, bool is_after)
{
    int64_t arrival = arrival_of(walk, op);
    int64_t begin = op->start_ns != SL_JOB_NEVER ? op->start_ns : op->issue_ns;
    int64_t end = op->end_ns != SL_JOB_NEVER ? op->end_ns : begin;
    double own = 0;

    if (begin == SL_JOB_NEVER)
        return 0;
    if (arrival != SL_JOB_NEVER && walk->is_begun && is_after)
        own += seconds(walk->free_ns, arrival);
    if (op->kind == SL_JOB_COMPUTE) {
        own +=
            seconds(walk->is_begun && walk->computed_ns > begin ? walk->computed_ns : begin, end);
        if (!walk->is_begun || end > walk->computed_ns)
            walk->computed_ns = end;
    } else if (!walk->is_begun) {
        walk->computed_ns = begin;
    }
    if (!walk->is_begun || end > walk->free_ns)
        walk->free_ns = end;
    walk->is_begun = true;
    return own;
}

static struct sl_selftime_part *new_part(struct finder *finder, uint32_t rank, uint32_t step)
{
    if (finder->count == finder->cap) {
        size_t cap = finder->cap + finder->cap / 2 + 256;
        struct sl_selftime_part *parts = reallocarray(finder->parts, cap, sizeof(*parts));

        if (parts == NULL)
            return NULL;
        finder->parts = parts;
        finder->cap = cap;
    }
    finder->stamps++;
    finder->parts[finder->count] = (struct sl_selftime_part){
        .rank = rank, .step = step, .begin_ns = SL_JOB_NEVER, .end_ns = SL_JOB_NEVER};
    return &finder->parts[finder->count++];
}

static void see_times(struct sl_selftime_part *part, const struct sl_job_op *op)
{
    int64_t begin = op->start_ns != SL_JOB_NEVER ? op->start_ns : op->issue_ns;

    if (begin != SL_JOB_NEVER && (part->begin_ns == SL_JOB_NEVER || begin < part->begin_ns))
        part->begin_ns = begin;
    if (op->end_ns > part->end_ns)
        part->end_ns = op->end_ns;
}

static int walk_rank(struct finder *finder, uint32_t rank)
{
    const struct sl_job *job = finder->job;
    struct walk walk = {0};
    struct sl_selftime_part *part = NULL;
    uint32_t before = SL_JOB_NONE;

    for (size_t i = job->first_op[rank]; i < job->first_op[rank + 1]; i++)
        walk.has_compute = walk.has_compute || job->ops[i].kind == SL_JOB_COMPUTE;
    for (size_t i = job->first_op[rank]; i < job->first_op[rank + 1]; i++) {
        uint32_t step = finder->steps[i];
        bool is_after = step == before || (before != SL_JOB_NONE && step == before + 1);
        double own = own_of(&walk, &job->ops[i], is_after);

        if (step == SL_JOB_NONE) {
            before = SL_JOB_NONE;
            part = NULL;
            continue;
        }
        if (part == NULL || step != before) {
            part = new_part(finder, rank, step);
            memset(walk.sent, 0, sizeof(walk.sent));
            memset(walk.received, 0, sizeof(walk.received));
        }
        if (part == NULL)
            return sl_fail(-ENOMEM, "no memory for the steps of rank %u", rank);
        part->seconds += own;
        see_times(part, &job->ops[i]);
        add_role(finder, &walk, &job->ops[i], part);
        before = step;
    }
    return 0;
}

/* ---- steps that nobody told ---- */

static uint64_t sign_of(const struct sl_job *job, const struct sl_job_op *op)
{
    uint64_t hash = sl_selftime_mix(0, op->kind);

    if (op->comm < job->comm_count)
        hash = sl_selftime_mix(hash, job->comms[op->comm].member_count);
    if (op->peer != SL_JOB_NONE)
        hash = sl_selftime_mix(hash, op->peer < op->rank);
    return sl_selftime_mix(sl_selftime_mix(hash, op->bytes), op->shape);
}

/* A step's number, alike at all ranks: by where its first collective is in its communicator. */
static uint64_t number_of(const struct sl_job *job, size_t at, size_t period)
{
    for (size_t i = at; i < at + period; i++) {
        const struct sl_job_op *op = &job->ops[i];
        uint64_t count = 0;

        if (op->kind == SL_JOB_COMPUTE || op->comm >= job->comm_count || op->peer != SL_JOB_NONE)
            continue;
        for (size_t k = at; k < at + period; k++)
            count += job->ops[k].comm == op->comm && job->ops[k].kind != SL_JOB_COMPUTE;
        return op->seq / count;
    }
    return 0;
}

/* The period of a rank's operations. What is the last of each communicator may be told otherwise
 * than those before it, or not in its turn: up to CUT_MAX are left out for it, if what is before
 * them repeats for most of what is known. *count: without them. */
static int find_period(const uint64_t *signs, size_t *count, size_t *at, size_t *period)
{
    size_t all = *count;
    int err = sl_period_find(signs, all, at, period);

    for (size_t cut = 1; err == -ENOENT && cut <= CUT_MAX && cut < all; cut++) {
        *count = all - cut;
        err = sl_period_find(signs, *count, at, period);
        if (err == 0 && *at > *count / 2)
            err = -ENOENT;
    }
    return err;
}

static int find_steps(struct finder *finder, uint32_t rank)
{
    const struct sl_job *job = finder->job;
    size_t first = job->first_op[rank], count = job->first_op[rank + 1] - first, at, period;
    uint64_t *signs = reallocarray(NULL, count + 1, sizeof(*signs)), number;
    int err;

    if (signs == NULL)
        return sl_fail(-ENOMEM, "no memory to find the steps of rank %u", rank);
    /* What is pending may be told otherwise than what is over, and its step is not over either. */
    while (count > 0 && job->ops[first + count - 1].state != SL_JOB_DONE)
        count--;
    for (size_t i = 0; i < count; i++)
        signs[i] = sign_of(job, &job->ops[first + i]);
    err = find_period(signs, &count, &at, &period);
    free(signs);
    if (err != 0)
        return err == -ENOENT ? 0 : err;
    number = number_of(job, first + at, period);
    for (; at + period <= count; at += period, number++)
        for (size_t i = 0; i < period && number < SL_JOB_NONE; i++)
            finder->steps[first + at + i] = (uint32_t)number;
    return 0;
}

static int number_steps(struct finder *finder)
{
    const struct sl_job *job = finder->job;

    for (uint32_t rank = 0; rank < job->rank_count; rank++) {
        bool is_told = false;
        int err;

        for (size_t i = job->first_op[rank]; i < job->first_op[rank + 1]; i++) {
            finder->steps[i] = job->ops[i].step;
            is_told = is_told || job->ops[i].step != SL_JOB_NONE;
        }
        err = is_told ? 0 : find_steps(finder, rank);
        if (err != 0)
            return err;
    }
    return 0;
}

/* ---- side by side ---- */

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static int take_steps(const struct finder *finder, struct sl_selftime *self)
{
    uint32_t count = 0;

    self->steps = reallocarray(NULL, finder->count + 1, sizeof(*self->steps));
    if (self->steps == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < finder->count; i++)
        self->steps[i] = finder->parts[i].step;
    qsort(self->steps, finder->count, sizeof(*self->steps), by_number);
    for (size_t i = 0; i < finder->count; i++)
        if (count == 0 || self->steps[i] != self->steps[count - 1])
            self->steps[count++] = self->steps[i];
    self->step_count = count;
    return 0;
}

/* Until the rank begins its next one: what passes before that one's first operation is of a step,
 * too, and may be nearly all of it. */
static int64_t end_of(const struct finder *finder, size_t i)
{
    const struct sl_selftime_part *part = &finder->parts[i], *next = part + 1;

    if (i + 1 < finder->count && next->rank == part->rank && next->begin_ns != SL_JOB_NEVER)
        return next->begin_ns;
    return part->end_ns;
}

static double median_step(const struct finder *finder)
{
    double *list = reallocarray(NULL, finder->count + 1, sizeof(*list)), median;
    size_t count = 0;

    if (list == NULL)
        return 0;
    for (size_t i = 0; i < finder->count; i++) {
        const struct sl_selftime_part *part = &finder->parts[i];

        if (part->begin_ns != SL_JOB_NEVER && end_of(finder, i) > part->begin_ns)
            list[count++] = seconds(part->begin_ns, end_of(finder, i));
    }
    qsort(list, count, sizeof(*list), by_value);
    median = count > 0 ? list[count / 2] : 0;
    free(list);
    return median;
}

static uint32_t place_of(const struct sl_selftime *self, uint32_t step)
{
    const uint32_t *at =
        bsearch(&step, self->steps, self->step_count, sizeof(*self->steps), by_number);

    return (uint32_t)(at - self->steps);
}

/* The parts from here on that are of one rank and of the same steps together: into one. Returns how
 * many; *steps: of how many steps they are. */
static size_t join_parts(const struct finder *finder, const struct sl_selftime *self, size_t from,
                         uint32_t together, struct sl_selftime_part *out, uint32_t *steps)
{
    size_t i = from;
    uint32_t group = place_of(self, finder->parts[from].step) / together, last = SL_JOB_NONE;

    *out = (struct sl_selftime_part){.rank = finder->parts[from].rank,
                                     .step = self->steps[group * together],
                                     .begin_ns = finder->parts[from].begin_ns,
                                     .end_ns = SL_JOB_NEVER};
    *steps = 0;
    for (; i < finder->count && finder->parts[i].rank == out->rank &&
           place_of(self, finder->parts[i].step) / together == group;
         i++) {
        const struct sl_selftime_part *part = &finder->parts[i];

        *steps += part->step != last;
        last = part->step;
        out->seconds += part->seconds;
        out->whole += part->whole;
        out->rough += part->rough;
        out->end_ns = part->end_ns > out->end_ns ? part->end_ns : out->end_ns;
    }
    return i - from;
}

/* Steps that are short are put together; what a rank has not all of is left out. */
static int put_together(struct finder *finder, double least_s, struct sl_selftime *self)
{
    double step_s = median_step(finder);
    uint32_t together = step_s > 0 && step_s < least_s ? (uint32_t)ceil(least_s / step_s) : 1;
    size_t kept = 0;

    if (together == 1)
        return 0;
    for (size_t i = 0; i < finder->count;) {
        struct sl_selftime_part part;
        uint32_t steps;

        i += join_parts(finder, self, i, together, &part, &steps);
        if (steps == together)
            finder->parts[kept++] = part;
    }
    finder->count = kept;
    free(self->steps);
    self->steps = NULL;
    return take_steps(finder, self);
}

static int lay_out(struct finder *finder, double least_s, struct sl_selftime *self)
{
    size_t cells;

    if (take_steps(finder, self) != 0 || put_together(finder, least_s, self) != 0)
        return -ENOMEM;
    cells = (size_t)self->rank_count * self->step_count;
    if (cells / CELLS_PER_PART > finder->count + CELLS_FREE) {
        self->step_count = 0; /* hardly two ranks are in one step: there is nothing to compare */
        return 0;
    }
    self->seconds = reallocarray(NULL, cells + 1, sizeof(*self->seconds));
    self->begin_ns = reallocarray(NULL, cells + 1, sizeof(*self->begin_ns));
    if (self->seconds == NULL || self->begin_ns == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < cells; i++) {
        self->seconds[i] = NAN;
        self->begin_ns[i] = SL_JOB_NEVER;
    }
    for (size_t i = 0; i < finder->count; i++) {
        const struct sl_selftime_part *part = &finder->parts[i];
        size_t cell = (size_t)part->rank * self->step_count + place_of(self, part->step);

        if (part->seconds <= 0)
            continue;
        if (isnan(self->seconds[cell])) {
            self->seconds[cell] = part->seconds;
            self->begin_ns[cell] = part->begin_ns;
        } else { /* the step's operations do not lie together */
            self->seconds[cell] += part->seconds;
        }
    }
    self->step_s = median_step(finder);
    return 0;
}

int sl_selftime_find(const struct sl_job *job, double least_s, struct sl_selftime *self)
{
    struct finder finder = {.job = job};
    int err = -ENOMEM;

    *self = (struct sl_selftime){.rank_count = job->rank_count};
    if (job->op_count == 0)
        return 0;
    finder.steps = reallocarray(NULL, job->op_count, sizeof(*finder.steps));
    finder.stamp = calloc(job->comm_count + 1, sizeof(*finder.stamp));
    finder.often = calloc(job->comm_count + 1, sizeof(*finder.often));
    self->roles = calloc(job->rank_count + 1, sizeof(*self->roles));
    self->replicas = calloc(job->rank_count + 1, sizeof(*self->replicas));
    if (finder.steps != NULL && finder.stamp != NULL && finder.often != NULL &&
        self->roles != NULL && self->replicas != NULL)
        err = number_steps(&finder);
    for (uint32_t rank = 0; err == 0 && rank < job->rank_count; rank++)
        err = walk_rank(&finder, rank);
    if (err == 0)
        err = lay_out(&finder, least_s, self);
    if (err == 0) {
        sl_selftime_name_roles(job, finder.parts, finder.count, finder.steps, self);
        sl_selftime_find_replicas(job, finder.steps, self);
    }
    free(finder.parts);
    free(finder.steps);
    free(finder.stamp);
    free(finder.often);
    if (err == 0)
        return 0;
    sl_selftime_fini(self);
    return err == -ENOMEM ? sl_fail(err, "no memory for the steps of a job") : err;
}

void sl_selftime_fini(struct sl_selftime *self)
{
    free(self->steps);
    free(self->seconds);
    free(self->begin_ns);
    free(self->roles);
    free(self->replicas);
    *self = (struct sl_selftime){0};
}
