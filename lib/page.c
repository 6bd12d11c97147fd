/* SPDX-License-Identifier: Apache-2.0 */
/* The state page, for tools that are made of the library. */
#include "collectives/status.h"
#include "lib/api.h"

void sl_comm_publish(struct sluice_comm *comm)
{
    if (sl_check_process(comm) != 0)
        return;
    sl_enter(comm);
    sl_status_publish(comm);
    sl_leave(comm);
}

int sl_comm_show_next(const struct sluice_comm *comm, const char *coll, const char *doing)
{
    return sl_status_show_next(comm, coll, doing);
}

void sl_comm_hide_next(int place)
{
    sl_status_hide_next(place);
}
