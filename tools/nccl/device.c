/* SPDX-License-Identifier: Apache-2.0 */
/* The devices that NCCL may choose from, with their properties. */
#include "tools/nccl/adapt.h"

#include "core/log.h"
#include "core/registry.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define SPEED_UNKNOWN_MBIT 10000 /* as NCCL itself assumes */

static struct sl_nccl_device make(const struct sl_transport_ops *ops, const struct sl_device *found,
                                  unsigned idx)
{
    uint64_t mbit = found->speed / 125000;

    return (struct sl_nccl_device){
        .found = *found,
        .ops = ops,
        .port = found->port > 0 ? found->port : 1,
        .guid = found->guid != 0 ? found->guid : idx + 1, /* equal ones are taken for one chip */
        .speed_mbit = mbit == 0        ? SPEED_UNKNOWN_MBIT
                      : mbit > INT_MAX ? INT_MAX
                                       : (int)mbit,
    };
}

static bool leads_out(const struct sl_device *dev)
{
    return dev->why[0] == '\0' && dev->reach == SL_REACH_NETWORK;
}

/* One that reaches no other host is a device only where there is no other, or on request. */
static bool wanted(const struct sl_config *config, const struct sl_device *dev, bool others)
{
    return dev->why[0] == '\0' &&
           (!others || leads_out(dev) || strstr(config->interface, dev->name) != NULL);
}

static int find_of(const struct sl_config *config, const struct sl_transport_ops *ops,
                   struct sl_nccl_device_list *out)
{
    struct sl_device *found = calloc(SL_NCCL_DEVICES_MAX, sizeof(*found));
    size_t count = 0;
    bool others = false;
    int err;

    if (found == NULL)
        return sl_fail(-ENOMEM, "no memory to list devices");
    err = ops->probe(config, found, SL_NCCL_DEVICES_MAX, &count);
    if (err != 0)
        count = 0;
    if (count > SL_NCCL_DEVICES_MAX)
        count = SL_NCCL_DEVICES_MAX;
    for (size_t i = 0; i < count; i++)
        others |= leads_out(&found[i]);
    for (size_t i = 0; i < count; i++)
        if (wanted(config, &found[i], others)) {
            out->items[out->count] = make(ops, &found[i], out->count);
            out->count++;
        }
    free(found);
    return err;
}

int sl_nccl_devices_find(const struct sl_config *config, struct sl_nccl_device_list *out)
{
    const struct sl_transport_ops *list[SL_TRANSPORTS_MAX], *local = NULL;
    char why[SL_ERROR_TEXT_MAX] = "";
    unsigned count;
    int err = sl_transport_list(config->transport, list, SL_TRANSPORTS_MAX, &count);

    out->count = 0;
    if (err != 0)
        return err;
    for (unsigned i = 0; i < count && out->count == 0; i++) {
        if ((list[i]->traits & SL_TRAIT_LOCAL) != 0)
            local = list[i];
        else if (find_of(config, list[i], out) != 0)
            sl_text_add(why, sizeof(why), "; %s: %s", list[i]->name, sluice_last_error());
    }
    /* Memory is no way to another host: it is a device of its own only where nothing else is
     * allowed. */
    if (out->count == 0 && local != NULL)
        find_of(config, local, out);
    if (out->count == 0)
        return sl_fail(-ENODEV, "there is no device for NCCL among the transports '%s'%s",
                       config->transport, why);
    for (unsigned i = 0; i < out->count; i++) {
        const struct sl_nccl_device *dev = &out->items[i];

        sl_info("nccl", "device %u: %s %s, %d Mbit/s, port %d, GUID %016llx, %s", i, dev->ops->name,
                dev->found.name, dev->speed_mbit, dev->port, (unsigned long long)dev->guid,
                dev->found.pci_path[0] != '\0' ? dev->found.pci_path : "virtual");
    }
    return 0;
}
