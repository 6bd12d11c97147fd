/* SPDX-License-Identifier: Apache-2.0 */
/* Fabrics from files: what ibnetdiscover prints. */
#ifndef SL_MONITOR_READ_FABRIC_H
#define SL_MONITOR_READ_FABRIC_H

#include "monitor/diagnosis/fabric.h"
#include "monitor/read/read.h"

bool sl_fabric_is(const char *head, size_t len);
/* Into an empty fabric, which is sealed then. -EBADMSG with a sentence that names file and line. */
int sl_fabric_read(struct sl_fabric *fabric, struct sl_read_in *in);
int sl_fabric_read_file(struct sl_fabric *fabric, const char *path);

#endif
