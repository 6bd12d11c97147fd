/* SPDX-License-Identifier: Apache-2.0 */
/* Counts, judges and reports connections that have proved nothing. */
#include "core/pending.h"

#include "core/err.h"
#include "core/host.h"
#include "core/log.h"
#include "core/netif.h"

#include <assert.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>

#define DESCRIPTORS_PART 8
#define SHARE_PART 4

static_assert(SL_PENDING_SOURCES == UINT8_MAX + 1, "a source is a byte");

void sl_pending_init(struct sl_pending_set *set, const char *area, unsigned most,
                     struct sl_pending_log *log)
{
    struct rlimit limit = {.rlim_cur = RLIM_INFINITY};

    memset(set, 0, sizeof(*set));
    set->area = area;
    set->log = log;
    sl_list_init(&set->list);
    getrlimit(RLIMIT_NOFILE, &limit);
    set->limit = limit.rlim_cur / DESCRIPTORS_PART < most
                     ? (unsigned)limit.rlim_cur / DESCRIPTORS_PART
                     : most;
    if (set->limit < SL_PENDING_LEAST)
        set->limit = SL_PENDING_LEAST;
    set->share = set->limit / SHARE_PART;
    /* Without chance, a source may be chosen to share another's share: a nuisance, no more. */
    if (getrandom(&set->salt, sizeof(set->salt), GRND_NONBLOCK) != (ssize_t)sizeof(set->salt))
        set->salt = (uint64_t)(uintptr_t)set;
}

static void tell_rest(struct sl_pending_set *set)
{
    if (set->log->lines > SL_PENDING_LOG_LINES)
        sl_warn(set->area, "%u more connections were refused",
                set->log->lines - SL_PENDING_LOG_LINES);
    set->log->lines = 0;
}

void sl_pending_fini(struct sl_pending_set *set)
{
    if (set->log != NULL)
        tell_rest(set);
}

static uint8_t source_of(const struct sl_pending_set *set, const void *bytes, size_t len)
{
    uint64_t hash = sl_hash(set->salt, bytes, len);

    return (uint8_t)(hash ^ hash >> 56 ^ hash >> 32);
}

static void add(struct sl_pending_set *set, struct sl_pending *pending, uint8_t source,
                uint64_t now_ns)
{
    pending->source = source;
    pending->born_ns = now_ns;
    pending->standing = SL_PENDING_SILENT;
    set->by_source[source]++;
    set->count++;
    sl_list_push_back(&set->list, &pending->node);
}

void sl_pending_add(struct sl_pending_set *set, struct sl_pending *pending,
                    const struct sockaddr_storage *from, uint64_t now_ns)
{
    const struct in6_addr *v6 = &((const struct sockaddr_in6 *)from)->sin6_addr;
    const void *bytes = &((const struct sockaddr_in *)from)->sin_addr;
    size_t len = 4;

    if (from->ss_family == AF_INET6) {
        /* A host may have all addresses of its /64. */
        bytes = IN6_IS_ADDR_V4MAPPED(v6) ? v6->s6_addr + 12 : v6->s6_addr;
        len = IN6_IS_ADDR_V4MAPPED(v6) ? 4 : 8;
    }
    sl_sockaddr_text(from, pending->from, sizeof(pending->from));
    add(set, pending, source_of(set, bytes, len), now_ns);
}

void sl_pending_add_user(struct sl_pending_set *set, struct sl_pending *pending, uid_t uid,
                         pid_t pid, uint64_t now_ns)
{
    snprintf(pending->from, sizeof(pending->from), "user %u, process %d", (unsigned)uid, (int)pid);
    add(set, pending, source_of(set, &uid, sizeof(uid)), now_ns);
}

void sl_pending_remove(struct sl_pending_set *set, struct sl_pending *pending)
{
    sl_list_remove(&pending->node);
    set->by_source[pending->source]--;
    set->count--;
}

void sl_pending_ask(struct sl_pending_set *set, struct sl_pending *pending, uint64_t now_ns)
{
    pending->standing = SL_PENDING_ASKED;
    pending->born_ns = now_ns;
    sl_list_remove(&pending->node);
    sl_list_push_back(&set->list, &pending->node);
}

static bool over_share(const struct sl_pending_set *set, const struct sl_pending *pending)
{
    return set->by_source[pending->source] > set->share;
}

/* How long it may stay in a full set. */
static uint64_t grace_ns(const struct sl_pending_set *set, const struct sl_pending *pending)
{
    if (pending->standing == SL_PENDING_ASKED)
        return SL_PENDING_MS * SL_NS_PER_MS;
    if (pending->standing == SL_PENDING_SILENT || over_share(set, pending))
        return SL_PENDING_GRACE_MS * SL_NS_PER_MS;
    return SL_PENDING_HEARD_MS * SL_NS_PER_MS;
}

struct sl_pending *sl_pending_victim(struct sl_pending_set *set, uint64_t now_ns)
{
    struct sl_pending *best = NULL;
    int best_rank = -1;

    sl_list_foreach(&set->list, node)
    {
        struct sl_pending *pending = sl_container_of(node, struct sl_pending, node);
        int rank = (pending->standing == SL_PENDING_SILENT ? 2 : 0) + over_share(set, pending);

        if (pending->standing == SL_PENDING_PROVED || rank <= best_rank ||
            now_ns - pending->born_ns < grace_ns(set, pending))
            continue;
        best = pending;
        best_rank = rank;
    }
    return best;
}

struct sl_pending *sl_pending_late(struct sl_pending_set *set, uint64_t now_ns)
{
    sl_list_foreach(&set->list, node)
    {
        struct sl_pending *pending = sl_container_of(node, struct sl_pending, node);

        if (now_ns - pending->born_ns < SL_PENDING_MS * SL_NS_PER_MS)
            return NULL; /* as are all behind it */
        if (pending->standing != SL_PENDING_PROVED)
            return pending;
    }
    return NULL;
}

uint64_t sl_pending_next_ns(const struct sl_pending_set *set)
{
    uint64_t next = SL_NEVER;

    sl_list_foreach(&set->list, node)
    {
        const struct sl_pending *pending = sl_container_of(node, struct sl_pending, node);
        uint64_t stay =
            sl_pending_full(set) ? grace_ns(set, pending) : SL_PENDING_MS * SL_NS_PER_MS;

        if (pending->standing != SL_PENDING_PROVED && pending->born_ns + stay < next)
            next = pending->born_ns + stay;
    }
    return next;
}

void sl_pending_refused(struct sl_pending_set *set, const char *from, const char *why,
                        uint64_t now_ns)
{
    struct sl_pending_log *log = set->log;

    if (now_ns - log->start_ns > SL_PENDING_LOG_MS * SL_NS_PER_MS) {
        tell_rest(set);
        log->start_ns = now_ns;
    }
    if (log->lines++ < SL_PENDING_LOG_LINES)
        sl_warn(set->area, "refused a connection from %s: %s", from, why);
}
