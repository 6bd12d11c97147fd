/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Large messages by one copy: the sender lends its bytes, a cell tells where they lie, and the
 * receiver reads them by process_vm_readv.
 *
 * The cell stands in the ring among the others, so order needs nothing more, and the receiver gives
 * it back when it is through: `taken` is the acknowledgement. Whether that beats two copies through
 * the ring is a matter of the kernel, so it is measured once per interface, unless
 * SLUICE_SHM_READ=on says so. Each receiver offers to read (shm_offer.reads); a sender lends to
 * none that did not.
 *
 * The address came from the peer: it is used as a remote address alone. The bytes count only
 * if the sender had not withdrawn it by then (it puts another head into the cell), and still lived.
 */
#include "shm/config.h"
#include "shm/ring.h"

#include "core/config.h"
#include "core/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Read at once where the bytes belong: enough that the call's cost does not show. */
#define DIRECT_PIECE (512u << 10)
/* Read at once for consume: it should find the bytes in this core's second cache. */
#define STAGE_PIECE (128u << 10)

#define TRIAL_LEN (256u << 10)
#define TRIAL_ROUNDS 3

/* Two copies are compared though they overlap in the ring: so reading must be clearly better. */
#define BETTER_NUM 11
#define BETTER_DEN 10

/* Best of some rounds, in ns: one copy by the kernel, and two by memcpy. */
static bool measure(struct shm_iface *iface, uint8_t *room, uint64_t *read_ns, uint64_t *copy_ns)
{
    const struct sl_clock *clock = iface->base.worker->clock;
    uint8_t *from = room, *between = room + TRIAL_LEN, *to = between + TRIAL_LEN;

    *read_ns = *copy_ns = SL_NEVER;
    memset(room, 1, 3 * (size_t)TRIAL_LEN);
    for (int i = 0; i < TRIAL_ROUNDS; i++) {
        uint64_t start = sl_now(clock), copied, end;

        memcpy(between, from, TRIAL_LEN);
        __asm__ volatile("" ::"r"(between) : "memory");
        memcpy(to, between, TRIAL_LEN);
        __asm__ volatile("" ::"r"(to) : "memory");
        copied = sl_now(clock);
        if (shm_read_some(getpid(), (uint64_t)(uintptr_t)from, to, TRIAL_LEN) != 0)
            return false;
        end = sl_now(clock);
        if (copied - start < *copy_ns)
            *copy_ns = copied - start;
        if (end - copied < *read_ns)
            *read_ns = end - copied;
    }
    return *read_ns > 0 && *copy_ns > 0;
}

static bool reading_is_better(struct shm_iface *iface)
{
    uint64_t read_ns, copy_ns;
    uint8_t *room = malloc(3 * (size_t)TRIAL_LEN);
    bool better = false;

    if (room != NULL && measure(iface, room, &read_ns, &copy_ns)) {
        better = read_ns * BETTER_NUM < copy_ns * BETTER_DEN;
        snprintf(iface->large_why, sizeof(iface->large_why), ": %.1f against %.1f GB/s",
                 (double)TRIAL_LEN / (double)(better ? read_ns : copy_ns),
                 (double)TRIAL_LEN / (double)(better ? copy_ns : read_ns));
        sl_debug("shm", "shm: large messages by %s%s", better ? "read" : "ring", iface->large_why);
    }
    free(room);
    return better;
}

void shm_large_offer(struct shm_ep *ep)
{
    struct shm_iface *iface = shm_ep_iface(ep);

    if (!iface->large_weighed) {
        iface->large_weighed = true;
        if (sl_shm_config(iface->base.worker->config)->read == SL_ON || reading_is_better(iface)) {
            iface->stage = aligned_alloc(SL_CACHE_LINE, STAGE_PIECE);
            if (iface->stage == NULL)
                sl_info("shm", "shm: large messages by ring: no memory to read into");
        }
    }
    if (iface->stage == NULL)
        return;
    atomic_store_explicit(&ep->rx.offer->reads, 1, memory_order_release);
    if (iface->base.eager_max >= SHM_LARGE_MIN)
        iface->base.eager_max = SHM_LARGE_MIN - 1;
}

