/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/ranks.h"

#include "core/err.h"
#include "core/state_read.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define LIST_NS (2 * SL_MON_S) /* between lists of all processes */
#define PIDS_MAX 32768         /* of such a list */
#define LOOKS_EACH 64          /* lists after which a process is looked at again */
#define FDS_MAX 1024           /* descriptors of a process that are looked at */
#define NAMES_MAX 8192         /* entries of /dev/shm, a period */
#define KNOWN_MAX 2048         /* files there that need no second look */
#define GHOSTS_MAX 256         /* subjects without a process */
#define FDS_EACH 10            /* descriptors that a process may need */
#define FDS_OTHERS 384         /* and all other sources and outputs */
#define ADOPT_NS (60 * SL_MON_S)
#define FOUND_DEAD_MAX 16 /* a period */
#define FILE_LOOKS 3

/* A process of the last list, and how often it has been listed. */
struct listed {
    int32_t pid;
    uint32_t lists;
};

/* A file in /dev/shm that has been looked at. */
struct known {
    uint64_t inode;
    uint64_t begun; /* the period in which it was last there */
    unsigned looks; /* a page may be in the making at the first */
    bool is_done;
};

struct sl_mon_ranks {
    struct sl_mon *mon;
    const struct sl_mon_config *config;
    struct sl_mon_procfs *procfs;
    unsigned users; /* sources that are open */
    uint64_t period, updated_ns, listed_ns, opened_ns, numbers, left_out;
    uint64_t pid_space; /* inode of /proc/self/ns/pid */
    unsigned found_dead, places_max;
    bool is_first; /* until all has been looked at once */
    unsigned count;
    struct sl_mon_rank *places[SL_MON_RANKS_MAX];
    struct listed *list, *list_before;
    unsigned list_count;
    struct known known[KNOWN_MAX];
    unsigned known_count;
    char ghosts[GHOSTS_MAX][SL_MON_NAME];
    unsigned ghost_count;
};

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

static void subject_name(int32_t pid, char *out)
{
    snprintf(out, SL_MON_NAME, "pid %d", (int)pid);
}

/* ---- places ---- */

static struct sl_mon_rank *find(const struct sl_mon_ranks *ranks, int32_t pid)
{
    for (unsigned i = 0; i < ranks->count; i++)
        if (ranks->places[i] != NULL && ranks->places[i]->pid == pid && !ranks->places[i]->is_gone)
            return ranks->places[i];
    return NULL;
}

static void rank_free(struct sl_mon_rank *rank)
{
    for (unsigned i = 0; i < rank->page_count; i++)
        close(rank->pages[i]);
    for (unsigned i = 0; i < rank->nccl_count; i++)
        close(rank->nccl[i]);
    sl_mon_proc_close(rank->proc);
    free(rank);
}

/* Room for one more; NULL: there is none. */
static struct sl_mon_rank *place_new(struct sl_mon_ranks *ranks)
{
    struct sl_mon_rank *rank = NULL;
    unsigned i = 0;

    while (i < ranks->count && ranks->places[i] != NULL)
        i++;
    if (i < ranks->places_max)
        rank = calloc(1, sizeof(*rank));
    if (rank == NULL) {
        ranks->left_out++;
        return NULL;
    }
    rank->number = ++ranks->numbers;
    ranks->places[i] = rank;
    if (i == ranks->count)
        ranks->count++;
    return rank;
}

/* ---- subjects ---- */

static void ghost_add(struct sl_mon_ranks *ranks, const char *name)
{
    for (unsigned i = 0; i < ranks->ghost_count; i++)
        if (strcmp(ranks->ghosts[i], name) == 0)
            return;
    if (ranks->ghost_count < GHOSTS_MAX)
        snprintf(ranks->ghosts[ranks->ghost_count++], SL_MON_NAME, "%s", name);
}

static void ghost_remove(struct sl_mon_ranks *ranks, unsigned i)
{
    memmove(ranks->ghosts[i], ranks->ghosts[ranks->ghost_count - 1], SL_MON_NAME);
    ranks->ghost_count--;
}

static bool ghost_find(const struct sl_mon_ranks *ranks, const char *name, unsigned *out)
{
    for (*out = 0; *out < ranks->ghost_count; ++*out)
        if (strcmp(ranks->ghosts[*out], name) == 0)
            return true;
    return false;
}

/* When a condition of the subject last changed; 0: none did. */
static uint64_t changed_ns(const struct sl_mon_subject *subject)
{
    enum sl_mon_check first;
    unsigned count = sl_mon_checks_of(subject->kind, &first);
    uint64_t last = 0;

    for (unsigned i = 0; i < count; i++) {
        const struct sl_mon_condition *condition = sl_mon_condition(subject, first + i);

        if (condition->bads > 0 && condition->since_ns > last)
            last = condition->since_ns;
    }
    return last;
}

