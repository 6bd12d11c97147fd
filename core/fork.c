/* SPDX-License-Identifier: Apache-2.0 */
/* Notices fork(), and closes the parent's files in the child. */
#include "core/fork.h"

#include "core/err.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILES_MAX 65536 /* descriptors above are few, and only keep peers from noticing at once */
#define HOOKS_MAX 8
#define PAGE 4096

/* where the kernel empties no pages (before 4.14), the handler does */
static _Atomic uint64_t plain;
static _Atomic uint64_t *word = &plain;
const _Atomic uint64_t *sl_fork_word = &plain;

static _Atomic uint64_t lives;
static _Atomic int made_by;               /* pid */
static _Atomic bool forgotten;            /* the handler has run, and nothing was made since */
static _Atomic uint64_t files[FILES_MAX]; /* by descriptor: which file it was, or 0 */
static _Atomic int files_end;
static void (*_Atomic hooks[HOOKS_MAX])(void);
static _Atomic unsigned hook_count;

/* Device and number of the file; 0: there is none. */
static uint64_t file_of(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 ? (uint64_t)st.st_dev << 48 ^ st.st_ino ^ UINT64_C(1) << 63 : 0;
}

/* In the child, which has one thread. Async-signal-safe but for the hooks: another thread of the
 * parent may have been anywhere. */
static void forget(void)
{
    int end = atomic_load(&files_end), saved = errno;

    atomic_store(word, 0);
    for (int fd = 0; fd < end; fd++) {
        uint64_t file = atomic_exchange(&files[fd], 0);

        if (file != 0 && file == file_of(fd))
            close(fd);
    }
    atomic_store(&files_end, 0);
    for (unsigned i = 0; i < atomic_load(&hook_count); i++)
        atomic_load (&hooks[i])();
    atomic_store(&forgotten, true);
    errno = saved;
}

static void prepare(void)
{
    void *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (page != MAP_FAILED && madvise(page, PAGE, MADV_WIPEONFORK) == 0)
        sl_fork_word = word = page;
    else if (page != MAP_FAILED)
        munmap(page, PAGE);
    /* Of the shared object that this lies in: closing that takes the handler back. */
    pthread_atfork(NULL, NULL, forget);
}

static void prepare_once(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, prepare);
}

uint64_t sl_fork_life(void)
{
    uint64_t none = 0, fresh;

    prepare_once();
    if (atomic_load(word) != 0)
        return atomic_load(word);
    fresh = atomic_fetch_add(&lives, 1) + 1;
    if (!atomic_compare_exchange_strong(word, &none, fresh))
        return none;                             /* another thread was faster */
    if (fresh > 1 && !atomic_load(&forgotten)) { /* a bare clone() */
        forget();
        atomic_store(word, fresh);
    }
    atomic_store(&forgotten, false);
    atomic_store(&made_by, (int)getpid());
    return fresh;
}

int sl_fork_refuse(void)
{
    return sl_fail(-EINVAL,
                   "this was made by process %d before it forked this one: it is the parent's "
                   "alone; let the parent call, or make a communicator of the child's own",
                   atomic_load(&made_by));
}

int sl_fork_closes(int fd)
{
    int end;

    prepare_once();
    if (fd < 0 || fd >= FILES_MAX)
        return fd;
    atomic_store(&files[fd], file_of(fd));
    end = atomic_load(&files_end);
    while (end <= fd && !atomic_compare_exchange_weak(&files_end, &end, fd + 1))
        ;
    return fd;
}

void sl_fork_hides(void *addr, size_t len)
{
    if (addr != NULL)
        (void)madvise(addr, (len + PAGE - 1) / PAGE * PAGE, MADV_DONTFORK);
}

void sl_fork_on_child(void (*forget_it)(void))
{
    prepare_once();
    for (unsigned i = 0; i < atomic_load(&hook_count); i++)
        if (atomic_load(&hooks[i]) == forget_it)
            return;
    unsigned place = atomic_fetch_add(&hook_count, 1);

    sl_assert(place < HOOKS_MAX);
    atomic_store(&hooks[place], forget_it);
}
