/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of the list of ports that only its parser uses: ports.c, mesh.c, words.c. */
#ifndef SL_DPDK_PORT_SPEC_H
#define SL_DPDK_PORT_SPEC_H

#include "dpdk/port/ports.h"

#include <stddef.h>

/* local_count while a list is only looked at: as many ranks as it needs. */
#define SL_DPDK_COUNT_ANY (-1)

/* One port of the list while it is read. */
struct sl_dpdk_entry {
    char device[SL_DPDK_ARGS_MAX]; /* before the first '@' */
    struct sl_dpdk_spec options;   /* ip, gateway, prefix, mtu, segment */
    int rank, ranks;               /* of a mesh; negative: not given */
};

/* Copies one word of the list with %l and %r replaced. -EINVAL. */
int sl_dpdk_word_expand(const char *word, size_t len, const struct sl_dpdk_port_settings *settings,
                        char *out, size_t cap);
/* The options behind the device. -EINVAL. */
int sl_dpdk_word_split(const char *word, struct sl_dpdk_entry *out);

/* The ports of a mesh: device is "mesh:DIR". */
int sl_dpdk_mesh_expand(const struct sl_dpdk_entry *entry,
                        const struct sl_dpdk_port_settings *settings, struct sl_dpdk_spec *out,
                        size_t cap, size_t *count);

/* Arguments that memif needs here, where they are not given: a buffer that takes a whole frame, and
 * a socket that lies in the file system. least: bytes of a buffer, whatever the MTU. */
int sl_dpdk_memif_defaults(struct sl_dpdk_spec *spec, uint32_t least);

#endif
