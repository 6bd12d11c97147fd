/* SPDX-License-Identifier: Apache-2.0 */
#include "multipath/watch.h"

#include "multipath/conn.h"

#define WATCH_NS (5 * SL_NS_PER_MS)
#define CONNS 32 /* of an interface, at a time: of many each has its turn later */
#define PROBATION_NS (10 * SL_NS_PER_MS) /* after one loss; twice as long after each further */
#define PROBATION_LOSSES 6

/* A path that has failed before gets twice the share from time to time, the more seldom the oftener
 * it did. */
static void grow(struct sl_mp_path *path, uint64_t now_ns)
{
    unsigned losses = path->losses < PROBATION_LOSSES ? path->losses : PROBATION_LOSSES;

    if (path->writes_most >= SL_MP_WRITES_MAX || now_ns - path->grown_ns < PROBATION_NS << losses)
        return;
    path->writes_most *= 2;
    path->grown_ns = now_ns;
}

static void look(struct sl_mp_conn *conn, uint64_t now_ns)
{
    if (conn->paths_up < 2)
        return;
    for (unsigned i = 0; i < conn->path_count; i++) {
        struct sl_mp_path *path = conn->paths[i];

        if (path == NULL || path->state != SL_MP_PATH_UP || path->failing)
            continue;
        grow(path, now_ns);
    }
}

void sl_mp_watch(struct sl_mp_iface *iface, uint64_t now_ns)
{
    if (now_ns < iface->watch_ns)
        return;
    iface->watch_ns = now_ns + WATCH_NS;
    for (unsigned i = 0; i < iface->conn_count && i < CONNS; i++) {
        struct sl_node *node = sl_list_pop_front(&iface->conns);

        sl_list_push_back(&iface->conns, node);
        look(sl_container_of(node, struct sl_mp_conn, link), now_ns);
    }
}
