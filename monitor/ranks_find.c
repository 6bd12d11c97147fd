/* SPDX-License-Identifier: Apache-2.0 */
/* How ranks are found: names, state pages, files in /dev/shm, and all processes. */
#include "monitor/ranks_inside.h"

#include "core/state_read.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOOKS_EACH 64     /* lists after which a process is looked at again */
#define FDS_MAX 1024      /* descriptors of a process that are looked at */
#define NAMES_MAX 8192    /* entries of /dev/shm, a period */
#define FOUND_DEAD_MAX 16 /* a period */
#define FILE_LOOKS 3

/* ---- names ---- */

static bool digits(const char **at, uint64_t most, uint64_t *out)
{
    char *end;

    if (**at < '0' || **at > '9')
        return false;
    errno = 0;
    *out = strtoull(*at, &end, 10);
    *at = end;
    return errno == 0 && *out <= most;
}

bool sl_mon_page_name(const char *name, uint32_t *user, int32_t *pid)
{
    uint64_t uid, number, copy;

    if (strncmp(name, "sluice.", 7) != 0)
        return false;
    name += 7;
    if (!digits(&name, UINT32_MAX, &uid) || *name++ != '.' || !digits(&name, INT32_MAX, &number) ||
        *name++ != '.' || !digits(&name, 999, &copy) || *name != '\0' || number == 0)
        return false;
    *user = (uint32_t)uid;
    *pid = (int32_t)number;
    return true;
}

bool sl_mon_nccl_name(const char *name, int32_t *pid)
{
    uint64_t number, rank;

    if (strncmp(name, "sluice-nccl-", 12) != 0)
        return false;
    name += 12;
    if (!digits(&name, INT32_MAX, &number) || *name++ != '-' || !digits(&name, INT32_MAX, &rank) ||
        *name != '\0' || number == 0)
        return false;
    *pid = (int32_t)number;
    return true;
}

/* ---- pages ---- */

struct page {
    int fd;
    struct stat st;
    struct sl_state_process self;
    bool is_nccl;
};

/* Neither waits, nor follows what a user put there, nor leaves anything open. */
static int page_open(const char *path, int flags, struct page *out)
{
    struct sl_state_reader reader;
    int err = -EPROTO;

    out->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | flags);
    if (out->fd < 0)
        return -errno;
    if (fstat(out->fd, &out->st) == 0 && S_ISREG(out->st.st_mode) &&
        sl_state_read_fd(out->fd, &reader) == 0 &&
        sl_state_get(&reader, SL_STATE_PROCESS, 0, &out->self, sizeof(out->self)) ==
            SL_STATE_WHOLE) {
        out->is_nccl = sl_state_count(&reader, SL_STATE_NCCL) > 0;
        return 0;
    }
    close(out->fd);
    return err;
}

/* The page says that it is this process's, and its file is of that user. */
static bool is_of(const struct page *page, const struct person *person)
{
    return page->st.st_uid == person->user && page->self.pid == person->own_pid &&
           page->self.start_ticks == person->stat.start_ticks;
}

static bool has_page(const struct sl_mon_rank *rank, uint64_t inode)
{
    for (unsigned i = 0; i < rank->page_count; i++)
        if (rank->page_inodes[i] == inode)
            return true;
    for (unsigned i = 0; i < rank->nccl_count; i++)
        if (rank->nccl_inodes[i] == inode)
            return true;
    return false;
}

/* Takes its descriptor. */
static void page_add(struct sl_mon_rank *rank, struct page *page)
{
    unsigned *count = page->is_nccl ? &rank->nccl_count : &rank->page_count;
    unsigned most = page->is_nccl ? SL_MON_RANK_NCCL : SL_MON_RANK_PAGES;

    if (has_page(rank, page->st.st_ino) || *count == most) {
        close(page->fd);
        return;
    }
    if (page->is_nccl) {
        rank->nccl[*count] = page->fd;
        rank->nccl_inodes[*count] = page->st.st_ino;
    } else {
        rank->pages[*count] = page->fd;
        rank->page_inodes[*count] = page->st.st_ino;
    }
    ++*count;
    rank->is_rank = true;
    if (!page->is_nccl && *count == 1)
        rank->self = page->self;
    sl_mon_rank_describe(rank);
}

/* ---- files in /dev/shm ---- */

/* Found, or new. NULL: there are too many. */
static struct known *known_get(struct sl_mon_ranks *ranks, uint64_t inode)
{
    struct known *known = NULL;

    for (unsigned i = 0; i < ranks->known_count && known == NULL; i++)
        if (ranks->known[i].inode == inode)
            known = &ranks->known[i];
    if (known == NULL) {
        if (ranks->known_count == KNOWN_MAX)
            return NULL;
        known = &ranks->known[ranks->known_count++];
        *known = (struct known){.inode = inode};
    }
    known->begun = ranks->period;
    return known;
}

static void known_drop(struct sl_mon_ranks *ranks)
{
    for (unsigned i = 0; i < ranks->known_count;)
        if (ranks->known[i].begun != ranks->period)
            ranks->known[i] = ranks->known[--ranks->known_count];
        else
            i++;
}

