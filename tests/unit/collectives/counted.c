/* SPDX-License-Identifier: Apache-2.0 */
/* Counts the calls that open, connect, register and map. */
#include "tests/unit/collectives/counted.h"

#include "core/err.h"
#include "core/registry.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

static const struct sl_transport_ops *inner;
static struct sl_transport_ops its_ops;
struct sl_transport_ops counted_ops;
static _Atomic unsigned opened, endpoints, allocated, registered, mapped;

static int count_ep(struct sl_iface *iface, struct sl_ep **out)
{
    atomic_fetch_add(&endpoints, 1);
    return inner->ep_create(iface, out);
}

static int count_alloc(struct sl_iface *iface, size_t len, size_t backed, struct sl_mem *out)
{
    atomic_fetch_add(&allocated, 1);
    return inner->mem_alloc(iface, len, backed, out);
}

static int count_reg(struct sl_iface *iface, const struct sl_mem *mem, struct sl_mr **out,
                     struct sl_key *key)
{
    atomic_fetch_add(&registered, 1);
    return inner->mr_reg(iface, mem, out, key);
}

static int count_map(struct sl_ep *ep, const struct sl_key *key, size_t len, void **out)
{
    int err = inner->map(ep, key, len, out);

    atomic_fetch_add(&mapped, err == 0);
    return err;
}

static pthread_mutex_t ops_lock = PTHREAD_MUTEX_INITIALIZER;

static int count_open(struct sl_worker *worker, const struct sl_device *dev,
                      const struct sl_handler *handler, struct sl_iface **out)
{
    int err = inner->open(worker, dev, handler, out);

    if (err != 0)
        return err;
    atomic_fetch_add(&opened, 1);
    pthread_mutex_lock(&ops_lock);
    if (its_ops.open == NULL) {
        its_ops = *(*out)->ops;
        its_ops.ep_create = count_ep;
        its_ops.mem_alloc = count_alloc;
        its_ops.mr_reg = count_reg;
        its_ops.map = count_map;
    }
    pthread_mutex_unlock(&ops_lock);
    (*out)->ops = &its_ops;
    return 0;
}

void counted_set_up(const char *transport)
{
    inner = sl_transport_find(transport, strlen(transport));
    sl_assert(inner != NULL);
    counted_ops = *inner;
    counted_ops.open = count_open;
}

unsigned counted_so_far(void)
{
    return atomic_load(&opened) + atomic_load(&endpoints) + atomic_load(&allocated) +
           atomic_load(&registered) + atomic_load(&mapped);
}

unsigned counted_by_all(struct sluice_comm *comm)
{
    sluice_barrier(comm, NULL);
    unsigned counts = counted_so_far();

    sluice_barrier(comm, NULL);
    return counts;
}

struct crew counted_crew(int ranks, const char *settings)
{
    struct crew crew = {.ranks = ranks, .settings = settings};

    for (int i = 0; i < ranks; i++)
        crew.ops[i] = &counted_ops;
    return crew;
}

int counted_sum(struct sluice_comm *comm, float mine, float *out)
{
    return sluice_allreduce(comm, &mine, out, 1, SLUICE_F32, SLUICE_SUM, NULL);
}
