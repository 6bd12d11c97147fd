/* SPDX-License-Identifier: Apache-2.0 */
/* The families of the process, and communicators that join one over an exchange. */
#include "collectives/adopt.h"

#include "collectives/child.h"
#include "collectives/connect.h"
#include "collectives/family.h"
#include "core/fork.h"
#include "core/log.h"

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* ---- families of the process ---- */

/* The first list has those of threads, any of which may be the next. Those of the simulator's
 * ranks, of which there may be thousands, are in the others, by its hash. */
#define LISTS 1024

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sl_node lists[LISTS];

/* In a child: they are its parent's. */
static void forget_parents(void)
{
    memset(lists, 0, sizeof(lists));
    pthread_mutex_init(&lock, NULL);
}

static struct sl_node *list_of(const void *idle_arg)
{
    uint64_t hash = (uintptr_t)idle_arg * UINT64_C(0x9e3779b97f4a7c15) >> 32;
    struct sl_node *list = &lists[idle_arg != NULL ? 1 + hash % (LISTS - 1) : 0];

    if (list->next == NULL)
        sl_list_init(list);
    return list;
}

/* Devices and a name of the host that the caller chose are not compared. */
static bool is_plain(const struct sl_comm_params *params)
{
    for (size_t i = 0; i < params->transport_count; i++)
        if (params->transports[i].dev != NULL)
            return false;
    return params->host_id == NULL;
}

void sl_adopt_list(struct sl_family *family, const struct sl_comm_params *params)
{
    if (family->size == 1 || !is_plain(params))
        return;
    sl_fork_on_child(forget_parents);
    pthread_mutex_lock(&lock);
    sl_list_push_back(list_of(family->worker->idle_arg), &family->listed);
    pthread_mutex_unlock(&lock);
}

void sl_adopt_unlist(struct sl_family *family)
{
    pthread_mutex_lock(&lock);
    if (family->listed.next != NULL && sl_fork_same(family->life))
        sl_list_remove(&family->listed);
    family->listed.next = NULL;
    pthread_mutex_unlock(&lock);
}

/* ---- which one ---- */

/* What an exchange asks for. */
struct wish {
    const struct sl_comm_params *params;
    const struct sl_transport_ops *ops[SL_IFACES_MAX];
    unsigned count; /* of transports */
    uint32_t size;
    bool session;
    const void *home;
};

/* All but rank, size, those of the host and root: they differ between communicators. */
static bool same_settings(const struct sl_config *a, const struct sl_config *b)
{
    const size_t job = offsetof(struct sl_config, job);

    return a->require_secret == b->require_secret &&
           memcmp((const char *)a + job, (const char *)b + job, sizeof(*a) - job) == 0;
}

_Static_assert(offsetof(struct sl_config, root) == 5 * sizeof(int64_t) &&
                   offsetof(struct sl_config, job) ==
                       offsetof(struct sl_config, root) + SL_TEXT_MAX,
               "nothing else comes before the job");

/* By what never changes in a worker, and by who used it last. */
static bool suits(const struct sl_family *family, const struct wish *wish)
{
    const struct sl_worker *worker = family->worker;
    const struct sl_comm_params *params = wish->params;

    if (!sl_fork_same(family->life) || family->size < wish->size ||
        atomic_load_explicit(&worker->home, memory_order_relaxed) != wish->home ||
        worker->clock != params->clock || worker->idle != params->idle ||
        worker->wire != params->wire || (wish->session && !worker->has_session) ||
        worker->slot_count != wish->count)
        return false;
    for (unsigned i = 0; i < wish->count; i++)
        if (worker->slots[i].ops != wish->ops[i])
            return false;
    return same_settings(worker->config, params->config);
}

/* The one with most members, so that all ranks are likely to name the same. */
static bool is_better(const struct sl_family *a, const struct sl_family *b)
{
    return b == NULL || a->size > b->size || (a->size == b->size && a->id < b->id);
}

/* It and its worker are held; NULL: there is none. */
static struct sl_family *pick(const struct wish *wish)
{
    struct sl_family *best = NULL;

    pthread_mutex_lock(&lock);
    sl_list_foreach(list_of(wish->params->idle_arg), node)
    {
        struct sl_family *family = sl_container_of(node, struct sl_family, listed);

        if (is_better(family, best) && suits(family, wish))
            best = family;
    }
    if (best != NULL) {
        sl_family_get(best);
        sl_worker_get(best->worker);
    }
    pthread_mutex_unlock(&lock);
    return best;
}

static struct sl_family *find_family(const struct sl_exchange *exchange,
                                     const struct sl_comm_params *params)
{
    struct wish wish = {.params = params,
                        .size = (uint32_t)exchange->size,
                        .session = exchange->session != NULL || params->config->secret[0] != '\0',
                        .home = params->idle != NULL ? params->idle_arg : &sl_worker_thread};

    if (exchange->size == 1 || !is_plain(params) ||
        sl_connect_list(params, wish.ops, &wish.count) != 0)
        return NULL; /* it will be said on the usual way */
    return pick(&wish);
}

/* ---- one communicator ---- */

struct adoption {
    struct sl_exchange *exchange;
    const struct sl_comm_params *params;
    struct sl_family *family;
    struct sl_offer mine;
    struct sl_offer *all;    /* [size] */
    struct sl_place *places; /* [size] */
    int32_t *codes;          /* [size] */
    bool *taken;             /* [size of the family] */
    struct sluice_comm *child;
};