/* Its process is not there. One that ended since the last period, and was never seen. */
static void found_dead(struct sl_mon_ranks *ranks, struct page *page, int32_t pid)
{
    struct sl_mon_rank *rank = NULL;

    if (!ranks->is_first && !page->is_nccl && page->self.made_ns >= ranks->opened_ns &&
        (page->self.flags & SL_STATE_ENDED) == 0 && page->self.pid_space == ranks->pid_space &&
        sl_mon_ranks_find(ranks, pid) == NULL && ranks->found_dead < FOUND_DEAD_MAX)
        rank = sl_mon_ranks_add(ranks);
    if (rank == NULL) {
        close(page->fd);
        return;
    }
    ranks->found_dead++;
    rank->pid = rank->own_pid = pid;
    rank->user = page->st.st_uid;
    rank->start_ticks = page->self.start_ticks;
    rank->is_gone = rank->is_found_dead = true;
    page_add(rank, page);
}

/* It cannot be read: its name says enough to watch the process, if its user is that one. */
static void watch_unread(struct sl_mon_ranks *ranks, const struct person *person, uint32_t user)
{
    struct sl_mon_rank *rank = person->user == user ? sl_mon_ranks_watch(ranks, person) : NULL;

    if (rank == NULL || rank->is_rank)
        return;
    rank->is_rank = true;
    sl_mon_rank_describe(rank);
}

/* Where /proc is mounted with hidepid a process may live, and not be there. */
static bool is_hidden(const struct sl_mon_ranks *ranks, int32_t pid)
{
    return strcmp(ranks->config->ranks_proc, "/proc") == 0 && (kill(pid, 0) == 0 || errno == EPERM);
}

/* False: look again, a few times. */
static bool take_file(struct sl_mon_ranks *ranks, const char *name, uint32_t user, int32_t pid,
                      bool is_page)
{
    char path[2 * SL_MON_PATH];
    struct person person;
    struct page page = {.fd = -1};
    struct sl_mon_rank *rank;
    bool lives = sl_mon_ranks_look_up(ranks, pid, &person) == 0;

    snprintf(path, sizeof(path), "%s/%.255s", ranks->config->ranks_shm, name);
    int err = page_open(path, O_NOFOLLOW, &page);

    if (err == -EACCES && lives && is_page)
        watch_unread(ranks, &person, user);
    if (err != 0)
        return err != -EPROTO;
    if (lives && is_of(&page, &person)) {
        rank = sl_mon_ranks_watch(ranks, &person);
        if (rank != NULL)
            page_add(rank, &page);
        else
            close(page.fd);
        return rank != NULL;
    }
    bool is_genuine = is_page && page.st.st_uid == user && page.self.pid == pid;

    if (is_genuine &&
        (lives ? person.stat.start_ticks != page.self.start_ticks : !is_hidden(ranks, pid))) {
        found_dead(ranks, &page, pid);
        return true;
    }
    close(page.fd);
    return lives || !is_genuine;
}

static void look_at_file(struct sl_mon_ranks *ranks, const char *name, uint64_t inode)
{
    uint32_t user = UINT32_MAX;
    int32_t pid;
    bool is_page = sl_mon_page_name(name, &user, &pid);

    if (!is_page && !sl_mon_nccl_name(name, &pid))
        return;
    struct known *known = known_get(ranks, inode);

    if (known == NULL || known->is_done)
        return;
    known->is_done = take_file(ranks, name, user, pid, is_page) || ++known->looks >= FILE_LOOKS;
}

void sl_mon_ranks_by_name(struct sl_mon_ranks *ranks)
{
    DIR *dir = opendir(ranks->config->ranks_shm);
    const struct dirent *entry;
    unsigned count = 0;

    if (dir == NULL)
        return;
    while ((entry = readdir(dir)) != NULL && count++ < NAMES_MAX)
        if (strncmp(entry->d_name, "sluice", 6) == 0)
            look_at_file(ranks, entry->d_name, entry->d_ino);
    closedir(dir);
    known_drop(ranks);
}

/* ---- all processes ---- */

/* One of the words between commas is in the text; or, at its begin. */
static bool matches(const char *words, const char *text, bool at_begin)
{
    while (*words != '\0') {
        size_t len = strcspn(words, ",");
        const char *at = len > 0 ? memmem(text, strlen(text), words, len) : NULL;

        if (at != NULL && (!at_begin || at == text))
            return true;
        words += len;
        words += *words == ',';
    }
    return false;
}

/* Any of its cgroups: of version 2, and of the controllers. */
static bool in_cgroup(const char *words, const char *text)
{
    while (*text != '\0') {
        size_t len = strcspn(text, "\n");
        const char *path = memchr(text, '/', len);
        char line[1024];

        if (path != NULL) {
            snprintf(line, sizeof(line), "%.*s", (int)(text + len - path), path);
            if (matches(words, line, true))
                return true;
        }
        text += len;
        text += *text == '\n';
    }
    return false;
}

