/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/cluster/serve.h"

#include "monitor/api_request.h"
#include "monitor/api_socket.h"
#include "monitor/http.h"

#include "core/err.h"

#include <assert.h>
#include <errno.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEADLINE_S 20 /* for a request to come, and to be read */
#define QUIET_S 10    /* without a change: a line that means nothing, to find who is gone */
#define SECOND UINT64_C(1000000000)

static_assert(SL_HTTP_TARGET_MAX >= SL_CLUSTER_TARGET_MAX,
              "a target that is too long is cut behind that");

/* Who follows events. */
struct follower {
    struct sl_http_client *client; /* NULL: nobody; held while it follows */
    bool is_suspended;
    char *text; /* that it has not been given yet; owned */
    size_t len, at;
};

struct sl_serve {
    const struct sl_cluster_view *view;
    struct sl_http http;
    int epoll_fd;
    unsigned live;
    uint64_t told_version, told_changes, told_ns;
    struct follower followers[SL_SERVE_LIVE];
};

/* ---- answers ---- */

/* The page holds all that it needs: nothing of others is to run in it. */
static enum MHD_Result reply_with(struct MHD_Connection *connection, unsigned status,
                                  const char *type, struct MHD_Response *response)
{
    if (response != NULL) {
        (void)MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
        (void)MHD_add_response_header(
            response, "Content-Security-Policy",
            "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
            "connect-src 'self'; img-src data:; frame-ancestors 'none'; base-uri 'none'");
    }
    return sl_http_reply(connection, status, type, "GET, HEAD", response);
}

static enum MHD_Result reply(struct MHD_Connection *connection, const struct sl_http_answer *answer)
{
    return reply_with(connection, (unsigned)answer->status, answer->type,
                      sl_http_body(answer->body, answer->len));
}

static enum MHD_Result refuse(void *owner, struct MHD_Connection *connection, int status,
                              const char *why)
{
    struct sl_http_answer answer;

    (void)owner;
    return sl_http_answer_error(status, why, &answer) == 0 ? reply(connection, &answer) : MHD_NO;
}

static enum MHD_Result reply_page(struct MHD_Connection *connection)
{
    return reply_with(connection, 200, "text/html; charset=utf-8",
                      MHD_create_response_from_buffer(sl_cluster_page_len,
                                                      (void *)(uintptr_t)sl_cluster_page,
                                                      MHD_RESPMEM_PERSISTENT));
}

/* A file as it is. */
static enum MHD_Result reply_bundle(struct sl_serve *serve, struct MHD_Connection *connection,
                                    const char *id)
{
    int fd = sl_cases_open(serve->view->cases, id);
    struct MHD_Response *response;
    struct stat stat;
    char name[64];

    if (fd < 0)
        return refuse(serve, connection, 404, "no bundle of that verdict is kept here");
    response = fstat(fd, &stat) == 0 ? MHD_create_response_from_fd64((uint64_t)stat.st_size, fd)
                                     : NULL; /* which closes it */
    if (response == NULL) {
        close(fd);
        return MHD_NO;
    }
    snprintf(name, sizeof(name), "attachment; filename=\"%s.case\"", id);
    (void)MHD_add_response_header(response, "Content-Disposition", name);
    return reply_with(connection, 200, "application/octet-stream", response);
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

static void give(struct follower *follower, const char *text, size_t len)
{
    if (follower->text == NULL) { /* else it reads slowly, and the next one tells it all */
        follower->text = malloc(len);
        if (follower->text == NULL)
            return;
        memcpy(follower->text, text, len);
        follower->len = len;
        follower->at = 0;
    }
    if (follower->is_suspended) {
        follower->is_suspended = false;
        MHD_resume_connection(follower->client->held);
    }
}

static ssize_t on_live(void *arg, uint64_t position, char *buffer, size_t cap)
{
    struct follower *follower = arg;
    size_t len = follower->text != NULL ? follower->len - follower->at : 0;

    (void)position;
    if (follower->client == NULL)
        return MHD_CONTENT_READER_END_OF_STREAM;
    if (len == 0) {
        follower->is_suspended = true;
        MHD_suspend_connection(follower->client->held);
        return 0;
    }
    len = len < cap ? len : cap;
    memcpy(buffer, follower->text + follower->at, len);
    follower->at += len;
    if (follower->at == follower->len) {
        free(follower->text);
        follower->text = NULL;
    }
    return (ssize_t)len;
}

static struct follower *place_of(struct sl_serve *serve)
{
    for (unsigned i = 0; i < SL_SERVE_LIVE; i++)
        if (serve->followers[i].client == NULL)
            return &serve->followers[i];
    return NULL;
}

static enum MHD_Result follow(struct sl_serve *serve, struct MHD_Connection *connection,
                              struct sl_http_client *client)
{
    struct follower *follower = client != NULL ? place_of(serve) : NULL;
    struct MHD_Response *response;

    if (follower == NULL)
        return refuse(serve, connection, 503, "too many follow events already");
    response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 4096, on_live, follower, NULL);
    if (response == NULL)
        return MHD_NO;
    client->held = connection;
    client->state = follower;
    *follower = (struct follower){.client = client};
    follower->text = state_event(serve, &follower->len);
    serve->live++;
    return reply_with(connection, 200, "text/event-stream", response);
}

