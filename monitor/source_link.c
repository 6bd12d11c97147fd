/* SPDX-License-Identifier: Apache-2.0 */
/* Source: network interfaces, by rtnetlink (monitor/link.h). */
#include "monitor/link.h"
#include "monitor/source.h"

#include "core/err.h"

#include <errno.h>
#include <stdlib.h>

#define LINKS_MAX 256
#define SPEED_NS (10 * SL_MON_S) /* between questions for it: some drivers ask their firmware */

struct netif {
    int ifindex;              /* 0: a place that is free */
    uint64_t speed, speed_ns; /* asked for last, when */
    struct sl_mon_link_track track;
    struct sl_mon_port port;
};

struct source {
    struct sl_source_host host;
    struct sl_mon_links *links; /* NULL: closed */
    uint64_t lost;              /* by earlier ones */
    struct netif netifs[LINKS_MAX];
};

static struct netif *netif_of(struct source *source, const struct sl_mon_link *link)
{
    struct netif *free_one = NULL;

    for (unsigned i = 0; i < LINKS_MAX; i++) {
        if (source->netifs[i].ifindex == link->ifindex)
            return &source->netifs[i];
        if (source->netifs[i].ifindex == 0 && free_one == NULL)
            free_one = &source->netifs[i];
    }
    struct sl_mon_subject *subject =
        free_one == NULL ? NULL : sl_mon_subject(source->host.mon, SL_MON_PORT, link->name);

    if (subject == NULL)
        return NULL;
    *free_one = (struct netif){.ifindex = link->ifindex};
    sl_source_port_begin(&source->host, &free_one->port, subject);
    return free_one;
}

static uint64_t speed_of(struct source *source, struct netif *netif, const struct sl_mon_link *link)
{
    uint64_t now_ns = sl_mon_time(source->host.mon)->mono_ns;

    if (netif->speed_ns == 0 || now_ns - netif->speed_ns >= SPEED_NS) {
        netif->speed = sl_mon_links_speed(source->links, link->name);
        netif->speed_ns = now_ns;
    }
    return netif->speed;
}

static void on_link(void *arg, const struct sl_mon_link *link)
{
    struct source *source = arg;
    struct sl_mon *mon = source->host.mon;
    struct sl_mon_link_change change;
    struct sl_mon_reading reading;

    if (link->is_loopback || sl_mon_config_ignores(source->host.config, link->name))
        return;
    struct netif *netif = netif_of(source, link);

    if (netif == NULL)
        return;
    if (link->is_gone) { /* what is known of the subject stays, for when it returns */
        netif->ifindex = 0;
        return;
    }
    sl_mon_link_track(&netif->track, link, link->at_ns, &change);
    sl_mon_link_reading(link, &reading);
    /* Once a period, so that what is down for a moment is not what is down. */
    if (link->is_answer) {
        reading.speed = link->has_carrier ? speed_of(source, netif, link) : 0;
        sl_source_port_read(&source->host, &netif->port, "rtnetlink", &reading);
    }
    if (change.flaps != 0)
        sl_mon_port_flapped(mon, &netif->port, "rtnetlink", change.flaps, change.lasted_ns);
}

static int create(const struct sl_source_host *host, void **out)
{
    struct source *source = calloc(1, sizeof(*source));

    if (source == NULL)
        return sl_fail(-ENOMEM, "no memory for the links");
    source->host = *host;
    *out = source;
    return 0;
}

static int open_source(void *arg)
{
    struct source *source = arg;

    return sl_mon_links_open(&source->links);
}

static void close_source(void *arg)
{
    struct source *source = arg;

    if (source->links == NULL)
        return;
    source->lost += sl_mon_links_lost(source->links);
    sl_mon_links_close(source->links);
    source->links = NULL;
}

static int fd(const void *arg)
{
    const struct source *source = arg;

    return sl_mon_links_fd(source->links);
}

static int read_source(void *arg)
{
    struct source *source = arg;
    int n = sl_mon_links_read(source->links, on_link, source);

    return n == -ENOBUFS ? 0 : n; /* messages were lost, and all links are asked for again */
}

static int tick(void *arg)
{
    struct source *source = arg;
    int n = read_source(source);

    return n < 0 ? n : sl_mon_links_ask(source->links);
}

static uint64_t dropped(const void *arg)
{
    const struct source *source = arg;

    return source->lost + (source->links != NULL ? sl_mon_links_lost(source->links) : 0);
}

static unsigned ports(void *arg, const struct sl_mon_port **out, unsigned most)
{
    struct source *source = arg;
    unsigned count = 0;

    for (unsigned i = 0; i < LINKS_MAX && count < most; i++)
        if (source->netifs[i].ifindex != 0)
            out[count++] = &source->netifs[i].port;
    return count;
}

const struct sl_source_class sl_source_link = {.name = "link",
                                               .how = "rtnetlink",
                                               .wanted = offsetof(struct sl_mon_config, link),
                                               .quiet = SL_SOURCE_QUIET(PORT_FLAP),
                                               .create = create,
                                               .destroy = free,
                                               .open = open_source,
                                               .close = close_source,
                                               .fd = fd,
                                               .read = read_source,
                                               .tick = tick,
                                               .dropped = dropped,
                                               .ports = ports};
