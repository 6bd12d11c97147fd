/* SPDX-License-Identifier: Apache-2.0 */
/* Protection domains, memory regions and shared receive queues of the fake libibverbs. */
#include "tests/fake/fake_ibv_inside.h"

#include <stdlib.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ACCESS_KNOWN                                                                               \
    (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |                   \
     IBV_ACCESS_MW_BIND | IBV_ACCESS_RELAXED_ORDERING)

static struct ibv_pd *alloc_pd(struct ibv_context *ibv)
{
    FAKE_ALONE;
    struct fake_context *context = FAKE_OF(fake_context, ibv);
    struct fake_pd *pd;
    int error = fake_enter(&context->obj, FAKE_IBV_ALLOC_PD);

    if (error != 0) {
        errno = error;
        return NULL;
    }
    pd = fake_obj_new(context->obj.dev, FAKE_IBV_PD, sizeof(*pd), offsetof(struct fake_pd, obj));
    pd->ibv.context = ibv;
    context->obj.users++;
    return &pd->ibv;
}

static int dealloc_pd(struct ibv_pd *ibv)
{
    FAKE_ALONE;
    struct fake_pd *pd = FAKE_OF(fake_pd, ibv);
    int error = fake_enter_plain(&pd->obj, "ibv_dealloc_pd");

    if (error == EINVAL)
        return error;
    if (pd->obj.users != 0 && error == 0)
        return EBUSY;
    if (pd->of != NULL) {
        pd->of->obj.users--;
        pd->td->obj.users--;
    }
    FAKE_OF(fake_context, ibv->context)->obj.users--;
    fake_obj_end(&pd->obj);
    return error;
}

static struct ibv_td *alloc_td(struct ibv_context *ibv, struct ibv_td_init_attr *attr)
{
    FAKE_ALONE;
    struct fake_context *context = FAKE_OF(fake_context, ibv);
    struct fake_td *td;
    int error = fake_enter(&context->obj, FAKE_IBV_ALLOC_TD);

    if (error == 0 && attr->comp_mask != 0)
        error = EINVAL;
    if (error != 0) {
        errno = error;
        return NULL;
    }
    td = fake_obj_new(context->obj.dev, FAKE_IBV_TD, sizeof(*td), offsetof(struct fake_td, obj));
    td->ibv.context = ibv;
    context->obj.users++;
    return &td->ibv;
}

static int dealloc_td(struct ibv_td *ibv)
{
    FAKE_ALONE;
    struct fake_td *td = FAKE_OF(fake_td, ibv);
    int error = fake_enter_plain(&td->obj, "ibv_dealloc_td");

    if (error == EINVAL)
        return error;
    if (td->obj.users != 0 && error == 0)
        return EBUSY;
    FAKE_OF(fake_context, ibv->context)->obj.users--;
    fake_obj_end(&td->obj);
    return error;
}

static struct ibv_pd *alloc_parent_domain(struct ibv_context *ibv,
                                          struct ibv_parent_domain_init_attr *attr)
{
    FAKE_ALONE;
    struct fake_context *context = FAKE_OF(fake_context, ibv);
    struct fake_pd *pd;
    int error = fake_enter(&context->obj, FAKE_IBV_ALLOC_PARENT);

    if (error == 0 &&
        (attr->pd == NULL || attr->td == NULL || attr->comp_mask != 0 ||
         fake_enter_plain(&FAKE_OF(fake_td, attr->td)->obj, "ibv_alloc_parent_domain") != 0))
        error = EINVAL;
    if (error != 0) {
        errno = error;
        return NULL;
    }
    pd = fake_obj_new(context->obj.dev, FAKE_IBV_PD, sizeof(*pd), offsetof(struct fake_pd, obj));
    pd->ibv.context = ibv;
    pd->of = FAKE_OF(fake_pd, attr->pd);
    pd->td = FAKE_OF(fake_td, attr->td);
    pd->of->obj.users++;
    pd->td->obj.users++;
    context->obj.users++;
    return &pd->ibv;
}

static const struct fake_pd *protection(const struct ibv_pd *ibv)
{
    const struct fake_pd *pd = FAKE_OF(fake_pd, (uintptr_t)ibv);

    return pd->of != NULL ? pd->of : pd;
}

void fake_table_domain(struct verbs_context *t)
{
    t->sz = sizeof(*t);
    t->alloc_td = alloc_td;
    t->dealloc_td = dealloc_td;
    t->alloc_parent_domain = alloc_parent_domain;
    t->create_cq_ex = fake_create_cq_ex;
}

static uint32_t mr_key(const struct fake_device *dev, unsigned index, bool remote)
{
    /* Of neither kind twice on any device, so that a mixed-up key never works by chance. */
    uint32_t tag = 0x5au ^ (index * 7 & 0xff);

    return (dev->number << 28 | index << 9 | (remote ? 0x100u : 0u) | tag) + 0x1000u;
}

