/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/mqtt.h"

#include "core/dl.h"
#include "core/err.h"

#include <errno.h>
#include <mosquitto.h>
#include <mqtt_protocol.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define WILL_MAX 512
#define RETRY_MAX_S 30

/* Found when a broker is asked for. */
struct table {
    int (*lib_init)(void);
    struct mosquitto *(*new)(const char *, bool, void *);
    void (*destroy)(struct mosquitto *);
    int (*int_option)(struct mosquitto *, enum mosq_opt_t, int);
    int (*username_pw_set)(struct mosquitto *, const char *, const char *);
    int (*tls_set)(struct mosquitto *, const char *, const char *, const char *, const char *,
                   int (*)(char *, int, int, void *));
    int (*will_set_v5)(struct mosquitto *, const char *, int, const void *, int, bool,
                       mosquitto_property *);
    int (*connect_bind_v5)(struct mosquitto *, const char *, int, int, const char *,
                           const mosquitto_property *);
    int (*disconnect_v5)(struct mosquitto *, int, const mosquitto_property *);
    int (*loop)(struct mosquitto *, int, int);
    int (*threaded_set)(struct mosquitto *, bool);
    int (*publish_v5)(struct mosquitto *, int *, const char *, int, const void *, int, bool,
                      const mosquitto_property *);
    int (*subscribe_v5)(struct mosquitto *, int *, const char *, int, int,
                        const mosquitto_property *);
    void (*connect_v5_callback_set)(struct mosquitto *, void (*)(struct mosquitto *, void *, int,
                                                                 int, const mosquitto_property *));
    void (*disconnect_v5_callback_set)(struct mosquitto *, void (*)(struct mosquitto *, void *, int,
                                                                    const mosquitto_property *));
    void (*publish_v5_callback_set)(struct mosquitto *, void (*)(struct mosquitto *, void *, int,
                                                                 int, const mosquitto_property *));
    void (*message_v5_callback_set)(struct mosquitto *, void (*)(struct mosquitto *, void *,
                                                                 const struct mosquitto_message *,
                                                                 const mosquitto_property *));
    int (*property_add_int32)(mosquitto_property **, int, uint32_t);
    void (*property_free_all)(mosquitto_property **);
    const char *(*strerror)(int);
    const char *(*reason_string)(int);
};

static const struct sl_dl_symbol symbols[] = {
#define SYMBOL(name)                                                                               \
    {                                                                                              \
        "mosquitto_" #name, offsetof(struct table, name), false                                    \
    }
    SYMBOL(lib_init),
    SYMBOL(new),
    SYMBOL(destroy),
    SYMBOL(int_option),
    SYMBOL(username_pw_set),
    SYMBOL(tls_set),
    SYMBOL(will_set_v5),
    SYMBOL(connect_bind_v5),
    SYMBOL(disconnect_v5),
    SYMBOL(loop),
    SYMBOL(threaded_set),
    SYMBOL(publish_v5),
    SYMBOL(subscribe_v5),
    SYMBOL(connect_v5_callback_set),
    SYMBOL(disconnect_v5_callback_set),
    SYMBOL(publish_v5_callback_set),
    SYMBOL(message_v5_callback_set),
    SYMBOL(property_add_int32),
    SYMBOL(property_free_all),
    SYMBOL(strerror),
    SYMBOL(reason_string),
#undef SYMBOL
};

struct sl_mqtt {
    struct sl_mqtt_options options;
    struct table lib;
    struct mosquitto *client;
    char host[SL_MON_PATH], will_topic[SL_MQTT_TOPIC];
    int port;
    pthread_t thread;
    atomic_bool is_over;
    atomic_uint in_flight;
    atomic_ulong connection; /* that is up */
    uint64_t connections;    /* of the thread: begun so far */
    bool is_refused;         /* of the thread: the broker said why */
    bool is_told;            /* the same: the library said why a connection ended */
    pthread_mutex_t lock;    /* why */
    char why[160];
};

/* ---- what is asked for ---- */

/* "HOST:PORT", "[ADDRESS]:PORT". */
static bool take_broker(const char *text, char *host, size_t cap, int *port)
{
    const char *colon = strrchr(text, ':');
    size_t len = colon != NULL ? (size_t)(colon - text) : 0;
    char *end;
    long number = colon != NULL ? strtol(colon + 1, &end, 10) : 0;

    if (len == 0 || number < 1 || number > 65535 || *end != '\0' || len >= cap)
        return false;
    if (text[0] == '[' && text[len - 1] == ']') {
        text++;
        len -= 2;
    }
    snprintf(host, cap, "%.*s", (int)len, text);
    *port = (int)number;
    return true;
}

