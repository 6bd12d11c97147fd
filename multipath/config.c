/* SPDX-License-Identifier: Apache-2.0 */
/* From variables to the protocol's settings. */
#include "multipath/config.h"

#include "multipath/message.h"

#define CHUNKS_MIN 4
#define CHUNKS_MAX 65534 /* SL_MP_NO_CHUNK is none of them */

struct sl_mp_settings sl_mp_settings_of(const struct sl_mp_config *own, int64_t connect_timeout_ms,
                                        uint16_t magic)
{
    return (struct sl_mp_settings){
        .connect_timeout_ms = connect_timeout_ms,
        .path_wait_ms = own->path_wait_ms,
        .piece_bytes = own->piece_bytes,
        .fallback = own->fallback == SL_MP_FALLBACK_TCP,
        .listed = !sl_path_list_auto(own->paths),
        .lazy = own->lazy != SL_OFF,
        .standby = own->lazy == SL_AUTO,
        .reserve = own->reserve == SL_ON,
        .magic = magic,
    };
}

/* Half of them for each direction. */
unsigned sl_mp_chunks_of(const struct sl_mp_config *own)
{
    unsigned chunks = (unsigned)(own->staging_bytes / SL_MP_CHUNK_BYTES);

    return chunks < CHUNKS_MIN ? CHUNKS_MIN : chunks > CHUNKS_MAX ? CHUNKS_MAX : chunks & ~1u;
}
