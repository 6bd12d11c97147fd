/* SPDX-License-Identifier: Apache-2.0 */
/* A transport in a module, which can do nothing but say so; or, with OF_ANOTHER_SLUICE, one that
 * was built for another version. */
#include "core/config.h"
#include "core/err.h"
#include "core/log.h"
#include "core/module.h"
#include "core/transport.h"

struct pigeon_config {
    int64_t wings;
};

#define AT(field) offsetof(struct pigeon_config, field)
static const struct sl_config_row rows[] = {
    SL_ROW_INT("PIGEON_WINGS", wings, "2", "", 0, 9, "How many it has.")};
static struct sl_config_section section = {
    .area = "PIGEON", .rows = rows, .row_count = 1, .size = sizeof(struct pigeon_config)};

static int probe(const struct sl_config *config, struct sl_device *out, size_t cap, size_t *count)
{
    const struct pigeon_config *own = sl_config_part(config, &section);

    (void)out, (void)cap, (void)count;
    sl_warn("pigeon", "it has %lld wings", (long long)own->wings);
    return sl_fail(-ENODEV, "a pigeon with %lld wings", (long long)own->wings);
}

static const struct sl_transport_ops pigeon_ops = {.abi = SL_TRANSPORT_ABI,
                                                   .name = "pigeon",
                                                   .number = 20,
                                                   .place = 50,
                                                   .config = &section,
                                                   .probe = probe};

#ifdef OF_ANOTHER_SLUICE
#undef SL_TRANSPORT_ABI
#define SL_TRANSPORT_ABI 1000
#endif
SL_MODULE(pigeon_ops)