static bool is_named(const struct sl_mon_ranks *ranks, int32_t pid)
{
    const struct sl_mon_config *config = ranks->config;
    char text[4096];
    int len;

    if (config->ranks_command[0] != '\0') {
        len = sl_mon_procfs_text(ranks->procfs, pid, "cmdline", text, sizeof(text));
        for (int i = 0; i + 1 < len; i++)
            if (text[i] == '\0')
                text[i] = ' ';
        if (len > 0 && matches(config->ranks_command, text, false))
            return true;
    }
    return config->ranks_cgroup[0] != '\0' &&
           sl_mon_procfs_text(ranks->procfs, pid, "cgroup", text, sizeof(text)) > 0 &&
           in_cgroup(config->ranks_cgroup, text);
}

/* A page without a name here keeps that of O_TMPFILE, or of a memfd; one of a container that of its
 * own /dev/shm. */
static bool may_be_page(const char *target)
{
    return strncmp(target, "/memfd:sluice-state", 19) == 0 ||
           strncmp(target, "/dev/shm/#", 10) == 0 || strncmp(target, "/dev/shm/sluice", 15) == 0;
}

static void look_at_descriptor(struct sl_mon_ranks *ranks, struct person *person, const char *path)
{
    char target[128];
    ssize_t len = readlink(path, target, sizeof(target) - 1);
    struct sl_mon_rank *rank;
    struct page page = {.fd = -1};

    target[len > 0 ? len : 0] = '\0';
    if (!may_be_page(target))
        return;
    if (person->stat.start_ticks == 0 && sl_mon_ranks_look_up(ranks, person->pid, person) != 0)
        return;
    if (page_open(path, 0, &page) != 0)
        return;
    rank = is_of(&page, person) ? sl_mon_ranks_watch(ranks, person) : NULL;
    if (rank != NULL)
        page_add(rank, &page);
    else
        close(page.fd);
}

static void look_at_descriptors(struct sl_mon_ranks *ranks, int32_t pid)
{
    char folder[PATH_MAX], path[PATH_MAX + 300];
    struct person person = {.pid = pid};
    const struct dirent *entry;
    unsigned count = 0;

    snprintf(folder, sizeof(folder), "%.4000s/%d/fd", sl_mon_procfs_root(ranks->procfs), (int)pid);
    DIR *dir = opendir(folder);

    if (dir == NULL)
        return;
    while ((entry = readdir(dir)) != NULL && count++ < FDS_MAX) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        look_at_descriptor(ranks, &person, path);
    }
    closedir(dir);
}

/* lists: how often it has been listed. Most processes are over before the second time. */
static void look_at_process(struct sl_mon_ranks *ranks, int32_t pid, uint32_t lists)
{
    const struct sl_mon_rank *rank = sl_mon_ranks_find(ranks, pid);
    struct person person;

    if (rank == NULL && is_named(ranks, pid) && sl_mon_ranks_look_up(ranks, pid, &person) == 0)
        (void)sl_mon_ranks_watch(ranks, &person);
    if (lists > 1 && (rank == NULL || rank->page_count == 0))
        look_at_descriptors(ranks, pid);
}

/* A process may become a rank at any time, mostly soon after it began. */
static bool is_due(uint32_t lists)
{
    return (lists & (lists - 1)) == 0 ? lists <= LOOKS_EACH : lists % LOOKS_EACH == 0;
}

static int compare_listed(const void *left, const void *right)
{
    int32_t a = ((const struct listed *)left)->pid, b = ((const struct listed *)right)->pid;

    return a < b ? -1 : a > b;
}

void sl_mon_ranks_by_list(struct sl_mon_ranks *ranks)
{
    struct listed *now = ranks->list_before, *before = ranks->list;
    unsigned count = 0, old_count = ranks->list_count;
    const struct dirent *entry;
    DIR *dir = opendir(sl_mon_procfs_root(ranks->procfs));

    if (dir == NULL)
        return;
    while ((entry = readdir(dir)) != NULL && count < PIDS_MAX) {
        const char *at = entry->d_name;
        uint64_t pid;

        if (!digits(&at, INT32_MAX, &pid) || *at != '\0')
            continue;
        now[count++] = (struct listed){.pid = (int32_t)pid};
    }
    closedir(dir);
    qsort(now, count, sizeof(now[0]), compare_listed); /* the kernel gives them in order */
    for (unsigned i = 0, j = 0; i < count; i++) {
        while (j < old_count && before[j].pid < now[i].pid)
            j++;
        /* Those that are there already when this begins are not looked at again all at once. */
        now[i].lists = j < old_count && before[j].pid == now[i].pid ? before[j].lists + 1
                       : ranks->is_first ? 2 * LOOKS_EACH + i % LOOKS_EACH
                                         : 1;
        if (ranks->is_first || is_due(now[i].lists))
            look_at_process(ranks, now[i].pid, now[i].lists);
    }
    ranks->list = now;
    ranks->list_before = before;
    ranks->list_count = count;
}
