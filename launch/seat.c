/* SPDX-License-Identifier: Apache-2.0 */
/* Opens seats, and carries them as bytes: the unix socket's number (8), then, where the seat is on
 * the network, the card of a meeting place (256). */
#include "launch/seat.h"

#include "core/err.h"
#include "core/log.h"
#include "launch/wire.h"

#include <unistd.h>

int sl_seat_open(struct sl_seat *seat, struct sl_listeners *out)
{
    char name[SL_NEARBY_NAME_MAX];
    int err = sl_random(&seat->id, sizeof(seat->id));

    seat->network = false;
    *out = (struct sl_listeners){.loopback = true};
    if (err != 0)
        return err;
    sl_nearby_seat_name(seat->id, name);
    out->has_nearby = seat->id != 0 && sl_nearby_listen(name, &out->nearby) == 0;
    if (!out->has_nearby) {
        sl_debug("launch", "%s", sluice_last_error());
        seat->id = 0;
    }
    return 0;
}

int sl_seat_open_network(const struct sl_config *config, struct sl_seat *seat,
                         struct sl_listeners *out)
{
    int err = sl_card_make(config, false, &seat->card);

    err = err ?: sl_listen_any(config->port_range, &seat->card, out);
    if (err != 0)
        return err;
    /* The seat has a unix socket of its own, and children prove themselves by the job's key. */
    if (out->has_nearby)
        close(out->nearby);
    out->has_nearby = false;
    memset(seat->card.secret, '0', sizeof(seat->card.secret) - 1);
    seat->network = true;
    return 0;
}

size_t sl_seat_pack(const struct sl_seat *seat, uint8_t out[SL_SEAT_BYTES])
{
    struct sluice_unique_id id;

    sl_put(out, seat->id, 8);
    if (!seat->network)
        return 8;
    sl_card_pack(&seat->card, &id);
    memcpy(out + 8, id.bytes, sizeof(id.bytes));
    return SL_SEAT_BYTES;
}

int sl_seat_unpack(const uint8_t *bytes, size_t len, struct sl_seat *out)
{
    struct sluice_unique_id id;
    struct sl_seat seat = {.network = len == SL_SEAT_BYTES};
    int err = 0;

    if (len != 8 && len != SL_SEAT_BYTES)
        return sl_fail(-EINVAL, "a seat has %zu bytes", len);
    seat.id = sl_get64(bytes);
    if (seat.network) {
        memcpy(id.bytes, bytes + 8, sizeof(id.bytes));
        err = sl_card_unpack(&id, &seat.card);
    }
    if (err == 0)
        *out = seat;
    return err;
}
