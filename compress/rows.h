/* SPDX-License-Identifier: Apache-2.0 */
/* Codecs whose scales are those of rows: how long rows are. */
#ifndef SL_COMPRESS_ROWS_H
#define SL_COMPRESS_ROWS_H

#include <stddef.h>

/* Elements of a row. Longer ones can be cut into several of equal length. */
#define SL_ROW_LEAST 32
#define SL_ROW_MOST 8192

/* Elements of a tile of such rows: whole ones, SL_ROW_MOST at most. */
size_t sl_rows_tile(size_t row);

#endif
