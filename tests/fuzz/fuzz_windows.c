/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Offers of windows, the last round of a first exchange, and the answers to them, over real shared
 * memory: three ranks open windows, and rank 0 hears of the others what the input makes of their
 * words. Five bytes an edit: which of the two rounds, and whether bits are turned or bytes
 * overwritten, at which byte, what, and how many. Each rank has registered a page as well, so that
 * a key may be that of memory which is too small.
 *
 * However it goes: windows that rank 0 uses are those of the others, to the last byte, and the
 * communicator works without them afterwards.
 */
#include "collectives/connect.h"
#include "collectives/family.h"
#include "core/log.h"
#include "core/registry.h"
#include "core/transport.h"
#include "tests/unit/collectives/crew.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define RANKS 3
#define EDIT_BYTES 5
#define LEN_MAX 256
#define PAGE 4096
#define MARK 0x51
#define LOST_MS 20 /* how long rank 0 waits for memory that nobody has announced */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct talk {
    struct sl_exchange base;
    struct sluice_comm *comm;
    unsigned round; /* 0: offers, 1: who could map all */
    bool somebody_could_not;
};

static const uint8_t *edits;
static size_t edit_count;
static uint8_t words[RANKS * LEN_MAX];
static pthread_barrier_t all_here;

static void edit(unsigned round, uint8_t *all, size_t len)
{
    for (size_t i = 0; i < edit_count; i++) {
        const uint8_t *e = edits + i * EDIT_BYTES;
        size_t theirs = (RANKS - 1) * len, at = (e[1] | (size_t)e[2] << 8) % theirs;

        if ((e[0] & 1) != round)
            continue;
        if ((e[0] & 0x80) != 0)
            all[len + at] ^= e[3];
        else
            memset(all + len + at, e[3], 1 + e[4] % (theirs - at));
    }
}

/* Of a window as long as ours. */
static uint8_t *last_byte(const struct sluice_comm *comm, void *window)
{
    return (uint8_t *)window + comm->family->segment.mem.len - 1;
}

static void mark_ours(const struct sluice_comm *comm)
{
    struct sl_segment *segment = &comm->family->segment;

    sl_assert(sl_segment_back(segment, segment->areas - 1, 0, segment->area_len) == 0);
    *last_byte(comm, segment->mem.addr) = (uint8_t)(MARK + comm->rank);
}

static int allgather(struct sl_exchange *base, const void *in, size_t len, void *out)
{
    struct talk *talk = (struct talk *)base;

    sl_assert(len <= LEN_MAX && talk->round < 2);
    if (talk->round == 1)
        mark_ours(talk->comm);
    memcpy(words + (size_t)base->rank * len, in, len);
    pthread_barrier_wait(&all_here);
    memcpy(out, words, RANKS * len);
    pthread_barrier_wait(&all_here);
    if (base->rank == 0)
        edit(talk->round, out, len);
    for (size_t at = 0; talk->round == 1 && at < RANKS * len; at += len)
        talk->somebody_could_not |= memcmp((uint8_t *)out + at, &(uint32_t){0}, len) == 0;
    talk->round++;
    return 0;
}

static void check_windows(const struct sluice_comm *comm)
{
    for (uint32_t r = 1; r < comm->size; r++)
        sl_assert(*last_byte(comm, sl_comm_peer(comm, r)->link->map) == MARK + r);
}

static void close_windows(struct sluice_comm *comm)
{
    sl_windows_close(comm);
    sl_links_unmap(comm->family);
    sl_segment_close(&comm->family->segment);
}

static void open_windows(struct sluice_comm *comm, int rank)
{
    struct talk talk = {.base = {.rank = rank, .size = RANKS, .allgather = allgather},
                        .comm = comm};
    struct sl_iface *iface = sl_comm_peer(comm, rank == 0 ? 1 : 0)->ep->iface;
    struct sl_mem page;
    struct sl_mr *mr;
    float one = 1, sum = 0;

    sl_assert(comm->win.slots != NULL);
    /* A key may be that of the old window, of which a peer has not heard yet that it is gone. */
    mark_ours(comm);
    pthread_barrier_wait(&all_here);
    close_windows(comm);
    sl_assert(iface->ops->mem_alloc(iface, PAGE, PAGE, &page) == 0 &&
              iface->ops->mr_reg(iface, &page, &mr, NULL) == 0);
    if (rank == 0 && edit_count > 0)
        comm->config.connect_timeout_ms = LOST_MS;
    sl_assert(sl_windows_open(comm, &talk.base) == 0);
    sl_assert((comm->win.slots == NULL) == talk.somebody_could_not);
    sl_assert(comm->win.slots != NULL || edit_count > 0);
    if (rank == 0 && comm->win.slots != NULL)
        check_windows(comm);
    pthread_barrier_wait(&all_here);
    close_windows(comm);
    sl_assert(sluice_allreduce(comm, &one, &sum, 1, SLUICE_F32, SLUICE_SUM, NULL) == 0);
    sl_assert(sum == RANKS);
    iface->ops->mr_dereg(iface, mr);
    iface->ops->mem_free(iface, &page);
}

static void no_log(void *arg, enum sl_log_level level, const char *area, const char *line)
{
    (void)arg, (void)level, (void)area, (void)line;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct sl_transport_ops *shm = sl_transport_find("shm", 3);
    struct crew crew = {
        .ranks = RANKS, .settings = "SHM_WINDOW_BYTES=8192", .ops = {shm, shm, shm}};

    edits = data;
    edit_count = size / EDIT_BYTES;
    sl_log_set_sink(no_log, NULL);
    pthread_barrier_init(&all_here, NULL, RANKS);
    sl_assert(crew_run(&crew, open_windows) == NULL);
    pthread_barrier_destroy(&all_here);
    sl_log_set_sink(NULL, NULL);
    return 0;
}
