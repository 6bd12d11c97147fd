/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 (FIPS 180-4), for ids and for sums of bundles. */
#ifndef SL_MONITOR_DIAGNOSIS_DIGEST_H
#define SL_MONITOR_DIAGNOSIS_DIGEST_H

#include <stddef.h>
#include <stdint.h>

#define SL_DIGEST_TEXT 65 /* hexadecimal digits, and 0 */

struct sl_digest {
    uint32_t state[8];
    uint64_t len;
    unsigned char block[64];
};

void sl_digest_begin(struct sl_digest *digest);
void sl_digest_add(struct sl_digest *digest, const void *bytes, size_t len);
/* A text with its length before it: "ab", "c" is not "a", "bc". */
void sl_digest_add_text(struct sl_digest *digest, const char *text);
void sl_digest_end(struct sl_digest *digest, char out[SL_DIGEST_TEXT]);

#endif
