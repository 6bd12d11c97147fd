/* SPDX-License-Identifier: Apache-2.0 */
/* What anybody asks of the agent's API: a method, a target and an Accept header, between line ends.
 * What is taken is within its bounds, and its texts end and have nothing to move a terminal by;
 * what is refused says why. */
#include "core/err.h"
#include "monitor/api_request.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_text(const char *text, size_t cap)
{
    sl_assert(strnlen(text, cap) < cap);
    for (; *text != '\0'; text++)
        sl_assert(*text >= ' ' && *text <= '~');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sl_api_request request;
    char *text = malloc(size + 1), *method = text, *target, *accept;

    if (text == NULL)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    target = method + strcspn(method, "\n");
    if (*target != '\0')
        *target++ = '\0';
    accept = target + strcspn(target, "\n");
    if (*accept != '\0')
        *accept++ = '\0';
    sl_api_parse(method, target, &request);
    check_text(request.subject, sizeof(request.subject));
    check_text(request.name, sizeof(request.name));
    check_text(request.by, sizeof(request.by));
    check_text(request.probe.to, sizeof(request.probe.to));
    check_text(request.probe.from, sizeof(request.probe.from));
    check_text(request.probe.rail, sizeof(request.probe.rail));
    sl_assert(strnlen(request.why, sizeof(request.why)) < sizeof(request.why));
    sl_assert((request.status == 200) == (request.why[0] == '\0'));
    if (request.status == 200) {
        sl_assert(request.limit >= 1 && request.limit <= SL_API_LIMIT_MAX);
        sl_assert(request.wait_s <= SL_API_WAIT_MAX && request.since <= INT64_MAX);
        sl_assert(request.kind < SL_MON_KINDS);
        sl_assert(request.is_write == (strcmp(method, "POST") == 0));
        sl_assert(request.what != SL_API_ACK || request.id > 0);
        sl_assert(request.probe.count > 0 && request.probe.gap_us > 0 && request.probe.bytes > 0);
        sl_assert(request.what != SL_API_CLEAR || request.subject[0] != '\0');
    }
    (void)sl_api_wants_openmetrics(accept);
    free(text);
    return 0;
}
