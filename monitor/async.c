/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/async.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static bool clean(char *text, size_t cap)
{
    text[cap - 1] = '\0';
    for (char *at = text; *at != '\0'; at++)
        if (!isprint((unsigned char)*at))
            *at = '?';
    return text[0] != '\0';
}

bool sl_mon_async_parse(const void *bytes, size_t len, struct sl_mon_async_record *out)
{
    if (len < sizeof(*out))
        return false;
    memcpy(out, bytes, sizeof(*out));
    bool is_named = clean(out->device, sizeof(out->device)) && strchr(out->device, '/') == NULL &&
                    out->device[0] != '.';

    clean(out->pci, sizeof(out->pci));
    clean(out->text, sizeof(out->text));
    if (out->magic != SL_MON_ASYNC_MAGIC || out->port > 255)
        return false;
    if (out->type == SL_MON_ASYNC_OPENED || out->type == SL_MON_ASYNC_EVENT)
        return is_named;
    return out->type == SL_MON_ASYNC_ABSENT || out->type == SL_MON_ASYNC_ALIVE;
}

static struct sl_mon_subject *subject_of(struct sl_mon *mon, const struct sl_mon_async_port *port)
{
    char name[SL_MON_NAME];

    snprintf(name, sizeof(name), "%.58s:%u", port->device, port->num);
    return sl_mon_subject(mon, SL_MON_PORT, name);
}

static void tell(struct sl_mon *mon, struct sl_mon_subject *subject, enum sl_mon_check check,
                 struct sl_mon_evidence *evidence)
{
    evidence->source = "async event";
    if (subject != NULL)
        sl_mon_sample(mon, subject, check, true, evidence);
}

static bool has_gid(const struct sl_mon_gids *gids, const char *gid)
{
    for (unsigned i = 0; i < gids->count; i++)
        if (strcmp(gids->gids[i], gid) == 0)
            return true;
    return false;
}

static void judge_gids(struct sl_mon *mon, struct sl_mon_async_port *port,
                       const struct sl_mon_gids *gids)
{
    struct sl_mon_evidence evidence = {.before = port->gids.count, .after = gids->count};
    const char *first = NULL;
    unsigned gone = 0;

    for (unsigned i = 0; i < port->gids.count; i++)
        if (!has_gid(gids, port->gids.gids[i]) && gone++ == 0)
            first = port->gids.gids[i];
    if (gone > 0) {
        snprintf(evidence.text, sizeof(evidence.text),
                 "%u of the port's %u GIDs are gone, the first is %s: an address was taken away",
                 gone, port->gids.count, first);
        tell(mon, subject_of(mon, port), SL_MON_CHECK_PORT_GID, &evidence);
    }
    port->gids = *gids;
}

void sl_mon_async_judge(struct sl_mon *mon, struct sl_mon_async_port *port, uint32_t event,
                        const struct sl_mon_gids *gids)
{
    uint64_t now_ns = sl_mon_time(mon)->mono_ns;
    struct sl_mon_evidence evidence = {.before = 0};

    switch (event) {
    case SL_MON_ASYNC_PORT_ERR:
        port->down_ns = now_ns;
        snprintf(evidence.text, sizeof(evidence.text), "the port says that its link went down");
        tell(mon, subject_of(mon, port), SL_MON_CHECK_PORT_EVENT, &evidence);
        break;
    case SL_MON_ASYNC_PORT_ACTIVE:
        if (port->down_ns == 0)
            break; /* it was down when the agent began */
        snprintf(evidence.text, sizeof(evidence.text),
                 "the port says that its link is back, after %.0f ms",
                 (double)(now_ns - port->down_ns) / 1e6);
        tell(mon, subject_of(mon, port), SL_MON_CHECK_PORT_EVENT, &evidence);
        port->down_ns = 0;
        break;
    case SL_MON_ASYNC_DEVICE_FATAL:
        snprintf(evidence.text, sizeof(evidence.text), "%s says that it failed", port->device);
        tell(mon, port->pci[0] != '\0' ? sl_mon_subject(mon, SL_MON_NIC, port->pci) : NULL,
             SL_MON_CHECK_NIC_DRIVER, &evidence);
        break;
    case SL_MON_ASYNC_GID_CHANGE: judge_gids(mon, port, gids); break;
    default: break;
    }
}