/* A pipe takes what can be read. By the bare system call: as a driver's, this look at memory that
 * somebody may be writing to is no data race, and ThreadSanitizer knows write() only. */
static bool byte_is_readable(const void *addr)
{
    int ends[2];
    bool ok;

    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
        return false;
    ok = syscall(SYS_write, ends[1], addr, (size_t)1) == 1;
    close(ends[0]);
    close(ends[1]);
    return ok;
}

static bool is_readable(const void *addr, size_t len)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)addr & ~(page - 1);

    return msync((void *)from, (uintptr_t)addr + len - from, MS_ASYNC) == 0 &&
           byte_is_readable(addr);
}

static int mr_check(struct fake_pd *pd, uint64_t len, unsigned access)
{
    struct fake_device *dev = pd->obj.dev;
    int error = fake_enter(&pd->obj, FAKE_IBV_REG_MR);

    if (error != 0)
        return error;
    if ((access & ~(unsigned)ACCESS_KNOWN) != 0)
        return EOPNOTSUPP;
    if (len == 0 || len > dev->params.attr.max_mr_size)
        return EINVAL;
    if ((access & IBV_ACCESS_REMOTE_WRITE) != 0 && (access & IBV_ACCESS_LOCAL_WRITE) == 0)
        return EINVAL;
    if (dev->params.max_locked != 0 && dev->locked + len > dev->params.max_locked)
        return ENOMEM;
    if (dev->live[FAKE_IBV_MR] >= (unsigned)dev->params.attr.max_mr)
        return ENOMEM;
    return 0;
}

static struct ibv_mr *mr_add(struct fake_pd *pd, void *addr, uint8_t *host, size_t len,
                             uint64_t iova, unsigned access, size_t mapped)
{
    struct fake_device *dev = pd->obj.dev;
    struct fake_mr *mr = fake_obj_new(dev, FAKE_IBV_MR, sizeof(*mr), offsetof(struct fake_mr, obj));

    if (dev->mr_count == dev->mr_cap) {
        dev->mr_cap = dev->mr_cap * 2 + 64;
        dev->mrs = realloc(dev->mrs, dev->mr_cap * sizeof(struct fake_mr *));
        if (dev->mrs == NULL || dev->mr_cap >= 1u << 18)
            abort();
    }
    mr->ibv = (struct ibv_mr){.context = pd->ibv.context,
                              .pd = &pd->ibv,
                              .addr = addr,
                              .length = len,
                              .lkey = mr_key(dev, dev->mr_count, false),
                              .rkey = mr_key(dev, dev->mr_count, true)};
    mr->iova = iova;
    mr->host = host;
    mr->mapped = mapped;
    mr->access = access;
    dev->mrs[dev->mr_count++] = mr;
    dev->locked += len;
    dev->live[FAKE_IBV_MR]++;
    pd->obj.users++;
    return &mr->ibv;
}

static struct ibv_mr *reg_mr_iova2(struct ibv_pd *ibv, void *addr, size_t len, uint64_t iova,
                                   unsigned access)
{
    FAKE_ALONE;
    struct fake_pd *pd = FAKE_OF(fake_pd, ibv);
    int error = mr_check(pd, len, access);
    uint8_t *(*peer)(const void *) = pd->obj.dev->fake->peer_memory;
    uint8_t *host = peer != NULL ? peer(addr) : NULL;

    /* Nobody may read GPU memory, though its addresses are in use. */
    if (error == 0 && host == NULL && !is_readable(addr, len))
        error = EFAULT;
    if (error != 0) {
        errno = error;
        return NULL;
    }
    return mr_add(pd, addr, host != NULL ? host : addr, len, iova, access, 0);
}

static struct ibv_mr *reg_mr(struct ibv_pd *ibv, void *addr, size_t len, int access)
{
    FAKE_ALONE;
    return reg_mr_iova2(ibv, addr, len, (uintptr_t)addr, (unsigned)access);
}

static struct ibv_mr *reg_dmabuf_mr(struct ibv_pd *ibv, uint64_t offset, size_t len, uint64_t iova,
                                    int fd, int access)
{
    FAKE_ALONE;
    struct fake_pd *pd = FAKE_OF(fake_pd, ibv);
    size_t page = (size_t)sysconf(_SC_PAGESIZE), inside = offset % page;
    off_t start = fd < 0 ? -1 : lseek(fd, 0, SEEK_CUR);
    uint8_t *host = NULL;
    int error = 0;

    if (!pd->obj.dev->params.dmabuf)
        error = EOPNOTSUPP;
    else if (start < 0)
        error = EBADF;
    else if ((offset ^ iova) % page != 0)
        error = EINVAL;
    if (error == 0)
        error = mr_check(pd, len, (unsigned)access);
    if (error == 0) {
        host = mmap(NULL, len + inside, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                    start + (off_t)(offset - inside));
        if (host == MAP_FAILED)
            error = EBADF;
    }
    if (error != 0) {
        errno = error;
        return NULL;
    }
    return mr_add(pd, NULL, host + inside, len, iova, (unsigned)access, len + inside);
}

