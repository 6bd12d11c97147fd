/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the pages of the live report and prints them, here or from another process. */
#include "collectives/status.h"

#include "core/fork.h"

#include "collectives/report.h"
#include "core/seqlock.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define PAGE_BYTES 8192
#define PAGES_MAX 64
#define MEMFD_NAME "sluice-status"

/* version is odd while the text is being written, so that a reader can tell a torn page
 * (core/seqlock.h). */
struct sl_status_page {
    _Atomic uint64_t version;
    uint32_t len;
    int fd;
    char text[PAGE_BYTES - 16];
};

/* Where a page lies. A place stays mapped for good, and is used again: the signal's handler may be
 * reading in one thread the page that another thread closes. */
struct place {
    _Atomic bool taken;
    void *_Atomic map; /* changed by whoever took it, looked at by all; NULL: never used */
    _Atomic(struct sl_status_page *) shown;
};

static struct place places[PAGES_MAX];
static struct sigaction previous;

static struct place *take_place(void)
{
    for (int i = 0; i < PAGES_MAX; i++) {
        bool no = false;

        if (atomic_compare_exchange_strong(&places[i].taken, &no, true))
            return &places[i];
    }
    return NULL;
}

/* A file larger than ulimit -f would end the process by SIGXFSZ. */
static bool fits_limit(void)
{
    struct rlimit file;

    return getrlimit(RLIMIT_FSIZE, &file) != 0 || file.rlim_cur == RLIM_INFINITY ||
           file.rlim_cur >= PAGE_BYTES;
}

/* Of a file, or of nothing (-1), in the place's old mapping if it has one. */
static bool map_place(struct place *place, int fd)
{
    void *old = atomic_load(&place->map);
    int flags = (fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED) | (old != NULL ? MAP_FIXED : 0);
    void *map = mmap(old, PAGE_BYTES, PROT_READ | PROT_WRITE, flags, fd, 0);

    if (map == MAP_FAILED)
        return false;
    atomic_store(&place->map, map);
    return true;
}

/* They are of the parent's communicators, and are not mapped in a child. */
static void forget_pages(void)
{
    for (int i = 0; i < PAGES_MAX; i++) {
        atomic_store(&places[i].shown, NULL);
        atomic_store(&places[i].map, NULL);
        atomic_store(&places[i].taken, false);
    }
}

void sl_status_open(struct sluice_comm *comm)
{
    struct place *place = fits_limit() ? take_place() : NULL;
    int fd = place != NULL ? memfd_create(MEMFD_NAME, MFD_CLOEXEC) : -1;

    if (place == NULL)
        return;
    if (fd < 0 || ftruncate(fd, PAGE_BYTES) != 0 || !map_place(place, fd))
        goto err_place;
    sl_fork_hides(atomic_load(&place->map), PAGE_BYTES);
    sl_fork_closes(fd);
    sl_fork_on_child(forget_pages);
    comm->page = atomic_load(&place->map);
    comm->page->fd = fd;
    sl_status_refresh(comm);
    atomic_store(&place->shown, comm->page);
    return;

err_place:
    if (fd >= 0)
        close(fd);
    atomic_store(&place->taken, false);
}

void sl_status_close(struct sluice_comm *comm)
{
    struct sl_status_page *page = comm->page;
    struct place *place = places;

    if (page == NULL)
        return;
    while (atomic_load(&place->map) != page)
        place++;
    atomic_store(&place->shown, NULL);
    close(page->fd);
    (void)map_place(place, -1); /* the file goes, the memory stays */
    comm->page = NULL;
    atomic_store(&place->taken, false);
}

void sl_status_refresh(struct sluice_comm *comm)
{
    struct sl_status_page *page = comm->page;

    if (page == NULL)
        return;
    sl_seq_write_begin(&page->version);
    page->len = (uint32_t)sl_report_comm(comm, page->text, sizeof(page->text));
    sl_seq_write_end(&page->version);
}

/* As much as goes without waiting: a full pipe must not stop a rank, which others wait for. */
static bool write_now(const char *text, size_t len)
{
    while (len > 0) {
        struct pollfd room = {.fd = STDERR_FILENO, .events = POLLOUT};
        ssize_t n = poll(&room, 1, 0) == 1 && (room.revents & POLLOUT) != 0
                        ? write(STDERR_FILENO, text, len < PIPE_BUF ? len : PIPE_BUF)
                        : -1;

        if (n <= 0)
            return false;
        text += n;
        len -= (size_t)n;
    }
    return true;
}

/* Only poll() and write() are called here: the text was made beforehand. */
static void on_signal(int signal_number, siginfo_t *info, void *context)
{
    int saved = errno;

    for (int i = 0; i < PAGES_MAX; i++) {
        const struct sl_status_page *page = atomic_load(&places[i].shown);

        if (page != NULL && page->len < sizeof(page->text) && !write_now(page->text, page->len))
            break;
    }
    if ((previous.sa_flags & SA_SIGINFO) != 0)
        previous.sa_sigaction(signal_number, info, context);
    else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN)
        previous.sa_handler(signal_number);
    errno = saved;
}

int sl_status_install_signal(void)
{
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART};

    sigemptyset(&action.sa_mask);
    if (sigaction(SIGUSR1, &action, &previous) != 0)
        return sl_fail(-errno, "the status signal could not be set up: %s", strerror(errno));
    return 0;
}

/* The page belongs to another process, maybe another user's: nothing in it may steer the
 * terminal. */
static void print_text(const char *text, size_t len, FILE *out)
{
    for (size_t i = 0; i < len; i++) {
        bool control = ((unsigned char)text[i] < 0x20 && text[i] != '\n') || text[i] == 0x7f;

        putc(control ? '?' : text[i], out);
    }
}

bool sl_status_print_page(const char *path, FILE *out)
{
    static struct sl_status_page copy;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0)
        return false;
    for (int tries = 0; tries < 100; tries++) {
        /* The kernel copies: three reads, kept apart by the fences of core/seqlock.h. */
        uint64_t before = 0, after = 0;

        if (pread(fd, &before, sizeof(before), 0) != sizeof(before))
            break;
        atomic_thread_fence(memory_order_acquire);
        if (pread(fd, &copy, sizeof(copy), 0) != sizeof(copy))
            break;
        atomic_thread_fence(memory_order_acquire);
        if (pread(fd, &after, sizeof(after), 0) != sizeof(after))
            break;
        if (before != after || after % 2 != 0 || copy.len > sizeof(copy.text))
            continue;
        print_text(copy.text, copy.len, out);
        close(fd);
        return true;
    }
    close(fd);
    return false;
}

int sl_status_print_process(int pid, FILE *out)
{
    char folder[64], path[320], target[64];
    int found = 0;

    snprintf(folder, sizeof(folder), "/proc/%d/fd", pid);
    DIR *dir = opendir(folder);

    if (dir == NULL && errno == ENOENT)
        return sl_fail(-ESRCH, "there is no process %d", pid);
    if (dir == NULL)
        return sl_fail(-errno, "process %d cannot be looked at: %s; run as its user or as root",
                       pid, strerror(errno));
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        ssize_t len = readlink(path, target, sizeof(target) - 1);

        if (len <= 0)
            continue;
        target[len] = '\0';
        if (strncmp(target, "/memfd:" MEMFD_NAME, strlen("/memfd:" MEMFD_NAME)) == 0)
            found += sl_status_print_page(path, out);
    }
    closedir(dir);
    return found != 0 ? 0 : sl_fail(-ENOENT, "process %d has no communicator of Sluice open", pid);
}
