/* SPDX-License-Identifier: Apache-2.0 */
/* Fills the tables of ibv_dl.h from the libraries of this machine. */
#include "verbs/ibv_dl.h"

#include "core/dl.h"
#include "core/err.h"

#include <pthread.h>
#include <stddef.h>
#include <stdio.h>

#define NEEDED_IBV(type, name, args) {#name, offsetof(struct sl_ibv, name), false},
#define OPTIONAL_IBV(type, name, args) {#name, offsetof(struct sl_ibv, name), true},
#define NEEDED_MLX5(type, name, args) {#name, offsetof(struct sl_mlx5dv, name), false},
#define OPTIONAL_MLX5(type, name, args) {#name, offsetof(struct sl_mlx5dv, name), true},

static struct sl_ibv ibv_table;
static struct sl_mlx5dv mlx5dv_table;
static const struct sl_ibv *ibv;
static const struct sl_mlx5dv *mlx5dv;
static int ibv_error;
static char ibv_why[256];
static bool replaced;

static void open_libraries(void)
{
    static const char *const ibv_names[] = {"libibverbs.so.1", NULL};
    static const char *const mlx5_names[] = {"libmlx5.so.1", NULL};
    static const struct sl_dl_symbol ibv_symbols[] = {SL_IBV_FUNCTIONS(NEEDED_IBV, OPTIONAL_IBV)};
    static const struct sl_dl_symbol mlx5_symbols[] = {
        SL_MLX5DV_FUNCTIONS(NEEDED_MLX5, OPTIONAL_MLX5)};

    ibv_error = sl_dl_open(ibv_names, ibv_symbols, SL_ARRAY_LEN(ibv_symbols), &ibv_table);
    if (ibv_error != 0) {
        snprintf(ibv_why, sizeof(ibv_why), "%s", sluice_last_error());
        return;
    }
    ibv = &ibv_table;
    if (sl_dl_open(mlx5_names, mlx5_symbols, SL_ARRAY_LEN(mlx5_symbols), &mlx5dv_table) == 0)
        mlx5dv = &mlx5dv_table;
}

static void open_once(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    if (!replaced)
        pthread_once(&once, open_libraries);
}

int sl_ibv_get(const struct sl_ibv **out)
{
    open_once();
    if (ibv == NULL)
        return sl_fail(ibv_error, "%s; install rdma-core (Debian: ibverbs-providers)", ibv_why);
    *out = ibv;
    return 0;
}

const struct sl_mlx5dv *sl_mlx5dv_get(void)
{
    open_once();
    return mlx5dv;
}

void sl_ibv_replace(const struct sl_ibv *ibv_given, const struct sl_mlx5dv *mlx5dv_given)
{
    replaced = true;
    ibv = ibv_given;
    mlx5dv = mlx5dv_given;
}
