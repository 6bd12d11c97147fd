/* SPDX-License-Identifier: Apache-2.0 */
/* Records of a verbs peer: what is accepted names only rails, queue pairs and MTUs that there can
 * be, and is accepted again as it was. */
#include "core/err.h"
#include "multipath/control.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_rail(const struct sl_verbs_rail_info *rail)
{
    sl_assert(rail->mtu >= IBV_MTU_256 && rail->mtu <= IBV_MTU_4096);
}

static void check(const struct sl_mp_control *record)
{
    switch ((enum sl_mp_control_kind)record->kind) {
    case SL_MP_CONTROL_CALLER: sl_assert(record->epoch <= SL_CTRL_MAX); break;
    case SL_MP_CONTROL_HELLO:
        sl_assert(record->hello.version == SL_MP_VERSION && record->hello.rail_count >= 1 &&
                  record->hello.rail_count <= SL_MP_RAILS_MAX);
        for (unsigned i = 0; i < record->hello.rail_count; i++)
            if (record->hello.rails[i].usable)
                check_rail(&record->hello.rails[i]);
        break;
    case SL_MP_CONTROL_OFFER:
    case SL_MP_CONTROL_ACCEPT:
        sl_assert(record->offer.local_rail < SL_MP_RAILS_MAX &&
                  record->offer.remote_rail < SL_MP_RAILS_MAX && record->offer.qpn <= 0xffffff);
        check_rail(&record->offer.rail);
        break;
    case SL_MP_CONTROL_REFUSE:
    case SL_MP_CONTROL_BYE:
    case SL_MP_CONTROL_DOWN: sl_assert(memchr(record->down.why, '\0', SL_MP_WHY) != NULL); break;
    case SL_MP_CONTROL_SIDEBAND_DONE:
    case SL_MP_CONTROL_ACK: break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sl_mp_control record, again;
    int err = sl_mp_control_read(data, size, &record);

    sl_assert(err == 0 || err == -EBADMSG || err == -EPROTO);
    if (err != 0)
        return 0;
    sl_assert(sl_mp_control_size(&record) == size);
    check(&record);
    sl_assert(sl_mp_control_read(&record, size, &again) == 0);
    sl_assert(memcmp(&record, &again, sizeof(record)) == 0);
    return 0;
}
