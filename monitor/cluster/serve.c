/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/cluster/serve.h"

#include "monitor/api_request.h"
#include "monitor/api_socket.h"

#include "core/err.h"

#include <errno.h>
#include <json-c/json.h>
#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define IDLE_S 10u             /* a client that is silent so long is closed */
#define DEADLINE_S 20          /* for a request to come, and to be read */
#define MEMORY ((size_t)16384) /* of a client's request; a longer head is refused */
#define RUNS 8                 /* at once; then others have their turn */
#define QUIET_S 10 /* without a change: a line that means nothing, to find who is gone */
#define SECOND UINT64_C(1000000000)

struct client {
    int fd; /* -1: nobody */
    uint64_t since_ns;
    struct MHD_Connection *live; /* it follows events; NULL: not */
    bool is_suspended;
    char *text; /* that it has not been given yet; owned */
    size_t len, at;
};

struct sl_serve {
    const struct sl_cluster_view *view;
    struct MHD_Daemon *http;
    int epoll_fd;
    bool has_room; /* somebody left: who waits to be accepted is to be looked at */
    unsigned live;
    uint64_t told_version, told_changes, told_ns;
    struct client clients[SL_SERVE_CLIENTS];
};

/* One request. */
struct call {
    char target[SL_CLUSTER_TARGET_MAX + 1]; /* cut where it is too long, and still too long */
    struct sl_cluster_request request;
    bool is_parsed;
};

static struct client *client_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

    return info != NULL ? info->socket_context : NULL;
}

/* ---- answers ---- */

/* The page holds all that it needs: nothing of others is to run in it. */
static void add_headers(struct MHD_Response *response, const char *type)
{
    (void)MHD_add_response_header(response, "Content-Type", type);
    (void)MHD_add_response_header(response, "Cache-Control", "no-store");
    (void)MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    (void)MHD_add_response_header(
        response, "Content-Security-Policy",
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
        "connect-src 'self'; img-src data:; frame-ancestors 'none'; base-uri 'none'");
}

static enum MHD_Result queue(struct MHD_Connection *connection, unsigned status,
                             struct MHD_Response *response)
{
    enum MHD_Result good;

    if (response == NULL)
        return MHD_NO;
    if (status == 405)
        (void)MHD_add_response_header(response, "Allow", "GET, HEAD");
    good = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return good;
}

static enum MHD_Result reply(struct MHD_Connection *connection,
                             const struct sl_cluster_answer *answer)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(answer->len, answer->body, MHD_RESPMEM_MUST_FREE);

    if (response == NULL)
        free(answer->body);
    else
        add_headers(response, answer->type);
    return queue(connection, (unsigned)answer->status, response);
}

static enum MHD_Result refuse(struct MHD_Connection *connection, int status, const char *why)
{
    struct sl_cluster_answer answer;

    return sl_cluster_answer_error(status, why, &answer) == 0 ? reply(connection, &answer) : MHD_NO;
}

static enum MHD_Result reply_page(struct MHD_Connection *connection)
{
    struct MHD_Response *response = MHD_create_response_from_buffer(
        sl_cluster_page_len, (void *)(uintptr_t)sl_cluster_page, MHD_RESPMEM_PERSISTENT);

    if (response != NULL)
        add_headers(response, "text/html; charset=utf-8");
    return queue(connection, 200, response);
}

/* A file as it is. */
static enum MHD_Result reply_bundle(const struct sl_serve *serve, struct MHD_Connection *connection,
                                    const char *id)
{
    int fd = sl_cases_open(serve->view->cases, id);
    struct MHD_Response *response;
    struct stat stat;
    char name[64];

    if (fd < 0)
        return refuse(connection, 404, "no bundle of that verdict is kept here");
    response = fstat(fd, &stat) == 0 ? MHD_create_response_from_fd64((uint64_t)stat.st_size, fd)
                                     : NULL; /* which closes it */
    if (response == NULL) {
        close(fd);
        return MHD_NO;
    }
    snprintf(name, sizeof(name), "attachment; filename=\"%s.case\"", id);
    (void)MHD_add_response_header(response, "Content-Disposition", name);
    add_headers(response, "application/octet-stream");
    return queue(connection, 200, response);
}

/* ---- who follows ---- */

