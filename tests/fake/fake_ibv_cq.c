/* SPDX-License-Identifier: Apache-2.0 */
/* Completion queues and channels of the fake libibverbs: when a completion is seen, and whom it
 * wakes. */
#include "tests/fake/fake_ibv_inside.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

static struct ibv_comp_channel *create_comp_channel(struct ibv_context *ibv)
{
    FAKE_ALONE;
    struct fake_context *context = FAKE_OF(fake_context, ibv);
    struct fake_channel *channel;
    int error = fake_enter(&context->obj, FAKE_IBV_CREATE_CHANNEL);

    if (error != 0) {
        errno = error;
        return NULL;
    }
    channel = fake_obj_new(context->obj.dev, FAKE_IBV_CHANNEL, sizeof(*channel),
                           offsetof(struct fake_channel, obj));
    channel->ibv.context = ibv;
    channel->ibv.fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
    if (channel->ibv.fd < 0)
        abort();
    context->obj.users++;
    return &channel->ibv;
}

void fake_channel_free(struct fake_channel *channel)
{
    if (!channel->obj.alive)
        return;
    close(channel->ibv.fd);
    while (channel->notes != NULL) {
        struct fake_note *note = channel->notes;

        channel->notes = note->next;
        free(note);
    }
}

static int destroy_comp_channel(struct ibv_comp_channel *ibv)
{
    FAKE_ALONE;
    struct fake_channel *channel = FAKE_OF(fake_channel, ibv);
    int error = fake_enter_plain(&channel->obj, "ibv_destroy_comp_channel");

    if (error == EINVAL)
        return error;
    if (channel->obj.users != 0)
        return EBUSY;
    fake_channel_free(channel);
    FAKE_OF(fake_context, ibv->context)->obj.users--;
    fake_obj_end(&channel->obj);
    return 0; /* closes a file: works without the device, too */
}

static struct ibv_cq *create_cq(struct ibv_context *ibv, int cqe, void *cq_context,
                                struct ibv_comp_channel *channel, int vector)
{
    FAKE_ALONE;
    struct fake_context *context = FAKE_OF(fake_context, ibv);
    struct fake_device *dev = context->obj.dev;
    struct fake_cq *cq;
    int error = fake_enter(&context->obj, FAKE_IBV_CREATE_CQ);

    if (error == 0 &&
        (cqe < 1 || cqe > dev->params.attr.max_cqe || vector < 0 ||
         vector >= dev->params.comp_vectors || (channel != NULL && channel->context != ibv)))
        error = EINVAL;
    if (error == 0 && dev->live[FAKE_IBV_CQ] >= (unsigned)dev->params.attr.max_cq)
        error = ENOMEM;
    if (error != 0) {
        errno = error;
        return NULL;
    }
    cq = fake_obj_new(dev, FAKE_IBV_CQ, sizeof(*cq), offsetof(struct fake_cq, obj));
    cq->ibv.context = ibv;
    cq->ibv.channel = channel;
    cq->ibv.cq_context = cq_context;
    cq->ibv.cqe = cqe;
    cq->cap = (unsigned)cqe;
    cq->vector = vector;
    cq->ring = calloc(cq->cap, sizeof(*cq->ring));
    if (cq->ring == NULL)
        abort();
    if (channel != NULL)
        FAKE_OF(fake_channel, channel)->obj.users++;
    context->obj.users++;
    dev->live[FAKE_IBV_CQ]++;
    return &cq->ibv;
}

struct ibv_cq_ex *fake_create_cq_ex(struct ibv_context *ibv, struct ibv_cq_init_attr_ex *attr)
{
    FAKE_ALONE;
    const uint32_t known = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
    bool bad = (attr->comp_mask & ~known) != 0 || (attr->wc_flags & ~IBV_WC_STANDARD_FLAGS) != 0;
    struct ibv_cq *cq;

