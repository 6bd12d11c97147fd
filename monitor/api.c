/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/api.h"

#include "monitor/api_answer.h"
#include "monitor/api_socket.h"
#include "monitor/http.h"

#include "core/err.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define RETRY_NS (10 * SL_MON_S)

enum { LOCAL, REMOTE, DOORS };

static_assert(SL_HTTP_TARGET_MAX >= SL_API_TARGET_MAX,
              "a target that is too long is cut behind that");

struct door {
    struct sl_api *api;
    struct sl_http http;
    char where[SL_MON_PATH]; /* the path, or the address; "": none is asked for */
    char group[64];
    int64_t mode;
    char said[512]; /* why it is not there */
    uint64_t tried_ns;
    unsigned waiters; /* clients that are held */
};

struct sl_api {
    struct sl_agent *agent;
    void (*say)(const char *sentence);
    struct door doors[DOORS];
    int epoll_fd;
};

/* One request. */
struct call {
    struct sl_api_request request;
    bool has_waited;
    uint64_t after, until_ns; /* it waits for an event after that one, until then */
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

static void who(const struct sl_http_client *client, char *out, size_t cap)
{
    struct ucred peer;
    socklen_t len = sizeof(peer);

    if (client != NULL && getsockopt(client->fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0)
        snprintf(out, cap, "uid %u", (unsigned)peer.uid);
    else
        snprintf(out, cap, "somebody");
}

static enum MHD_Result reply(struct MHD_Connection *connection, const char *allow,
                             const struct sl_http_answer *answer)
{
    return sl_http_reply(connection, (unsigned)answer->status, answer->type, allow,
                         sl_http_body(answer->body, answer->len));
}

static enum MHD_Result refuse(void *owner, struct MHD_Connection *connection, int status,
                              const char *why)
{
    struct sl_http_answer answer;

    (void)owner;
    return sl_http_answer_error(status, why, &answer) == 0 ? reply(connection, "", &answer)
                                                           : MHD_NO;
}

static enum MHD_Result serve(struct door *door, struct MHD_Connection *connection,
                             const struct sl_http_client *client, const struct call *call)
{
    char by[32];
    const char *accept = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Accept");
    const struct sl_api_asker asker = {
        .may_write = is_local(door),
        .openmetrics = sl_api_wants_openmetrics(accept),
        .by = by,
        .refusal =
            "over HTTP one may only read; ask at the agent's unix socket, as sluicectl does"};
    struct sl_http_answer answer;

    if (door->api->agent == NULL)
        return refuse(door, connection, 503, "the agent ends");
    who(client, by, sizeof(by));
    if (sl_api_answer(door->api->agent, &call->request, &asker, &answer) != 0)
        return MHD_NO;
    return reply(connection, call->request.is_write ? "POST" : "GET, HEAD", &answer);
}

/* True: it is answered when there is an event, or when it has waited for long enough. */
static bool wait_for_events(struct door *door, struct MHD_Connection *connection,
                            struct sl_http_client *client, struct call *call)
{
    const struct sl_api_request *request = &call->request;

    if (door->api->agent == NULL || request->status != 200 || request->what != SL_API_EVENTS ||
        request->wait_s == 0 || call->has_waited || client == NULL ||
        door->waiters == SL_API_WAITERS || sl_api_has_news(door->api->agent, request->since))
        return false;
    call->has_waited = true;
    call->until_ns = now_ns(door->api) + request->wait_s * SL_MON_S;
    call->after = request->since;
    client->held = connection;
    client->state = call;
    door->waiters++;
    MHD_suspend_connection(connection);
    return true;
}

static void wake(struct door *door, struct sl_http_client *client)
{
    struct MHD_Connection *connection = client->held;

    client->held = NULL;
    client->since_ns = now_ns(door->api);
    door->waiters--;
    MHD_resume_connection(connection);
}

static void *on_parse(void *owner, const char *method, const char *target)
{
    struct call *call = calloc(1, sizeof(*call));

    (void)owner;
    if (call != NULL)
        sl_api_parse(method, target, &call->request);
    return call;
}

static enum MHD_Result on_answer(void *owner, struct MHD_Connection *connection,
                                 struct sl_http_client *client, void *request)
{
    return wait_for_events(owner, connection, client, request)
               ? MHD_YES
               : serve(owner, connection, client, request);
}

/* Who waits is resumed before it ends. */
static void on_ended(void *owner, struct sl_http_client *client)
{
    (void)owner;
    (void)client;
}

static uint64_t on_now(const void *owner)
{
    const struct door *door = owner;

    return now_ns(door->api);
}

static void wake_waiters(struct door *door, bool all)
{
    for (unsigned i = 0; i < SL_API_CLIENTS && door->waiters > 0; i++) {
        struct sl_http_client *client = &door->http.clients[i];
        const struct call *call = client->state;

        if (client->held != NULL && (all || now_ns(door->api) >= call->until_ns ||
                                     sl_api_has_news(door->api->agent, call->after)))
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
    int fd = listen_at(door);

    return fd < 0 ? fd : sl_http_start(&door->http, fd, door->api->epoll_fd, door->where);
}

static void stop(struct door *door)
{
    if (door->http.daemon == NULL)
        return;
    wake_waiters(door, true);
    (void)MHD_run(door->http.daemon);
    sl_http_stop(&door->http);
    if (is_local(door))
        (void)unlink(door->where);
}

/* The same trouble is said once. */
static void try_start(struct door *door)
{
    if (door->http.daemon != NULL || door->where[0] == '\0' ||
        (door->tried_ns != 0 && now_ns(door->api) - door->tried_ns < RETRY_NS))
        return;
    door->tried_ns = now_ns(door->api);
    if (start(door) == 0) {
        door->said[0] = '\0';
        return;
    }
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

static const struct sl_http_ops ops = {
    .parse = on_parse, .answer = on_answer, .refuse = refuse, .ended = on_ended, .now_ns = on_now};

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
        sl_http_init(&api->doors[i].http, &ops, &api->doors[i], SL_API_CLIENTS);
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

static bool run(struct door *door)
{
    if (door->http.daemon == NULL)
        return false;
    wake_waiters(door, false);
    return sl_http_run(&door->http);
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
        sl_http_close_slow(&api->doors[i].http, SL_API_DEADLINE * SL_MON_S);
    }
    (void)sl_api_turn(api);
}