static char *state_event(const struct sl_serve *serve, size_t *len)
{
    struct json_object *object = sl_cluster_state_json(serve->view);
    const char *json =
        object != NULL ? json_object_to_json_string_ext(object, JSON_C_TO_STRING_PLAIN) : NULL;
    char *text = NULL;
    int count = json != NULL ? asprintf(&text, "event: cluster\ndata: %s\n\n", json) : -1;

    json_object_put(object);
    *len = count > 0 ? (size_t)count : 0;
    return count > 0 ? text : NULL;
}

static void give(struct client *client, const char *text, size_t len)
{
    if (client->text == NULL) { /* else it reads slowly, and the next one tells it all */
        client->text = malloc(len);
        if (client->text == NULL)
            return;
        memcpy(client->text, text, len);
        client->len = len;
        client->at = 0;
    }
    if (client->is_suspended) {
        client->is_suspended = false;
        MHD_resume_connection(client->live);
    }
}

static ssize_t on_live(void *arg, uint64_t position, char *buffer, size_t cap)
{
    struct client *client = arg;
    size_t len = client->text != NULL ? client->len - client->at : 0;

    (void)position;
    if (len == 0) {
        client->is_suspended = true;
        MHD_suspend_connection(client->live);
        return 0;
    }
    len = len < cap ? len : cap;
    memcpy(buffer, client->text + client->at, len);
    client->at += len;
    if (client->at == client->len) {
        free(client->text);
        client->text = NULL;
    }
    return (ssize_t)len;
}

static enum MHD_Result follow(struct sl_serve *serve, struct MHD_Connection *connection)
{
    struct client *client = client_of(connection);
    struct MHD_Response *response;
    size_t len;

    if (client == NULL || serve->live >= SL_SERVE_LIVE)
        return refuse(connection, 503, "too many follow events already");
    response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 4096, on_live, client, NULL);
    if (response == NULL)
        return MHD_NO;
    client->live = connection;
    client->is_suspended = false;
    client->text = state_event(serve, &len);
    client->len = len;
    client->at = 0;
    serve->live++;
    add_headers(response, "text/event-stream");
    return queue(connection, 200, response);
}

/* ---- requests ---- */

static enum MHD_Result answer(struct sl_serve *serve, struct MHD_Connection *connection,
                              const struct sl_cluster_request *request)
{
    const char *accept = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Accept");
    struct sl_cluster_answer out;

    if (request->status == 200 && request->what == SL_CLUSTER_PAGE)
        return reply_page(connection);
    if (request->status == 200 && request->what == SL_CLUSTER_LIVE)
        return follow(serve, connection);
    if (request->status == 200 && request->what == SL_CLUSTER_BUNDLE)
        return reply_bundle(serve, connection, request->id);
    if (sl_cluster_answer(serve->view, request, sl_api_wants_openmetrics(accept), &out) != 0)
        return MHD_NO;
    return reply(connection, &out);
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
        sl_cluster_parse(method, call->target, &call->request);
        return MHD_YES; /* it is called again */
    }
    if (*len != 0) {
        *len = 0;
        return MHD_YES;
    }
    return answer(arg, connection, &call->request);
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

static void stop_following(struct sl_serve *serve, struct client *client)
{
    if (client->live == NULL)
        return;
    client->live = NULL;
    free(client->text);
    client->text = NULL;
    serve->live--;
}

static void on_end(void *arg, struct MHD_Connection *connection, void **context,
                   enum MHD_RequestTerminationCode code)
{
    struct sl_serve *serve = arg;
    struct client *client = client_of(connection);

    (void)code;
    if (client != NULL) {
        client->since_ns = serve->view->now_ns;
        stop_following(serve, client);
    }
    free(*context);
    *context = NULL;
}

static void on_client(void *arg, struct MHD_Connection *connection, void **context,
                      enum MHD_ConnectionNotificationCode code)
{
    struct sl_serve *serve = arg;
    struct client *client = *context;

    if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
        if (client != NULL) {
            stop_following(serve, client);
            client->fd = -1;
        }
        *context = NULL;
        serve->has_room = true;
        return;
    }
    for (unsigned i = 0; i < SL_SERVE_CLIENTS; i++)
        if (serve->clients[i].fd < 0) {
            client = &serve->clients[i];
            *client = (struct client){
                .fd = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)
                          ->connect_fd,
                .since_ns = serve->view->now_ns};
            *context = client;
            return;
        }
}

/* ---- the owner's calls ---- */