/* The subject is of this process, and not of one before it that had its number. */
static bool is_same(const struct sl_mon_subject *subject, uint64_t start_ticks)
{
    return sl_mon_procfs_ticks_ns(start_ticks) <= changed_ns(subject);
}

/* Nothing that was said of an earlier process holds for this one. */
static struct sl_mon_subject *subject_of(struct sl_mon_ranks *ranks, int32_t pid,
                                         uint64_t start_ticks)
{
    char name[SL_MON_NAME];
    struct sl_mon_subject *subject;
    unsigned i;

    subject_name(pid, name);
    subject = sl_mon_find(ranks->mon, SL_MON_PROCESS, name);
    if (ghost_find(ranks, name, &i)) {
        ghost_remove(ranks, i);
        if (subject != NULL && !is_same(subject, start_ticks))
            sl_mon_forget(ranks->mon, subject);
    }
    return sl_mon_subject(ranks->mon, SL_MON_PROCESS, name);
}

struct sl_mon_subject *sl_mon_ranks_mourn(struct sl_mon_ranks *ranks,
                                          const struct sl_mon_rank *rank)
{
    char name[SL_MON_NAME];
    struct sl_mon_subject *subject;

    subject_name(rank->pid, name);
    subject = sl_mon_subject(ranks->mon, SL_MON_PROCESS, name);
    if (subject == NULL)
        return NULL;
    snprintf(subject->label, sizeof(subject->label), "%s", rank->label);
    ghost_add(ranks, name);
    return subject;
}

/* Those that the store had: until their processes are found, or are known to be gone. */
static void ghosts_restored(struct sl_mon_ranks *ranks)
{
    for (const struct sl_mon_subject *at = sl_mon_next(ranks->mon, NULL); at != NULL;
         at = sl_mon_next(ranks->mon, at))
        if (at->kind == SL_MON_PROCESS)
            ghost_add(ranks, at->name);
}

static bool ghost_lives(const struct sl_mon_ranks *ranks, const struct sl_mon_subject *subject)
{
    struct sl_proc_stat stat;
    char text[1024];
    int pid;

    return sl_mon_time(ranks->mon)->mono_ns - ranks->opened_ns < ADOPT_NS &&
           sscanf(subject->name, "pid %d", &pid) == 1 &&
           sl_mon_procfs_text(ranks->procfs, pid, "stat", text, sizeof(text)) > 0 &&
           sl_proc_stat(text, &stat) && is_same(subject, stat.start_ticks);
}

/* A death is told for as long as its condition lasts; all else of a process ends with it. */
static void ghosts_sweep(struct sl_mon_ranks *ranks)
{
    for (unsigned i = 0; i < ranks->ghost_count;) {
        struct sl_mon_subject *subject = sl_mon_find(ranks->mon, SL_MON_PROCESS, ranks->ghosts[i]);

        if (subject != NULL &&
            (sl_mon_condition(subject, SL_MON_CHECK_PROCESS_DIED)->state != SL_MON_OK ||
             ghost_lives(ranks, subject))) {
            i++;
            continue;
        }
        if (subject != NULL)
            sl_mon_forget(ranks->mon, subject);
        ghost_remove(ranks, i);
    }
}

/* ---- what a process is called ---- */

static void describe(struct sl_mon_rank *rank)
{
    const struct sl_state_process *self = &rank->self;
    char job[80] = "", program[64];

    if (self->job[0] != '\0')
        snprintf(job, sizeof(job), ", job %s", self->job);
    snprintf(program, sizeof(program), "%s",
             rank->page_count > 0 && self->program[0] != '\0' ? self->program : rank->stat.comm);
    if (rank->page_count > 0 && self->rank >= 0 && self->size > 0)
        snprintf(rank->label, sizeof(rank->label), "rank %d of %d%s (%s)", self->rank, self->size,
                 job, program);
    else
        snprintf(rank->label, sizeof(rank->label), "%s%s (%s)",
                 rank->is_rank ? "a rank" : "a process", job, program);
    sl_tame_text(rank->label);
    if (rank->subject != NULL)
        snprintf(rank->subject->label, sizeof(rank->subject->label), "%s", rank->label);
}

/* ---- one process ---- */

/* -ESRCH: it is gone. By its number, its user and its start. */
struct person {
    int32_t pid, own_pid;
    uint32_t user;
    struct sl_proc_stat stat;
};