/* ---- receiving ---- */

int shm_large_lose_gone(struct shm_ep *ep)
{
    shm_ep_lose(ep, -ECONNRESET, ep->graceful ? "it closed the connection" : "its process is gone");
    return -ECONNRESET;
}

bool shm_large_possible(const struct shm_ep *ep, uint64_t addr, uint64_t len)
{
    const struct shm_iface *iface = (const struct shm_iface *)ep->base.iface;

    return iface->stage != NULL && ep->read_state == 1 && len >= SHM_LARGE_MIN &&
           len <= UINT64_MAX - addr;
}

/* 0: the bytes are still lent. */
static int check_lent(struct shm_ep *ep)
{
    uint64_t head;

    /* After the read, before stores that may have overwritten the bytes: withdraw() in drop.c
     * stores the head before it lets them go. */
    atomic_thread_fence(memory_order_seq_cst);
    head = shm_next_head(ep);
    if (SL_LIKELY(head == ep->rx_head))
        return 0;
    if (!shm_cell_is(head, ep->rx_pos) || shm_cell_kind(head) != SHM_CELL_WITHDRAWN ||
        shm_cell_channel(head) != ep->rx_channel)
        return -EBADMSG;
    return shm_cell_len(head) == SHM_WITHDRAWN_CHANNEL ? -ECANCELED : shm_large_lose_gone(ep);
}

static int lose_unreadable(struct shm_ep *ep, uint64_t n, int err)
{
    char why[SHM_TEXT_MAX];

    snprintf(why, sizeof(why), "%llu bytes that it lent could not be read: %s",
             (unsigned long long)n, strerror(-err));
    shm_ep_lose(ep, -EBADMSG, why);
    return -EBADMSG;
}

int shm_large_take(struct shm_ep *ep)
{
    const struct sl_sink *sink = ep->rx_sink;
    uint64_t n, piece = DIRECT_PIECE;
    uint8_t *to;
    int err, read;

    if (ep->rx_status != 0)
        return 1;
    if (sink->consume != NULL)
        piece = STAGE_PIECE - (sink->granule > 1 ? STAGE_PIECE % sink->granule : 0);
    n = ep->rx_len - ep->rx_off < piece ? ep->rx_len - ep->rx_off : piece;
    to = sink->consume != NULL ? shm_ep_iface(ep)->stage : (uint8_t *)sink->dst + ep->rx_off;
    if (ep->source.fd < 0)
        return shm_large_lose_gone(ep);
    err = check_lent(ep);
    if (err != 0)
        return err;
    read = shm_read_some(ep->peer_pid, ep->rx_addr + ep->rx_off, to, n);
    if (read == -ESRCH)
        return shm_large_lose_gone(ep);
    err = check_lent(ep);
    if (err != 0)
        return err;
    if ((read != 0 || ep->rx_off + n == ep->rx_len) && !shm_still_there(ep))
        return shm_large_lose_gone(ep);
    if (read != 0)
        return lose_unreadable(ep, n, read);
    if (sink->consume != NULL)
        sink->consume(sink, to, ep->rx_off, n);
    shm_count_begun(ep, n);
    ep->rx_off += n;
    return ep->rx_off == ep->rx_len;
}

void shm_large_describe(const struct shm_ep *ep, char *out, size_t cap)
{
    const struct shm_iface *iface = (const struct shm_iface *)ep->base.iface;
    bool by_read = iface->stage != NULL && ep->segment.base != NULL &&
                   atomic_load_explicit(&ep->tx.offer->reads, memory_order_relaxed) != 0;

    snprintf(out, cap, "large by %s%s", by_read ? "read" : "ring",
             by_read == (iface->stage != NULL) ? iface->large_why : "");
}
