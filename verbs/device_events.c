/* SPDX-License-Identifier: Apache-2.0 */
/* Asynchronous events of a device: whoever progresses reads them, for all that listen. */
#include "verbs/open_device.h"

#include "core/err.h"

#include <string.h>
#include <sys/eventfd.h>

#define READS_MAX 16                               /* of one call */
#define QUEUE_EVENTS_MAX (SL_VERBS_EVENTS_MAX / 2) /* the rest is for ports: far fewer kinds */
#define LAST_EVENTS_MAX (QUEUE_EVENTS_MAX / 2)     /* and those need half of that, or do without */

/* With event_lock. mine is that of the caller, which needs no bell. An event that waits already
 * says all that there is to say: its reader asks the device how things are. */
static void leave(struct sl_verbs_listener *listener, const struct sl_verbs_event *event,
                  unsigned room, const struct sl_verbs_listener *mine)
{
    for (unsigned i = 0; i < listener->count; i++)
        if (listener->events[i].type == event->type &&
            listener->events[i].subject == event->subject)
            return;
    if (listener->count < room)
        listener->events[listener->count++] = *event;
    else if (event->type != IBV_EVENT_QP_LAST_WQE_REACHED) /* which nothing depends on: leave.c */
        listener->overflowed = true;
    if (listener != mine && !listener->rung)
        listener->rung = eventfd_write(listener->bell, 1) == 0;
}

static void leave_to_all(struct sl_verbs_device *device, const struct sl_verbs_event *event,
                         const struct sl_verbs_listener *mine)
{
    sl_list_foreach(&device->listeners, node)
    {
        struct sl_verbs_listener *listener = sl_container_of(node, struct sl_verbs_listener, link);

        if (event->subject == 0 || event->subject == listener->port)
            leave(listener, event, SL_VERBS_EVENTS_MAX, mine);
    }
}

/* What is about a queue has its listener there: neither goes before the acknowledgement. */
static void hand_out(struct sl_verbs_device *device, const struct ibv_async_event *event,
                     const struct sl_verbs_listener *mine)
{
    struct sl_verbs_event note = {.type = event->event_type};

    switch (event->event_type) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_PATH_MIG_ERR:
        note.subject = event->element.qp->qp_num;
        leave(event->element.qp->qp_context, &note, QUEUE_EVENTS_MAX, mine);
        return;
    case IBV_EVENT_QP_LAST_WQE_REACHED:
        note.subject = event->element.qp->qp_num;
        leave(event->element.qp->qp_context, &note, LAST_EVENTS_MAX, mine);
        return;
    case IBV_EVENT_CQ_ERR:
        leave(event->element.cq->cq_context, &note, SL_VERBS_EVENTS_MAX, mine);
        return;
    case IBV_EVENT_SRQ_ERR:
        leave(event->element.srq->srq_context, &note, SL_VERBS_EVENTS_MAX, mine);
        return;
    case IBV_EVENT_DEVICE_FATAL:
        atomic_store(&device->is_dead, true);
        leave_to_all(device, &note, mine);
        return;
    case IBV_EVENT_PORT_ERR:
    case IBV_EVENT_PORT_ACTIVE:
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_PKEY_CHANGE:
    case IBV_EVENT_GID_CHANGE:
    case IBV_EVENT_CLIENT_REREGISTER:
        note.subject = (uint32_t)event->element.port_num;
        leave_to_all(device, &note, mine);
        return;
    default: return; /* COMM_EST, SQ_DRAINED, SRQ_LIMIT_REACHED, SM_CHANGE */
    }
}

void sl_verbs_device_listen(struct sl_verbs_device *device, struct sl_verbs_listener *listener)
{
    pthread_mutex_lock(&device->event_lock);
    listener->count = listener->gone_count = 0;
    listener->overflowed = listener->rung = false;
    sl_list_push_back(&device->listeners, &listener->link);
    pthread_mutex_unlock(&device->event_lock);
}

void sl_verbs_device_unlisten(struct sl_verbs_device *device, struct sl_verbs_listener *listener)
{
    /* With the lock: its neighbours of the list write there, too. */
    pthread_mutex_lock(&device->event_lock);
    if (listener->link.next != NULL)
        sl_list_remove(&listener->link);
    pthread_mutex_unlock(&device->event_lock);
}

unsigned sl_verbs_device_events(struct sl_verbs_device *device, struct sl_verbs_listener *listener,
                                struct sl_verbs_event out[SL_VERBS_EVENTS_MAX], bool *overflowed)
{
    const struct sl_ibv *ibv = device->ibv;
    struct ibv_async_event event;
    eventfd_t rings;
    unsigned count;

    pthread_mutex_lock(&device->event_lock);
    for (unsigned i = 0; i < READS_MAX; i++) {
        if ((ibv->ibv_get_async_event)(device->context, &event) != 0)
            break;
        hand_out(device, &event, listener);
        (ibv->ibv_ack_async_event)(&event);
    }
    count = listener->count;
    memcpy(out, listener->events, count * sizeof(*out));
    *overflowed = listener->overflowed;
    listener->count = 0;
    listener->overflowed = false;
    if (listener->rung)
        listener->rung = eventfd_read(listener->bell, &rings) != 0;
    pthread_mutex_unlock(&device->event_lock);
    return count;
}
