/* SPDX-License-Identifier: Apache-2.0 */
/* Reads, watches and replaces the file of a path table. */
#include "core/path_watch.h"

#include "core/clock.h"
#include "core/err.h"
#include "core/log.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define AREA "paths"
#define FOLDER "/dev/shm"
#define AGENT_FILE "/run/sluiced/paths" /* a folder in which nobody else may take the name */
#define POLL_NS (20 * SL_NS_PER_MS)

void sl_path_file_name(const char *setting, char *out, size_t cap)
{
    if (strcmp(setting, "off") == 0)
        out[0] = '\0';
    else if (setting[0] == '\0' || strcmp(setting, "auto") == 0)
        snprintf(out, cap, FOLDER "/sluice-paths.%u", (unsigned)geteuid());
    else
        snprintf(out, cap, "%s", setting);
}

void sl_path_agent_file_name(const char *setting, char *out, size_t cap)
{
    bool is_auto = setting[0] == '\0' || strcmp(setting, "auto") == 0;

    snprintf(out, cap, "%s", strcmp(setting, "off") == 0 ? "" : is_auto ? AGENT_FILE : setting);
}

/* ---- reading ---- */

static struct sl_path_file_mark mark_of(const struct stat *st)
{
    return (struct sl_path_file_mark){.there = true,
                                      .device = st->st_dev,
                                      .inode = st->st_ino,
                                      .bytes = st->st_size,
                                      .changed = st->st_ctim,
                                      .modified = st->st_mtim};
}

static bool same_time(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

static bool same_mark(const struct sl_path_file_mark *a, const struct sl_path_file_mark *b)
{
    return a->there == b->there && a->device == b->device && a->inode == b->inode &&
           a->bytes == b->bytes && same_time(&a->changed, &b->changed) &&
           same_time(&a->modified, &b->modified);
}

/* Who may write it decides where this process sends. */
static int check_file(const char *file, const struct stat *st)
{
    if (!S_ISREG(st->st_mode))
        return sl_fail(-EPERM, "%s is no regular file", file);
    if (st->st_uid != geteuid() && st->st_uid != 0)
        return sl_fail(-EPERM, "%s belongs to user %u, and not to this one or root", file,
                       (unsigned)st->st_uid);
    if ((st->st_mode & (S_IWGRP | S_IWOTH)) != 0)
        return sl_fail(-EPERM, "%s may be written by others than its owner", file);
    if (st->st_size > SL_PATH_TABLE_BYTES_MAX)
        return sl_fail(-EFBIG, "%s has more than the %u bytes of a path table", file,
                       SL_PATH_TABLE_BYTES_MAX);
    return 0;
}

/* All of it, however the kernel divides it. */
static int read_bytes(const char *file, int fd, char *text, size_t len)
{
    for (size_t got = 0; got < len;) {
        ssize_t n = read(fd, text + got, len - got);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return sl_fail(n < 0 ? -errno : -EIO, "%s cannot be read: %s", file,
                           n < 0 ? strerror(errno) : "it has become shorter");
        got += (size_t)n;
    }
    return 0;
}

static int read_open(const char *file, int fd, char **text, size_t *len)
{
    struct stat st;
    int err = fstat(fd, &st) == 0
                  ? check_file(file, &st)
                  : sl_fail(-errno, "%s cannot be looked at: %s", file, strerror(errno));

    if (err != 0)
        return err;
    char *bytes = malloc((size_t)st.st_size + 1);

    if (bytes == NULL)
        return sl_fail(-ENOMEM, "no memory for the path table %s", file);
    err = read_bytes(file, fd, bytes, (size_t)st.st_size);
    if (err != 0) {
        free(bytes);
        return err;
    }
    *text = bytes;
    *len = (size_t)st.st_size;
    return 0;
}

int sl_path_file_read(const char *file, char **text, size_t *len)
{
    /* Neither waits for a pipe's other end, nor follows where another user's link leads. */
    int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY);

    *text = NULL;
    *len = 0;
    if (fd < 0)
        return errno == ENOENT ? 0
                               : sl_fail(-errno, "%s cannot be opened: %s", file, strerror(errno));
    int err = read_open(file, fd, text, len);

    close(fd);
    return err;
}