int sl_mqtt_check(const struct sl_mon_config *config)
{
    char host[SL_MON_PATH];
    int port;

    if (config->mqtt_broker[0] == '\0')
        return 0;
    if (!take_broker(config->mqtt_broker, host, sizeof(host), &port))
        return sl_fail(-EINVAL, "[mqtt] broker is to be HOST:PORT, and is '%s'",
                       config->mqtt_broker);
    if (config->mqtt_prefix[0] == '\0' || strpbrk(config->mqtt_prefix, "+#$ ") != NULL ||
        config->mqtt_prefix[0] == '/')
        return sl_fail(-EINVAL, "[mqtt] prefix is to be the begin of a topic, and is '%s'",
                       config->mqtt_prefix);
    if ((config->mqtt_cert[0] == '\0') != (config->mqtt_key[0] == '\0'))
        return sl_fail(-EINVAL, "[mqtt] cert and key belong together");
    if (config->mqtt_cert[0] != '\0' && config->mqtt_ca[0] == '\0')
        return sl_fail(-EINVAL, "[mqtt] cert needs ca, as TLS is used with it alone");
    if (config->mqtt_password_file[0] != '\0' && config->mqtt_user[0] == '\0')
        return sl_fail(-EINVAL, "[mqtt] password_file needs user");
    return 0;
}

static int set_user(struct sl_mqtt *mqtt)
{
    const struct sl_mon_config *config = mqtt->options.config;
    char password[1024] = "";
    FILE *file;

    if (config->mqtt_user[0] == '\0')
        return 0;
    if (config->mqtt_password_file[0] != '\0') {
        file = fopen(config->mqtt_password_file, "re");
        if (file == NULL || fgets(password, sizeof(password), file) == NULL) {
            int err = sl_fail(-EINVAL, "[mqtt] password_file %s cannot be read",
                              config->mqtt_password_file);

            if (file != NULL)
                fclose(file);
            return err;
        }
        fclose(file);
        password[strcspn(password, "\r\n")] = '\0';
    }
    if (mqtt->lib.username_pw_set(mqtt->client, config->mqtt_user,
                                  password[0] != '\0' ? password : NULL) != MOSQ_ERR_SUCCESS)
        return sl_fail(-EINVAL, "[mqtt] user '%s' is refused by libmosquitto", config->mqtt_user);
    return 0;
}

static int set_tls(struct sl_mqtt *mqtt)
{
    const struct sl_mon_config *config = mqtt->options.config;
    bool has_cert = config->mqtt_cert[0] != '\0';
    int code;

    if (config->mqtt_ca[0] == '\0')
        return 0;
    code =
        mqtt->lib.tls_set(mqtt->client, config->mqtt_ca, NULL, has_cert ? config->mqtt_cert : NULL,
                          has_cert ? config->mqtt_key : NULL, NULL);
    return code == MOSQ_ERR_SUCCESS ? 0
                                    : sl_fail(-EINVAL, "[mqtt] ca, cert or key cannot be read: %s",
                                              mqtt->lib.strerror(code));
}

/* ---- the connection's thread ---- */

static void set_why(struct sl_mqtt *mqtt, const char *why)
{
    pthread_mutex_lock(&mqtt->lock);
    snprintf(mqtt->why, sizeof(mqtt->why), "%s", why);
    pthread_mutex_unlock(&mqtt->lock);
}

static void full_topic(const struct sl_mqtt *mqtt, const char *topic, char out[SL_MQTT_TOPIC])
{
    snprintf(out, SL_MQTT_TOPIC, "%s/%s", mqtt->options.config->mqtt_prefix, topic);
}

/* Of the connection that is made next: what it says when it breaks is newer than what it said when
 * it began. */
static void set_will(struct sl_mqtt *mqtt)
{
    char will[WILL_MAX];

    mqtt->connections++;
    if (mqtt->options.will_topic == NULL)
        return;
    mqtt->options.will(mqtt->options.arg, false, mqtt->connections, will, sizeof(will));
    (void)mqtt->lib.will_set_v5(mqtt->client, mqtt->will_topic, (int)strlen(will), will, 1, true,
                                NULL);
}

