/* SPDX-License-Identifier: Apache-2.0 */
/* CRC32C (Castagnoli), the checksum of frames, on a wire and in files. */
#ifndef SL_CORE_CRC_H
#define SL_CORE_CRC_H

#include <stddef.h>
#include <stdint.h>

/* Continues crc over len bytes; a fresh sum starts from 0. By the CPU's instruction where it has
 * one. */
uint32_t sl_crc32c(uint32_t crc, const void *bytes, size_t len);

/* The same by tables alone: the fallback, and the reference of tests. */
uint32_t sl_crc32c_table(uint32_t crc, const void *bytes, size_t len);

#endif
