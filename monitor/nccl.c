/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/nccl.h"

#include "core/err.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The layout, by docs/nccl.md; the agent stands below the plugin and cannot have its header. */
#define SLOT_BYTES 128
#define SLOT_WORDS (SLOT_BYTES / 8)
#define WRITING (UINT64_C(1) << 40)

enum { COLL = 1, P2P = 2, PROXY_STEP = 4 };

struct slot {
    uint64_t turn, id, parent, start_ns, stop_ns, state_ns;
    uint8_t type, state;
    uint16_t comm;
    int32_t rank;
    uint64_t seq, count;
    int32_t root;
    uint16_t channels, symmetric;
    char func[16], datatype[8], algo[8], proto[8];
    uint64_t tag;
};

struct head {
    uint64_t turn, start_ns;
    _Atomic uint64_t written, dropped, late;
};

struct comm {
    uint64_t turn, id, start_ns;
};

_Static_assert(sizeof(struct slot) == SLOT_BYTES && sizeof(struct head) == 40,
               "as docs/nccl.md says");

void sl_mon_nccl_init(struct sl_mon_nccl *nccl, int fd)
{
    *nccl = (struct sl_mon_nccl){.fd = fd};
}

const char *sl_mon_nccl_waits(uint8_t state)
{
    switch (state) {
    case 8: return "its own GPU, to fill the buffer";
    case 9: return "the network, to take it";
    case 10: return "the peer or the network, to bring it";
    case 11: return "its GPU's memory, to show it";
    case 12: return "its own GPU, to empty the buffer";
    case 20: return "the peer, to ask for it";
    default: return NULL;
    }
}

/* ---- slots ---- */

static bool is_whole(uint64_t turn)
{
    return turn % 2 == 1 && (turn & WRITING) == 0;
}

static void take_op(struct sl_mon_nccl_view *view, const struct slot *slot)
{
    if (view->open++ > 0 && slot->start_ns >= view->since_ns)
        return;
    view->since_ns = slot->start_ns;
    view->seq = slot->seq;
    view->count = slot->count;
    view->rank = slot->rank;
    view->peer = slot->root;
    view->is_p2p = slot->type == P2P;
    view->comm = slot->comm;
    snprintf(view->func, sizeof(view->func), "%.16s", slot->func);
    snprintf(view->datatype, sizeof(view->datatype), "%.8s", slot->datatype);
    sl_tame_text(view->func);
    sl_tame_text(view->datatype);
}

static void take(struct sl_mon_nccl_view *view, const struct slot *slot)
{
    if (slot->stop_ns != 0)
        return;
    if (slot->type == COLL || slot->type == P2P)
        take_op(view, slot);
    else if (slot->type == PROXY_STEP && sl_mon_nccl_waits(slot->state) != NULL &&
             (view->step_ns == 0 || slot->state_ns < view->step_ns)) {
        view->step_ns = slot->state_ns;
        view->step_state = slot->state;
    }
}

static bool read_all(int fd, void *out, size_t bytes, uint64_t at)
{
    return pread(fd, out, bytes, (off_t)at) == (ssize_t)bytes;
}

/* A slot counts when its turn is the same before and after it was copied. Most are free. */
static bool read_chunk(struct sl_mon_nccl *nccl, uint64_t at, uint32_t count)
{
    struct slot before[SL_MON_NCCL_CHUNK], slots[SL_MON_NCCL_CHUNK];
    size_t bytes = count * sizeof(slots[0]);
    bool any = false;

    if (!read_all(nccl->fd, before, bytes, at))
        return false;
    for (uint32_t i = 0; i < count; i++)
        any = any || is_whole(before[i].turn);
    if (!any)
        return true;
    atomic_thread_fence(memory_order_acquire);
    if (!read_all(nccl->fd, slots, bytes, at))
        return false;
    atomic_thread_fence(memory_order_acquire);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t after;

        if (is_whole(before[i].turn) && before[i].turn == slots[i].turn &&
            read_all(nccl->fd, &after, sizeof(after), at + i * sizeof(slots[0])) &&
            after == slots[i].turn)
            take(&nccl->building, &slots[i]);
    }
    return true;
}

static void finish(struct sl_mon_nccl *nccl)
{
    struct comm comm;

    nccl->now = nccl->building;
    nccl->building = (struct sl_mon_nccl_view){.open = 0};
    nccl->next = 0;
    nccl->comm_id =
        nccl->now.open > 0 && sl_state_get(&nccl->reader, SL_STATE_NCCL_COMM, nccl->now.comm, &comm,
                                           sizeof(comm)) == SL_STATE_WHOLE
            ? comm.id
            : 0;
}

int sl_mon_nccl_read(struct sl_mon_nccl *nccl, unsigned chunks)
{
    struct sl_state_section section;
    struct head head;
    int err = sl_state_read_fd(nccl->fd, &nccl->reader);

    if (err != 0)
        return err;
    if (sl_state_get(&nccl->reader, SL_STATE_NCCL, 0, &head, sizeof(head)) != SL_STATE_WHOLE ||
        !sl_state_find(&nccl->reader, SL_STATE_NCCL_OPEN, &section) ||
        section.record_bytes != SLOT_BYTES)
        return sl_fail(-EPROTO, "it holds no events of NCCL");
    nccl->written = atomic_load_explicit(&head.written, memory_order_relaxed);
    nccl->dropped = atomic_load_explicit(&head.dropped, memory_order_relaxed);
    uint32_t all = section.count < SL_MON_NCCL_SLOTS ? section.count : SL_MON_NCCL_SLOTS;

    while (chunks-- > 0) {
        uint32_t left = nccl->next < all ? all - nccl->next : 0;
        uint32_t count = left < SL_MON_NCCL_CHUNK ? left : SL_MON_NCCL_CHUNK;

        if (count > 0 &&
            !read_chunk(nccl, section.offset + (uint64_t)nccl->next * SLOT_BYTES, count))
            return sl_fail(-EPROTO, "it was cut");
        nccl->next += count;
        if (nccl->next < all)
            continue;
        finish(nccl);
        break;
    }
    return 0;
}
