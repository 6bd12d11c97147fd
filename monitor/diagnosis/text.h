/* SPDX-License-Identifier: Apache-2.0 */
/* Texts that are kept once each, by number. They stay where they are until sl_texts_fini(). */
#ifndef SL_MONITOR_DIAGNOSIS_TEXT_H
#define SL_MONITOR_DIAGNOSIS_TEXT_H

#include <stddef.h>
#include <stdint.h>

struct sl_text {
    char *chars; /* ended by 0 */
    uint32_t len, hash;
};

struct sl_texts {
    struct sl_text *list;
    uint32_t count;
    size_t cap;
    uint32_t *table; /* numbers + 1 by hash; 0: free */
    size_t table_len;
    char *block; /* where the next text goes */
    size_t block_left;
    char **blocks;
    size_t block_count, block_cap;
};

/* The text's number; UINT32_MAX without memory. */
uint32_t sl_texts_add(struct sl_texts *texts, const char *text, size_t len);
/* "" for what is no number of a text. */
const char *sl_texts_get(const struct sl_texts *texts, uint32_t number);
void sl_texts_fini(struct sl_texts *texts);

#endif
