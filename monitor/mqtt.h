/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection to an MQTT 5 broker, by libmosquitto, which is opened when one is asked for. It is
 * made, and made again, by a thread of its own: a name server or a broker that hangs holds nobody
 * up. All that is published is QoS 1, and refused while the broker is away or slow: whoever
 * publishes a state publishes it again.
 *
 * Topics, below [mqtt] prefix:
 *
 *     v1/node/NODE/status  .../ports  .../ranks    observations (observe.h); retained
 *     v1/node/NODE/alive                           of an agent; retained; its last will: false
 *     v1/instance/NAME                             the same of an instance
 *     v1/verdict/ID                                what instances found; retained
 *     v1/claim/KEY  v1/action/KEY                  who runs the command for a verdict; done:
 *     retained
 */
#ifndef SL_MONITOR_MQTT_H
#define SL_MONITOR_MQTT_H

#include "monitor/config.h"

#define SL_MQTT_TOPIC 256
#define SL_MQTT_KEEP UINT32_MAX
#define SL_MQTT_IN_FLIGHT 64 /* that the broker has not acknowledged */

struct sl_mqtt;

struct sl_mqtt_options {
    const struct sl_mon_config *config; /* borrowed while it is open */
    const char *client_id;
    /* Its last will, retained: what is published as "alive", with false. NULL: none. */
    const char *will_topic;
    /* Writes what is to be published of that, for a connection that begins: the owner's thread and
     * the connection's call it. */
    void (*will)(void *arg, bool is_alive, uint64_t connection, char *out, size_t cap);
    /* Topics to subscribe to, below the prefix; NULL at the end. NULL: none. */
    const char *const *topics;
    /* By the connection's thread: the topic is below the prefix. It may wait: the broker does. */
    void (*message)(void *arg, const char *topic, const void *bytes, size_t len, bool is_retained);
    void *arg;
};

/* -EINVAL, -ENOTSUP with a sentence. */
int sl_mqtt_check(const struct sl_mon_config *config);
/* Never waits for the broker. -ENOTSUP: libmosquitto is not installed; -EINVAL: a file of a
 * password or of TLS cannot be read; -ENOMEM. */
int sl_mqtt_open(const struct sl_mqtt_options *options, struct sl_mqtt **out);
/* Says goodbye: what the last will says is said. */
void sl_mqtt_close(struct sl_mqtt *mqtt);

/* Number of the connection that is up, from 1; 0: none is. */
uint64_t sl_mqtt_connection(struct sl_mqtt *mqtt);
/* Why none is; "". */
void sl_mqtt_why(struct sl_mqtt *mqtt, char *out, size_t cap);
/* topic: below the prefix. keep_s: for how long the broker keeps it for who subscribes later; 0:
 * not; SL_MQTT_KEEP: until something else comes. -EAGAIN: it is not connected, or too much is under
 * way. */
int sl_mqtt_publish(struct sl_mqtt *mqtt, const char *topic, const void *bytes, size_t len,
                    unsigned keep_s);

#endif
