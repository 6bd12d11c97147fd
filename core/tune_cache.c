/* SPDX-License-Identifier: Apache-2.0 */
/* Files of measured results in the user's cache folder. */
#include "core/tune_cache.h"

#include "core/log.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_MAX_BYTES 512

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

    snprintf(out + len, PATH_MAX_BYTES - len, "/links-%016llx", (unsigned long long)key);
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

bool sl_tune_cache_read(const struct sl_config *config, uint64_t key, void *out, size_t len)
{
    char path[PATH_MAX_BYTES];
    uint64_t trailer = 0;
    bool whole;

    if (!path_of(config, key, path))
        return false;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe in its place does not block */

    if (fd < 0)
        return false;
    whole = read(fd, out, len) == (ssize_t)len &&
            read(fd, &trailer, sizeof(trailer)) == sizeof(trailer) && trailer == TRAILER &&
            read(fd, &trailer, 1) == 0;
    close(fd);
    return whole;
}

void sl_tune_cache_write(const struct sl_config *config, uint64_t key, const void *bytes, size_t len)
{
    char path[PATH_MAX_BYTES], fresh[PATH_MAX_BYTES + 32];
    uint64_t trailer = TRAILER;

    if (!path_of(config, key, path))
        return;
    make_folders(path);
    snprintf(fresh, sizeof(fresh), "%s.%d", path, (int)getpid());
    int fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    if (fd < 0) {
        sl_debug("tune", "%s cannot be written; link costs are measured again next time", path);
        return;
    }
    bool whole = write(fd, bytes, len) == (ssize_t)len &&
                 write(fd, &trailer, sizeof(trailer)) == sizeof(trailer);

    close(fd);
    if (!whole || rename(fresh, path) != 0)
        unlink(fresh);
}