static void on_ended(void *owner, struct sl_http_client *client)
{
    struct sl_serve *serve = owner;
    struct follower *follower = client->state;

    if (client->held == NULL)
        return;
    client->held = NULL;
    client->state = NULL;
    free(follower->text);
    *follower = (struct follower){.client = NULL};
    serve->live--;
}

/* ---- requests ---- */

static enum MHD_Result on_answer(void *owner, struct MHD_Connection *connection,
                                 struct sl_http_client *client, void *asked)
{
    struct sl_serve *serve = owner;
    const struct sl_cluster_request *request = asked;
    const char *accept = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Accept");
    struct sl_http_answer out;

    if (request->status == 200 && request->what == SL_CLUSTER_PAGE)
        return reply_page(connection);
    if (request->status == 200 && request->what == SL_CLUSTER_LIVE)
        return follow(serve, connection, client);
    if (request->status == 200 && request->what == SL_CLUSTER_BUNDLE)
        return reply_bundle(serve, connection, request->id);
    if (sl_cluster_answer(serve->view, request, sl_api_wants_openmetrics(accept), &out) != 0)
        return MHD_NO;
    return reply(connection, &out);
}

static void *on_parse(void *owner, const char *method, const char *target)
{
    struct sl_cluster_request *request = calloc(1, sizeof(*request));

    (void)owner;
    if (request != NULL)
        sl_cluster_parse(method, target, request);
    return request;
}

static uint64_t on_now(const void *owner)
{
    const struct sl_serve *serve = owner;

    return serve->view->now_ns;
}

static const struct sl_http_ops ops = {
    .parse = on_parse, .answer = on_answer, .refuse = refuse, .ended = on_ended, .now_ns = on_now};

/* ---- the owner's calls ---- */

int sl_serve_new(const char *address, const struct sl_cluster_view *view, struct sl_serve **out)
{
    struct sl_serve *serve = calloc(1, sizeof(*serve));
    int fd, err;

    if (serve == NULL)
        return sl_fail(-ENOMEM, "no memory for HTTP");
    serve->view = view;
    sl_http_init(&serve->http, &ops, serve, SL_SERVE_CLIENTS);
    serve->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    fd = serve->epoll_fd < 0 ? sl_fail(-errno, "epoll: %s", sluice_strerror(-errno))
                             : sl_api_listen_address(address);
    err = fd < 0 ? fd : sl_http_start(&serve->http, fd, serve->epoll_fd, address);
    if (err != 0) {
        sl_serve_free(serve);
        return err;
    }
    *out = serve;
    return 0;
}

void sl_serve_free(struct sl_serve *serve)
{
    if (serve == NULL)
        return;
    for (unsigned i = 0; i < SL_SERVE_LIVE; i++)
        if (serve->followers[i].client != NULL && serve->followers[i].is_suspended)
            give(&serve->followers[i], ":\n\n", 3);
    sl_http_stop(&serve->http);
    if (serve->epoll_fd >= 0)
        close(serve->epoll_fd);
    free(serve);
}

int sl_serve_fd(const struct sl_serve *serve)
{
    return serve->epoll_fd;
}

bool sl_serve_turn(struct sl_serve *serve)
{
    return sl_http_run(&serve->http);
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
    for (unsigned i = 0; text != NULL && i < SL_SERVE_LIVE; i++)
        if (serve->followers[i].client != NULL)
            give(&serve->followers[i], text, len);
    free(text);
    serve->told_version = version;
    serve->told_changes = serve->view->book->changes;
    serve->told_ns = serve->view->now_ns;
}

void sl_serve_tick(struct sl_serve *serve)
{
    tell(serve);
    sl_http_close_slow(&serve->http, DEADLINE_S * SECOND);
    (void)sl_serve_turn(serve);
}
