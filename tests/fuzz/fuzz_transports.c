/* SPDX-License-Identifier: Apache-2.0 */
/* SLUICE_TRANSPORT: what is found is what the names between the commas say, up to the first that is
 * no transport; `auto` stands for all that are registered. */
#include "collectives/comm.h"
#include "core/err.h"
#include "core/registry.h"
#include "tests/fuzz/text.h"

#include <strings.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* In their own order, each once. */
static void are_all_transports(const struct sl_transport_ops *const *ops, unsigned count)
{
    const struct sl_transport_ops *const *known = sl_transports();
    unsigned i = 0;

    for (; i < count && known[i] != NULL; i++)
        sl_assert(ops[i] == known[i]);
    sl_assert(i == count && known[i] == NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size);
    const struct sl_transport_ops *ops[SL_IFACES_MAX];
    const char *at = text;
    unsigned count = 0;
    int rc;

    if (text == NULL)
        return 0;
    rc = sl_transport_list(text, ops, SL_IFACES_MAX, &count);
    sl_assert(count <= SL_IFACES_MAX);
    sl_assert((rc == 0 && count > 0) || rc == -EINVAL || rc == -ENODEV);
    if (strcasecmp(text, "auto") == 0) {
        sl_assert(rc == 0);
        are_all_transports(ops, count);
        free(text);
        return 0;
    }
    for (unsigned i = 0; i < count; i++) {
        size_t len = strcspn(at, ",");

        sl_assert(ops[i] != NULL && strlen(ops[i]->name) == len &&
                  strncasecmp(ops[i]->name, at, len) == 0);
        at += len + (at[len] == ',');
    }
    /* All was read, unless there was more than fits, or a name of no transport. */
    sl_assert((rc == 0) == (*at == '\0' && count > 0));
    sl_assert(rc != -ENODEV || sl_transport_find(at, strcspn(at, ",")) == NULL);
    free(text);
    return 0;
}
