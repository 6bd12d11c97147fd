/* SPDX-License-Identifier: Apache-2.0 */
/* Finds, builds, compiles and keeps plans; hands out the operations that walk them. */
#include "collectives/plan.h"

#include "collectives/calibrate.h"
#include "collectives/code.h"
#include "collectives/connect.h"
#include "collectives/device.h"
#include "collectives/recall.h"
#include "collectives/select.h"
#include "collectives/speeds.h"
#include "collectives/status.h"
#include "collectives/steps.h"

#include <stdlib.h>
#include <string.h>

#define BUCKETS 256   /* a power of two */
#define PLANS_MAX 512 /* kept; beyond it the one unused for longest goes */

static uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ (h >> 29);
}

static uint32_t bucket_of(const struct sl_call *call)
{
    uint64_t h = mix(call->count, (uint64_t)call->coll << 40 | (uint64_t)call->dtype << 32 |
                                      (uint64_t)call->op << 24 | call->in_place);

    return (uint32_t)(mix(h, call->root) >> 32) & (BUCKETS - 1);
}

static bool same_counts(const struct sluice_comm *comm, const struct sl_plan *plan,
                        const struct sl_call *call)
{
    size_t len = comm->size * sizeof(uint64_t);

    return call->in_counts == NULL || (memcmp(plan->call.in_counts, call->in_counts, len) == 0 &&
                                       memcmp(plan->call.in_offs, call->in_offs, len) == 0 &&
                                       memcmp(plan->call.out_counts, call->out_counts, len) == 0 &&
                                       memcmp(plan->call.out_offs, call->out_offs, len) == 0);
}

static bool same_call(const struct sl_call *a, const struct sl_call *b)
{
    return a->count == b->count && a->coll == b->coll && a->dtype == b->dtype && a->op == b->op &&
           a->root == b->root && a->in_place == b->in_place && a->on_device == b->on_device;
}

void sl_call_shape(const struct sluice_comm *comm, const struct sl_call *call, struct sl_shape *out)
{
    *out = (struct sl_shape){
        .coll = call->coll,
        .rank = comm->rank,
        .size = comm->size,
        .root = call->root,
        .count = call->count,
        .esize = (uint32_t)sluice_dtype_size(call->dtype),
        .in_place = call->in_place,
        .host = comm->host_count > 1 ? comm->host : NULL,
        .speed = comm->host_count > 1 ? comm->speeds.now : NULL,
        .in_counts = call->in_counts,
        .in_offs = call->in_offs,
        .out_counts = call->out_counts,
        .out_offs = call->out_offs,
    };
    if (comm->win.slots != NULL)
        out->win_count = comm->win.bytes / out->esize;
}

/* Finds those that steps name, and makes them. */
static int compile_peers(struct sluice_comm *comm, struct sl_plan *plan)
{
    const struct sl_schedule *s = &plan->schedule;
    bool made = true;

    plan->peer_of = calloc(s->step_count + 1, sizeof(struct sl_peer *));
    plan->group = calloc(s->group_count + 1, sizeof(struct sl_peer *));
    if (plan->peer_of == NULL || plan->group == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < s->step_count && made; i++) {
        const struct sl_step *step = &s->steps[i];

        if (sl_step_row(step)->peer_word == NULL || step->peer == SL_PEER_GROUP)
            continue;
        plan->peer_of[i] = sl_peers_make(&comm->peers, step->peer);
        made = plan->peer_of[i] != NULL;
    }
    for (uint32_t i = 0; i < s->group_count && made; i++) {
        if (s->group[i] == comm->rank)
            continue;
        plan->group[i] = sl_peers_make(&comm->peers, s->group[i]);
        made = plan->group[i] != NULL;
    }
    return made ? 0 : -ENOMEM;
}

