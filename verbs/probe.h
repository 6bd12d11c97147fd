/* SPDX-License-Identifier: Apache-2.0 */
/* The probe operation of the verbs transport. */
#ifndef SL_VERBS_PROBE_H
#define SL_VERBS_PROBE_H

#include "core/transport.h"

/* Every port of every device, those that cannot be used with the reason; see sl_transport_ops. */
int sl_verbs_probe(const struct sl_config *config, struct sl_device *out, size_t cap,
                   size_t *count);

/* Where the port of that device sits: pci_path, numa_node, guid and port of out. */
void sl_verbs_facts(const char *device, int port, struct sl_device *out);

#endif
