/* SPDX-License-Identifier: Apache-2.0 */
/* Asynchronous events of the fake libibverbs. */
#include "tests/fake/fake_ibv_inside.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

void fake_event_raise(struct fake_context *context, enum ibv_event_type type,
                      struct fake_obj *about, int port)
{
    struct fake_async *event, **at = &context->events;
    struct fake_ibv *fake = context->obj.dev->fake;

    if (!context->obj.alive || fake_obj_gone(&context->obj))
        return;
    event = calloc(1, sizeof(*event));
    if (event == NULL)
        abort();
    event->event.event_type = type;
    event->about = about;
    event->ready_at = fake->now;
    if (fake->event_delay != 0)
        event->ready_at += sl_rng_below(&fake->rng, fake->event_delay + 1);
    if (about == NULL)
        event->event.element.port_num = port;
    else if (about->kind == FAKE_IBV_CQ)
        event->event.element.cq = about->base;
    else if (about->kind == FAKE_IBV_QP)
        event->event.element.qp = about->base;
    else
        event->event.element.srq = about->base;
    for (; *at != NULL; at = &(*at)->next)
        if (event->ready_at < (*at)->ready_at)
            event->ready_at = (*at)->ready_at;
    *at = event;
    fake_event_reveal(context);
}

void fake_event_reveal(struct fake_context *context)
{
    uint64_t one = 1;

    for (struct fake_async *event = context->events; event != NULL; event = event->next) {
        if (event->is_told || event->ready_at > context->obj.dev->fake->now)
            continue;
        event->is_told = true;
        if (write(context->ibv.async_fd, &one, sizeof(one)) != sizeof(one))
            abort();
    }
}

bool fake_event_waits(const struct fake_context *context)
{
    for (const struct fake_async *event = context->events; event != NULL; event = event->next)
        if (!event->is_told)
            return context->obj.alive;
    return false;
}

void fake_ibv_event_delay(struct fake_ibv *fake, unsigned steps)
{
    FAKE_ALONE;
    fake->event_delay = steps;
}

void fake_event_device(struct fake_device *dev, enum ibv_event_type type, int port)
{
    for (struct fake_obj *obj = dev->fake->all; obj != NULL; obj = obj->next)
        if (obj->kind == FAKE_IBV_CONTEXT && obj->dev == dev)
            fake_event_raise(obj->base, type, NULL, port);
}

static struct fake_async *take(struct fake_context *context, struct fake_async **at)
{
    struct fake_async *event = *at;
    uint64_t one;

    *at = event->next;
    if (event->is_told && read(context->ibv.async_fd, &one, sizeof(one)) != sizeof(one))
        fake_misuse(context->obj.dev->fake, "somebody else read from the async_fd of %s",
                    context->ibv.device->name);
    return event;
}

void fake_event_forget(struct fake_context *context, struct fake_obj *about, uint32_t acked)
{
    struct fake_async **at = &context->events;

    while (*at != NULL) {
        if ((*at)->about == about)
            free(take(context, at));
        else
            at = &(*at)->next;
    }
    if (about->events_given != acked)
        fake_misuse(about->dev->fake,
                    "a destroy would wait for ever: %u asynchronous events fetched, %u acked",
                    about->events_given, acked);
}

void fake_event_close(struct fake_context *context)
{
    while (context->events != NULL)
        free(take(context, &context->events));
    close(context->ibv.async_fd);
}

static int get_async_event(struct ibv_context *ibv, struct ibv_async_event *out)
{
    FAKE_ALONE;
    struct fake_context *context = FAKE_OF(fake_context, ibv);
    struct fake_async *event;

    if (fake_enter_plain(&context->obj, "ibv_get_async_event") == EINVAL) {
        errno = EINVAL;
        return -1;
    }
    if (context->events == NULL || !context->events->is_told) {
        if ((fcntl(ibv->async_fd, F_GETFL) & O_NONBLOCK) == 0)
            fake_misuse(context->obj.dev->fake, "ibv_get_async_event would wait for ever");
        errno = EAGAIN;
        return -1;
    }
    event = take(context, &context->events);
    *out = event->event;
    if (event->about != NULL)
        event->about->events_given++;
    free(event);
    return 0;
}

static struct fake_obj *about_of(struct ibv_async_event *event, uint32_t **acked)
{
    switch (event->event_type) {
    case IBV_EVENT_CQ_ERR:
        *acked = &event->element.cq->async_events_completed;
        return &FAKE_OF(fake_cq, event->element.cq)->obj;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
        *acked = &event->element.qp->events_completed;
        return &FAKE_OF(fake_qp, event->element.qp)->obj;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
        *acked = &event->element.srq->events_completed;
        return &FAKE_OF(fake_srq, event->element.srq)->obj;
    default: return NULL;
    }
}

static void ack_async_event(struct ibv_async_event *event)
{
    FAKE_ALONE;
    uint32_t *acked;
    struct fake_obj *about = about_of(event, &acked);

    if (about == NULL || fake_enter_plain(about, "ibv_ack_async_event") == EINVAL)
        return;
    if (*acked == about->events_given)
        fake_misuse(about->dev->fake, "ibv_ack_async_event of an event that was acked before");
    else
        ++*acked;
}

void fake_table_event(struct sl_ibv *t)
{
    t->ibv_get_async_event = get_async_event;
    t->ibv_ack_async_event = ack_async_event;
}
