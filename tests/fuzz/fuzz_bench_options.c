/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of sluice-bench: words end with a line end each. Refused with a sentence, or a
 * sweep that ends. */
#include "options.h"

#include "core/err.h"

#include <stdlib.h>
#include <string.h>

#define WORDS 24

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char name[] = "sluice-bench";
    char *text = malloc(size + 1), *argv[WORDS + 2] = {name}, *rest = text, *word;
    struct sb_options options;
    int argc = 1;

    sl_assert(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    while (argc <= WORDS && (word = strsep(&rest, "\n")) != NULL)
        argv[argc++] = word;
    sb_options_init(&options);
    if (sb_options_parse(&options, argc, argv) != 0) {
        sl_assert(sluice_last_error()[0] != '\0');
    } else if (options.mode == SB_RUN) {
        uint64_t bytes = options.min_bytes;

        for (unsigned n = 0; n < 10000 && bytes != 0; n++) {
            uint64_t next = sb_options_next_size(&options, bytes);

            sl_assert(next == 0 || next > bytes);
            sl_assert(next <= options.max_bytes);
            bytes = next;
        }
    }
    free(text);
    return 0;
}
