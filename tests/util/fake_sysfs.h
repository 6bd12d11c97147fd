/* SPDX-License-Identifier: Apache-2.0 */
/* A sysfs that the cases write: link with --wrap=fopen64 and --wrap=realpath. */
#ifndef SL_TESTS_UTIL_FAKE_SYSFS_H
#define SL_TESTS_UTIL_FAKE_SYSFS_H

#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct sysfs_entry {
    const char *path, *is; /* the text of a file, or where a link leads */
};

static const struct sysfs_entry *sysfs_files, *sysfs_links; /* up to one without a path */

static const char *sysfs_look_up(const struct sysfs_entry *in, const char *path)
{
    for (; in != NULL && in->path != NULL; in++)
        if (strcmp(in->path, path) == 0)
            return in->is;
    return NULL;
}

/* With 64-bit offsets, as this tree is built, fopen() goes by this name. */
FILE *__real_fopen64(const char *path, const char *mode);
FILE *__wrap_fopen64(const char *path, const char *mode);
char *__wrap_realpath(const char *path, char *out);

FILE *__wrap_fopen64(const char *path, const char *mode)
{
    const char *text = sysfs_look_up(sysfs_files, path);

    if (strncmp(path, "/sys/", 5) != 0)
        return __real_fopen64(path, mode);
    return text != NULL ? fmemopen((char *)(uintptr_t)text, strlen(text), "r") : NULL;
}

char *__wrap_realpath(const char *path, char *out)
{
    const char *target = sysfs_look_up(sysfs_links, path);

    return target != NULL ? strcpy(out, target) : NULL;
}

#endif
