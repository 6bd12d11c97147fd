/* SPDX-License-Identifier: Apache-2.0 */
/* Codecs as the engine takes them. */
#ifndef SL_LIB_COMPRESS_H
#define SL_LIB_COMPRESS_H

#include "collectives/code.h"

/* Of a setting such as "bq8:min=1M"; NULL or "": *out is NULL. The caller is its first user.
 * -EINVAL with a sentence; -ENOMEM. */
int sl_compression_create(const char *text, struct sl_coding **out);

/* A codec by the number that marks have; NULL: there is none. */
const char *sl_compression_name(uint32_t number);

/* For those who call on memory of their own, with a copy of what the user has at buffer: feedback
 * of the calls on comm from now on is that of buffer. NULL: of the memory that calls lend. */
void sl_compression_of(struct sluice_comm *comm, const void *buffer);

/* -EINVAL for NULL; as sl_check_process(). */
int sl_check_operation(const struct sluice_operation *operation);

/* Logs what a setting came to. Takes NULL. */
void sl_compression_log(struct sl_coding *coding);

#endif
