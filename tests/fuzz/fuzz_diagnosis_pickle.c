/* SPDX-License-Identifier: Apache-2.0 */
/* A pickle of whatever origin: it becomes plain values, or it is refused with its byte. */
#include "core/err.h"
#include "monitor/read/pickle.h"

#include <errno.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct bytes {
    struct sl_read_in in;
    const uint8_t *at;
    size_t left;
};

/* A few at a time, so that values go over the end of what is there. */
static long more(struct sl_read_in *in, void *buffer, size_t cap)
{
    struct bytes *bytes = (struct bytes *)in;
    size_t len = bytes->left < 7 ? bytes->left : 7;

    len = len < cap ? len : cap;
    if (len > 0)
        memcpy(buffer, bytes->at, len);
    bytes->at += len;
    bytes->left -= len;
    return (long)len;
}

/* Every value and every member is one. */
static void look(const struct sl_values *values)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < values->count; i++) {
        uint32_t link = 0, member, count = 0;
        const char *text;
        size_t len;

        text = sl_value_text(values, i, &len);
        for (size_t k = 0; text != NULL && k < len; k++)
            sum += (unsigned char)text[k];
        while (count <= values->link_count && sl_value_next(values, i, &link, &member)) {
            sl_assert(member < values->count);
            count++;
        }
        sl_value_get(values, i, "entries");
    }
    sl_assert(sum < UINT64_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes bytes = {.in = {.name = "pickle", .more = more}, .at = data, .left = size};
    struct sl_values values = {.list = NULL};
    uint32_t root = SL_VALUE_NONE;
    int err = sl_pickle_read(&bytes.in, &values, &root);

    sl_assert(err == 0 || err == -EBADMSG || err == -ENOMEM);
    sl_assert(err == 0 || sluice_last_error()[0] != '\0');
    sl_assert(err != 0 || root < values.count);
    sl_assert(values.count <= size + 1 && values.link_count <= size * 2 + 1);
    look(&values);
    sl_values_fini(&values);
    return 0;
}
