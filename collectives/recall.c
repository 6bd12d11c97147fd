/* SPDX-License-Identifier: Apache-2.0 */
/* The table of what calls keep for their encodings. */
#include "collectives/recall.h"

#include "core/log.h"

#include <stdlib.h>
#include <string.h>

#define BUCKETS 256 /* a power of two */
#define COUNT_MAX 4096

struct sl_recalled {
    struct sl_recalled *next;      /* in its bucket */
    struct sl_node lru;            /* in the table's, unused for longest first */
    struct sl_recall_table *table; /* NULL: forgotten, and freed with the last user */
    struct sl_coding *coding;      /* counted */
    void *state;
    uint64_t bytes;
    uint32_t users; /* operations under way */
    /* What it is of. */
    const void *in;
    uint64_t count;
    enum sl_coll coll;
    enum sluice_dtype dtype;
    enum sluice_op op;
    struct sl_coding_extent extents[SL_CODING_STAGES];
};

struct sl_recall_table {
    struct sl_recalled *buckets[BUCKETS];
    struct sl_node lru;
    uint64_t bytes;
    uint32_t count;
    bool warned;
};

bool sl_recall_concerns(const struct sl_plan *plan)
{
    const struct sl_coding *coding = plan->coding;

    return coding->keep != NULL && coding->keep_max > 0 && sl_coll_reduces(plan->call.coll);
}

void *sl_recalled_state(const struct sl_recalled *recalled)
{
    return recalled != NULL ? recalled->state : NULL;
}

static struct sl_recalled **bucket_of(struct sl_recall_table *table, const void *in, uint64_t count)
{
    uint64_t hash = ((uint64_t)(uintptr_t)in ^ count << 20) * UINT64_C(0x9e3779b97f4a7c15);

    return &table->buckets[hash >> 32 & (BUCKETS - 1)];
}

static void destroy(struct sl_recalled *recalled)
{
    recalled->coding->forget(recalled->state);
    sl_coding_put(recalled->coding);
    free(recalled);
}

/* Takes it from the table; it goes now, or with its last user. */
static void forget(struct sl_recalled *recalled)
{
    struct sl_recall_table *table = recalled->table;
    struct sl_recalled **at = bucket_of(table, recalled->in, recalled->count);

    while (*at != recalled)
        at = &(*at)->next;
    *at = recalled->next;
    sl_list_remove(&recalled->lru);
    table->bytes -= recalled->bytes;
    table->count--;
    recalled->table = NULL;
    if (recalled->users == 0)
        destroy(recalled);
}

void sl_recall_end(struct sl_recalled *recalled)
{
    if (recalled != NULL && --recalled->users == 0 && recalled->table == NULL)
        destroy(recalled);
}

void sl_recall_drop(struct sluice_comm *comm)
{
    struct sl_recall_table *table = comm->recalls;

    if (table == NULL)
        return;
    if (table->count > 0)
        sl_info("compress", "what calls with %u buffers kept, %llu bytes, is no longer needed",
                table->count, (unsigned long long)table->bytes);
    sl_list_foreach(&table->lru, node)
    {
        forget(sl_container_of(node, struct sl_recalled, lru));
    }
    comm->recalls = NULL;
    free(table);
}

static struct sl_recall_table *table_of(struct sluice_comm *comm)
{
    if (comm->recalls == NULL) {
        comm->recalls = calloc(1, sizeof(*comm->recalls));
        if (comm->recalls != NULL)
            sl_list_init(&comm->recalls->lru);
    }
    return comm->recalls;
}

static bool is_of(const struct sl_recalled *recalled, const struct sl_call *call, const void *in)
{
    return recalled->in == in && recalled->count == call->count && recalled->coll == call->coll &&
           recalled->dtype == call->dtype && recalled->op == call->op;
}

