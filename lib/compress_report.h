/* SPDX-License-Identifier: Apache-2.0 */
/* What compression came to in this process: of all codings that there are and were. */
#ifndef SL_LIB_COMPRESS_REPORT_H
#define SL_LIB_COMPRESS_REPORT_H

#include "core/list.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sl_compression_sums {
    uint64_t calls, raw_calls; /* compressed, and left as they are by cost */
    uint64_t raw_bytes, wire_bytes;
    uint64_t raw_ns, busy_ns;
    bool measured;
    double power, error; /* of what was measured */
};

/* Whoever is counted embeds it. */
struct sl_compression_counted {
    struct sl_node link;
    /* Adds its own. Any thread may ask, while its owner works. */
    void (*sum)(const struct sl_compression_counted *counted, struct sl_compression_sums *sums);
};

/* From now on until it ends, which adds what it came to for good. */
void sl_compression_begins(struct sl_compression_counted *counted);
void sl_compression_ends(struct sl_compression_counted *counted);

void sl_compression_sum(struct sl_compression_sums *out);

/* "12 calls sent 266240 bytes in place of 1048576 (25.4 %), …". False: there was none. */
bool sl_compression_text(const struct sl_compression_sums *sums, char *out, size_t cap);

/* A line about this process on standard error, if there is anything to say: now, or, asked for by
 * rank 0 of the first communicator, when it ends. */
void sl_compression_tell(int rank);
void sl_compression_tell_at_exit(int rank);

#endif
