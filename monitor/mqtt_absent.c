/* SPDX-License-Identifier: Apache-2.0 */
/* Stands in for mqtt.c where libmosquitto's headers were not there to build it. */
#include "monitor/mqtt.h"

#include "core/err.h"

#include <errno.h>

int sl_mqtt_check(const struct sl_mon_config *config)
{
    if (config->mqtt_broker[0] == '\0')
        return 0;
    return sl_fail(-ENOTSUP, "this sluiced was built without libmosquitto (libmosquitto-dev): "
                             "[mqtt] broker is not in it");
}

int sl_mqtt_open(const struct sl_mqtt_options *options, struct sl_mqtt **out)
{
    (void)out;
    return sl_mqtt_check(options->config);
}

void sl_mqtt_close(struct sl_mqtt *mqtt)
{
    (void)mqtt;
}

uint64_t sl_mqtt_connection(struct sl_mqtt *mqtt)
{
    (void)mqtt;
    return 0;
}

void sl_mqtt_why(struct sl_mqtt *mqtt, char *out, size_t cap)
{
    (void)mqtt;
    if (cap > 0)
        out[0] = '\0';
}

int sl_mqtt_publish(struct sl_mqtt *mqtt, const char *topic, const void *bytes, size_t len,
                    unsigned keep_s)
{
    (void)mqtt;
    (void)topic;
    (void)bytes;
    (void)len;
    (void)keep_s;
    return sl_fail(-EAGAIN, "there is no broker");
}
