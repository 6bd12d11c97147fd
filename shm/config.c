/* SPDX-License-Identifier: Apache-2.0 */
/* Variables of shared memory: SLUICE_SHM_*. */
#include "shm/config.h"

#include "core/err.h"

#define AT(field) offsetof(struct sl_shm_config, field)
#define SHM_LEAST (8 * SL_KIB) /* a page for each half */

static const struct sl_config_row rows[] = {
    SL_ROW_BYTES_OR_0("SHM_RING_BYTES", ring_bytes, "0", SHM_LEAST, SL_GIB,
                      "Ring of a pair of ranks in shared memory, each way. 0: by number of ranks."),
    SL_ROW_SWITCH(
        "SHM_READ", read, "auto",
        "Read peers' memory by process_vm_readv: auto (where a trial read works and measures "
        "better), on, off."),
};

struct sl_config_section sl_shm_section = {.area = "SHM",
                                           .rows = rows,
                                           .row_count = SL_ARRAY_LEN(rows),
                                           .size = sizeof(struct sl_shm_config)};
