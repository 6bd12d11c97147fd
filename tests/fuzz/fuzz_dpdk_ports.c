/* SPDX-License-Identifier: Apache-2.0 */
/* SLUICE_DPDK_PORTS and SLUICE_DPDK_INJECT. */
#include "core/err.h"
#include "dpdk/port/inject.h"
#include "dpdk/port/ports.h"
#include "tests/fuzz/text.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct sl_dpdk_spec *spec)
{
    char text[SL_DPDK_ARGS_MAX];

    sl_assert(spec->name[0] != '\0' && strlen(spec->name) < sizeof(spec->name));
    sl_assert(strlen(spec->args) < sizeof(spec->args));
    sl_assert(strpbrk(spec->name, " ,@%") == NULL && strpbrk(spec->args, " @") == NULL);
    sl_assert(strlen(spec->segment) < sizeof(spec->segment) && spec->prefix <= 32);
    sl_assert(spec->prefix6 <= 128 && spec->ip6[0] != 0xff && spec->gateway6[0] != 0xff);
    sl_assert((spec->prefix6 != 0) == (memcmp(spec->ip6, (const uint8_t[16]){0}, 16) != 0));
    sl_assert(spec->mtu == 0 || (spec->mtu >= SL_DPDK_MTU_LEAST && spec->mtu <= SL_DPDK_MTU_MOST));
    if (strncmp(spec->name, "net_memif", 9) == 0)
        sl_assert(sl_dpdk_arg(spec->args, "bsize", text, sizeof(text)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sl_dpdk_spec specs[SL_DPDK_PORTS_MAX];
    struct sl_dpdk_faults faults;
    char *list = fuzz_text(data, size);
    struct sl_dpdk_port_settings settings = {
        .list = list, .rank = 3, .local_rank = 1, .local_count = 3};
    size_t count = 0;

    if (list == NULL)
        return 0;
    if (sl_dpdk_specs_parse(&settings, specs, SL_DPDK_PORTS_MAX, &count) == 0) {
        sl_assert(count <= SL_DPDK_PORTS_MAX);
        for (size_t i = 0; i < count; i++)
            check(&specs[i]);
    }
    if (sl_dpdk_faults_parse(list, &faults) == 0)
        sl_assert(faults.delay_ns <= 1000000000);
    free(list);
    return 0;
}
