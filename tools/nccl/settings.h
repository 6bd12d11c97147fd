/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's settings from a file: lines NAME=VALUE. Needs libc alone. */
#ifndef SL_TOOLS_NCCL_SETTINGS_H
#define SL_TOOLS_NCCL_SETTINGS_H

#include <stdio.h>

#define SL_NCCL_SETTINGS_MAX 256
#define SL_NCCL_SETTINGS_LINE 4096 /* bytes of a line with its newline and the end of a text */

/* All zero: none. */
struct sl_nccl_settings {
    struct {
        char *name, *value; /* owned */
    } items[SL_NCCL_SETTINGS_MAX];
    unsigned count;
};

/* The mistake in a line of the file, from 1. */
typedef void sl_nccl_settings_complain(void *arg, int line, const char *what);

/* Adds the settings of the file: of two lines with one name the later counts. Blanks around names
 * and values do not count, nor do empty lines and those that begin with #. A line that is none of
 * these is left out, and complain() hears of it. */
void sl_nccl_settings_read(struct sl_nccl_settings *settings, FILE *file,
                           sl_nccl_settings_complain *complain, void *arg);

/* Borrowed until the settings are freed; NULL: the file does not say. */
const char *sl_nccl_settings_get(const struct sl_nccl_settings *settings, const char *name);

/* Back to none. */
void sl_nccl_settings_free(struct sl_nccl_settings *settings);

#endif
