/* SPDX-License-Identifier: Apache-2.0 */
/* Files of reports: opened, closed; and whether that will go well, before a run of minutes finds
 * out. */
#include "report.h"

#include "core/err.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int refuse(const char *path, int err)
{
    return sl_fail(-err, "cannot write %s: %s", path, strerror(err));
}

/* A file that is there is not opened: its contents, or who reads a pipe, are for the report
 * itself. */
int sb_file_check(const char *path)
{
    struct stat is;

    if (strcmp(path, "-") == 0)
        return 0;
    if (stat(path, &is) == 0)
        return S_ISDIR(is.st_mode)       ? refuse(path, EISDIR)
               : access(path, W_OK) != 0 ? refuse(path, errno)
                                         : 0;
    if (errno != ENOENT)
        return refuse(path, errno);
    const char *slash = strrchr(path, '/');
    char *folder = slash == NULL   ? strdup(".")
                   : slash == path ? strdup("/")
                                   : strndup(path, (size_t)(slash - path));

    if (folder == NULL)
        return sl_fail(-ENOMEM, "no memory to look at %s", path);
    int err = access(folder, W_OK | X_OK) != 0 ? errno : 0;

    free(folder);
    return err != 0 ? refuse(path, err) : 0;
}

int sb_file_open(const char *path, FILE **out)
{
    *out = strcmp(path, "-") == 0 ? stdout : fopen(path, "w");
    return *out != NULL ? 0 : refuse(path, errno);
}

int sb_file_close(const char *path, FILE *file)
{
    int err = fflush(file) != 0 || ferror(file) ? errno : 0;

    if (file != stdout && fclose(file) != 0 && err == 0)
        err = errno;
    return err != 0 ? refuse(path, err) : 0;
}
