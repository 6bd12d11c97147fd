/* SPDX-License-Identifier: Apache-2.0 */
/* Memory windows (type 1) of the fake libibverbs: a key for a part of a region, another one with
 * each bind. */
#include "tests/fake/fake_ibv_inside.h"

#include <stdlib.h>

static struct ibv_mw *alloc_mw(struct ibv_pd *ibv, enum ibv_mw_type type)
{
    FAKE_ALONE;
    struct fake_pd *pd = FAKE_OF(fake_pd, ibv);
    struct fake_device *dev = pd->obj.dev;
    int error = fake_enter(&pd->obj, FAKE_IBV_ALLOC_MW);

    if (error == 0 &&
        (type != IBV_MW_TYPE_1 || (dev->params.attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW) == 0))
        error = EOPNOTSUPP;
    if (error == 0 && dev->live[FAKE_IBV_MW] >= (unsigned)dev->params.attr.max_mw)
        error = ENOMEM;
    if (error != 0) {
        errno = error;
        return NULL;
    }
    struct fake_mw *mw = fake_obj_new(dev, FAKE_IBV_MW, sizeof(*mw), offsetof(struct fake_mw, obj));

    if (dev->mw_count == dev->mw_cap) {
        dev->mw_cap = dev->mw_cap * 2 + 64;
        dev->mws = realloc(dev->mws, dev->mw_cap * sizeof(struct fake_mw *));
        if (dev->mws == NULL || dev->mw_cap >= 1u << 18)
            abort();
    }
    mw->rkey = (dev->number << 28 | FAKE_WINDOW_KEY | dev->mw_count << 8) + 0x11;
    mw->ibv = (struct ibv_mw){
        .context = ibv->context, .pd = ibv, .rkey = mw->rkey, .type = IBV_MW_TYPE_1};
    dev->mws[dev->mw_count++] = mw;
    dev->live[FAKE_IBV_MW]++;
    pd->obj.users++;
    return &mw->ibv;
}

static void unbind(struct fake_mw *mw)
{
    if (mw->mr != NULL)
        mw->mr->windows--;
    mw->mr = NULL;
}

static int dealloc_mw(struct ibv_mw *ibv)
{
    FAKE_ALONE;
    struct fake_mw *mw = FAKE_OF(fake_mw, ibv);
    int error = fake_enter_plain(&mw->obj, "ibv_dealloc_mw");

    if (error == EINVAL)
        return error;
    unbind(mw);
    mw->obj.dev->live[FAKE_IBV_MW]--;
    FAKE_OF(fake_pd, ibv->pd)->obj.users--;
    fake_obj_end(&mw->obj);
    return error;
}

enum ibv_wc_status fake_window_bind(struct fake_ibv *fake, const struct fake_bind *bind)
{
    struct fake_mw *mw = bind->mw;
    const struct fake_mr *mr = bind->mr;

    if (fake->bind_fails != 0 && --fake->bind_fails == 0)
        return IBV_WC_MW_BIND_ERR;
    if (!mw->obj.alive || !mr->obj.alive || fake_obj_gone(&mr->obj) || mr->ibv.pd != mw->ibv.pd ||
        mw->rkey != bind->old_key || (mr->access & IBV_ACCESS_MW_BIND) == 0 ||
        ((bind->access & IBV_ACCESS_REMOTE_WRITE) != 0 &&
         (mr->access & IBV_ACCESS_LOCAL_WRITE) == 0) ||
        bind->addr < mr->iova || bind->len > mr->ibv.length ||
        bind->addr - mr->iova > mr->ibv.length - bind->len)
        return IBV_WC_MW_BIND_ERR;
    unbind(mw);
    mw->rkey = bind->new_key;
    mw->addr = bind->addr;
    mw->len = bind->len;
    mw->access = bind->access;
    if (bind->len != 0) {
        mw->mr = bind->mr;
        mw->mr->windows++;
    }
    return IBV_WC_SUCCESS;
}

uint8_t *fake_window_at(struct fake_device *dev, struct ibv_pd *pd, uint32_t key, uint64_t addr,
                        uint64_t len, unsigned access)
{
    unsigned index = (key & (FAKE_WINDOW_KEY - 1)) >> 8;
    const struct fake_mw *mw = index < dev->mw_count ? dev->mws[index] : NULL;

    if (mw == NULL || !mw->obj.alive || fake_obj_gone(&mw->obj) || mw->mr == NULL ||
        mw->ibv.pd != pd || mw->rkey != key || (mw->access & access) != access)
        return NULL;
    if (addr < mw->addr || len > mw->len || addr - mw->addr > mw->len - len)
        return NULL;
    return mw->mr->host + (addr - mw->mr->iova);
}

void fake_ibv_bind_fails(struct fake_ibv *fake, unsigned nth)
{
    FAKE_ALONE;
    fake->bind_fails = nth;
}

unsigned fake_ibv_bound(const struct fake_ibv *fake)
{
    FAKE_ALONE;
    unsigned count = 0;

    for (unsigned d = 0; d < fake->device_count; d++)
        for (unsigned i = 0; i < fake->devices[d]->mw_count; i++) {
            const struct fake_mw *mw = fake->devices[d]->mws[i];

            count += mw->obj.alive && !fake_obj_gone(&mw->obj) && mw->mr != NULL;
        }
    return count;
}

void fake_table_window(struct ibv_context *context)
{
    context->ops.alloc_mw = alloc_mw;
    context->ops.dealloc_mw = dealloc_mw;
    context->ops.bind_mw = fake_bind_mw;
}
