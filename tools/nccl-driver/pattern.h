/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What messages hold. Each eight bytes tell which byte of which message they are, so wrong bytes
 * can be traced to where they belong.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define PATTERN_FRESH 0xee /* a receive buffer before its message */
#define PATTERN_SPENT 0xbb /* a send buffer after it */

/* A message, and those that its bytes may be mixed up with: of the same connection. */
struct pattern {
    int conn, tag;
    unsigned step;
    const int *tags;
    unsigned tag_count;
    size_t largest; /* of all messages */
};

/* A number for each message, odd. */
uint64_t pattern_key(int conn, int tag, unsigned step);
void pattern_fill(uint8_t *data, size_t len, int conn, int tag, unsigned step);
/* Where it is not that; len if nowhere. */
size_t pattern_differs(const uint8_t *data, size_t len, int conn, int tag, unsigned step);
/* What is there instead, from byte `wrong` of data on: "4096 bytes of message 10 of tag 3 from its
 * byte 192512 on, 4096 bytes from before the receive". */
void pattern_describe(const struct pattern *p, const uint8_t *data, size_t len, size_t wrong,
                      char *text, size_t cap);
