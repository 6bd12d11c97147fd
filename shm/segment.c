/* SPDX-License-Identifier: Apache-2.0 */
/* Makes, reserves, seals, checks and maps the files in memory that processes share. */
#include "shm/segment.h"

#include "core/fork.h"

#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shm/pass.h"
#include "shm/room.h"

static_assert(sizeof(struct shm_cell) == SL_CACHE_LINE, "a small message is one line transfer");
static_assert(SHM_CELLS_MAX < UINT16_MAX, "two laps of a cell must differ in its head");

#define MIB (1024.0 * 1024.0)

int shm_file_reserve(int fd, const char *what, const char *advice, uint64_t off, size_t len)
{
    int err;

    do
        err = fallocate(fd, 0, (off_t)off, (off_t)len) == 0 ? 0 : -errno;
    while (err == -EINTR);
    if (err == 0)
        return 0;
    if (err == -ENOMEM || err == -ENOSPC)
        return sl_fail(-ENOMEM, "%s needs %.1f MiB of memory, which the kernel refused: %s; %s",
                       what, (double)len / MIB, strerror(-err), advice);
    return sl_fail(err, "%s needs %.1f MiB of memory: %s", what, (double)len / MIB, strerror(-err));
}

int shm_file_create(const char *what, const char *advice, size_t len, size_t backed, int *out)
{
    int err = shm_room_check(what, advice, len, backed);
    int fd;

    if (err != 0)
        return err;
    fd = memfd_create("sluice", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return errno == EMFILE || errno == ENFILE
                   ? shm_fail_fd(-errno, what)
                   : sl_fail(-ENOTSUP, "memfd_create is not allowed here: %s", strerror(errno));
    err = ftruncate(fd, (off_t)len) == 0 ? shm_file_reserve(fd, what, advice, 0, backed)
                                         : sl_fail(-errno, "%s cannot have %.1f MiB: %s", what,
                                                   (double)len / MIB, strerror(errno));
    if (err != 0)
        goto err_close;
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
        err = sl_fail(-errno, "%s could not be sealed: %s", what, strerror(errno));
        goto err_close;
    }
    *out = sl_fork_closes(fd);
    return 0;

err_close:
    close(fd);
    return err;
}

int shm_file_map(int fd, uint64_t off, size_t len, int writable, void **out)
{
    int seals = fcntl(fd, F_GET_SEALS);
    struct stat st;
    void *base;

    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(fd, &st) != 0)
        return sl_fail(-EBADMSG, "a shm peer passed a file that is not sealed against shrinking");
    if (off > (uint64_t)st.st_size || len > (uint64_t)st.st_size - off)
        return sl_fail(-EBADMSG, "a shm peer passed a file of %lld bytes, too small for %zu",
                       (long long)st.st_size, len);
    base =
        mmap(NULL, len, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, (off_t)off);
    if (base == MAP_FAILED)
        return sl_fail(-errno,
                       "%.1f MiB of shared memory could not be mapped: %s; see ulimit -v and "
                       "vm.max_map_count",
                       (double)len / MIB, strerror(errno));
    sl_fork_hides(base, len);
    *out = base;
    return 0;
}

/* Two lines for `taken`: the neighbour line would be fetched along with it by some processors. So
 * the second one holds words that hardly ever change. */
#define TAKEN_LEN (2 * (size_t)SL_CACHE_LINE)

static size_t lane_len(uint32_t ring_bytes, uint32_t cells)
{
    return TAKEN_LEN + (size_t)cells * sizeof(struct shm_cell) + ring_bytes;
}

size_t shm_segment_len(uint32_t ring_bytes, uint32_t cells)
{
    return (2 * lane_len(ring_bytes, cells) + 4095) & ~(size_t)4095;
}

static void lane_at(uint8_t *base, uint32_t ring_bytes, uint32_t cells, struct shm_lane *out)
{
    out->taken = (_Atomic uint64_t *)(void *)base;
    out->offer = (struct shm_offer *)(void *)(base + SL_CACHE_LINE);
    out->cells = (struct shm_cell *)(void *)(base + TAKEN_LEN);
    out->room = base + TAKEN_LEN + (size_t)cells * sizeof(struct shm_cell);
    out->cell_mask = cells - 1;
    out->room_len = ring_bytes;
}

int shm_segment_map(int fd, uint32_t ring_bytes, uint32_t cells, int side, struct shm_segment *out)
{
    size_t len = shm_segment_len(ring_bytes, cells);
    struct shm_lane lanes[2];
    void *base = NULL;
    int err = shm_file_map(fd, 0, len, 1, &base);

    if (err != 0)
        return err;
    lane_at(base, ring_bytes, cells, &lanes[0]);
    lane_at((uint8_t *)base + lane_len(ring_bytes, cells), ring_bytes, cells, &lanes[1]);
    out->base = base;
    out->len = len;
    out->tx = lanes[side];
    out->rx = lanes[1 - side];
    return 0;
}

void shm_segment_unmap(struct shm_segment *segment)
{
    if (segment->base != NULL)
        munmap(segment->base, segment->len);
    segment->base = NULL;
}