static int dereg_mr(struct ibv_mr *ibv)
{
    FAKE_ALONE;
    struct fake_mr *mr = FAKE_OF(fake_mr, ibv);
    int error = fake_enter_plain(&mr->obj, "ibv_dereg_mr");

    if (error == EINVAL)
        return error;
    if (mr->windows != 0 && error == 0)
        fake_misuse(mr->obj.dev->fake, "ibv_dereg_mr with %u windows bound to it", mr->windows);
    mr->obj.dev->locked -= mr->ibv.length;
    mr->obj.dev->live[FAKE_IBV_MR]--;
    FAKE_OF(fake_pd, ibv->pd)->obj.users--;
    if (mr->mapped != 0)
        munmap(mr->host - (mr->mapped - ibv->length), mr->mapped);
    fake_obj_end(&mr->obj);
    return error;
}

uint8_t *fake_key_at(struct fake_device *dev, struct ibv_pd *pd, bool remote, uint32_t key,
                     uint64_t addr, uint64_t len, unsigned access)
{
    unsigned index = ((key - 0x1000u) >> 9) & 0x7ffff;
    struct fake_mr *mr;

    if (remote && (key & FAKE_WINDOW_KEY) != 0)
        return fake_window_at(dev, pd, key, addr, len, access);
    if (index >= dev->mr_count || mr_key(dev, index, remote) != key)
        return NULL;
    mr = dev->mrs[index];
    if (!mr->obj.alive || fake_obj_gone(&mr->obj) || protection(mr->ibv.pd) != protection(pd) ||
        (mr->access & access) != access)
        return NULL;
    if (addr < mr->iova || len > mr->ibv.length || addr - mr->iova > mr->ibv.length - len)
        return NULL;
    return mr->host + (addr - mr->iova);
}

static struct ibv_srq *create_srq(struct ibv_pd *ibv, struct ibv_srq_init_attr *init)
{
    FAKE_ALONE;
    struct fake_pd *pd = FAKE_OF(fake_pd, ibv);
    const struct ibv_device_attr *max = &pd->obj.dev->params.attr;
    struct fake_srq *srq;
    int error = fake_enter(&pd->obj, FAKE_IBV_CREATE_SRQ);

    if (error == 0 && (init->attr.max_wr == 0 || init->attr.max_sge == 0 ||
                       init->attr.max_wr > (unsigned)max->max_srq_wr ||
                       init->attr.max_sge > (unsigned)max->max_srq_sge))
        error = EINVAL;
    if (error == 0 && pd->obj.dev->live[FAKE_IBV_SRQ] >= (unsigned)max->max_srq)
        error = ENOMEM;
    if (error != 0) {
        errno = error;
        return NULL;
    }
    srq = fake_obj_new(pd->obj.dev, FAKE_IBV_SRQ, sizeof(*srq), offsetof(struct fake_srq, obj));
    srq->ibv.context = ibv->context;
    srq->ibv.srq_context = init->srq_context;
    srq->ibv.pd = ibv;
    fake_rq_init(&srq->rq, init->attr.max_wr, init->attr.max_sge);
    pd->obj.users++;
    pd->obj.dev->live[FAKE_IBV_SRQ]++;
    return &srq->ibv;
}

static int destroy_srq(struct ibv_srq *ibv)
{
    FAKE_ALONE;
    struct fake_srq *srq = FAKE_OF(fake_srq, ibv);
    int error = fake_enter_plain(&srq->obj, "ibv_destroy_srq");

    if (error == EINVAL)
        return error;
    if (srq->obj.users != 0 && error == 0)
        return EBUSY;
    fake_event_forget(FAKE_OF(fake_context, ibv->context), &srq->obj, ibv->events_completed);
    FAKE_OF(fake_pd, ibv->pd)->obj.users--;
    srq->obj.dev->live[FAKE_IBV_SRQ]--;
    fake_obj_end(&srq->obj);
    return error;
}

void fake_ibv_srq_arm(struct fake_ibv *fake, struct ibv_srq *srq, unsigned limit)
{
    FAKE_ALONE;
    FAKE_OF(fake_srq, srq)->limit = limit;
}

void fake_ibv_peer_memory(struct fake_ibv *fake, uint8_t *(*bytes)(const void *addr))
{
    FAKE_ALONE;
    fake->peer_memory = bytes;
}

void fake_table_object(struct sl_ibv *t)
{
    t->ibv_alloc_pd = alloc_pd;
    t->ibv_dealloc_pd = dealloc_pd;
    t->ibv_reg_mr = reg_mr;
    t->ibv_reg_mr_iova2 = reg_mr_iova2;
    t->ibv_reg_dmabuf_mr = reg_dmabuf_mr;
    t->ibv_dereg_mr = dereg_mr;
    t->ibv_create_srq = create_srq;
    t->ibv_destroy_srq = destroy_srq;
}
