/* SPDX-License-Identifier: Apache-2.0 */
/** All of Sluice's public interface. */
#ifndef SLUICE_SLUICE_H
#define SLUICE_SLUICE_H

#include <sluice/buffer.h>
#include <sluice/comm.h>
#include <sluice/compress.h>
#include <sluice/error.h>
#include <sluice/operation.h>
#include <sluice/paths.h>
#include <sluice/types.h>

#endif
