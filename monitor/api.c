/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/api.h"

#include "monitor/api_answer.h"
#include "monitor/api_socket.h"

#include "core/err.h"

#include <errno.h>
#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define RETRY_NS (10 * SL_MON_S)
#define IDLE_S 10u             /* a client that is silent so long is closed */
#define MEMORY ((size_t)16384) /* of a client's request; a longer head is refused */
#define RUNS 8                 /* at once; then the agent has its turn */

enum { LOCAL, REMOTE, DOORS };

/* Somebody who is connected. */
struct client {
    int fd;                         /* -1: nobody */
    uint64_t since_ns;              /* it connected, or was answered last, or has waited */
    struct MHD_Connection *waiting; /* for an event after `after`, until until_ns; NULL: not */
    uint64_t after, until_ns;
};

struct door {
    struct sl_api *api;
    struct MHD_Daemon *http; /* NULL: not there */
    char where[SL_MON_PATH]; /* the path, or the address; "": none is asked for */
    char group[64];
    int64_t mode;
    char said[512]; /* why it is not there */
    uint64_t tried_ns;
    unsigned waiters;
    bool has_room; /* somebody left: who waits to be accepted is to be looked at */
    struct client clients[SL_API_CLIENTS];
};

struct sl_api {
    struct sl_agent *agent;
    void (*say)(const char *sentence);
    struct door doors[DOORS];
    int epoll_fd;
};

/* One request. */
struct call {
    char target[SL_API_TARGET_MAX + 1]; /* cut where it is too long, and still too long */
    struct sl_api_request request;
    bool is_parsed, has_waited;
};

static uint64_t now_ns(const struct sl_api *api)
{
    return api->agent != NULL ? sl_mon_time(sl_agent_mon(api->agent))->mono_ns : 0;
}

static bool is_local(const struct door *door)
{
    return door == &door->api->doors[LOCAL];
}

/* ---- requests ---- */

static struct client *client_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

    return info != NULL ? info->socket_context : NULL;
}

static void who(struct MHD_Connection *connection, char *out, size_t cap)
{
    const struct client *client = client_of(connection);
    struct ucred peer;
    socklen_t len = sizeof(peer);

    if (client != NULL && getsockopt(client->fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0)
        snprintf(out, cap, "uid %u", (unsigned)peer.uid);
    else
        snprintf(out, cap, "somebody");
}

static enum MHD_Result reply(struct MHD_Connection *connection, const char *allow,
                             const struct sl_api_answer *answer)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(answer->len, answer->body, MHD_RESPMEM_MUST_FREE);
    enum MHD_Result good;

    if (response == NULL) {
        free(answer->body);
        return MHD_NO;
    }
    (void)MHD_add_response_header(response, "Content-Type", answer->type);
    (void)MHD_add_response_header(response, "Cache-Control", "no-store");
    if (answer->status == 405)
        (void)MHD_add_response_header(response, "Allow", allow);
    good = MHD_queue_response(connection, (unsigned)answer->status, response);
    MHD_destroy_response(response);
    return good;
}

static enum MHD_Result refuse(struct MHD_Connection *connection, int status, const char *why)
{
    struct sl_api_answer answer;

    return sl_api_answer_error(status, why, &answer) == 0 ? reply(connection, "", &answer) : MHD_NO;
}

static enum MHD_Result serve(struct door *door, struct MHD_Connection *connection,
                             const struct call *call)
{
    char by[32];
    const char *accept = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Accept");
    const struct sl_api_asker asker = {
        .may_write = is_local(door),
        .openmetrics = sl_api_wants_openmetrics(accept),
        .by = by,
        .refusal =
            "over HTTP one may only read; ask at the agent's unix socket, as sluicectl does"};
    struct sl_api_answer answer;

    if (door->api->agent == NULL)
        return refuse(connection, 503, "the agent ends");
    who(connection, by, sizeof(by));
    if (sl_api_answer(door->api->agent, &call->request, &asker, &answer) != 0)
        return MHD_NO;
    return reply(connection, call->request.is_write ? "POST" : "GET, HEAD", &answer);
}

/* True: it is answered when there is an event, or when it has waited for long enough. */
static bool wait_for_events(struct door *door, struct MHD_Connection *connection, struct call *call)
{
    struct client *client = client_of(connection);
    const struct sl_api_request *request = &call->request;

    if (door->api->agent == NULL || request->status != 200 || request->what != SL_API_EVENTS ||
        request->wait_s == 0 || call->has_waited || client == NULL ||
        door->waiters == SL_API_WAITERS || sl_api_has_news(door->api->agent, request->since))
        return false;
    call->has_waited = true;
    client->waiting = connection;
    client->until_ns = now_ns(door->api) + request->wait_s * SL_MON_S;
    client->after = request->since;
    door->waiters++;
    MHD_suspend_connection(connection);
    return true;
}

