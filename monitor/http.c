/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/http.h"

#include "core/err.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define IDLE_S 10u             /* a client that is silent so long is closed */
#define MEMORY ((size_t)16384) /* of a client's request; a longer head is refused */
#define RUNS 8                 /* at once; then the owner has its turn */

/* One request. */
struct call {
    char target[SL_HTTP_TARGET_MAX + 1];
    void *request; /* the owner's; NULL: it is not parsed yet */
};

static struct sl_http_client *client_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

    return info != NULL ? info->socket_context : NULL;
}

/* ---- answers ---- */

struct MHD_Response *sl_http_body(char *body, size_t len)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(len, body, MHD_RESPMEM_MUST_FREE);

    if (response == NULL)
        free(body);
    return response;
}

enum MHD_Result sl_http_reply(struct MHD_Connection *connection, unsigned status, const char *type,
                              const char *allow, struct MHD_Response *response)
{
    enum MHD_Result good;

    if (response == NULL)
        return MHD_NO;
    (void)MHD_add_response_header(response, "Content-Type", type);
    (void)MHD_add_response_header(response, "Cache-Control", "no-store");
    if (status == 405 && allow != NULL)
        (void)MHD_add_response_header(response, "Allow", allow);
    good = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return good;
}

/* ---- requests ---- */

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
    struct sl_http *http = arg;
    struct call *call = *context;

    (void)url;
    (void)version;
    (void)data;
    if (call == NULL)
        return MHD_NO; /* no memory */
    if (call->request == NULL) {
        if (has_body(connection))
            return http->ops->refuse(http->owner, connection, 413,
                                     "requests have no body here: parameters are in the URL");
        call->request = http->ops->parse(http->owner, method, call->target);
        return call->request != NULL ? MHD_YES : MHD_NO; /* it is called again */
    }
    if (*len != 0) {
        *len = 0;
        return MHD_YES;
    }
    return http->ops->answer(http->owner, connection, client_of(connection), call->request);
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
    struct sl_http *http = arg;
    struct sl_http_client *client = client_of(connection);
    struct call *call = *context;

    (void)code;
    if (client != NULL) {
        client->since_ns = http->ops->now_ns(http->owner);
        http->ops->ended(http->owner, client);
    }
    if (call != NULL)
        free(call->request);
    free(call);
    *context = NULL;
}

/* ---- clients ---- */

static void on_client(void *arg, struct MHD_Connection *connection, void **context,
                      enum MHD_ConnectionNotificationCode code)
{
    struct sl_http *http = arg;
    struct sl_http_client *client = *context;

    if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
        if (client != NULL) {
            http->ops->ended(http->owner, client);
            client->fd = -1;
        }
        *context = NULL;
        http->has_room = true;
        return;
    }
    for (unsigned i = 0; i < http->count; i++)
        if (http->clients[i].fd < 0) {
            client = &http->clients[i];
            *client = (struct sl_http_client){
                .fd = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)
                          ->connect_fd,
                .since_ns = http->ops->now_ns(http->owner)};
            *context = client;
            return;
        }
}

/* A byte now and then would keep a place for ever. */
void sl_http_close_slow(struct sl_http *http, uint64_t deadline_ns)
{
    uint64_t now = http->ops->now_ns(http->owner);

    for (unsigned i = 0; i < http->count; i++) {
        const struct sl_http_client *client = &http->clients[i];

        if (client->fd >= 0 && client->held == NULL && now - client->since_ns > deadline_ns)
            (void)shutdown(client->fd, SHUT_RDWR);
    }
}

/* ---- the owner's calls ---- */

void sl_http_init(struct sl_http *http, const struct sl_http_ops *ops, void *owner, unsigned count)
{
    sl_assert(count <= SL_HTTP_CLIENTS_MAX);
    *http = (struct sl_http){.ops = ops, .owner = owner, .count = count};
    for (unsigned i = 0; i < count; i++)
        http->clients[i].fd = -1;
}

int sl_http_start(struct sl_http *http, int fd, int epoll_fd, const char *where)
{
    struct epoll_event event = {.events = EPOLLIN};
    const union MHD_DaemonInfo *info;

    http->daemon = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, on_request, http,
        MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT, http->count,
        MHD_OPTION_CONNECTION_TIMEOUT, IDLE_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT, MEMORY,
        MHD_OPTION_URI_LOG_CALLBACK, on_target, http, MHD_OPTION_NOTIFY_COMPLETED, on_end, http,
        MHD_OPTION_NOTIFY_CONNECTION, on_client, http, MHD_OPTION_END);
    if (http->daemon == NULL) {
        close(fd);
        return sl_fail(-EIO, "libmicrohttpd does not start at %s", where);
    }
    info = MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    if (info == NULL || epoll_ctl(epoll_fd, EPOLL_CTL_ADD, info->epoll_fd, &event) != 0) {
        sl_http_stop(http);
        return sl_fail(-EIO, "libmicrohttpd cannot be waited for at %s", where);
    }
    return 0;
}

void sl_http_stop(struct sl_http *http)
{
    if (http->daemon == NULL)
        return;
    MHD_stop_daemon(http->daemon); /* closes what it listens on */
    http->daemon = NULL;
}

/* What libmicrohttpd has read and not yet looked at makes no descriptor readable. */
bool sl_http_run(struct sl_http *http)
{
    unsigned long long ms = 1;
    unsigned times = 0;

    if (http->daemon == NULL)
        return false;
    do {
        http->has_room = false;
        (void)MHD_run(http->daemon);
    } while (++times < RUNS &&
             (http->has_room || (MHD_get_timeout(http->daemon, &ms) == MHD_YES && ms == 0)));
    return times == RUNS;
}
