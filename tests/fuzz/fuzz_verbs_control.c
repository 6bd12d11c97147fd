/* SPDX-License-Identifier: Apache-2.0 */
/* Control messages of a verbs peer: what is accepted names only rails, queue pairs and MTUs that
 * there can be, and is accepted again as it was. */
#include "core/err.h"
#include "multipath/control.h"
#include "verbs/device.h"
#include "verbs/offer.h"
#include "verbs/pkey.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_rail(const struct sl_mp_rail_info *info)
{
    struct sl_verbs_rail_info rail = sl_verbs_rail_info_of(info);

    sl_assert(rail.mtu >= IBV_MTU_256 && rail.mtu <= IBV_MTU_4096);
    sl_assert(rail.gid_type != SL_VERBS_GID_IB || (rail.lid > 0 && rail.lid < 0xc000));
    sl_assert(rail.rate <= IBV_RATE_1200_GBPS && rail.rate != 1 &&
              rail.gid_type <= SL_VERBS_GID_ROCE_V2);
    sl_assert((rail.pkey & SL_VERBS_PKEY_PARTITION) != 0);
}

static void check(const struct sl_mp_control *control)
{
    switch ((enum sl_mp_control_kind)control->kind) {
    case SL_MP_CONTROL_CALLER: sl_assert(control->epoch <= SL_CTRL_MAX); break;
    case SL_MP_CONTROL_HELLO:
        sl_assert(control->hello.version == SL_MP_VERSION && control->hello.rail_count >= 1 &&
                  control->hello.rail_count <= SL_MP_RAILS_MAX);
        sl_assert(control->hello.first < control->hello.rail_count);
        for (unsigned i = 0; i < SL_MP_HELLO_RAILS; i++)
            if ((control->hello.rails[i].usable & SL_MP_RAIL_USABLE) != 0)
                check_rail(&control->hello.rails[i]);
        break;
    case SL_MP_CONTROL_OFFER:
    case SL_MP_CONTROL_ACCEPT:
        sl_assert(control->offer.local_rail < SL_MP_RAILS_MAX &&
                  control->offer.remote_rail < SL_MP_RAILS_MAX &&
                  sl_verbs_offer_of(&control->offer).qpn <= 0xffffff);
        sl_assert((sl_verbs_offer_of(&control->offer).ece_vendor == 0) ==
                  (sl_verbs_offer_of(&control->offer).ece_options == 0));
        check_rail(&control->offer.rail);
        break;
    case SL_MP_CONTROL_PATHS:
        sl_assert(control->paths.count <= SL_MP_PATHS_MAX);
        for (unsigned i = 0; i < control->paths.count; i++)
            sl_assert(control->paths.pairs[i].local < SL_MP_RAILS_MAX &&
                      control->paths.pairs[i].remote < SL_MP_RAILS_MAX);
        break;
    case SL_MP_CONTROL_REFUSE:
    case SL_MP_CONTROL_BYE:
    case SL_MP_CONTROL_DOWN: sl_assert(memchr(control->down.why, '\0', SL_MP_WHY) != NULL); break;
    case SL_MP_CONTROL_CLOSE:
    case SL_MP_CONTROL_CLOSED:
    case SL_MP_CONTROL_SIDEBAND_DONE:
    case SL_MP_CONTROL_SIDEBAND_OVER:
    case SL_MP_CONTROL_LEAVE:
    case SL_MP_CONTROL_ACK: break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sl_mp_control control, again;
    int err = sl_mp_control_read(data, size, &control);

    if (err == 0)
        err = sl_verbs_control_check(&control);
    sl_assert(err == 0 || err == -EBADMSG || err == -EPROTO);
    if (err != 0)
        return 0;
    sl_assert(sl_mp_control_size(&control) == size);
    check(&control);
    sl_assert(sl_mp_control_read(&control, size, &again) == 0);
    sl_assert(memcmp(&control, &again, sizeof(control)) == 0);
    return 0;
}