/* ---- watching ---- */

void sl_path_watch_init(struct sl_path_watch *watch, const char *table, const char *agent,
                        const char *job)
{
    *watch = (struct sl_path_watch){.job = job};
    sl_path_file_name(table, watch->sources[SL_PATH_OF_PEOPLE].file, SL_PATH_FILE_MAX);
    sl_path_agent_file_name(agent, watch->sources[SL_PATH_OF_AGENT].file, SL_PATH_FILE_MAX);
}

static bool rules_drop(struct sl_path_source *source)
{
    bool had = source->count > 0;

    free(source->rules);
    free(source->text);
    source->rules = NULL;
    source->text = NULL;
    source->count = 0;
    source->until_s = 0;
    return had;
}

void sl_path_watch_fini(struct sl_path_watch *watch)
{
    for (unsigned i = 0; i < SL_PATH_SOURCES; i++)
        rules_drop(&watch->sources[i]);
    free(watch->rules);
    *watch = (struct sl_path_watch){0};
}

static bool same_rule(const struct sl_path_rule *a, const struct sl_path_rule *b)
{
    return a->rank == b->rank && a->peer == b->peer && a->path == b->path && a->label == b->label &&
           a->weight == b->weight && a->avoid == b->avoid && a->port_len == b->port_len &&
           (a->port_len == 0 || memcmp(a->port, b->port, a->port_len) == 0);
}

/* Takes text over. Rules of other jobs and ranks are left out. *changed: they are other rules than
 * before; a writer that only says again that it lives changes none. */
static int rules_take(struct sl_path_source *source, const char *job, int rank,
                      const struct sl_path_table *table, char *text, bool *changed)
{
    size_t count = 0;
    struct sl_path_rule *rules = calloc(table->count + 1, sizeof(*rules));

    if (rules == NULL)
        return sl_fail(-ENOMEM, "no memory for the path table %s", source->file);
    for (size_t i = 0; i < table->count; i++) {
        if (!sl_path_rule_is_for(&table->rules[i], job, rank))
            continue;
        rules[count] = table->rules[i];
        rules[count].job = NULL; /* it has been asked for, once and for all */
        rules[count++].job_len = 0;
    }
    *changed = count != source->count;
    for (size_t i = 0; i < count && !*changed; i++)
        *changed = !same_rule(&rules[i], &source->rules[i]);
    if (!*changed) { /* the joined rules' ports lie in the text that was read before */
        free(rules);
        free(text);
        source->until_s = table->until_s;
        return 0;
    }
    rules_drop(source);
    source->rules = rules;
    source->text = text;
    source->count = count;
    source->until_s = table->until_s;
    return 0;
}

static bool is_over(uint64_t until_s)
{
    return until_s != 0 && sl_wall_s() >= until_s;
}

static bool reload(struct sl_path_source *source, const char *job, int rank)
{
    struct sl_path_table table = {0};
    bool changed = false;
    char *text;
    size_t len;
    int err = sl_path_file_read(source->file, &text, &len);

    if (err == 0 && text == NULL)
        return rules_drop(source);
    if (err == 0)
        err = sl_path_table_parse(text, len, &table);
    if (err == 0 && is_over(table.until_s))
        table.count = 0;
    if (err == 0)
        err = rules_take(source, job, rank, &table, text, &changed);
    sl_path_table_fini(&table);
    if (err != 0) {
        free(text);
        sl_warn(AREA, "%s changes nothing: %s", source->file, sluice_last_error());
        return false;
    }
    if (changed)
        sl_info(AREA, "%s has %zu rules for this rank", source->file, source->count);
    return changed;
}