/* Sorts the steps by channel, keeping their order in each. */
static int compile_channels(struct sl_plan *plan)
{
    const struct sl_schedule *s = &plan->schedule;

    plan->turns = calloc(s->step_count + 1, sizeof(*plan->turns));
    plan->channel_first = calloc(s->channel_count + 2, sizeof(*plan->channel_first));
    if (plan->turns == NULL || plan->channel_first == NULL)
        return -ENOMEM;
    uint32_t *first = plan->channel_first;

    for (uint32_t i = 0; i < s->step_count; i++)
        first[s->steps[i].channel + 2]++; /* shifted by one: the fill below moves it back */
    for (uint32_t c = 0; c < s->channel_count; c++)
        first[c + 2] += first[c + 1];
    for (uint32_t i = 0; i < s->step_count; i++)
        plan->turns[first[s->steps[i].channel + 1]++] =
            (struct sl_turn){.run = sl_step_function(&s->steps[i]),
                             .step = i,
                             .windows = sl_step_uses_windows(&s->steps[i])};
    for (uint32_t c = 0; c < s->channel_count; c++)
        plan->open_channels += first[c] != first[c + 1];
    return 0;
}

/* Numbers the steps that runners have. */
static void compile_jobs(struct sl_plan *plan)
{
    const struct sl_schedule *s = &plan->schedule;

    for (uint32_t i = 0; i < s->step_count; i++) {
        if (s->steps[i].runner != 0)
            plan->post_of[i] = plan->job_count++;
        plan->has_lengths |= (s->steps[i].flags & SL_STEP_UP_TO) != 0;
    }
}

/* Numbers the posting steps and collects which directions of which peers they use. use_at is a
 * scratch map [2 * size], filled with ~0. */
static void compile_uses(struct sl_plan *plan, uint32_t *use_at)
{
    const struct sl_schedule *s = &plan->schedule;

    for (uint32_t i = 0; i < s->step_count; i++) {
        const struct sl_step *step = &s->steps[i];

        if (sl_step_row(step)->message == SL_NO_MESSAGE)
            continue;
        bool recv = sl_step_row(step)->message == SL_RECEIVES;
        uint32_t *at = &use_at[2 * step->peer + recv];

        if (*at == ~0u) {
            *at = plan->use_count++;
            plan->uses[*at] =
                (struct sl_use){.peer = plan->peer_of[i], .rank = step->peer, .recv = recv};
        }
        plan->uses[*at].posts++;
        plan->use_of[plan->post_count] = *at;
        plan->post_of[i] = plan->post_count++;
    }
}

/* Directions of peers that it may use: no more than messages, or than there are. */
static size_t most_uses(const struct sl_plan *plan, uint32_t size)
{
    size_t messages = 0;

    for (uint32_t i = 0; i < plan->schedule.step_count; i++)
        messages += sl_step_row(&plan->schedule.steps[i])->message != SL_NO_MESSAGE;
    return messages < 2 * (size_t)size ? messages : 2 * (size_t)size;
}

static int compile_posts(struct sl_plan *plan, uint32_t size)
{
    const struct sl_schedule *s = &plan->schedule;
    uint32_t *use_at = malloc(2 * size * sizeof(*use_at));

    plan->post_of = calloc(s->step_count + 1, sizeof(*plan->post_of));
    plan->use_of = calloc(s->step_count + 1, sizeof(*plan->use_of));
    plan->uses = calloc(most_uses(plan, size) + 1, sizeof(*plan->uses));
    if (use_at == NULL || plan->post_of == NULL || plan->use_of == NULL || plan->uses == NULL) {
        free(use_at);
        return -ENOMEM;
    }
    memset(use_at, 0xff, 2 * size * sizeof(*use_at));
    compile_uses(plan, use_at);
    compile_jobs(plan);
    free(use_at);
    return 0;
}

/* Storing past the caches saves reading what is overwritten. In place, these have just read it as
 * their input. */
static bool out_is_cached(const struct sl_shape *shape)
{
    switch (shape->coll) {
    case SL_ALLREDUCE:
    case SL_REDUCE:
    case SL_REDUCE_SCATTER:
    case SL_ALL_TO_ALL: return shape->in_place;
    default:
        return false; /* in place or not, what comes from others is put where nothing was read */
    }
}

