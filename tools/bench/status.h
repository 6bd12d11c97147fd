/* SPDX-License-Identifier: Apache-2.0 */
/* --status: the state pages of a process, as text or JSON. */
#ifndef SB_STATUS_H
#define SB_STATUS_H

#include "core/state_read.h"

#include <stdio.h>

/* json: a file, "-", or NULL for text on out. */
int sb_status(int pid, const char *json, FILE *out);

/* One page as a JSON object, without an end of line. Whatever the page holds, it is one. */
void sb_status_json(const struct sl_state_reader *reader, bool lives, FILE *out);

#endif