static struct sl_recalled *find(struct sl_recall_table *table, const struct sl_call *call,
                                const void *in)
{
    struct sl_recalled *recalled = *bucket_of(table, in, call->count);

    while (recalled != NULL && !is_of(recalled, call, in))
        recalled = recalled->next;
    return recalled;
}

/* Once: the setting is too small for the program, and stays so. */
static void warn(struct sl_recall_table *table, uint64_t needed, uint64_t most)
{
    if (table->warned)
        return;
    table->warned = true;
    if (needed > most)
        sl_warn("compress",
                "feedback=on: what calls with one buffer lose takes %llu bytes, and keep= allows "
                "%llu: they go without",
                (unsigned long long)needed, (unsigned long long)most);
    else
        sl_warn("compress",
                "feedback=on: what calls with %u buffers lose takes %llu bytes, and keep= allows "
                "%llu of %u buffers: those unused for longest begin anew",
                table->count + 1, (unsigned long long)(table->bytes + needed),
                (unsigned long long)most, COUNT_MAX);
}

/* False: there is none, even without all that nobody uses. */
static bool make_room(struct sl_recall_table *table, uint64_t needed, uint64_t most)
{
    if (table->bytes + needed > most || table->count >= COUNT_MAX)
        warn(table, needed, most);
    sl_list_foreach(&table->lru, node)
    {
        struct sl_recalled *oldest = sl_container_of(node, struct sl_recalled, lru);

        if (needed > most || (table->bytes + needed <= most && table->count < COUNT_MAX))
            break;
        if (oldest->users == 0)
            forget(oldest);
    }
    return table->bytes + needed <= most && table->count < COUNT_MAX;
}

/* Without memory for it, the call goes on without: nothing is lost but what the codec loses. */
static struct sl_recalled *make(struct sl_recall_table *table, const struct sl_plan *plan,
                                const void *in)
{
    struct sl_coding *coding = plan->coding;
    const struct sl_call *call = &plan->call;
    uint64_t bytes = coding->keep_bytes(plan->extents);
    struct sl_recalled *recalled, **bucket = bucket_of(table, in, call->count);
    void *state;

    if (!make_room(table, bytes, coding->keep_max))
        return NULL;
    recalled = calloc(1, sizeof(*recalled));
    if (recalled == NULL || coding->keep(coding, plan->extents, &state) != 0) {
        free(recalled);
        return NULL;
    }
    *recalled = (struct sl_recalled){.next = *bucket,
                                     .table = table,
                                     .coding = sl_coding_get(coding),
                                     .state = state,
                                     .bytes = bytes,
                                     .in = in,
                                     .count = call->count,
                                     .coll = call->coll,
                                     .dtype = call->dtype,
                                     .op = call->op};
    memcpy(recalled->extents, plan->extents, sizeof(recalled->extents));
    sl_list_init(&recalled->lru);
    sl_list_push_back(&table->lru, &recalled->lru);
    *bucket = recalled;
    table->bytes += bytes;
    table->count++;
    return recalled;
}

struct sl_recalled *sl_recall_begin(struct sluice_comm *comm, const struct sl_plan *plan,
                                    const void *in)
{
    struct sl_recall_table *table = table_of(comm);
    struct sl_recalled *recalled;

    in = comm->recall_as != NULL ? comm->recall_as : in;
    recalled = table != NULL ? find(table, &plan->call, in) : NULL;
    /* A plan that encodes other tiles, as where links have changed, has lost nothing yet. */
    if (recalled != NULL &&
        (recalled->coding != plan->coding ||
         memcmp(recalled->extents, plan->extents, sizeof(plan->extents)) != 0)) {
        forget(recalled);
        recalled = NULL;
    }
    if (recalled != NULL) {
        sl_list_remove(&recalled->lru);
        sl_list_push_back(&table->lru, &recalled->lru);
    } else if (table != NULL) {
        recalled = make(table, plan, in);
    }
    if (recalled != NULL)
        recalled->users++;
    return recalled;
}
