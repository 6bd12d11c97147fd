/* SPDX-License-Identifier: Apache-2.0 */
/* SLUICE_VERBS_PATHS: what is accepted, written out again, gives the same list; what is refused
 * where it is set is refused by the plan; nothing overruns. */
#include "core/config.h"
#include "verbs/config.h"
#include "core/err.h"
#include "tests/fuzz/text.h"
#include "multipath/plan.h"

#include <stdio.h>

#define CAP 16

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_again(const struct sl_mp_path_wishes *wishes, const struct sl_mp_plan_ends *ends,
                        const struct sl_mp_path_spec *specs, size_t count)
{
    struct sl_mp_path_spec again[CAP];
    char list[SL_PATH_LIST_BYTES * 2];
    size_t len = 0, again_count = 0;

    for (size_t i = 0; i < count; i++) {
        len += (size_t)snprintf(list + len, sizeof(list) - len, "%s%u>%u", i == 0 ? "" : ",",
                                specs[i].local_rail, specs[i].remote_rail);
        if (specs[i].flow_label != SL_PATH_LABEL_OPEN)
            len += (size_t)snprintf(list + len, sizeof(list) - len, "/%x", specs[i].flow_label);
        if (specs[i].lag_port != 0)
            len += (size_t)snprintf(list + len, sizeof(list) - len, "@%u", specs[i].lag_port);
    }
    if (len >= SL_PATH_LIST_BYTES)
        return;
    struct sl_mp_path_wishes same = *wishes;

    same.list = list;
    sl_assert(sl_mp_plan(&same, ends, again, CAP, &again_count) == 0);
    sl_assert(again_count == count);
    for (size_t i = 0; i < count; i++)
        sl_assert(specs[i].local_rail == again[i].local_rail &&
                  specs[i].remote_rail == again[i].remote_rail &&
                  specs[i].flow_label == again[i].flow_label &&
                  specs[i].lag_port == again[i].lag_port);
}

/* Two bytes for the rails, then the text. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sl_config config;
    struct sl_mp_plan_ends ends = {0};
    size_t count = CAP + 1;
    char *text;

    if (size < 2 || (text = fuzz_text(data + 2, size - 2)) == NULL)
        return 0;
    ends.rails.local_rails = data[0] % (SL_MP_RAILS_MAX + 1);
    ends.rails.remote_rails = data[1] % (SL_MP_RAILS_MAX + 1);
    ends.lag_ports[0] = (uint8_t)(data[0] >> 6);
    sl_config_defaults(&config);
    if (sl_config_set(&config, "VERBS_PATHS", text) == 0) {
        /* On the heap: a write past the list is seen. */
        struct sl_mp_path_spec *specs = malloc(CAP * sizeof(*specs));

        struct sl_mp_path_wishes wishes = sl_verbs_path_wishes(&config);

        sl_assert(specs != NULL);
        if (sl_mp_plan(&wishes, &ends, specs, CAP, &count) == 0) {
            sl_assert(count > 0 && count <= CAP);
            for (size_t i = 0; i < count; i++)
                sl_assert(specs[i].local_rail < ends.rails.local_rails &&
                          specs[i].remote_rail < ends.rails.remote_rails &&
                          specs[i].lag_port <= SL_PATH_LAG_PORTS_MAX &&
                          (specs[i].flow_label <= SL_PATH_LABEL_MAX ||
                           specs[i].flow_label == SL_PATH_LABEL_OPEN));
            check_again(&wishes, &ends, specs, count);
            for (size_t i = 0; i < count; i++) {
                struct sl_mp_path_spec was = specs[i];

                sl_assert(
                    sl_mp_plan_route(&wishes, ends.lag_ports[was.local_rail], i, specs, count, i));
                sl_assert(specs[i].flow_label <= SL_PATH_LABEL_MAX &&
                          specs[i].lag_port <= SL_PATH_LAG_PORTS_MAX &&
                          (was.flow_label == SL_PATH_LABEL_OPEN ||
                           was.flow_label == specs[i].flow_label) &&
                          (was.lag_port == 0 || was.lag_port == specs[i].lag_port));
            }
        } else {
            sl_assert(count == CAP + 1);
        }
        free(specs);
    } else if (strlen(text) < SL_PATH_LIST_BYTES && ends.rails.local_rails > 0 &&
               ends.rails.remote_rails > 0) {
        struct sl_mp_path_wishes wishes = sl_verbs_path_wishes(&config);
        struct sl_mp_path_spec none[CAP];

        /* What is refused where it is set cannot be planned either. */
        strcpy(sl_verbs_config_edit(&config)->mp.paths, text);
        sl_assert(sl_mp_plan(&wishes, &ends, none, CAP, &count) == -EINVAL && count == CAP + 1);
    }
    free(text);
    return 0;
}
