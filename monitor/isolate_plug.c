/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/isolate_plug.h"

#include "core/err.h"

#include <errno.h>
#include <stdio.h>

void sl_isolate_failed(int err, struct sl_isolate_answer *out)
{
    out->result = err == -ETIMEDOUT ? SL_ISOLATE_TIMED_OUT : SL_ISOLATE_FAILED;
    snprintf(out->why, sizeof(out->why), "%s", sluice_last_error());
}

void sl_isolate_act(const struct sl_isolate_ops *ops, void *arg,
                    const struct sl_isolate_order *order, struct sl_isolate_answer *out)
{
    out->result = (int32_t)sl_isolate_attempt(ops, arg, &order->rules, order->kind, order->mark,
                                              out->why, sizeof(out->why));
}

void sl_isolate_look(const struct sl_isolate_ops *ops, void *arg, struct sl_isolate_answer *out)
{
    struct sl_isolate_view view;
    int err = ops->look(arg, &view);

    if (err != 0) {
        sl_isolate_failed(err, out);
        return;
    }
    out->result = SL_ISOLATE_IS_DONE;
    out->is_out = view.node == SL_ISOLATE_OUT_BY_US;
    snprintf(out->mark, sizeof(out->mark), "%s", out->is_out ? view.mark : "");
}

void sl_isolate_reason(const struct sl_mon_action *action, char *out, size_t cap)
{
    snprintf(out, cap, "%s %s: %s", action->condition, action->subject, action->text);
    for (char *at = out; *at != '\0'; at++)
        if (*at < ' ' || *at > '~' || *at == '"' || *at == '\'' || *at == '\\')
            *at = '?';
}