static void wake(struct door *door, struct client *client)
{
    struct MHD_Connection *connection = client->waiting;

    client->waiting = NULL;
    client->since_ns = now_ns(door->api);
    door->waiters--;
    MHD_resume_connection(connection);
}

/* No request here has a body. */
static bool has_body(struct MHD_Connection *connection)
{
    const char *length = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Content-Length");

    return MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Transfer-Encoding") != NULL ||
           (length != NULL && strspn(length, "0") != strlen(length));
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *data,
                                  size_t *len, void **context)
{
    struct door *door = arg;
    struct call *call = *context;

    (void)url;
    (void)version;
    (void)data;
    if (call == NULL)
        return MHD_NO; /* no memory */
    if (!call->is_parsed) {
        call->is_parsed = true;
        if (has_body(connection))
            return refuse(connection, 413, "requests have no body here: parameters are in the URL");
        sl_api_parse(method, call->target, &call->request);
        return MHD_YES; /* it is called again */
    }
    if (*len != 0) {
        *len = 0;
        return MHD_YES;
    }
    return wait_for_events(door, connection, call) ? MHD_YES : serve(door, connection, call);
}

/* What is asked, as it came. */
static void *on_target(void *arg, const char *target, struct MHD_Connection *connection)
{
    struct call *call = calloc(1, sizeof(*call));

    (void)arg;
    (void)connection;
    if (call != NULL)
        snprintf(call->target, sizeof(call->target), "%s", target);
    return call;
}

static void on_end(void *arg, struct MHD_Connection *connection, void **context,
                   enum MHD_RequestTerminationCode code)
{
    struct door *door = arg;
    struct client *client = client_of(connection);

    (void)code;
    if (client != NULL)
        client->since_ns = now_ns(door->api);
    free(*context);
    *context = NULL;
}

/* ---- clients ---- */

static void on_client(void *arg, struct MHD_Connection *connection, void **context,
                      enum MHD_ConnectionNotificationCode code)
{
    struct door *door = arg;
    struct client *client = *context;

    if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
        if (client != NULL)
            client->fd = -1;
        *context = NULL;
        door->has_room = true;
        return;
    }
    for (unsigned i = 0; i < SL_API_CLIENTS; i++)
        if (door->clients[i].fd < 0) {
            client = &door->clients[i];
            *client = (struct client){
                .fd = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)
                          ->connect_fd,
                .since_ns = now_ns(door->api)};
            *context = client;
            return;
        }
}

/* A byte now and then would keep a place for ever. */
static void close_slow(struct door *door)
{
    for (unsigned i = 0; i < SL_API_CLIENTS; i++) {
        const struct client *client = &door->clients[i];

        if (client->fd >= 0 && client->waiting == NULL &&
            now_ns(door->api) - client->since_ns > SL_API_DEADLINE * SL_MON_S)
            (void)shutdown(client->fd, SHUT_RDWR);
    }
}

static void wake_waiters(struct door *door, bool all)
{
    for (unsigned i = 0; i < SL_API_CLIENTS && door->waiters > 0; i++) {
        struct client *client = &door->clients[i];

        if (client->waiting != NULL && (all || now_ns(door->api) >= client->until_ns ||
                                        sl_api_has_news(door->api->agent, client->after)))
            wake(door, client);
    }
}

/* ---- the two sockets ---- */

static int listen_at(const struct door *door)
{
    return is_local(door) ? sl_api_listen_path(door->where, (mode_t)door->mode, door->group)
                          : sl_api_listen_address(door->where);
}

