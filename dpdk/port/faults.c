/* SPDX-License-Identifier: Apache-2.0 */
/* Reads what faults are asked for. */
#include "core/clock.h"
#include "core/err.h"
#include "dpdk/port/inject.h"

#include <stdlib.h>
#include <string.h>

static bool read_share(const char *text, uint32_t *out)
{
    char *end;
    double share = strtod(text, &end);

    if (*text < '0' || *text > '9' || *end != '\0' || !(share >= 0 && share <= 1))
        return false;
    *out = share >= 1 ? UINT32_MAX : (uint32_t)(share * 4294967296.0);
    return true;
}

static bool read_count(const char *text, uint64_t most, uint64_t *out)
{
    char *end;

    if (*text < '0' || *text > '9' || strlen(text) > 18)
        return false;
    *out = strtoull(text, &end, 10);
    return *end == '\0' && *out <= most;
}

static bool read_fault(const char *key, const char *value, struct sl_dpdk_faults *out)
{
    struct {
        const char *key;
        uint32_t *share;
    } shares[] = {{"loss", &out->loss},
                  {"dup", &out->dup},
                  {"reorder", &out->reorder},
                  {"corrupt", &out->corrupt},
                  {"delay", &out->delay}};
    uint64_t number;

    for (size_t i = 0; i < SL_ARRAY_LEN(shares); i++) {
        if (strcmp(key, shares[i].key) == 0)
            return read_share(value, shares[i].share);
    }
    if (strcmp(key, "seed") == 0)
        return read_count(value, UINT64_MAX, &out->seed);
    if (strcmp(key, "delay_us") == 0 && read_count(value, 1000000, &number)) {
        out->delay_ns = number * 1000;
        return true;
    }
    if (strcmp(key, "port") == 0 && read_count(value, 65535, &number) && number > 0) {
        out->source_port = (uint16_t)number;
        return true;
    }
    return false;
}

int sl_dpdk_faults_parse(const char *text, struct sl_dpdk_faults *out)
{
    struct sl_dpdk_faults faults = {.delay_ns = 200000, .seed = 1};

    for (;;) {
        size_t len = strcspn(text, ",");
        char word[48], *equals;

        if (len >= sizeof(word))
            return sl_fail(-EINVAL, "SLUICE_DPDK_INJECT has a word of %zu bytes", len);
        memcpy(word, text, len);
        word[len] = '\0';
        equals = strchr(word, '=');
        if (equals != NULL)
            *equals = '\0';
        if (equals == NULL || !read_fault(word, equals + 1, &faults))
            return sl_fail(-EINVAL,
                           "'%.*s' in SLUICE_DPDK_INJECT is none of loss dup reorder corrupt delay "
                           "(=0 to 1), delay_us seed port (=number)",
                           (int)len, text);
        text += len;
        if (*text == '\0')
            break;
        text++;
    }
    *out = faults;
    return 0;
}
