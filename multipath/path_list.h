/* SPDX-License-Identifier: Apache-2.0 */
/* How a list of paths is written, such as that of SLUICE_VERBS_PATHS. Without any device, so that a
 * list is refused where the configuration is read. */
#ifndef SL_MULTIPATH_PATH_LIST_H
#define SL_MULTIPATH_PATH_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of a list: all the paths of a connection, each written at its longest ("15>15/0xfffff@4,"), with
 * room to spare. */
#define SL_PATH_LIST_BYTES 2048

#define SL_PATH_RAILS_MAX 16
#define SL_PATH_LAG_PORTS_MAX 4
#define SL_PATH_LABEL_MAX UINT32_C(0xfffff) /* 20 bits */
#define SL_PATH_LABEL_OPEN UINT32_MAX       /* the entry has none */

/* LOCAL>REMOTE[/LABEL][@PORT] */
struct sl_path_entry {
    const char *text; /* as it stands in the list, which is borrowed: len bytes */
    size_t len;
    unsigned local, remote; /* rails, below SL_PATH_RAILS_MAX */
    unsigned lag_port;      /* from 1 to SL_PATH_LAG_PORTS_MAX; 0: none is named */
    uint32_t label;         /* up to SL_PATH_LABEL_MAX, or SL_PATH_LABEL_OPEN */
};

/* Whether the list stands for the automatic one: "auto" or "". */
bool sl_path_list_auto(const char *list);

/* The entry at *at, which moves behind it: to the list's end, or behind the comma, where another
 * follows. -EINVAL names the variable, the entry and what is wrong with it. 1: this was the last;
 * 0: another follows. */
int sl_path_entry_read(const char *variable, const char **at, struct sl_path_entry *out);

/* -EINVAL: an entry cannot be read. Whether the rails are there is another matter. */
int sl_path_list_check(const char *variable, const char *list);

#endif