static int start(struct door *door)
{
    struct epoll_event event = {.events = EPOLLIN};
    int fd = listen_at(door);
    const union MHD_DaemonInfo *info;

    if (fd < 0)
        return fd;
    door->http = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, on_request, door,
        MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT, (unsigned)SL_API_CLIENTS,
        MHD_OPTION_CONNECTION_TIMEOUT, IDLE_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT, MEMORY,
        MHD_OPTION_URI_LOG_CALLBACK, on_target, door, MHD_OPTION_NOTIFY_COMPLETED, on_end, door,
        MHD_OPTION_NOTIFY_CONNECTION, on_client, door, MHD_OPTION_END);
    if (door->http == NULL) {
        close(fd);
        return sl_fail(-EIO, "libmicrohttpd does not start at %s", door->where);
    }
    info = MHD_get_daemon_info(door->http, MHD_DAEMON_INFO_EPOLL_FD);
    if (info == NULL || epoll_ctl(door->api->epoll_fd, EPOLL_CTL_ADD, info->epoll_fd, &event) != 0)
        return sl_fail(-EIO, "libmicrohttpd cannot be waited for at %s", door->where);
    return 0;
}

static void stop(struct door *door)
{
    if (door->http == NULL)
        return;
    wake_waiters(door, true);
    (void)MHD_run(door->http);
    MHD_stop_daemon(door->http); /* closes what it listens on */
    door->http = NULL;
    if (is_local(door))
        (void)unlink(door->where);
}

/* The same trouble is said once. */
static void try_start(struct door *door)
{
    if (door->http != NULL || door->where[0] == '\0' ||
        (door->tried_ns != 0 && now_ns(door->api) - door->tried_ns < RETRY_NS))
        return;
    door->tried_ns = now_ns(door->api);
    if (start(door) == 0) {
        door->said[0] = '\0';
        return;
    }
    stop(door);
    if (strncmp(door->said, sluice_last_error(), sizeof(door->said) - 1) == 0)
        return;
    snprintf(door->said, sizeof(door->said), "%s", sluice_last_error());
    door->api->say(door->said);
}

static void configure(struct door *door, const char *where, int64_t mode, const char *group)
{
    if (strcmp(door->where, where) == 0 && door->mode == mode && strcmp(door->group, group) == 0)
        return;
    stop(door);
    snprintf(door->where, sizeof(door->where), "%s", where);
    snprintf(door->group, sizeof(door->group), "%s", group);
    door->mode = mode;
    door->tried_ns = 0;
}

void sl_api_set_agent(struct sl_api *api, struct sl_agent *agent)
{
    const struct sl_mon_config *config;

    api->agent = agent;
    if (agent == NULL)
        return;
    config = sl_agent_config(agent);
    configure(&api->doors[LOCAL], config->api_socket, config->api_mode, config->api_group);
    configure(&api->doors[REMOTE], config->api_http, 0, "");
    for (unsigned i = 0; i < DOORS; i++)
        try_start(&api->doors[i]);
}

int sl_api_create(struct sl_agent *agent, void (*say)(const char *sentence), struct sl_api **out)
{
    struct sl_api *api = calloc(1, sizeof(*api));

    if (api == NULL)
        return sl_fail(-ENOMEM, "no memory for the API");
    api->agent = agent;
    api->say = say;
    api->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (api->epoll_fd < 0) {
        free(api);
        return sl_fail(-errno, "epoll: %s", sluice_strerror(-errno));
    }
    for (unsigned i = 0; i < DOORS; i++) {
        api->doors[i].api = api;
        for (unsigned j = 0; j < SL_API_CLIENTS; j++)
            api->doors[i].clients[j].fd = -1;
    }
    sl_api_set_agent(api, agent);
    *out = api;
    return 0;
}

void sl_api_destroy(struct sl_api *api)
{
    if (api == NULL)
        return;
    for (unsigned i = 0; i < DOORS; i++)
        stop(&api->doors[i]);
    close(api->epoll_fd);
    free(api);
}

/* ---- turns ---- */

int sl_api_fd(const struct sl_api *api)
{
    return api->epoll_fd;
}

/* What libmicrohttpd has read and not yet looked at makes no descriptor readable. */
static bool run(struct door *door)
{
    unsigned long long ms = 1;
    unsigned times = 0;

    if (door->http == NULL)
        return false;
    wake_waiters(door, false);
    do {
        door->has_room = false;
        (void)MHD_run(door->http);
    } while (++times < RUNS &&
             (door->has_room || (MHD_get_timeout(door->http, &ms) == MHD_YES && ms == 0)));
    return times == RUNS;
}

bool sl_api_turn(struct sl_api *api)
{
    bool is_more = false;

    for (unsigned i = 0; i < DOORS; i++)
        is_more |= run(&api->doors[i]);
    return is_more;
}

void sl_api_tick(struct sl_api *api)
{
    for (unsigned i = 0; i < DOORS; i++) {
        try_start(&api->doors[i]);
        close_slow(&api->doors[i]);
    }
    (void)sl_api_turn(api);
}
