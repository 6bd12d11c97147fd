/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/page_look.h"

#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#define CHUNK (16u * 1024) /* that is read at once */
#define RECORD_MAX 1024    /* of those that are taken */

static bool read_all(int fd, void *out, size_t bytes, uint64_t at)
{
    return pread(fd, out, bytes, (off_t)at) == (ssize_t)bytes;
}

/*
 * Many records at once: they are read twice, and those that are the same both times, with an even
 * turn, are whole. For if the first reading had met a word of a change, the second one, behind the
 * fence, meets the odd turn that was stored before that word, or what came after it.
 */
static bool take_all(const struct sl_state_section *section, const struct sl_mon_look *look,
                     const uint64_t *first, const uint64_t *second, uint32_t place, uint32_t count)
{
    size_t words = section->record_bytes / 8;
    size_t known = section->record_bytes < look->bytes ? section->record_bytes : look->bytes;
    uint64_t record[RECORD_MAX / 8];

    for (uint32_t i = 0; i < count; i++, first += words, second += words) {
        const struct sl_mon_glance at = {.turn = first[0], .number = first[1]};

        if (at.turn == 0 || at.turn % 2 != 0 || !look->wants(look->arg, place + i, &at) ||
            memcmp(first, second, known) != 0)
            continue;
        memset(record, 0, look->bytes);
        memcpy(record, first, known);
        if (!look->take(look->arg, place + i, record))
            return false;
    }
    return true;
}

/* From the first record that is wanted to the last one; false: none is. */
static bool span_of(const struct sl_state_section *section, const struct sl_mon_look *look,
                    const uint64_t *words, uint32_t place, uint32_t count, uint32_t *first,
                    uint32_t *last)
{
    bool any = false;

    for (uint32_t i = 0; i < count; i++, words += section->record_bytes / 8) {
        const struct sl_mon_glance at = {.turn = words[0], .number = words[1]};

        if (at.turn == 0 || !look->wants(look->arg, place + i, &at))
            continue;
        *first = any ? *first : i;
        *last = i;
        any = true;
    }
    return any;
}

uint32_t sl_mon_look(const struct sl_state_reader *reader, enum sl_state_kind kind, uint32_t first,
                     uint32_t most, const struct sl_mon_look *look)
{
    uint64_t once[CHUNK / 8], twice[CHUNK / 8];
    struct sl_state_section section;

    if (!sl_state_find(reader, kind, &section) || first >= section.count)
        return first;
    uint32_t end = section.count - first < most ? section.count : first + most;
    uint32_t step = CHUNK / section.record_bytes, words = section.record_bytes / 8, count;

    for (uint32_t place = first; place < end; place += count) {
        uint64_t at = section.offset + (uint64_t)place * section.record_bytes;
        uint32_t from, to;

        count = end - place < step ? end - place : step;
        if (!read_all(reader->fd, once, (size_t)count * section.record_bytes, at))
            return place;
        atomic_thread_fence(memory_order_acquire);
        if (!span_of(&section, look, once, place, count, &from, &to) || look->take == NULL)
            continue;
        if (!read_all(reader->fd, twice, (size_t)(to - from + 1) * section.record_bytes,
                      at + (uint64_t)from * section.record_bytes) ||
            !take_all(&section, look, &once[(size_t)from * words], twice, place + from,
                      to - from + 1))
            return place;
    }
    return end;
}
