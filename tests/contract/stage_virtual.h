/* SPDX-License-Identifier: Apache-2.0 */
/* What stages in virtual time share: the loop, which is their clock and takes the sideband's place,
 * and a worker with settings of its own for each end. It has stage_worker(), stage_idle() and
 * stage_now(); the stage itself has the rest of stage.h. */
#ifndef SL_TESTS_CONTRACT_STAGE_VIRTUAL_H
#define SL_TESTS_CONTRACT_STAGE_VIRTUAL_H

#include "core/config.h"
#include "tests/contract/stage.h"
#include "tests/fake/loop.h"

#include <stdint.h>

extern struct loop *stage_loop; /* NULL before the first case */
extern struct sl_config stage_config[STAGE_WORKERS];

/* After a case: nothing may be left of it, nor have been misused. Nothing before the first. */
void stage_virtual_check(void);
/* Of the next case. eagain_in: as loop_weather() has it. */
void stage_virtual_reset(uint32_t eagain_in);

#endif
