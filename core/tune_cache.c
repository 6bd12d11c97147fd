/* SPDX-License-Identifier: Apache-2.0 */
/* Files of measured results in the user's cache folder. */
#include "core/tune_cache.h"

#include "core/log.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PATH_MAX_BYTES 512
#define PREFIX "links-"
#define LEFT_BEHIND_S 60 /* writing takes microseconds: an unfinished file this old has no writer */
#define OLD_S                                                                                      \
    (30 * 24 * 3600) /* nobody believes what was measured so long ago (collectives/costs.h) */
#define FILES_MAX                                                                                  \
    64 /* keys change with each start of a host and each set of them: the newest files are kept */

/* Ends every file: a torn or foreign one does not have it in its place. */
#define TRAILER UINT64_C(0x534c54554e453031)

static bool folder_of(const struct sl_config *config, char *out)
{
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int len = -1;

    if (config->tune_dir[0] != '\0')
        len = snprintf(out, PATH_MAX_BYTES, "%s", config->tune_dir);
    else if (xdg != NULL && xdg[0] == '/')
        len = snprintf(out, PATH_MAX_BYTES, "%s/sluice", xdg);
    else if (home != NULL && home[0] == '/')
        len = snprintf(out, PATH_MAX_BYTES, "%s/.cache/sluice", home);
    return len > 0 && len < PATH_MAX_BYTES - 64;
}

static bool path_of(const struct sl_config *config, uint64_t key, char *out)
{
    if (!folder_of(config, out))
        return false;
    size_t len = strlen(out);

    snprintf(out + len, PATH_MAX_BYTES - len, "/" PREFIX "%016llx", (unsigned long long)key);
    return true;
}

/* Makes the folder and those above it. */
static void make_folders(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0700);
        *slash = '/';
    }
}

/* A file that others could have written says nothing: the folder may be one that several users
 * share. */
static bool is_ours(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
           (st.st_uid == geteuid() || st.st_uid == 0) && (st.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

bool sl_tune_cache_read(const struct sl_config *config, uint64_t key, void *out, size_t len)
{
    char path[PATH_MAX_BYTES];
    uint64_t trailer = 0;
    bool whole;

    if (!path_of(config, key, path))
        return false;
    /* A pipe in its place does not block, a link in its place is not followed. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);

    if (fd < 0)
        return false;
    whole = is_ours(fd) && read(fd, out, len) == (ssize_t)len &&
            read(fd, &trailer, sizeof(trailer)) == sizeof(trailer) && trailer == TRAILER &&
            read(fd, &trailer, 1) == 0;
    close(fd);
    return whole;
}

/* A file of ours in the folder, of this user; whole: "links-KEY", and not "links-KEY.SUFFIX", which
 * is being written. */
static bool look_at(DIR *dir, const char *name, struct stat *st, bool *whole)
{
    *whole = strchr(name, '.') == NULL;
    return strncmp(name, PREFIX, sizeof(PREFIX) - 1) == 0 &&
           fstatat(dirfd(dir), name, st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st->st_mode) &&
           st->st_uid == geteuid();
}

static int64_t written_ns(const struct stat *st)
{
    return (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
}

/* When the oldest was written of those that may stay. */
static int64_t find_limit(DIR *dir, int64_t now_ns)
{
    int64_t newest[FILES_MAX]; /* newest first */
    unsigned count = 0, at;

    for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        struct stat st;
        bool whole;

        if (!look_at(dir, entry->d_name, &st, &whole) || !whole)
            continue;
        for (at = count; at > 0 && newest[at - 1] < written_ns(&st); at--)
            if (at < FILES_MAX)
                newest[at] = newest[at - 1];
        if (at < FILES_MAX)
            newest[at] = written_ns(&st);
        count += count < FILES_MAX;
    }
    rewinddir(dir);
    int64_t old = now_ns - OLD_S * INT64_C(1000000000);

    return count == FILES_MAX && newest[FILES_MAX - 1] > old ? newest[FILES_MAX - 1] : old;
}

/* Files that are too old or too many, and unfinished ones of processes that were killed while they
 * wrote. */
static void tidy(const struct sl_config *config)
{
    char folder[PATH_MAX_BYTES];
    DIR *dir = folder_of(config, folder) ? opendir(folder) : NULL;
    int64_t now_ns = (int64_t)time(NULL) * 1000000000, limit;

    if (dir == NULL)
        return;
    limit = find_limit(dir, now_ns);
    for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        struct stat st;
        bool whole;

        if (look_at(dir, entry->d_name, &st, &whole) &&
            written_ns(&st) < (whole ? limit : now_ns - LEFT_BEHIND_S * INT64_C(1000000000)))
            unlinkat(dirfd(dir), entry->d_name, 0);
    }
    closedir(dir);
}

/* A new file beside path, under a name that no other user can guess and take first. */
static int open_fresh(const char *path, char *out, size_t cap)
{
    uint64_t chance;

    if (getrandom(&chance, sizeof(chance), 0) != (ssize_t)sizeof(chance))
        return -1;
    snprintf(out, cap, "%s.%016llx", path, (unsigned long long)chance);
    return open(out, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
}

void sl_tune_cache_write(const struct sl_config *config, uint64_t key, const void *bytes,
                         size_t len)
{
    char path[PATH_MAX_BYTES], fresh[PATH_MAX_BYTES + 32];
    uint64_t trailer = TRAILER;

    if (!path_of(config, key, path))
        return;
    make_folders(path);
    int fd = open_fresh(path, fresh, sizeof(fresh));

    if (fd < 0) {
        sl_debug("tune", "%s cannot be written; link costs are measured again next time", path);
        return;
    }
    bool whole = write(fd, bytes, len) == (ssize_t)len &&
                 write(fd, &trailer, sizeof(trailer)) == sizeof(trailer);

    close(fd);
    if (!whole || rename(fresh, path) != 0)
        unlink(fresh);
    tidy(config);
}
