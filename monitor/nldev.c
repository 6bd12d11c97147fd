/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/nldev.h"

#include "core/err.h"
#include "monitor/netlink.h"

#include <libmnl/libmnl.h>
#include <rdma/rdma_netlink.h>
#include <stdio.h>
#include <string.h>

const char *sl_mon_qp_state_name(enum sl_mon_qp_state state)
{
    static const char *const names[] = {
#define X(id, name) name,
        SL_MON_QP_STATES(X)
#undef X
    };

    return (unsigned)state < SL_MON_QP_STATE_COUNT ? names[state] : "unknown";
}

const char *sl_mon_nldev_kind_name(enum sl_mon_nldev_kind kind)
{
    static const char *const names[] = {
#define X(id, name) name,
        SL_MON_NLDEV_KINDS(X)
#undef X
    };

    return (unsigned)kind < SL_MON_NLDEV_KIND_COUNT ? names[kind] : "unknown";
}

/* ---- messages ---- */

static bool is_message(const struct nlmsghdr *message, size_t len, unsigned command)
{
    return sl_mon_netlink_is(message, len, RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command), 0);
}

static bool take_u32(const struct nlattr *attribute, uint32_t *out)
{
    if (mnl_attr_get_payload_len(attribute) < sizeof(*out))
        return false;
    memcpy(out, mnl_attr_get_payload(attribute), sizeof(*out));
    return true;
}

static void take_name(const struct nlattr *attribute, char *out, size_t cap)
{
    size_t len = mnl_attr_get_payload_len(attribute);

    if (len >= cap)
        len = cap - 1;
    memcpy(out, mnl_attr_get_payload(attribute), len);
    out[len] = '\0';
    for (char *at = out; *at != '\0'; at++)
        if (*at <= ' ' || *at > '~')
            *at = '?';
}

static void take_count(const struct nlattr *entry, uint64_t *counts)
{
    const struct nlattr *attribute;
    char name[16] = "";
    uint64_t count = 0;

    sl_mon_attr_for_each_nested(attribute, entry)
    {
        unsigned type = mnl_attr_get_type(attribute);

        if (type == RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_NAME)
            take_name(attribute, name, sizeof(name));
        if (type == RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_CURR &&
            mnl_attr_get_payload_len(attribute) >= sizeof(count))
            memcpy(&count, mnl_attr_get_payload(attribute), sizeof(count));
    }
    for (unsigned i = 0; i < SL_MON_NLDEV_KIND_COUNT; i++)
        if (strcmp(name, sl_mon_nldev_kind_name((enum sl_mon_nldev_kind)i)) == 0)
            counts[i] = count;
}

bool sl_mon_nldev_parse(const struct nlmsghdr *message, size_t len, uint32_t *index,
                        char name[SL_MON_NAME], uint64_t counts[SL_MON_NLDEV_KIND_COUNT])
{
    const struct nlattr *attribute, *entry;
    bool has_index = false;

    name[0] = '\0';
    memset(counts, 0, SL_MON_NLDEV_KIND_COUNT * sizeof(counts[0]));
    if (!is_message(message, len, RDMA_NLDEV_CMD_RES_GET))
        return false;
    sl_mon_attr_for_each(attribute, message, 0)
    {
        switch (mnl_attr_get_type(attribute)) {
        case RDMA_NLDEV_ATTR_DEV_INDEX: has_index = take_u32(attribute, index); break;
        case RDMA_NLDEV_ATTR_DEV_NAME: take_name(attribute, name, SL_MON_NAME); break;
        case RDMA_NLDEV_ATTR_RES_SUMMARY:
            sl_mon_attr_for_each_nested(entry, attribute)
            {
                take_count(entry, counts);
            }
            break;
        default: break;
        }
    }
    return has_index && name[0] != '\0';
}

