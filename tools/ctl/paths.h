/* SPDX-License-Identifier: Apache-2.0 */
/* sluicectl paths: shows and changes the path table. Each returns an exit status. */
#ifndef SLUICE_CTL_PATHS_H
#define SLUICE_CTL_PATHS_H

#include <stdbool.h>

int sc_paths_show(const char *file, bool json);
/* One more rule, by its words. */
int sc_paths_set(const char *file, int count, char **words);
/* Without the rules of exactly these paths; without words: without any. */
int sc_paths_clear(const char *file, int count, char **words);
/* The table that standard input has. */
int sc_paths_load(const char *file);

#endif