static void on_connect(struct mosquitto *client, void *arg, int code, int flags,
                       const mosquitto_property *properties)
{
    struct sl_mqtt *mqtt = arg;
    char text[WILL_MAX], topic[SL_MQTT_TOPIC];

    (void)flags;
    (void)properties;
    if (code != 0) {
        mqtt->is_refused = true;
        set_why(mqtt, mqtt->lib.reason_string(code));
        return;
    }
    atomic_store(&mqtt->in_flight, 0); /* what the old connection left counts no more */
    for (unsigned i = 0; mqtt->options.topics != NULL && mqtt->options.topics[i] != NULL; i++) {
        full_topic(mqtt, mqtt->options.topics[i], topic);
        (void)mqtt->lib.subscribe_v5(client, NULL, topic, 1, 0, NULL);
    }
    if (mqtt->options.will_topic != NULL) {
        mqtt->options.will(mqtt->options.arg, true, mqtt->connections, text, sizeof(text));
        if (mqtt->lib.publish_v5(client, NULL, mqtt->will_topic, (int)strlen(text), text, 1, true,
                                 NULL) == MOSQ_ERR_SUCCESS)
            atomic_fetch_add(&mqtt->in_flight, 1);
    }
    set_why(mqtt, "");
    atomic_store(&mqtt->connection, mqtt->connections);
}

static void on_disconnect(struct mosquitto *client, void *arg, int code,
                          const mosquitto_property *properties)
{
    struct sl_mqtt *mqtt = arg;

    (void)client;
    (void)properties;
    atomic_store(&mqtt->connection, 0);
    mqtt->is_told = true;
    if (!mqtt->is_refused)
        set_why(mqtt, code != 0 ? mqtt->lib.strerror(code) : "it was ended");
}

static void on_published(struct mosquitto *client, void *arg, int id, int code,
                         const mosquitto_property *properties)
{
    struct sl_mqtt *mqtt = arg;
    unsigned before = atomic_load(&mqtt->in_flight);

    (void)client;
    (void)id;
    (void)properties;
    if (code >= 0x80)
        set_why(mqtt, mqtt->lib.reason_string(code));
    while (before > 0 && !atomic_compare_exchange_weak(&mqtt->in_flight, &before, before - 1))
        continue;
}

static void on_message(struct mosquitto *client, void *arg, const struct mosquitto_message *message,
                       const mosquitto_property *properties)
{
    struct sl_mqtt *mqtt = arg;
    size_t len = strlen(mqtt->options.config->mqtt_prefix);

    (void)client;
    (void)properties;
    if (strncmp(message->topic, mqtt->options.config->mqtt_prefix, len) == 0 &&
        message->topic[len] == '/' && mqtt->options.message != NULL)
        mqtt->options.message(mqtt->options.arg, message->topic + len + 1, message->payload,
                              message->payloadlen > 0 ? (size_t)message->payloadlen : 0,
                              message->retain);
}

static void pause_s(struct sl_mqtt *mqtt, unsigned seconds)
{
    const struct timespec tenth = {.tv_nsec = 100000000};

    for (unsigned i = 0; i < 10 * seconds && !atomic_load(&mqtt->is_over); i++)
        (void)nanosleep(&tenth, NULL);
}

static void *run(void *arg)
{
    struct sl_mqtt *mqtt = arg;
    unsigned wait_s = 1;

    while (!atomic_load(&mqtt->is_over)) {
        int code;

        set_will(mqtt);
        mqtt->is_refused = mqtt->is_told = false;
        code = mqtt->lib.connect_bind_v5(mqtt->client, mqtt->host, mqtt->port,
                                         (int)mqtt->options.config->mqtt_keepalive_s, NULL, NULL);
        while (code == MOSQ_ERR_SUCCESS && !atomic_load(&mqtt->is_over)) {
            code = mqtt->lib.loop(mqtt->client, 500, 1);
            if (atomic_load(&mqtt->connection) != 0)
                wait_s = 1;
        }
        /* Where TLS ends it early enough, the library calls nobody. */
        if (code != MOSQ_ERR_SUCCESS && !mqtt->is_told && !mqtt->is_refused)
            set_why(mqtt, code == MOSQ_ERR_ERRNO ? strerror(errno) : mqtt->lib.strerror(code));
        atomic_store(&mqtt->connection, 0);
        /* Not all at once, when a broker is back that had thousands. */
        if (!atomic_load(&mqtt->is_over))
            pause_s(mqtt, wait_s / 2 + (unsigned)getpid() % (wait_s / 2 + 1) + 1);
        wait_s = wait_s < RETRY_MAX_S / 2 ? 2 * wait_s : RETRY_MAX_S;
    }
    return NULL;
}

/* ---- the owner's calls ---- */

