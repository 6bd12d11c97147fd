/* SPDX-License-Identifier: Apache-2.0 */
/* SLUICE_TRANSPORT: the names cover the list, without a comma in any, and put together are the
 * list; `auto` stands for all that are built in. */
#include <strings.h>

#include "collectives/connect.h"
#include "core/err.h"
#include "tests/fuzz/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* In their own order, each once. */
static void are_all_transports(const struct sl_name *names, unsigned count)
{
    const struct sl_transport_ops *const *known = sl_transports();
    unsigned i = 0;

    for (; i < count && known[i] != NULL; i++)
        sl_assert(sl_transport_find(names[i].text, names[i].len) == known[i]);
    sl_assert(i == count && known[i] == NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size);
    struct sl_name names[SL_IFACES_MAX];
    const char *at = text;
    unsigned count = 0;
    int rc;

    if (text == NULL)
        return 0;
    rc = sl_transport_names(text, names, SL_IFACES_MAX, &count);
    sl_assert(count <= SL_IFACES_MAX);
    sl_assert((rc == 0 && count > 0) || rc == -EINVAL);
    if (strcasecmp(text, "auto") == 0) {
        sl_assert(rc == 0);
        are_all_transports(names, count);
        free(text);
        return 0;
    }
    for (unsigned i = 0; i < count; i++) {
        sl_assert(names[i].text == at && memchr(at, ',', names[i].len) == NULL);
        (void)sl_transport_find(names[i].text, names[i].len);
        at += names[i].len;
        sl_assert(*at == ',' || *at == '\0');
        at += *at == ',';
    }
    /* All was read, unless there was more than fits. */
    sl_assert((rc == 0 || count == 0) == (*at == '\0') && (rc == 0 || count % SL_IFACES_MAX == 0));
    free(text);
    return 0;
}
