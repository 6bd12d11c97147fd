/* SPDX-License-Identifier: Apache-2.0 */
/* Stands in for isolate_kube.c where libcurl's headers were not there to build it. */
#include "monitor/isolate_plug.h"
#include "monitor/kube.h"

#include "core/err.h"

#include <errno.h>

static int check(const struct sl_mon_config *config)
{
    (void)config;
    return sl_fail(-ENOTSUP, "this agent was built without libcurl (libcurl4-openssl-dev): "
                             "[isolate] plug = kubernetes is not in it");
}

static void act(const struct sl_isolate_order *order, struct sl_isolate_answer *out)
{
    sl_isolate_failed(check(order->config), out);
}

int sl_kube_get(const struct sl_mon_config *config, uint64_t deadline_ns, const char *what,
                const char *path, char **body, size_t *len)
{
    (void)deadline_ns;
    (void)what;
    (void)path;
    (void)body;
    (void)len;
    return check(config);
}

const struct sl_isolate_plug sl_isolate_kube = {.name = "kubernetes", .check = check, .act = act};