static void free_mqtt(struct sl_mqtt *mqtt)
{
    if (mqtt->client != NULL)
        mqtt->lib.destroy(mqtt->client);
    pthread_mutex_destroy(&mqtt->lock);
    free(mqtt);
}

static int make_client(struct sl_mqtt *mqtt)
{
    int err;

    mqtt->client = mqtt->lib.new(mqtt->options.client_id, true, mqtt);
    if (mqtt->client == NULL)
        return sl_fail(-ENOMEM, "no memory for a broker's client");
    mqtt->lib.int_option(mqtt->client, MOSQ_OPT_PROTOCOL_VERSION, MQTT_PROTOCOL_V5);
    mqtt->lib.threaded_set(mqtt->client, true);
    mqtt->lib.connect_v5_callback_set(mqtt->client, on_connect);
    mqtt->lib.disconnect_v5_callback_set(mqtt->client, on_disconnect);
    mqtt->lib.publish_v5_callback_set(mqtt->client, on_published);
    mqtt->lib.message_v5_callback_set(mqtt->client, on_message);
    err = set_user(mqtt);
    return err == 0 ? set_tls(mqtt) : err;
}

int sl_mqtt_open(const struct sl_mqtt_options *options, struct sl_mqtt **out)
{
    static const char *const names[] = {"libmosquitto.so.1", NULL};
    struct sl_mqtt *mqtt;
    int err = sl_mqtt_check(options->config);

    if (err != 0)
        return err;
    mqtt = calloc(1, sizeof(*mqtt));
    if (mqtt == NULL)
        return sl_fail(-ENOMEM, "no memory for a broker's client");
    pthread_mutex_init(&mqtt->lock, NULL);
    mqtt->options = *options;
    (void)take_broker(options->config->mqtt_broker, mqtt->host, sizeof(mqtt->host), &mqtt->port);
    if (options->will_topic != NULL)
        full_topic(mqtt, options->will_topic, mqtt->will_topic);
    set_why(mqtt, "not connected yet");
    err = sl_dl_open(names, symbols, SL_ARRAY_LEN(symbols), &mqtt->lib);
    if (err == 0) {
        mqtt->lib.lib_init();
        err = make_client(mqtt);
    }
    if (err == 0 && pthread_create(&mqtt->thread, NULL, run, mqtt) != 0)
        err = sl_fail(-EAGAIN, "no thread for the broker's connection");
    if (err != 0) {
        free_mqtt(mqtt);
        return err;
    }
    *out = mqtt;
    return 0;
}

void sl_mqtt_close(struct sl_mqtt *mqtt)
{
    if (mqtt == NULL)
        return;
    atomic_store(&mqtt->is_over, true);
    /* The broker says what the last will says, as if it had broken. */
    (void)mqtt->lib.disconnect_v5(mqtt->client, MQTT_RC_DISCONNECT_WITH_WILL_MSG, NULL);
    pthread_join(mqtt->thread, NULL);
    free_mqtt(mqtt);
}

uint64_t sl_mqtt_connection(struct sl_mqtt *mqtt)
{
    return atomic_load(&mqtt->connection);
}

void sl_mqtt_why(struct sl_mqtt *mqtt, char *out, size_t cap)
{
    pthread_mutex_lock(&mqtt->lock);
    snprintf(out, cap, "%s", mqtt->why);
    pthread_mutex_unlock(&mqtt->lock);
}

int sl_mqtt_publish(struct sl_mqtt *mqtt, const char *topic, const void *bytes, size_t len,
                    unsigned keep_s)
{
    mosquitto_property *properties = NULL;
    char full[SL_MQTT_TOPIC];
    int code;

    if (sl_mqtt_connection(mqtt) == 0 || atomic_load(&mqtt->in_flight) >= SL_MQTT_IN_FLIGHT)
        return sl_fail(-EAGAIN, "the broker is away, or slow");
    full_topic(mqtt, topic, full);
    atomic_fetch_add(&mqtt->in_flight, 1);
    if (keep_s != 0 && keep_s != SL_MQTT_KEEP)
        (void)mqtt->lib.property_add_int32(&properties, MQTT_PROP_MESSAGE_EXPIRY_INTERVAL, keep_s);
    code =
        mqtt->lib.publish_v5(mqtt->client, NULL, full, (int)len, bytes, 1, keep_s != 0, properties);
    mqtt->lib.property_free_all(&properties);
    if (code == MOSQ_ERR_SUCCESS)
        return 0;
    atomic_fetch_sub(&mqtt->in_flight, 1);
    return sl_fail(-EAGAIN, "libmosquitto: %s", mqtt->lib.strerror(code));
}