    if ((attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0)
        bad |= (attr->flags & ~(uint32_t)IBV_CREATE_CQ_ATTR_SINGLE_THREADED) != 0;
    if ((attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) != 0)
        bad |= FAKE_OF(fake_pd, attr->parent_domain)->of == NULL;
    if (bad) {
        errno = EINVAL;
        return NULL;
    }
    cq = create_cq(ibv, (int)attr->cqe, attr->cq_context, attr->channel, (int)attr->comp_vector);
    if (cq != NULL)
        FAKE_OF(fake_cq, cq)->single = attr->flags != 0;
    return FAKE_OF(ibv_cq_ex, cq);
}

static int resize_cq(struct ibv_cq *ibv, int cqe)
{
    FAKE_ALONE;
    struct fake_cq *cq = FAKE_OF(fake_cq, ibv);
    int error = fake_enter(&cq->obj, FAKE_IBV_RESIZE_CQ);
    struct fake_cqe *ring;

    if (error == 0 && !cq->obj.dev->params.resize_cq)
        error = EOPNOTSUPP;
    if (error == 0 && (cqe < (int)cq->count || cqe > cq->obj.dev->params.attr.max_cqe))
        error = EINVAL;
    if (error != 0)
        return error;
    ring = calloc((size_t)cqe, sizeof(*ring));
    if (ring == NULL)
        abort();
    for (unsigned i = 0; i < cq->count; i++)
        ring[i] = cq->ring[(cq->first + i) % cq->cap];
    free(cq->ring);
    cq->ring = ring;
    cq->first = 0;
    cq->cap = (unsigned)cqe;
    ibv->cqe = cqe;
    return 0;
}

/* The kernel forgets events of a CQ that nobody has fetched. */
static void notes_forget(struct fake_channel *channel, struct fake_cq *cq)
{
    struct fake_note **at = &channel->notes;
    uint64_t one;

    while (*at != NULL) {
        struct fake_note *note = *at;

        if (note->cq != cq) {
            at = &note->next;
            continue;
        }
        *at = note->next;
        free(note);
        if (read(channel->ibv.fd, &one, sizeof(one)) != sizeof(one))
            fake_misuse(cq->obj.dev->fake, "somebody else read from the fd of a channel");
    }
}

static int destroy_cq(struct ibv_cq *ibv)
{
    FAKE_ALONE;
    struct fake_cq *cq = FAKE_OF(fake_cq, ibv);
    int error = fake_enter_plain(&cq->obj, "ibv_destroy_cq");

    if (error == EINVAL)
        return error;
    if (cq->obj.users != 0 && error == 0)
        return EBUSY;
    if (ibv->channel != NULL) {
        notes_forget(FAKE_OF(fake_channel, ibv->channel), cq);
        FAKE_OF(fake_channel, ibv->channel)->obj.users--;
    }
    if (cq->notes_given != ibv->comp_events_completed)
        fake_misuse(cq->obj.dev->fake,
                    "ibv_destroy_cq would wait for ever: %u events fetched, %u acked",
                    cq->notes_given, ibv->comp_events_completed);
    fake_event_forget(FAKE_OF(fake_context, ibv->context), &cq->obj, ibv->async_events_completed);
    FAKE_OF(fake_context, ibv->context)->obj.users--;
    cq->obj.dev->live[FAKE_IBV_CQ]--;
    fake_obj_end(&cq->obj);
    return error;
}

static int get_cq_event(struct ibv_comp_channel *ibv, struct ibv_cq **out, void **context)
{
    FAKE_ALONE;
    struct fake_channel *channel = FAKE_OF(fake_channel, ibv);
    int error = fake_enter_plain(&channel->obj, "ibv_get_cq_event");
    struct fake_note *note = channel->notes;
    uint64_t one;

    if (error == EINVAL) {
        errno = error;
        return -1;
    }
    if (note == NULL) {
        if ((fcntl(ibv->fd, F_GETFL) & O_NONBLOCK) == 0)
            fake_misuse(channel->obj.dev->fake, "ibv_get_cq_event would wait for ever");
        errno = EAGAIN;
        return -1;
    }
    if (read(ibv->fd, &one, sizeof(one)) != sizeof(one))
        fake_misuse(channel->obj.dev->fake, "somebody else read from the fd of a channel");
    channel->notes = note->next;
    *out = &note->cq->ibv;
    *context = note->cq->ibv.cq_context;
    note->cq->notes_given++;
    free(note);
    return 0;
}

static void ack_cq_events(struct ibv_cq *ibv, unsigned count)
{
    FAKE_ALONE;
    struct fake_cq *cq = FAKE_OF(fake_cq, ibv);

    if (fake_enter_plain(&cq->obj, "ibv_ack_cq_events") == EINVAL)
        return;
    ibv->comp_events_completed += count;
    if (ibv->comp_events_completed > cq->notes_given)
        fake_misuse(cq->obj.dev->fake, "ibv_ack_cq_events: %u events acked, %u fetched",
                    ibv->comp_events_completed, cq->notes_given);
}

static void notify(struct fake_cq *cq)
{
    struct fake_channel *channel = FAKE_OF(fake_channel, cq->ibv.channel);
    struct fake_note *note = calloc(1, sizeof(*note)), **at = &channel->notes;
    uint64_t one = 1;

    if (note == NULL)
        abort();
    note->cq = cq;
    while (*at != NULL)
        at = &(*at)->next;
    *at = note;
    if (write(channel->ibv.fd, &one, sizeof(one)) != sizeof(one))
        abort();
}

bool fake_cq_shows(struct ibv_cq *ibv, const struct fake_qp *qp)
{
    const struct fake_cq *cq = FAKE_OF(fake_cq, ibv);

    for (unsigned i = cq->visible; i < cq->count; i++)
        if (cq->ring[(cq->first + i) % cq->cap].qp == qp)
            return false;
    return true;
}

bool fake_cq_waits(const struct fake_cq *cq)
{
    return cq->obj.alive && !cq->hold && cq->visible < cq->count && !fake_obj_gone(&cq->obj);
}

void fake_cq_reveal(struct fake_cq *cq)
{
    while (fake_cq_waits(cq)) {
        const struct fake_cqe *cqe = &cq->ring[(cq->first + cq->visible) % cq->cap];

        if (cqe->ready_at > cq->obj.dev->fake->now)
            return;
        cq->visible++;
        if (cq->armed && (!cq->solicited_only || cqe->wakes_solicited)) {
            cq->armed = false;
            if (cq->ibv.channel != NULL)
                notify(cq);
        }
    }
}

static void overrun(struct fake_cq *cq)
{
    struct fake_device *dev = cq->obj.dev;

    cq->broken = true;
    fake_event_raise(FAKE_OF(fake_context, cq->ibv.context), IBV_EVENT_CQ_ERR, &cq->obj, 0);
    for (unsigned i = 0; i < dev->qp_count; i++) {
        struct fake_qp *qp = dev->qps[i];

        if (!qp->obj.alive || (qp->ibv.send_cq != &cq->ibv && qp->ibv.recv_cq != &cq->ibv) ||
            qp->state == IBV_QPS_RESET || qp->state == IBV_QPS_ERR)
            continue;
        fake_event_raise(FAKE_OF(fake_context, qp->ibv.context), IBV_EVENT_QP_FATAL, &qp->obj, 0);
        fake_qp_error(qp);
    }
}

void fake_cq_push(struct fake_cq *cq, const struct fake_cqe *cqe)
{
    struct fake_ibv *fake = cq->obj.dev->fake;
    struct fake_cqe *slot = &cq->ring[(cq->first + cq->count) % cq->cap];
    uint64_t ready = fake->now, before = 0;

    if (cq->broken)
        return;
    if (cq->count == cq->cap) {
        fake_misuse(fake, "a completion queue of %u entries overran", cq->cap);
        overrun(cq);
        return;
    }
    if (fake->delay != 0)
        ready += sl_rng_below(&fake->rng, fake->delay + 1);
    if (cq->count != 0)
        before = cq->ring[(cq->first + cq->count - 1) % cq->cap].ready_at;
    *slot = *cqe;
    slot->ready_at = ready > before ? ready : before;
    cq->count++;
    fake_cq_reveal(cq);
}

static void room_again(const struct fake_cqe *cqe)
{
    if (!cqe->is_recv) {
        if (cqe->releases > cqe->qp->head)
            cqe->qp->head = cqe->releases;
    } else if (cqe->srq != NULL) {
        cqe->srq->rq.held--;
    } else {
        cqe->qp->rq.held--;
    }
}

int fake_poll_cq(struct ibv_cq *ibv, int count, struct ibv_wc *wc)
{
    FAKE_ALONE;
    struct fake_cq *cq = FAKE_OF(fake_cq, ibv);
    int error = fake_enter_plain(&cq->obj, "ibv_poll_cq"), n = 0;

    if (cq->poll_fails)
        return -1;
    if (error != 0 || cq->obj.dev->fatal)
        return error == EINVAL ? -1 : 0;
    if (count < 0) {
        fake_misuse(cq->obj.dev->fake, "ibv_poll_cq for %d completions", count);
        return -1;
    }
    while (n < count && cq->visible != 0) {
        wc[n++] = cq->ring[cq->first].wc;
        room_again(&cq->ring[cq->first]);
        cq->first = (cq->first + 1) % cq->cap;
        cq->count--;
        cq->visible--;
    }
    return n;
}

int fake_req_notify_cq(struct ibv_cq *ibv, int solicited_only)
{
    FAKE_ALONE;
    struct fake_cq *cq = FAKE_OF(fake_cq, ibv);
    int error = fake_enter(&cq->obj, FAKE_IBV_REQ_NOTIFY);

    if (error != 0)
        return error;
    if (ibv->channel == NULL)
        fake_misuse(cq->obj.dev->fake, "ibv_req_notify_cq of a CQ that has no channel");
    /* The next completion wakes, not one that is there: who arms has to poll again. All beats
     * solicited. */
    cq->solicited_only = (!cq->armed || cq->solicited_only) && solicited_only != 0;
    cq->armed = true;
    return 0;
}

void fake_cq_forget(struct fake_cq *cq, const struct fake_qp *qp)
{
    unsigned kept = 0, visible = 0;

    for (unsigned i = 0; i < cq->count; i++) {
        const struct fake_cqe *cqe = &cq->ring[(cq->first + i) % cq->cap];

        if (cqe->qp == qp) {
            room_again(cqe);
            continue;
        }
        cq->ring[(cq->first + kept) % cq->cap] = *cqe;
        visible += i < cq->visible;
        kept++;
    }
    cq->count = kept;
    cq->visible = visible;
}

void fake_ibv_cq_error(struct fake_ibv *fake, struct ibv_cq *cq)
{
    FAKE_ALONE;
    if (!FAKE_OF(fake_cq, cq)->broken)
        overrun(FAKE_OF(fake_cq, cq));
}

void fake_ibv_cq_unreadable(struct fake_ibv *fake, struct ibv_cq *cq)
{
    FAKE_ALONE;
    (void)fake;
    FAKE_OF(fake_cq, cq)->poll_fails = true;
}

void fake_ibv_cq_hold(struct fake_ibv *fake, struct ibv_cq *cq, bool hold)
{
    FAKE_ALONE;
    FAKE_OF(fake_cq, cq)->hold = hold;
    fake_cq_reveal(FAKE_OF(fake_cq, cq));
}

void fake_ibv_delay(struct fake_ibv *fake, unsigned steps)
{
    FAKE_ALONE;
    fake->delay = steps;
}

void fake_table_cq(struct sl_ibv *t)
{
    t->ibv_create_comp_channel = create_comp_channel;
    t->ibv_destroy_comp_channel = destroy_comp_channel;
    t->ibv_create_cq = create_cq;
    t->ibv_resize_cq = resize_cq;
    t->ibv_destroy_cq = destroy_cq;
    t->ibv_get_cq_event = get_cq_event;
    t->ibv_ack_cq_events = ack_cq_events;
}
