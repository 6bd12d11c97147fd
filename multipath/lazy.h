/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which paths of a connection are made, and when: one when it connects, the others when there is
 * something to spread over them, or when that one may not be enough. docs/design/0037-lazy-paths.md
 */
#ifndef SL_MULTIPATH_LAZY_H
#define SL_MULTIPATH_LAZY_H

#include "multipath/conn.h"

/* A message of so many bytes is worth more than one path. */
#define SL_MP_SPREAD_BYTES (256u << 10)

/* The leading end has its list of paths: which of them are for later. */
void sl_mp_lazy_plan(struct sl_mp_conn *conn);
/* Makes all; the end that does not lead asks for them. */
void sl_mp_lazy_end(struct sl_mp_conn *conn, const char *why);
/* Some may be needed now. */
static inline void sl_mp_paths_need(struct sl_mp_conn *conn, const char *why)
{
    if (SL_UNLIKELY(conn->later))
        sl_mp_lazy_end(conn, why);
}
/* Is there so much to send that all should carry? */
void sl_mp_paths_spread(struct sl_mp_conn *conn);
/* A port has come up: it may be near an end that had none so far, or with reserve the first of
 * one. */
void sl_mp_lazy_come_near(struct sl_mp_conn *conn);
/* One is up, of several that there may be: is it time for a second one, or for all? */
void sl_mp_lazy_watch(struct sl_mp_conn *conn, uint64_t now_ns);
/* All that there may be, made or not. */
static inline unsigned sl_mp_paths_all(const struct sl_mp_conn *conn)
{
    return conn->path_count > conn->paths_expected ? conn->path_count : conn->paths_expected;
}

#endif