static bool take_qp(const struct nlattr *entry, struct sl_mon_qp *out)
{
    const struct nlattr *attribute;
    bool has_state = false;

    *out = (struct sl_mon_qp){.port = 1};
    sl_mon_attr_for_each_nested(attribute, entry)
    {
        switch (mnl_attr_get_type(attribute)) {
        case RDMA_NLDEV_ATTR_RES_LQPN: (void)take_u32(attribute, &out->number); break;
        case RDMA_NLDEV_ATTR_RES_RQPN: (void)take_u32(attribute, &out->peer); break;
        case RDMA_NLDEV_ATTR_PORT_INDEX: (void)take_u32(attribute, &out->port); break;
        case RDMA_NLDEV_ATTR_RES_PID: (void)take_u32(attribute, &out->pid); break;
        case RDMA_NLDEV_ATTR_RES_KERN_NAME: out->is_kernel = true; break;
        case RDMA_NLDEV_ATTR_RES_STATE:
            has_state = mnl_attr_get_payload_len(attribute) >= 1;
            if (has_state)
                out->state = mnl_attr_get_u8(attribute);
            break;
        default: break;
        }
    }
    return has_state && out->state < SL_MON_QP_STATE_COUNT && out->port >= 1 && out->port <= 255;
}

void sl_mon_nldev_qps(const struct nlmsghdr *message, size_t len,
                      void (*take)(void *arg, const struct sl_mon_qp *qp), void *arg)
{
    const struct nlattr *attribute, *entry;
    struct sl_mon_qp qp;

    if (!is_message(message, len, RDMA_NLDEV_CMD_RES_QP_GET))
        return;
    sl_mon_attr_for_each(attribute, message, 0)
    {
        if (mnl_attr_get_type(attribute) != RDMA_NLDEV_ATTR_RES_QP)
            continue;
        sl_mon_attr_for_each_nested(entry, attribute)
        {
            if (take_qp(entry, &qp))
                take(arg, &qp);
        }
    }
}

/* ---- lists ---- */

void sl_mon_nldev_begin(struct sl_mon_nldev *device)
{
    memset(device->states, 0, sizeof(device->states));
    device->now = !device->now;
    device->broken_count[device->now] = 0;
}

static struct sl_mon_subject *port_of(struct sl_mon *mon, const struct sl_mon_nldev *device,
                                      uint32_t port)
{
    char name[SL_MON_NAME];

    snprintf(name, sizeof(name), "%.58s:%u", device->name, port);
    return sl_mon_subject(mon, SL_MON_PORT, name);
}

void sl_mon_nldev_qp(struct sl_mon *mon, struct sl_mon_nldev *device, const struct sl_mon_qp *qp)
{
    unsigned *count = &device->broken_count[device->now];

    device->states[qp->state]++;
    if (qp->is_kernel)
        return;
    if (qp->state == SL_MON_QP_RTS) { /* the port is used, also while nothing is sent */
        struct sl_mon_subject *port =
            device->states[SL_MON_QP_RTS] == 1 ? port_of(mon, device, qp->port) : NULL;

        if (port != NULL)
            sl_mon_use(mon, port);
    }
    if (qp->state != SL_MON_QP_ERR)
        return;
    if (*count == SL_MON_NLDEV_BROKEN_MAX) {
        device->left_out++;
        return;
    }
    device->is_told[device->now][*count] = false;
    device->broken[device->now][(*count)++] = *qp;
}

/* Its place in the list before; -1: it was not broken then. */
static int was_broken(const struct sl_mon_nldev *device, const struct sl_mon_qp *qp)
{
    unsigned before = !device->now;

    for (unsigned i = 0; i < device->broken_count[before]; i++)
        if (device->broken[before][i].number == qp->number &&
            device->broken[before][i].pid == qp->pid)
            return (int)i;
    return -1;
}

void sl_mon_nldev_end(struct sl_mon *mon, struct sl_mon_nldev *device)
{
    const struct sl_mon_qp *first = NULL;
    unsigned fresh = 0;

    for (unsigned i = 0; i < device->broken_count[device->now]; i++) {
        const struct sl_mon_qp *qp = &device->broken[device->now][i];
        int at = was_broken(device, qp);

        device->is_told[device->now][i] = at >= 0;
        if (at < 0 || device->is_told[!device->now][at])
            continue;
        first = fresh++ == 0 ? qp : first;
    }
    if (fresh == 0)
        return;
    struct sl_mon_evidence evidence = {.source = "rdma netlink", .after = fresh};
    struct sl_mon_subject *port = port_of(mon, device, first->port);

    if (port == NULL)
        return;
    snprintf(evidence.text, sizeof(evidence.text),
             "%u queue pairs went to the error state and stay there; the first is 0x%x to 0x%x of "
             "pid %u",
             fresh, first->number, first->peer, first->pid);
    sl_mon_sample(mon, port, SL_MON_CHECK_PORT_QP, true, &evidence);
}
