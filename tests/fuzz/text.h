/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzed bytes as a text of their own, exactly as long as they are, so that a read past it is
 * seen. */
#ifndef SL_TESTS_FUZZ_TEXT_H
#define SL_TESTS_FUZZ_TEXT_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Owned by the caller; NULL: no memory. (strndup() would read the byte after the data under the
 * address sanitizer.) */
static inline char *fuzz_text(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);

    if (text == NULL)
        return NULL;
    memcpy(text, data, size);
    text[size] = '\0';
    return text;
}

#endif