static bool source_poll(struct sl_path_source *source, const char *job, int rank)
{
    struct sl_path_file_mark mark = {0};
    struct stat st;

    if (source->file[0] == '\0')
        return false;
    if (lstat(source->file, &st) == 0)
        mark = mark_of(&st);
    if (!same_mark(&mark, &source->mark)) {
        source->mark = mark;
        return reload(source, job, rank);
    }
    return is_over(source->until_s) && rules_drop(source);
}

/* The rules of all files, in their order. */
static int join(struct sl_path_watch *watch)
{
    size_t count = 0, at = 0;
    struct sl_path_rule *rules;

    for (unsigned i = 0; i < SL_PATH_SOURCES; i++)
        count += watch->sources[i].count;
    rules = calloc(count + 1, sizeof(*rules));
    if (rules == NULL)
        return sl_fail(-ENOMEM, "no memory for %zu rules of path tables", count);
    for (unsigned i = 0; i < SL_PATH_SOURCES; i++) {
        const struct sl_path_source *source = &watch->sources[i];

        if (source->count > 0)
            memcpy(rules + at, source->rules, source->count * sizeof(*rules));
        at += source->count;
    }
    free(watch->rules);
    watch->rules = rules;
    watch->count = count;
    return 0;
}

bool sl_path_watch_poll(struct sl_path_watch *watch, int rank, uint64_t now_ns)
{
    bool changed = false;

    if (now_ns < watch->next_ns)
        return false;
    watch->next_ns = now_ns + POLL_NS;
    for (unsigned i = 0; i < SL_PATH_SOURCES; i++)
        changed |= source_poll(&watch->sources[i], watch->job, rank);
    if (!changed)
        return false;
    if (join(watch) == 0)
        return true;
    /* Ports of the old rules may lie in a text that is gone. */
    sl_warn(AREA, "there are no rules for paths: %s", sluice_last_error());
    watch->count = 0;
    return true;
}

/* ---- writing ---- */

static int write_bytes(int fd, const char *text, size_t len)
{
    for (size_t done = 0; done < len;) {
        ssize_t n = write(fd, text + done, len - done);

        if (n < 0 && errno != EINTR)
            return -errno;
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

/* A folder that all may write to, such as /dev/shm, lets nobody rename over another user's file. */
static int replace(const char *file, const char *text, size_t len)
{
    char fresh[SL_PATH_FILE_MAX + 16];

    snprintf(fresh, sizeof(fresh), "%s.XXXXXX", file);
    int fd = mkostemp(fresh, O_CLOEXEC); /* mode 0600 */

    if (fd < 0)
        return sl_fail(-errno, "no file can be made beside %s: %s", file, strerror(errno));
    int err = write_bytes(fd, text, len);

    /* What root writes is for others to read. */
    if (err == 0 && geteuid() == 0 && fchmod(fd, 0644) != 0)
        err = -errno;
    close(fd);
    if (err == 0 && rename(fresh, file) != 0)
        err = -errno;
    if (err == 0)
        return 0;
    unlink(fresh);
    return sl_fail(err, "%s cannot be replaced: %s", file, strerror(-err));
}

int sl_path_file_write(const char *file, const struct sl_path_table *table)
{
    char *text;
    size_t len;
    int err = sl_path_table_print(table, &text, &len);

    if (err != 0)
        return err;
    err = replace(file, text, len);
    free(text);
    return err;
}

/* The table itself cannot be locked: it is another file after each change. */
int sl_path_file_lock(const char *file)
{
    char name[SL_PATH_FILE_MAX + 16];

    snprintf(name, sizeof(name), "%s.lock", file);
    int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);

    if (fd < 0)
        return sl_fail(-errno, "%s cannot be made: %s", name, strerror(errno));
    while (flock(fd, LOCK_EX) != 0)
        if (errno != EINTR) {
            int err = -errno;

            close(fd);
            return sl_fail(err, "%s cannot be locked: %s", name, strerror(-err));
        }
    return fd;
}

void sl_path_file_unlock(int fd)
{
    close(fd);
}
