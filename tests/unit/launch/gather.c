/* SPDX-License-Identifier: Apache-2.0 */
/* A small program for real launchers: meets the other ranks twice, each time swaps twice, and says
 * who it is. Exit status 0: all was right. */
#include "launch/launch.h"

#include "core/err.h"
#include "core/log.h"

#include <stdio.h>
#include <stdlib.h>

extern char **environ;

static int meet(const struct sl_config *config, struct sl_identity *id)
{
    struct sl_exchange *exchange;
    int err = sl_launch(config, id, &exchange);

    if (err != 0)
        return err;
    int *all = calloc((size_t)exchange->size, sizeof(*all));
    for (int round = 0; round < 2 && err == 0; round++) {
        int mine = exchange->rank * 10 + round;

        err = exchange->allgather(exchange, &mine, sizeof(mine), all);
        for (int i = 0; i < exchange->size && err == 0; i++)
            if (all[i] != i * 10 + round)
                err = sl_fail(-EBADMSG, "rank %d gave %d", i, all[i]);
    }
    free(all);
    exchange->close(exchange);
    return err;
}

int main(void)
{
    struct sl_config config;
    struct sl_identity id;
    int err = sl_config_from_env(&config, environ);

    err = err ?: sl_log_configure(config.log);
    for (int i = 0; i < 2 && err == 0; i++)
        err = meet(&config, &id);
    if (err != 0) {
        fprintf(stderr, "%s\n", sluice_last_error());
        return 1;
    }
    printf("rank %d of %d by %s\n", id.rank, id.size, sl_launcher_name(id.launcher));
    return 0;
}