static void choose_kernels(const struct sluice_comm *comm, struct sl_plan *plan)
{
    const struct sl_kernels *k = comm->kernels;
    enum sluice_op op = plan->call.op == SLUICE_AVG ? SLUICE_SUM : plan->call.op;
    bool stream = sl_shape_out_count(&plan->shape) * plan->esize >= comm->stream_min &&
                  !out_is_cached(&plan->shape);

    plan->divisor = plan->call.op == SLUICE_AVG ? comm->size : 1;
    plan->reduce = k->reduce[plan->call.dtype][op];
    plan->reduce_out = stream ? k->reduce_stream[plan->call.dtype][op] : plan->reduce;
    plan->copy = k->copy;
    plan->copy_out = stream ? k->copy_stream : k->copy;
    for (uint32_t i = 0; plan->shape.code != NULL && i < plan->shape.code->term_count; i++) {
        const struct sl_code_term *term = &plan->shape.code->terms[i];

        plan->terms[i] = (struct sl_term_plan){
            .esize = (uint32_t)sluice_dtype_size((enum sluice_dtype)term->dtype),
            .reduce = k->reduce[term->dtype][term->op]};
    }
}

static int copy_counts(const struct sluice_comm *comm, struct sl_plan *plan)
{
    size_t n = comm->size;
    struct sl_call *call = &plan->call;

    if (call->in_counts == NULL)
        return 0;
    plan->counts = malloc(4 * n * sizeof(uint64_t));
    if (plan->counts == NULL)
        return -ENOMEM;
    const uint64_t **arrays[] = {&call->in_counts, &call->in_offs, &call->out_counts,
                                 &call->out_offs};

    for (size_t i = 0; i < SL_ARRAY_LEN(arrays); i++) {
        memcpy(plan->counts + i * n, *arrays[i], n * sizeof(uint64_t));
        *arrays[i] = plan->counts + i * n;
    }
    return 0;
}

static void op_free(struct sluice_req *op)
{
    if (op == NULL)
        return;
    free(op->next);
    free(op->done);
    free(op->posts);
    free(op->jobs);
    free(op->lengths);
    free(op->tickets);
    free(op->use_left);
    free(op->srcs);
    sl_op_buffers_give(op);
    free(op);
}

void sl_plan_destroy(struct sl_plan *plan)
{
    struct sl_node *node;

    if (plan == NULL)
        return;
    while ((node = sl_list_pop_front(&plan->spare)) != NULL)
        op_free(sl_container_of(node, struct sluice_req, link));
    sl_status_plan_gone(plan);
    sl_coding_put(plan->coding);
    sl_coding_put(plan->account);
    sl_schedule_fini(&plan->schedule);
    free(plan->counts);
    free(plan->turns);
    free(plan->channel_first);
    free(plan->peer_of);
    free(plan->group);
    free(plan->post_of);
    free(plan->use_of);
    free(plan->uses);
    free(plan);
}

/* kept: a codec then draws its random numbers by the operation's starts, not by the number of the
 * call, and ranks must do the same. */
static uint32_t fingerprint_of(const struct sl_plan *plan, bool kept)
{
    uint64_t h = mix(sl_shape_hash(&plan->shape, plan->schedule.algo),
                     (uint64_t)plan->call.dtype << 8 | plan->call.op);

    for (uint32_t i = 0; i < plan->runner_count; i++)
        for (const char *c = plan->runners[i]->ops->name; *c != '\0'; c++)
            h = mix(h, (uint64_t)(i + 1) << 8 | (unsigned char)*c);
    if (plan->coding != NULL && kept)
        h = mix(h, 1);
    return (uint32_t)(h >> 32) | 1; /* never 0: that means "none" */
}

/* Many areas are for those who run ahead: the others' bytes stay in the innermost cache if they use
 * two. */
static void place_in_windows(struct sl_plan *plan)
{
    uint64_t bytes = plan->schedule.win_count * plan->esize;
    /* Some give, others take, nobody answers: who gives may be calls ahead. */
    bool one_way = sl_coll_has_root(plan->call.coll), alike = plan->schedule.win_alike;

    plan->win_size = alike && bytes <= SL_WIN_INLINE_BYTES             ? SL_WIN_IN_SLOT
                     : alike && one_way && bytes <= SL_WIN_SHORT_BYTES ? SL_WIN_SHORT
                                                                       : SL_WIN_LONG;
    plan->win_ahead = one_way && plan->win_size == SL_WIN_IN_SLOT;
}

