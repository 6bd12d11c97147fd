/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP in its owner's loop, by libmicrohttpd: clients that are slow or silent lose their place, a
 * request has no body, and is answered when it is whole. What is asked and answered is the owner's.
 */
#ifndef SL_MONITOR_HTTP_H
#define SL_MONITOR_HTTP_H

#include <microhttpd.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SL_HTTP_TARGET_MAX 1024 /* bytes of a target, "/v1/events?since=3" */
#define SL_HTTP_CLIENTS_MAX 256

/* Somebody who is connected. */
struct sl_http_client {
    int fd;            /* -1: nobody */
    uint64_t since_ns; /* it connected, or was answered last */
    /* The owner's: its request waits, or its answer goes on as things happen, so that it has no
     * deadline; NULL: not. */
    struct MHD_Connection *held;
    void *state; /* the owner's */
};

struct sl_http_ops {
    /* A request into what answer() takes; free() frees it. The target is cut where it is longer
     * than SL_HTTP_TARGET_MAX, and still longer than that. NULL without memory. */
    void *(*parse)(void *owner, const char *method, const char *target);
    /* Answers it, or holds the client: then it is called again, when the connection is resumed.
     * client may be NULL. */
    enum MHD_Result (*answer)(void *owner, struct MHD_Connection *connection,
                              struct sl_http_client *client, void *request);
    /* An error, in the owner's form. */
    enum MHD_Result (*refuse)(void *owner, struct MHD_Connection *connection, int status,
                              const char *why);
    /* Its request is over, or it left: what is held is no more. */
    void (*ended)(void *owner, struct sl_http_client *client);
    uint64_t (*now_ns)(const void *owner);
};

struct sl_http {
    const struct sl_http_ops *ops;
    void *owner;
    struct MHD_Daemon *daemon; /* NULL: it does not listen */
    bool has_room;             /* somebody left: who waits to be accepted is to be looked at */
    unsigned count;
    struct sl_http_client clients[SL_HTTP_CLIENTS_MAX]; /* `count` of them */
};

/* Nobody is connected, and it does not listen. count: of clients, at most. */
void sl_http_init(struct sl_http *http, const struct sl_http_ops *ops, void *owner, unsigned count);
/* Takes the socket that it is to listen on, and adds its own descriptor to epoll_fd. where: for the
 * sentence. -EIO. */
int sl_http_start(struct sl_http *http, int fd, int epoll_fd, const char *where);
/* Closes all. Who is held has been resumed before. */
void sl_http_stop(struct sl_http *http);
/* All that came. True: there is more, and others have their turn first. */
bool sl_http_run(struct sl_http *http);
/* Closes those whose request, or whose reading of an answer, takes longer. */
void sl_http_close_slow(struct sl_http *http, uint64_t deadline_ns);

/* Adds Content-Type and Cache-Control; takes the response. allow: of a 405; may be NULL. */
enum MHD_Result sl_http_reply(struct MHD_Connection *connection, unsigned status, const char *type,
                              const char *allow, struct MHD_Response *response);
/* The body becomes the response's: free(). NULL without memory, and it is freed. */
struct MHD_Response *sl_http_body(char *body, size_t len);

#endif