int sl_serve_new(const char *address, const struct sl_cluster_view *view, struct sl_serve **out)
{
    struct sl_serve *serve = calloc(1, sizeof(*serve));
    struct epoll_event event = {.events = EPOLLIN};
    const union MHD_DaemonInfo *info = NULL;
    int fd, err = 0;

    if (serve == NULL)
        return sl_fail(-ENOMEM, "no memory for HTTP");
    serve->view = view;
    for (unsigned i = 0; i < SL_SERVE_CLIENTS; i++)
        serve->clients[i].fd = -1;
    serve->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    fd = serve->epoll_fd < 0 ? sl_fail(-errno, "epoll: %s", sluice_strerror(-errno))
                             : sl_api_listen_address(address);
    if (fd < 0) {
        err = fd;
        goto err_serve;
    }
    serve->http = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, on_request, serve,
        MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT, (unsigned)SL_SERVE_CLIENTS,
        MHD_OPTION_CONNECTION_TIMEOUT, IDLE_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT, MEMORY,
        MHD_OPTION_URI_LOG_CALLBACK, on_target, serve, MHD_OPTION_NOTIFY_COMPLETED, on_end, serve,
        MHD_OPTION_NOTIFY_CONNECTION, on_client, serve, MHD_OPTION_END);
    if (serve->http == NULL) {
        close(fd);
        err = sl_fail(-EIO, "libmicrohttpd does not start at %s", address);
        goto err_serve;
    }
    info = MHD_get_daemon_info(serve->http, MHD_DAEMON_INFO_EPOLL_FD);
    if (info == NULL || epoll_ctl(serve->epoll_fd, EPOLL_CTL_ADD, info->epoll_fd, &event) != 0) {
        err = sl_fail(-EIO, "libmicrohttpd cannot be waited for at %s", address);
        goto err_serve;
    }
    *out = serve;
    return 0;

err_serve:
    sl_serve_free(serve);
    return err;
}

void sl_serve_free(struct sl_serve *serve)
{
    if (serve == NULL)
        return;
    for (unsigned i = 0; i < SL_SERVE_CLIENTS; i++)
        if (serve->clients[i].live != NULL && serve->clients[i].is_suspended)
            give(&serve->clients[i], ":\n\n", 3);
    if (serve->http != NULL)
        MHD_stop_daemon(serve->http); /* closes what it listens on */
    if (serve->epoll_fd >= 0)
        close(serve->epoll_fd);
    free(serve);
}

int sl_serve_fd(const struct sl_serve *serve)
{
    return serve->epoll_fd;
}

/* What libmicrohttpd has read and not yet looked at makes no descriptor readable. */
bool sl_serve_turn(struct sl_serve *serve)
{
    unsigned long long ms = 1;
    unsigned times = 0;

    do {
        serve->has_room = false;
        (void)MHD_run(serve->http);
    } while (++times < RUNS &&
             (serve->has_room || (MHD_get_timeout(serve->http, &ms) == MHD_YES && ms == 0)));
    return times == RUNS;
}

static void tell(struct sl_serve *serve)
{
    uint64_t version = sl_cluster_version(serve->view->model);
    bool is_new =
        version != serve->told_version || serve->view->book->changes != serve->told_changes;
    size_t len = 3;
    char *text;

    if (serve->live == 0 || (!is_new && serve->view->now_ns - serve->told_ns < QUIET_S * SECOND))
        return;
    text = is_new ? state_event(serve, &len) : strdup(":\n\n");
    for (unsigned i = 0; text != NULL && i < SL_SERVE_CLIENTS; i++)
        if (serve->clients[i].fd >= 0 && serve->clients[i].live != NULL)
            give(&serve->clients[i], text, len);
    free(text);
    serve->told_version = version;
    serve->told_changes = serve->view->book->changes;
    serve->told_ns = serve->view->now_ns;
}

void sl_serve_tick(struct sl_serve *serve)
{
    tell(serve);
    /* A byte now and then would keep a place for ever. */
    for (unsigned i = 0; i < SL_SERVE_CLIENTS; i++)
        if (serve->clients[i].fd >= 0 && serve->clients[i].live == NULL &&
            serve->view->now_ns - serve->clients[i].since_ns > DEADLINE_S * SECOND)
            (void)shutdown(serve->clients[i].fd, SHUT_RDWR);
    (void)sl_serve_turn(serve);
}