/* Parameters that are told apart are those of both codes, and the recipe. */
static uint32_t mark_of(const struct sl_plan *plan)
{
    const struct sl_shape *shape = &plan->shape;
    uint32_t hash = 0;

    if (shape->code == NULL)
        return 0;
    if (shape->inner != NULL)
        hash = shape->inner->mark * UINT32_C(0x9e3779b1) >> 8;
    for (const char *c = plan->schedule.algo; *c != '\0'; c++)
        hash = (hash ^ (unsigned char)*c) * UINT32_C(16777619);
    return sl_code_mark(sl_code_mark_name(shape->code->mark), shape->code->mark ^ hash ^ hash >> 8);
}

static void sign(struct sl_plan *plan, bool kept)
{
    const struct sl_call *call = &plan->call;

    plan->fingerprint = fingerprint_of(plan, kept);
    plan->p2p = call->coll == SL_SEND || call->coll == SL_RECV;
    plan->signature = (struct sl_signature){
        .fingerprint = plan->fingerprint,
        .coll = call->coll,
        .dtype = call->dtype,
        .op = call->op,
        .root = call->root,
        .count = call->count,
        .code = mark_of(plan),
    };
}

static void take_runners(struct sl_plan *plan, const struct sl_recipe *recipe)
{
    sl_assert(recipe->runner_count <= SL_RUNNERS_MAX);
    plan->runner_count = recipe->runner_count;
    for (uint32_t i = 0; i < recipe->runner_count; i++)
        plan->runners[i] = recipe->runners[i];
    plan->coding = sl_coding_get(recipe->coding);
    plan->account = sl_coding_get(recipe->coding != NULL ? recipe->coding : recipe->spared);
    plan->raw_ns = recipe->raw_ns;
    plan->shape.code = recipe->code;
    plan->shape.inner = recipe->inner;
}

/* A runner for each step that names or needs one. */
static int check_runners(const struct sl_plan *plan)
{
    const struct sl_schedule *s = &plan->schedule;

    for (uint32_t i = 0; i < s->step_count; i++) {
        const struct sl_step *step = &s->steps[i];

        if (step->runner > plan->runner_count ||
            (step->runner == 0 && sl_step_row(step)->needs_runner))
            return sl_fail(-ENOTSUP, "nothing here runs step %u (%s) of %s", i,
                           sl_step_kind_name(step->kind), s->algo);
    }
    return 0;
}

static int build(struct sluice_comm *comm, const struct sl_recipe *recipe, struct sl_plan *plan)
{
    const struct sl_algo *algo = recipe->algo;

    return algo != NULL ? sl_select_build_as(comm, algo, &plan->shape, &plan->schedule)
                        : sl_select_build(comm, &plan->shape, &plan->schedule);
}

/* For links that deliver speed (NULL: all alike), which is borrowed. kept: by a persistent
 * operation. */
static int create(struct sluice_comm *comm, const struct sl_call *call,
                  const struct sl_recipe *recipe, const uint16_t *speed, bool kept,
                  struct sl_plan **out)
{
    struct sl_plan *plan = calloc(1, sizeof(*plan));
    struct sl_runner *runners[2];
    struct sl_recipe coded;
    int err = -ENOMEM;

    if (plan == NULL)
        goto err_memory;
    if (recipe == NULL) {
        sl_coding_recipe(comm->coding, comm, call, speed, runners, &coded);
        recipe = &coded;
    }
    sl_list_init(&plan->spare);
    sl_list_init(&plan->lru);
    sl_schedule_init(&plan->schedule, "");
    plan->call = *call;
    err = copy_counts(comm, plan);
    if (err != 0)
        goto err_memory;
    sl_call_shape(comm, &plan->call, &plan->shape);
    plan->shape.speed = comm->host_count > 1 ? speed : NULL;
    plan->esize = plan->shape.esize;
    take_runners(plan, recipe);
    err = build(comm, recipe, plan);
    err = err ?: check_runners(plan);
    if (plan->call.on_device)
        err = err ?: sl_device_adopt(plan);
    if (err != 0)
        goto err_plan;
    if (plan->schedule.in_bytes)
        plan->esize = 1;
    sign(plan, kept);
    plan->recalls = !kept && plan->coding != NULL && sl_recall_concerns(plan);
    if (plan->recalls)
        sl_coding_extents(plan, plan->extents);
    place_in_windows(plan);
    if (plan->schedule.win_values != 0 && plan->win_size == SL_WIN_LONG)
        err = sl_windows_back(comm);
    if (err != 0)
        goto err_plan;
    choose_kernels(comm, plan);
    if (compile_peers(comm, plan) != 0 || compile_channels(plan) != 0 ||
        compile_posts(plan, comm->size) != 0)
        goto err_memory;
    sl_costs_predict(comm, plan);
    sl_status_plan(comm, plan);
    for (uint32_t i = 0; i < plan->use_count; i++)
        sl_reach(comm, plan->uses[i].rank);
    plan->shape.speed = NULL;
    *out = plan;
    return 0;

err_memory:
    err = sl_fail(-ENOMEM, "no memory for the plan of a collective of %llu elements",
                  (unsigned long long)call->count);
err_plan:
    sl_plan_destroy(plan);
    return err;
}

