/* SPDX-License-Identifier: Apache-2.0 */
/* Bundles of whatever origin: read, or refused
 * with a sentence. */
#include "core/err.h"
#include "monitor/cases/case.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The sums of what somebody changed, so that what is behind them is looked at. */
static char *with_sum(const uint8_t *data, size_t size, size_t *len)
{
    char *bytes = malloc(size + 80), sum[SL_DIGEST_TEXT];
    struct sl_digest digest;

    sl_assert(bytes != NULL);
    memcpy(bytes, data, size);
    sl_digest_begin(&digest);
    sl_digest_add(&digest, data, size);
    sl_digest_end(&digest, sum);
    *len = size + (size_t)snprintf(bytes + size, 80, "end %s\n", sum);
    return bytes;
}

static void check(const char *bytes, size_t len)
{
    struct sl_case it;
    int err = sl_case_parse("bundle", bytes, len, &it);

    sl_assert(err == 0 || err == -EBADMSG);
    sl_assert(err == 0 || sluice_last_error()[0] != '\0');
    if (err != 0)
        return;
    sl_assert(it.inputs != NULL && it.result != NULL && it.result_len == strlen(it.result));
    sl_case_free(&it);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *bytes;
    size_t len;

    check((const char *)data, size);
    bytes = with_sum(data, size, &len);
    check(bytes, len);
    free(bytes);
    return 0;
}