static int alloc_tables(struct adoption *a)
{
    size_t size = (size_t)a->exchange->size;

    a->all = calloc(size, sizeof(*a->all));
    a->places = calloc(size, sizeof(*a->places));
    a->codes = calloc(size, sizeof(*a->codes));
    a->taken = calloc(a->family->size, sizeof(*a->taken));
    return a->all != NULL && a->places != NULL && a->codes != NULL && a->taken != NULL
               ? 0
               : sl_fail(-ENOMEM, "no memory to meet %zu ranks", size);
}

static void free_tables(struct adoption *a)
{
    free(a->all);
    free(a->places);
    free(a->codes);
    free(a->taken);
}

/* One of the family that is whole; NULL: there is none. */
static const struct sluice_comm *find_whole(const struct sl_family *family)
{
    for (const struct sl_node *node = family->comms.next;
         family->wireup != NULL && node != &family->comms; node = node->next) {
        const struct sluice_comm *comm = sl_container_of(node, const struct sluice_comm, of_family);

        if (comm->created && comm->health.error.code == 0 &&
            atomic_load(&comm->health.abort_asked) == 0)
            return comm;
    }
    return NULL;
}

static bool offer(struct adoption *a)
{
    bool whole;

    sl_worker_enter(a->family->worker);
    whole = find_whole(a->family) != NULL;
    if (whole)
        sl_place_offer(a->family, &a->mine.place);
    sl_worker_exit(a->family->worker);
    a->mine.family = a->family->id;
    return whole;
}

/* All ranks name this family, each another rank of it: the same answer on all. */
static bool are_members(struct adoption *a)
{
    for (int r = 0; r < a->exchange->size; r++) {
        const struct sl_offer *its = &a->all[r];

        if (its->family != a->mine.family || its->place.family_rank >= a->family->size ||
            a->taken[its->place.family_rank])
            return false;
        a->taken[its->place.family_rank] = true;
        a->places[r] = its->place;
    }
    return true;
}

static bool is_cut_off(const struct adoption *a)
{
    for (int r = 0; r < a->exchange->size; r++) {
        const struct sl_link *link = sl_link_find(a->family, a->places[r].family_rank);

        if (link != NULL && link->status != 0)
            return true;
    }
    return false;
}

/* Since it offered, others may have used the family, or all of them may have left or broken it.
 * -EAGAIN: the usual way is the better one. Inside. */
static int make(struct adoption *a)
{
    struct sl_child_params params = {.like = find_whole(a->family),
                                     .config = a->params->config,
                                     .id = a->family->id,
                                     .rank = (uint32_t)a->exchange->rank,
                                     .size = (uint32_t)a->exchange->size,
                                     .places = a->places,
                                     .mine = &a->mine.place};
    int err;

    if (params.like == NULL || is_cut_off(a))
        return sl_fail(-EAGAIN, "the family is not whole any more");
    err = sl_child_make(&params, &a->child);
    if (err == 0 && sl_windows_lacking(a->child))
        return sl_fail(-EAGAIN, "the family has no room for windows");
    if (err == 0) {
        a->child->codec_name = a->params->codec_name;
        a->child->wait.poke = a->params->poke;
        a->child->wait.poke_arg = a->params->poke_arg;
    }
    return err;
}

/* What all ranks said: 0, -EAGAIN if one did, or the first error. */
static int judge(const struct adoption *a, const struct sl_error *own)
{
    int failed = -1;

    for (int r = a->exchange->size; r-- > 0;) {
        if (a->codes[r] == -EAGAIN)
            return -EAGAIN;
        failed = a->codes[r] != 0 ? r : failed;
    }
    if (own->code != 0)
        return sl_fail_error(own);
    return failed < 0
               ? 0
               : sl_fail(a->codes[failed], "rank %d could not make its part: %s; see its output",
                         failed, sluice_strerror(a->codes[failed]));
}

/* Both ends of a place are here: whatever comes of it, it is given back or taken after this. */
static int join(struct adoption *a, struct sluice_comm **out)
{
    struct sl_worker *worker = a->family->worker;
    struct sl_error own;
    int32_t code;
    int err;

    sl_worker_enter(worker);
    code = make(a);
    sl_worker_exit(worker);
    sl_error_take(code, &own);
    err = a->exchange->allgather(a->exchange, &code, sizeof(code), a->codes);
    err = err ?: judge(a, &own);
    sl_worker_enter(worker);
    if (err == 0)
        sl_child_start(a->child);
    else
        sl_child_drop(a->child);
    sl_worker_exit(worker);
    if (err == 0)
        *out = a->child;
    return err == -EAGAIN ? 0 : err;
}

static void give_back(struct adoption *a)
{
    struct sl_worker *worker = a->family->worker;

    sl_worker_enter(worker);
    sl_place_withdraw(a->family, &a->mine.place);
    sl_worker_exit(worker);
}

int sl_adopt(struct sl_exchange *exchange, const struct sl_comm_params *params,
             struct sluice_comm **out)
{
    struct adoption a = {.exchange = exchange,
                         .params = params,
                         .family = find_family(exchange, params),
                         .mine.place.area = SL_NO_AREA};
    struct sl_worker *worker;
    int err;

    *out = NULL;
    if (a.family == NULL)
        return 0;
    worker = a.family->worker;
    err = alloc_tables(&a);
    if (err == 0 && offer(&a)) {
        err = sl_connect_offer(params->config, worker, exchange, &a.mine, a.all);
        if (err == 0 && are_members(&a))
            err = join(&a, out);
        give_back(&a);
    }
    free_tables(&a);
    sl_family_put(a.family);
    sl_worker_put(worker);
    return err;
}