/* What is made once and called at any time goes by what links delivered at the start: ranks need
 * not make it between the same two calls. */
int sl_plan_create(struct sluice_comm *comm, const struct sl_call *call,
                   const struct sl_recipe *recipe, struct sl_plan **out)
{
    return create(comm, call, recipe, comm->speed, true, out);
}

static void unlink_plan(struct sluice_comm *comm, struct sl_plan *plan)
{
    struct sl_plan **at = &comm->calls.plans[bucket_of(&plan->call)];

    while (*at != plan)
        at = &(*at)->next;
    *at = plan->next;
    sl_list_remove(&plan->lru);
    comm->calls.last_plan = NULL;
    comm->calls.plan_count--;
}

static void drop_oldest(struct sluice_comm *comm)
{
    sl_list_foreach(&comm->calls.plan_lru, node)
    {
        struct sl_plan *plan = sl_container_of(node, struct sl_plan, lru);

        if (plan->busy != 0)
            continue;
        unlink_plan(comm, plan);
        sl_plan_destroy(plan);
        return;
    }
}

static void destroy_rested(struct sl_plan *plan)
{
    if (plan->busy == 0)
        sl_plan_destroy(plan);
}

static void forget(struct sluice_comm *comm, struct sl_plan *plan)
{
    unlink_plan(comm, plan);
    plan->rests = destroy_rested;
    destroy_rested(plan);
}

void sl_plans_drop(struct sluice_comm *comm)
{
    sl_list_foreach(&comm->calls.plan_lru, node)
    {
        forget(comm, sl_container_of(node, struct sl_plan, lru));
    }
}

void sl_plans_forget(struct sluice_comm *comm)
{
    sl_list_foreach(&comm->calls.plan_lru, node)
    {
        struct sl_plan *plan = sl_container_of(node, struct sl_plan, lru);

        if (sl_speeds_concern(comm, &plan->call))
            forget(comm, plan);
    }
}

static int plan_add(struct sluice_comm *comm, const struct sl_call *call, struct sl_plan **out)
{
    int err;

    if (comm->calls.plans == NULL) {
        comm->calls.plans = calloc(BUCKETS, sizeof(struct sl_plan *));
        if (comm->calls.plans == NULL)
            return sl_fail(-ENOMEM, "no memory for the table of plans");
    }
    err = create(comm, call, NULL, comm->speeds.now, false, out);
    if (err != 0)
        return err;
    if (comm->calls.plan_count >= PLANS_MAX)
        drop_oldest(comm);
    struct sl_plan **bucket = &comm->calls.plans[bucket_of(call)];

    (*out)->next = *bucket;
    *bucket = *out;
    sl_list_push_back(&comm->calls.plan_lru, &(*out)->lru);
    comm->calls.plan_count++;
    return 0;
}

int sl_plan_get(struct sluice_comm *comm, const struct sl_call *call, struct sl_plan **out)
{
    struct sl_plan *plan = comm->calls.last_plan;

    if (SL_LIKELY(plan != NULL && same_call(&plan->call, call) && call->in_counts == NULL)) {
        *out = plan;
        return 0;
    }
    bool concerned = sl_speeds_concern(comm, call);
    int err = concerned ? sl_speeds_turn(comm) : 0;

    if (err != 0)
        return err;
    plan = comm->calls.plans != NULL ? comm->calls.plans[bucket_of(call)] : NULL;
    for (; plan != NULL; plan = plan->next) {
        if (!same_call(&plan->call, call) || !same_counts(comm, plan, call))
            continue;
        if (SL_UNLIKELY(plan->lru.next != &comm->calls.plan_lru)) {
            sl_list_remove(&plan->lru);
            sl_list_push_back(&comm->calls.plan_lru, &plan->lru);
        }
        *out = plan;
        comm->calls.last_plan = concerned ? NULL : plan; /* these come here every time */
        return 0;
    }
    return plan_add(comm, call, out);
}

