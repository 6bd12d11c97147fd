/* SPDX-License-Identifier: Apache-2.0 */
/* State pages of fuzzed content: a sound image, over which an input is laid as bytes: a place of
 * two bytes in words of eight, a length, and the bytes. */
#ifndef SL_TESTS_FUZZ_PAGE_H
#define SL_TESTS_FUZZ_PAGE_H

#include "core/state.h"

#include <stddef.h>
#include <string.h>

static inline struct sl_state_section fuzz_section(uint32_t kind, size_t bytes, uint32_t count,
                                                   size_t at)
{
    return (struct sl_state_section){
        .kind = kind, .record_bytes = (uint32_t)bytes, .count = count, .offset = at};
}

/* The array `member` of struct image. */
#define FUZZ_ROWS(kind, member)                                                                    \
    fuzz_section(kind, sizeof(((struct image *)0)->member[0]),                                     \
                 sizeof(((struct image *)0)->member) / sizeof(((struct image *)0)->member[0]),     \
                 offsetof(struct image, member))

/* sections: where the table lies in the image, behind the header. */
static inline void fuzz_header(struct sl_state_header *header, size_t sections, size_t count,
                               size_t bytes)
{
    memcpy(header->magic, SL_STATE_MAGIC, 8);
    header->version = SL_STATE_VERSION;
    header->header_bytes = (uint32_t)sections;
    header->section_bytes = sizeof(struct sl_state_section);
    header->section_count = (uint32_t)count;
    header->file_bytes = bytes;
}

static inline void fuzz_lay(void *image, size_t bytes, const uint8_t *data, size_t size)
{
    size_t at = 0;

    while (size - at > 3) {
        size_t place = (size_t)(data[at] | data[at + 1] << 8) * 8, len = data[at + 2] % 32 + 1;

        at += 3;
        if (len > size - at)
            len = size - at;
        if (place < bytes && len <= bytes - place)
            memcpy((char *)image + place, data + at, len);
        at += len;
    }
}

#endif
