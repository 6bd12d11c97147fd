/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP for an instance: its page, its API, and server-sent events. It may only be read.
 *
 * No thread: the owner waits for sl_serve_fd() to be readable and calls sl_serve_turn(). Whoever
 * asks or reads slowly is closed after a while and holds nobody up.
 */
#ifndef SL_MONITOR_CLUSTER_SERVE_H
#define SL_MONITOR_CLUSTER_SERVE_H

#include "monitor/cluster/view.h"

#define SL_SERVE_CLIENTS 128 /* at once; the next ones wait */
#define SL_SERVE_LIVE 64     /* of those, who follow events; others are refused with 503 */

extern const char sl_cluster_page[];
extern const unsigned long sl_cluster_page_len;

struct sl_serve;

/* view: brought up to date by its owner before each turn; borrowed. -EADDRINUSE, -EACCES, ... */
int sl_serve_new(const char *address, const struct sl_cluster_view *view, struct sl_serve **out);
void sl_serve_free(struct sl_serve *serve);
int sl_serve_fd(const struct sl_serve *serve);
/* True: there is more to do at once. */
bool sl_serve_turn(struct sl_serve *serve);
/* About once a second: tells those who follow what has changed, and closes who is slow. */
void sl_serve_tick(struct sl_serve *serve);

#endif