void sl_plans_fini(struct sluice_comm *comm)
{
    struct sl_node *node;

    while ((node = sl_list_pop_front(&comm->calls.plan_lru)) != NULL)
        sl_plan_destroy(sl_container_of(node, struct sl_plan, lru));
    free(comm->calls.plans);
    comm->calls.last_plan = NULL;
    comm->calls.plans = NULL;
    comm->calls.plan_count = 0;
}

static bool op_alloc_parts(struct sluice_req *op, const struct sl_plan *plan)
{
    const struct sl_schedule *s = &plan->schedule;

    op->next = calloc(s->channel_count + 1, sizeof(*op->next));
    op->posts = calloc(plan->post_count + 1, sizeof(*op->posts));
    op->tickets = calloc(plan->use_count + 1, sizeof(*op->tickets));
    op->use_left = calloc(plan->use_count + 1, sizeof(*op->use_left));
    op->srcs = calloc(s->group_count + 1, sizeof(*op->srcs));
    if (s->dep_count != 0)
        op->done = calloc(s->step_count, 1);
    if (plan->job_count != 0)
        op->jobs = calloc(plan->job_count, sizeof(*op->jobs));
    if (plan->has_lengths)
        op->lengths = calloc(s->step_count, sizeof(*op->lengths));
    return op->next != NULL && op->posts != NULL && op->tickets != NULL && op->use_left != NULL &&
           op->srcs != NULL && (s->dep_count == 0 || op->done != NULL) &&
           (plan->job_count == 0 || op->jobs != NULL) &&
           (!plan->has_lengths || op->lengths != NULL);
}

/* Each asynchronous step has a place of its own. */
static void place_steps(struct sluice_req *op, const struct sl_plan *plan)
{
    for (uint32_t i = 0; i < plan->schedule.step_count; i++) {
        const struct sl_step *step = &plan->schedule.steps[i];

        if (step->runner != 0) {
            /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): job_count counted it */
            op->jobs[plan->post_of[i]] = (struct sl_job){.op = op, .step = step};
        } else if (sl_step_row(step)->message != SL_NO_MESSAGE) {
            op->posts[plan->post_of[i]].op = op;
            op->posts[plan->post_of[i]].step = step;
        }
    }
}

static int op_new(struct sluice_comm *comm, struct sl_plan *plan, struct sluice_req **out)
{
    struct sluice_req *op = calloc(1, sizeof(*op));
    int err;

    if (op == NULL)
        return sl_fail(-ENOMEM, "no memory for an operation");
    op->comm = comm;
    op->plan = plan;
    err = op_alloc_parts(op, plan) ? sl_op_buffers_take(op)
                                   : sl_fail(-ENOMEM, "no memory for an operation of %u steps",
                                             plan->schedule.step_count);
    if (err != 0) {
        op_free(op);
        return err;
    }
    sl_list_init(&op->link);
    place_steps(op, plan);
    *out = op;
    return 0;
}

int sl_op_get(struct sluice_comm *comm, struct sl_plan *plan, struct sluice_req **out)
{
    struct sl_node *node = sl_list_pop_front(&plan->spare);

    if (SL_LIKELY(node != NULL)) {
        *out = sl_container_of(node, struct sluice_req, link);
    } else {
        int err = op_new(comm, plan, out);

        if (err != 0)
            return err;
    }
    plan->busy++;
    return 0;
}

void sl_op_put(struct sluice_req *op)
{
    struct sl_plan *plan = op->plan;

    plan->busy--;
    sl_list_push_back(plan->spare.next, &op->link); /* to the front: its memory is warm */
    if (SL_UNLIKELY(plan->rests != NULL))
        plan->rests(plan);
}
