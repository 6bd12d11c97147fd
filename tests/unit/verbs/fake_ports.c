/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of that table. */
#include "tests/unit/verbs/fake_ports.h"

#include "core/err.h"

#include <arpa/inet.h>
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fake_device fake_devices[FAKE_DEVICES_MAX];
int fake_device_count;
unsigned fake_lists_open;

bool fake_limit_counts;

static struct sl_ibv table;

/* Put before the real one by the linker. */
bool __real_sl_verbs_memlock_fits(uint64_t more, char *why, size_t cap);
bool __wrap_sl_verbs_memlock_fits(uint64_t more, char *why, size_t cap);

bool __wrap_sl_verbs_memlock_fits(uint64_t more, char *why, size_t cap)
{
    return !fake_limit_counts || __real_sl_verbs_memlock_fits(more, why, cap);
}

static struct fake_device *of_context(struct ibv_context *context)
{
    return sl_container_of(context, struct fake_device, context);
}

static struct ibv_device **get_list(int *count)
{
    struct ibv_device **list = calloc(FAKE_DEVICES_MAX + 1, sizeof(*list));

    sl_assert(list != NULL);
    for (int i = 0; i < fake_device_count; i++)
        list[i] = &fake_devices[i].device;
    *count = fake_device_count;
    fake_lists_open++;
    return list;
}

static void free_list(struct ibv_device **list)
{
    fake_lists_open--;
    free(list);
}

static const char *get_name(struct ibv_device *device)
{
    return device->name;
}

static struct ibv_context *open_device(struct ibv_device *device)
{
    struct fake_device *fake = (struct fake_device *)device;

    if (fake->open_error != 0) {
        errno = fake->open_error;
        return NULL;
    }
    fake->open_count++;
    fake->context.device = device;
    return &fake->context;
}

static int close_device(struct ibv_context *context)
{
    of_context(context)->open_count--;
    return 0;
}

static int query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
    attr->phys_port_cnt = of_context(context)->port_count;
    return 0;
}

static int query_port(struct ibv_context *context, uint8_t num, struct _compat_ibv_port_attr *attr)
{
    const struct fake_port *port = &of_context(context)->ports[num - 1];

    sl_assert(num >= 1 && num <= of_context(context)->port_count);
    if (port->query_error != 0)
        return port->query_error;
    /* As the real one: it stops before the fields that were added last. */
    memcpy(attr, &port->attr, offsetof(struct ibv_port_attr, port_cap_flags2));
    return 0;
}

static int query_gid(struct ibv_context *context, uint8_t num, int index, union ibv_gid *gid)
{
    const struct fake_port *port = &of_context(context)->ports[num - 1];

    if (index >= port->attr.gid_tbl_len)
        return -1;
    memset(gid, 0, sizeof(*gid)); /* an empty entry is there, and zero */
    if (index < FAKE_GIDS_MAX)
        *gid = port->gids[index].gid;
    return 0;
}

static int query_pkey(struct ibv_context *context, uint8_t num, int index, __be16 *key)
{
    const struct fake_port *port = &of_context(context)->ports[num - 1];

    if (index >= port->attr.pkey_tbl_len)
        return -1;
    *key = htobe16(port->pkeys[index]);
    return 0;
}

static int query_gid_ex(struct ibv_context *context, uint32_t num, uint32_t index,
                        struct ibv_gid_entry *entry, uint32_t flags, size_t entry_size)
{
    static const union ibv_gid none;
    const struct fake_port *port = &of_context(context)->ports[num - 1];

    sl_assert(entry_size == sizeof(*entry) && flags == 0);
    if (index >= FAKE_GIDS_MAX || memcmp(&port->gids[index].gid, &none, sizeof(none)) == 0)
        return ENODATA;
    *entry = port->gids[index];
    return 0;
}

void fake_ports_start(bool without_ex)
{
    memset(fake_devices, 0, sizeof(fake_devices));
    fake_device_count = 0;
    fake_lists_open = 0;
    fake_limit_counts = false;
    table = (struct sl_ibv){
        .ibv_get_device_list = get_list,
        .ibv_free_device_list = free_list,
        .ibv_get_device_name = get_name,
        .ibv_open_device = open_device,
        .ibv_close_device = close_device,
        .ibv_query_device = query_device,
        .ibv_query_port = query_port,
        .ibv_query_gid = query_gid,
        .ibv_query_pkey = query_pkey,
        ._ibv_query_gid_ex = without_ex ? NULL : query_gid_ex,
    };
    sl_ibv_replace(&table, NULL);
}

struct fake_device *fake_device_add(const char *name)
{
    struct fake_device *fake = &fake_devices[fake_device_count];

    sl_assert(fake_device_count < FAKE_DEVICES_MAX);
    fake->device.node_type = IBV_NODE_CA;
    snprintf(fake->device.name, sizeof(fake->device.name), "%s", name);
    snprintf(fake->device.dev_name, sizeof(fake->device.dev_name), "uverbs9%d", fake_device_count);
    fake->context.device = &fake->device;
    fake->port_count = 1;
    for (int i = 0; i < FAKE_PORTS_MAX; i++) {
        fake->ports[i].pkeys[0] = 0xffff;
        fake->ports[i].attr = (struct ibv_port_attr){.state = IBV_PORT_ACTIVE,
                                                     .active_mtu = IBV_MTU_4096,
                                                     .gid_tbl_len = 16,
                                                     .pkey_tbl_len = FAKE_PKEYS_MAX,
                                                     .active_width = 2,
                                                     .active_speed = 32,
                                                     .link_layer = IBV_LINK_LAYER_ETHERNET};
    }
    fake_device_count++;
    return fake;
}

void fake_gid_set(struct fake_port *port, unsigned index, enum ibv_gid_type type,
                  const char *address)
{
    struct ibv_gid_entry *entry = &port->gids[index];

    memset(entry, 0, sizeof(*entry));
    entry->gid_index = index;
    entry->gid_type = type;
    if (strchr(address, ':') != NULL) {
        sl_assert(inet_pton(AF_INET6, address, entry->gid.raw) == 1);
    } else {
        entry->gid.raw[10] = entry->gid.raw[11] = 0xff;
        sl_assert(inet_pton(AF_INET, address, entry->gid.raw + 12) == 1);
    }
}