static int look_up(const struct sl_mon_ranks *ranks, int32_t pid, struct person *out)
{
    char text[4096];
    int len;

    *out = (struct person){.pid = pid};
    len = sl_mon_procfs_text(ranks->procfs, pid, "stat", text, sizeof(text));
    if (len <= 0 || !sl_proc_stat(text, &out->stat) || out->stat.state == 'Z' ||
        out->stat.state == 'X')
        return -ESRCH;
    len = sl_mon_procfs_text(ranks->procfs, pid, "status", text, sizeof(text));
    return len > 0 && sl_proc_status(text, &out->user, &out->own_pid) ? 0 : -ESRCH;
}

static struct sl_mon_rank *watch(struct sl_mon_ranks *ranks, const struct person *person)
{
    struct sl_mon_proc *proc;
    struct sl_mon_rank *rank = find(ranks, person->pid);

    if (rank != NULL)
        return rank->start_ticks == person->stat.start_ticks ? rank : NULL;
    if (sl_mon_proc_open(ranks->procfs, person->pid, &proc) != 0)
        return NULL;
    rank = place_new(ranks);
    if (rank == NULL) {
        sl_mon_proc_close(proc);
        return NULL;
    }
    rank->pid = person->pid;
    rank->own_pid = person->own_pid;
    rank->user = person->user;
    rank->start_ticks = person->stat.start_ticks;
    rank->stat = person->stat;
    rank->proc = proc;
    rank->subject = subject_of(ranks, rank->pid, rank->start_ticks);
    describe(rank);
    return rank;
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
    describe(rank);
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
        find(ranks, pid) == NULL && ranks->found_dead < FOUND_DEAD_MAX)
        rank = place_new(ranks);
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
    struct sl_mon_rank *rank = person->user == user ? watch(ranks, person) : NULL;

    if (rank == NULL || rank->is_rank)
        return;
    rank->is_rank = true;
    describe(rank);
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
    bool lives = look_up(ranks, pid, &person) == 0;

    snprintf(path, sizeof(path), "%s/%.255s", ranks->config->ranks_shm, name);
    int err = page_open(path, O_NOFOLLOW, &page);

    if (err == -EACCES && lives && is_page)
        watch_unread(ranks, &person, user);
    if (err != 0)
        return err != -EPROTO;
    if (lives && is_of(&page, &person)) {
        rank = watch(ranks, &person);
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

static void look_by_name(struct sl_mon_ranks *ranks)
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
    if (person->stat.start_ticks == 0 && look_up(ranks, person->pid, person) != 0)
        return;
    if (page_open(path, 0, &page) != 0)
        return;
    rank = is_of(&page, person) ? watch(ranks, person) : NULL;
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
    const struct sl_mon_rank *rank = find(ranks, pid);
    struct person person;

    if (rank == NULL && is_named(ranks, pid) && look_up(ranks, pid, &person) == 0)
        (void)watch(ranks, &person);
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

static void look_by_list(struct sl_mon_ranks *ranks)
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

/* ---- those that are in the list ---- */

static bool ended_well(const struct sl_mon_rank *rank)
{
    struct sl_state_reader reader;
    struct sl_state_process self;

    for (unsigned i = 0; i < rank->page_count; i++)
        if (sl_state_read_fd(rank->pages[i], &reader) != 0 ||
            sl_state_get(&reader, SL_STATE_PROCESS, 0, &self, sizeof(self)) != SL_STATE_WHOLE ||
            (self.flags & SL_STATE_ENDED) == 0)
            return false;
    return true;
}

static void gone(struct sl_mon_ranks *ranks, struct sl_mon_rank *rank)
{
    rank->is_gone = true;
    rank->left_well = ended_well(rank);
    if (rank->subject != NULL)
        sl_mon_forget(ranks->mon, rank->subject);
    rank->subject = NULL;
}

static void refresh(struct sl_mon_ranks *ranks)
{
    for (unsigned i = 0; i < ranks->count; i++) {
        struct sl_mon_rank *rank = ranks->places[i];

        if (rank == NULL)
            continue;
        if (rank->is_gone) {
            rank_free(rank);
            ranks->places[i] = NULL;
        } else if (sl_mon_proc_stat(rank->proc, &rank->stat) == -ESRCH) {
            gone(ranks, rank);
        } else if (rank->subject != NULL) {
            rank->subject->seen_ns = sl_mon_time(ranks->mon)->mono_ns;
        }
    }
    while (ranks->count > 0 && ranks->places[ranks->count - 1] == NULL)
        ranks->count--;
}

int sl_mon_ranks_update(struct sl_mon_ranks *ranks)
{
    uint64_t now_ns = sl_mon_time(ranks->mon)->mono_ns;

    if (ranks->procfs == NULL)
        return sl_fail(-ENODEV, "the list of ranks is not open");
    if (ranks->updated_ns == now_ns)
        return 0;
    ranks->updated_ns = now_ns;
    ranks->period++;
    ranks->found_dead = 0;
    sl_mon_procfs_begin(ranks->procfs);
    refresh(ranks);
    look_by_name(ranks);
    if (ranks->is_first || now_ns - ranks->listed_ns >= LIST_NS) {
        ranks->listed_ns = now_ns;
        look_by_list(ranks);
        ghosts_sweep(ranks);
    }
    ranks->is_first = false;
    return 0;
}

/* ---- its life ---- */

int sl_mon_ranks_create(struct sl_mon *mon, const struct sl_mon_config *config,
                        struct sl_mon_ranks **out)
{
    struct sl_mon_ranks *ranks = calloc(1, sizeof(*ranks));

    if (ranks == NULL)
        return sl_fail(-ENOMEM, "no memory for ranks");
    ranks->mon = mon;
    ranks->config = config;
    *out = ranks;
    return 0;
}

void sl_mon_ranks_destroy(struct sl_mon_ranks *ranks)
{
    free(ranks);
}

/* As many as there are descriptors for: others shall not lack theirs for their sake. */
static unsigned room(void)
{
    struct rlimit limit;
    uint64_t most = SL_MON_RANKS_MAX;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
        most = limit.rlim_cur > FDS_OTHERS ? (limit.rlim_cur - FDS_OTHERS) / FDS_EACH : 0;
        if (most < 16)
            most = 16;
    }
    return most < SL_MON_RANKS_MAX ? (unsigned)most : SL_MON_RANKS_MAX;
}

