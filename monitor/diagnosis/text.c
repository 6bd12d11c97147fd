/* SPDX-License-Identifier: Apache-2.0 */
/* Texts by number: an open hash table over texts that lie in blocks. */
#include "monitor/diagnosis/text.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK ((size_t)64 << 10)

/* FNV-1a. */
static uint32_t hash_of(const char *text, size_t len)
{
    uint32_t hash = 2166136261u;

    for (size_t i = 0; i < len; i++)
        hash = (hash ^ (unsigned char)text[i]) * 16777619u;
    return hash;
}

/* Where it is, or the free place where it belongs. */
static uint32_t *find(const struct sl_texts *texts, const char *text, size_t len, uint32_t hash)
{
    size_t at = hash & (texts->table_len - 1);

    while (texts->table[at] != 0) {
        const struct sl_text *it = &texts->list[texts->table[at] - 1];

        if (it->hash == hash && it->len == len && memcmp(it->chars, text, len) == 0)
            break;
        at = (at + 1) & (texts->table_len - 1);
    }
    return &texts->table[at];
}

/* At most half of the table is used. */
static int grow_table(struct sl_texts *texts)
{
    size_t len = texts->table_len == 0 ? 64 : texts->table_len * 2;
    uint32_t *table;

    if (texts->count < texts->table_len / 2)
        return 0;
    table = calloc(len, sizeof(*table));
    if (table == NULL)
        return -1;
    for (uint32_t i = 0; i < texts->count; i++) {
        size_t at = texts->list[i].hash & (len - 1);

        while (table[at] != 0)
            at = (at + 1) & (len - 1);
        table[at] = i + 1;
    }
    free(texts->table);
    texts->table = table;
    texts->table_len = len;
    return 0;
}

static int grow_list(struct sl_texts *texts)
{
    size_t cap = texts->cap == 0 ? 64 : texts->cap * 2;
    struct sl_text *list;

    if (texts->count < texts->cap)
        return 0;
    list = reallocarray(texts->list, cap, sizeof(*list));
    if (list == NULL)
        return -1;
    texts->list = list;
    texts->cap = cap;
    return 0;
}

static char *take_room(struct sl_texts *texts, size_t len)
{
    size_t size = len > BLOCK ? len : BLOCK;
    char *room;

    if (len > texts->block_left) {
        if (texts->block_count == texts->block_cap) {
            size_t cap = texts->block_cap == 0 ? 16 : texts->block_cap * 2;
            char **blocks = reallocarray(texts->blocks, cap, sizeof(*blocks));

            if (blocks == NULL)
                return NULL;
            texts->blocks = blocks;
            texts->block_cap = cap;
        }
        texts->block = malloc(size);
        texts->block_left = texts->block != NULL ? size : 0;
        if (texts->block == NULL)
            return NULL;
        texts->blocks[texts->block_count++] = texts->block;
    }
    room = texts->block;
    texts->block += len;
    texts->block_left -= len;
    return room;
}

uint32_t sl_texts_add(struct sl_texts *texts, const char *text, size_t len)
{
    uint32_t hash = hash_of(text, len), *slot;
    char *chars;

    if (grow_table(texts) != 0)
        return UINT32_MAX;
    slot = find(texts, text, len, hash);
    if (*slot != 0)
        return *slot - 1;
    if (texts->count >= UINT32_MAX - 2 || grow_list(texts) != 0)
        return UINT32_MAX;
    chars = take_room(texts, len + 1);
    if (chars == NULL)
        return UINT32_MAX;
    memcpy(chars, text, len);
    chars[len] = '\0';
    texts->list[texts->count] = (struct sl_text){.chars = chars, .len = len, .hash = hash};
    *slot = ++texts->count;
    return texts->count - 1;
}

const char *sl_texts_get(const struct sl_texts *texts, uint32_t number)
{
    return number < texts->count ? texts->list[number].chars : "";
}

void sl_texts_fini(struct sl_texts *texts)
{
    for (size_t i = 0; i < texts->block_count; i++)
        free(texts->blocks[i]);
    free(texts->blocks);
    free(texts->list);
    free(texts->table);
    *texts = (struct sl_texts){.list = NULL};
}
