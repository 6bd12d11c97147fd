/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The common part of the files by which endpoints get their connections.
 *
 *   conn.c     both ends: sockets, TLS, the first and the last moment of connecting
 *   listen.c   the sockets that are listened on
 *   pending.c  accepted connections until they have proved whose they are
 *   dial.c     the end that dials
 *   redial.c   endpoints that take the place of lost ones
 */
#ifndef SL_TCP_CONN_H
#define SL_TCP_CONN_H

#include "tcp/tcp.h"

static inline uint64_t sl_tcp_now(const struct sl_tcp_iface *iface)
{
    return sl_now(iface->base.worker->clock);
}

/* conn.c */
/* A descriptor that does not block, or a negative errno. */
int sl_tcp_socket_new(int family);
void sl_tcp_set_int(int fd, int level, int name, int64_t value);
/* Options that must be set before connect() or listen() to count for the handshake. */
void sl_tcp_tune_early(const struct sl_tcp_iface *iface, int fd);
void sl_tcp_watch_close(struct sl_tcp_iface *iface, struct sl_tcp_watch *watch);
/* A connection whose both ends have one address, or a loopback one, does not leave this host: both
 * ends see that alike. */
bool sl_tcp_stays_here(int fd);
/* Nothing that came on an earlier socket of it counts any more. */
void sl_tcp_conn_fresh(struct sl_tcp_conn *conn);
/* The endpoint will not be connected: status and the thread's last error say why. */
void sl_tcp_connect_fail(struct sl_tcp_ep *ep, int status);
/* Both ends have proved themselves: hello and answer as they travelled. */
int sl_tcp_conn_proved(struct sl_tcp_conn *conn, const uint8_t *hello, const uint8_t *answer);
/* Goes on with the TLS handshake of a connection whose ends have proved themselves. */
void sl_tcp_conn_secure(struct sl_tcp_conn *conn);

/* pending.c */
/* Answers those that named this endpoint before it connected. */
void sl_tcp_pending_claim(struct sl_tcp_ep *ep);
void sl_tcp_pending_timers(struct sl_tcp_iface *iface, uint64_t time);
void sl_tcp_pending_close(struct sl_tcp_iface *iface);

/* dial.c */
/* Dials the control connection to the current target, or the next that can be dialled. */
void sl_tcp_dial_control(struct sl_tcp_ep *ep);
/* The others, to the address that answered. */
void sl_tcp_dial_data(struct sl_tcp_ep *ep);
/* The likely reason for the silence of a dialled connection. */
const char *sl_tcp_silence(const struct sl_tcp_conn *conn);
/* The time to connect is over: notes the reason in ep->tried. */
void sl_tcp_note_silence(struct sl_tcp_ep *ep);
/* Nobody listens, or knows the endpoint, at the current target. False: that says nothing, as the
 * peer was not there before. */
bool sl_tcp_nobody(struct sl_tcp_ep *ep, const char *text);
/* This attempt came to nothing. */
void sl_tcp_dial_failed(struct sl_tcp_conn *conn, int status, const char *text);

/* redial.c */
/* The peer is at that one of the targets; or where its connection comes from, if that is one. */
void sl_tcp_found_at(struct sl_tcp_ep *ep, unsigned target_idx);
void sl_tcp_found_from(struct sl_tcp_ep *ep, int fd);
/* Begins to ask whether the end that dials is there. */
void sl_tcp_knock_start(struct sl_tcp_ep *ep);
void sl_tcp_knock_timer(struct sl_tcp_ep *ep, uint64_t time);
/* Takes one that does not knock. What an engine has of it stays valid. */
void sl_tcp_knock_end(struct sl_tcp_ep *ep);

#endif