int sl_mon_ranks_open(struct sl_mon_ranks *ranks)
{
    struct stat st;
    int err;

    if (ranks->users > 0) {
        ranks->users++;
        return 0;
    }
    ranks->list = calloc(PIDS_MAX, sizeof(*ranks->list));
    ranks->list_before = calloc(PIDS_MAX, sizeof(*ranks->list_before));
    err = ranks->list == NULL || ranks->list_before == NULL
              ? sl_fail(-ENOMEM, "no memory for a list of processes")
              : sl_mon_procfs_open(ranks->config->ranks_proc, &ranks->procfs);
    if (err != 0) {
        free(ranks->list);
        free(ranks->list_before);
        ranks->list = ranks->list_before = NULL;
        return err;
    }
    ranks->users = 1;
    ranks->is_first = true;
    ranks->places_max = room();
    ranks->updated_ns = 0;
    ranks->opened_ns = sl_mon_time(ranks->mon)->mono_ns;
    ranks->pid_space = stat("/proc/self/ns/pid", &st) == 0 ? st.st_ino : 0;
    ghosts_restored(ranks);
    return 0;
}

void sl_mon_ranks_close(struct sl_mon_ranks *ranks)
{
    if (ranks->users == 0 || --ranks->users > 0)
        return;
    for (unsigned i = 0; i < ranks->count; i++) {
        if (ranks->places[i] != NULL)
            rank_free(ranks->places[i]);
        ranks->places[i] = NULL;
    }
    ranks->count = ranks->known_count = ranks->list_count = 0;
    sl_mon_procfs_close(ranks->procfs);
    ranks->procfs = NULL;
    free(ranks->list);
    free(ranks->list_before);
    ranks->list = ranks->list_before = NULL;
}

unsigned sl_mon_ranks_count(const struct sl_mon_ranks *ranks)
{
    return ranks->count;
}

struct sl_mon_rank *sl_mon_ranks_at(const struct sl_mon_ranks *ranks, unsigned place)
{
    return place < ranks->count ? ranks->places[place] : NULL;
}

struct sl_mon_procfs *sl_mon_ranks_procfs(const struct sl_mon_ranks *ranks)
{
    return ranks->procfs;
}

struct sl_mon_ranks_counts sl_mon_ranks_counts(const struct sl_mon_ranks *ranks)
{
    struct sl_mon_ranks_counts out = {.left_out = ranks->left_out};

    for (unsigned i = 0; i < ranks->count; i++) {
        const struct sl_mon_rank *rank = ranks->places[i];

        if (rank == NULL || rank->is_gone)
            continue;
        out.ranks += rank->is_rank;
        out.named += !rank->is_rank;
        out.unreadable += rank->is_rank && rank->page_count == 0;
    }
    return out;
}
