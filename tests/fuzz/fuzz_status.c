/* SPDX-License-Identifier: Apache-2.0 */
/* The page that another process says is its report: whatever it holds, what is printed is text. */
#include "collectives/status.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t page[8192];
    static char text[16384];
    char path[64];
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    FILE *out = fmemopen(text, sizeof(text), "w");

    sl_assert(fd >= 0 && out != NULL);
    memset(page, 'x', sizeof(page));
    memcpy(page, data, size < sizeof(page) ? size : sizeof(page));
    /* An odd first byte of more than a page's head makes the file whole, as short ones say
     * little. */
    if (size > 16 && data[size - 1] % 2 != 0)
        size = sizeof(page);
    sl_assert(write(fd, page, size < sizeof(page) ? size : sizeof(page)) >= 0);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    bool printed = sl_status_print_page(path, out);
    long len = ftell(out);

    fclose(out);
    close(fd);
    sl_assert(len >= 0 && len <= (long)sizeof(page) && (printed || len == 0));
    for (long i = 0; i < len; i++)
        sl_assert(text[i] == '\n' || ((unsigned char)text[i] >= 0x20 && text[i] != 0x7f));
    return 0;
}
