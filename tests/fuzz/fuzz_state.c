/* SPDX-License-Identifier: Apache-2.0 */
/* The state page of another process: whatever it holds, nothing outside of it is read, what is
 * printed is lines of text, and JSON is one object of plain characters. */
#include "core/err.h"
#include "core/state_text.h"
#include "tools/bench/status.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool check_line(void *arg, const char *text, size_t len)
{
    unsigned *lines = arg;

    sl_assert(len > 0 && len <= SL_STATE_LINE && text[len - 1] == '\n' && ++*lines < 20000);
    for (size_t i = 0; i + 1 < len; i++)
        sl_assert((unsigned char)text[i] >= 0x20 && text[i] != 0x7f);
    return true;
}

static void read_all(const struct sl_state_reader *reader)
{
    unsigned lines = 0;
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);

    sl_assert(out != NULL);
    sl_state_text_all(reader, true, UINT64_MAX / 2, check_line, &lines);
    sb_status_json(reader, false, out);
    sl_assert(fclose(out) == 0 && len > 2 && text[0] == '{' && text[len - 1] == '}');
    for (size_t i = 0; i < len; i++)
        sl_assert(text[i] == '\n' || (text[i] >= ' ' && text[i] < 127));
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sl_state_reader reader;
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    void *page = malloc(size > 0 ? size : 1); /* to the byte: the address sanitizer sees more */

    sl_assert(fd >= 0 && page != NULL && write(fd, data, size) == (ssize_t)size);
    if (sl_state_read_fd(fd, &reader) == 0)
        read_all(&reader);
    close(fd);
    memcpy(page, data, size);
    if (sl_state_read_memory(page, size, &reader) == 0)
        read_all(&reader);
    free(page);
    return 0;
}
