/* SPDX-License-Identifier: Apache-2.0 */
/* A file of the profiler, which may be anybody's. Whatever it holds, what is printed is lines of
 * plain text, each an object, and no size it speaks of reaches beyond what was read. */
#include "core/err.h"
#include "tools/nccl/events_view.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_text(const char *text, size_t len)
{
    const char *end = text + len;

    while (text < end) {
        const char *line_end = memchr(text, '\n', (size_t)(end - text));

        sl_assert(line_end != NULL && text[0] == '{' && line_end[-1] == '}');
        for (const char *c = text; c < line_end; c++)
            sl_assert(*c >= ' ' && *c < 127);
        text = line_end + 1;
    }
}

static void print_all(const struct sl_nccl_events_copy *copy)
{
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);

    sl_assert(out != NULL);
    sl_nccl_events_print_head(copy, out);
    sl_nccl_events_print_ring(copy, out);
    sl_nccl_events_print_open(copy, UINT64_MAX / 2, out);
    sl_assert(fclose(out) == 0);
    check_text(text, len);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sl_nccl_events_copy copy;
    int fd = memfd_create("events", MFD_CLOEXEC);

    sl_assert(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    if (sl_nccl_events_read(fd, &copy) == 0) {
        print_all(&copy);
        sl_nccl_events_free(&copy);
    }
    close(fd);
    return 0;
}
