/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Python's pickles, protocols 0 to 5, of plain data: dictionaries, lists, tuples, texts, bytes,
 * numbers, True, False, None. A pickle is a program; the opcodes that find or call something are
 * refused by their name, and so is whatever plain data does not need. In protocol 0, escapes in
 * texts stay as they are.
 */
#ifndef SL_MONITOR_READ_PICKLE_H
#define SL_MONITOR_READ_PICKLE_H

#include "monitor/read/read.h"
#include "monitor/read/value.h"

/* Reads the one value of the file, and sees that nothing follows it. -EBADMSG with a sentence. */
int sl_pickle_read(struct sl_read_in *in, struct sl_values *values, uint32_t *root);

#endif
