/* SPDX-License-Identifier: Apache-2.0 */
/* What sl_ibv_get() says on machines without libibverbs, or with an old one. Tables are opened
 * once in a process, so the machine is an argument: "absent", or the file to find under the
 * library's name. */
#include "verbs/ibv_dl.h"

#include "core/err.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

static const char *found;
static unsigned opened;

void *dlopen(const char *name, int flags);

/* In place of the system's: on this machine there is what the argument says, and no libmlx5. */
void *dlopen(const char *name, int flags)
{
    void *(*next)(const char *, int);
    void *symbol = dlsym(RTLD_NEXT, "dlopen");

    memcpy(&next, &symbol, sizeof(next));
    if (name != NULL && strncmp(name, "libmlx5", 7) == 0)
        return NULL;
    if (name == NULL || strcmp(name, "libibverbs.so.1") != 0)
        return next(name, flags);
    opened++;
    return strcmp(found, "absent") == 0 ? NULL : next(found, flags);
}

static void without_the_library_it_says_what_to_install(void **state)
{
    const struct sl_ibv *ibv = NULL;

    for (unsigned i = 0; i < 2; i++) { /* and says it again when asked again */
        assert_int_equal(sl_ibv_get(&ibv), -ENOTSUP);
        assert_null(ibv);
        assert_non_null(strstr(sluice_last_error(), "libibverbs.so.1 cannot be opened"));
        assert_non_null(strstr(sluice_last_error(), "install rdma-core"));
        assert_int_equal(sl_fail(-EIO, "something else"), -EIO);
    }
    assert_int_equal(opened, 1);
    assert_null(sl_mlx5dv_get());
}

static void what_came_later_is_null_in_an_old_library(void **state)
{
    const struct sl_ibv *ibv = NULL;

    assert_int_equal(sl_ibv_get(&ibv), 0);
    assert_non_null(ibv->ibv_get_device_list);
    assert_non_null(ibv->ibv_query_port);
    assert_non_null(ibv->ibv_port_state_str);
    assert_null(ibv->_ibv_query_gid_ex);
    assert_null(ibv->ibv_reg_mr_iova2);
    assert_null(ibv->ibv_reg_dmabuf_mr);
    assert_null(ibv->ibv_query_ece);
    assert_null(ibv->ibv_set_ece);
    assert_null(sl_mlx5dv_get());
}

static void a_library_that_is_too_old_is_told_by_what_it_lacks(void **state)
{
    const struct sl_ibv *ibv = NULL;

    assert_int_equal(sl_ibv_get(&ibv), -ENOTSUP);
    assert_null(ibv);
    assert_non_null(strstr(sluice_last_error(), "has no function ibv_create_srq: it is too old"));
    assert_null(sl_mlx5dv_get());
}

static void a_table_that_was_given_is_used_and_nothing_is_opened(void **state)
{
    static struct sl_ibv given;
    static struct sl_mlx5dv mlx5;
    const struct sl_ibv *ibv = NULL;
    unsigned before = opened;

    sl_ibv_replace(&given, &mlx5);
    assert_int_equal(sl_ibv_get(&ibv), 0);
    assert_ptr_equal(ibv, &given);
    assert_ptr_equal(sl_mlx5dv_get(), &mlx5);
    assert_int_equal(opened, before);
}

#if __has_include(<infiniband/mlx5dv.h>)
#include <infiniband/mlx5dv.h>

/* Our part of it against the library's own header, by the compiler. */
_Static_assert(offsetof(struct sl_mlx5dv_context, comp_mask) ==
                   offsetof(struct mlx5dv_context, comp_mask),
               "");
_Static_assert(offsetof(struct sl_mlx5dv_context, num_lag_ports) ==
                   offsetof(struct mlx5dv_context, num_lag_ports),
               "");
_Static_assert(sizeof(struct sl_mlx5dv_context) >= sizeof(struct mlx5dv_context),
               "room for all of it");
_Static_assert(SL_MLX5DV_MASK_NUM_LAG_PORTS == MLX5DV_CONTEXT_MASK_NUM_LAG_PORTS, "");
_Static_assert(__builtin_types_compatible_p(__typeof__(&mlx5dv_query_qp_lag_port),
                                            int (*)(struct ibv_qp *, uint8_t *, uint8_t *)),
               "");
_Static_assert(__builtin_types_compatible_p(__typeof__(&mlx5dv_modify_qp_lag_port),
                                            int (*)(struct ibv_qp *, uint8_t)),
               "");
_Static_assert(__builtin_types_compatible_p(__typeof__(&mlx5dv_modify_qp_udp_sport),
                                            int (*)(struct ibv_qp *, uint16_t)),
               "");
#endif

int main(int argc, char **argv)
{
    const struct CMUnitTest absent[] = {
        cmocka_unit_test(without_the_library_it_says_what_to_install),
    };
    const struct CMUnitTest old[] = {
        cmocka_unit_test(what_came_later_is_null_in_an_old_library),
    };
    const struct CMUnitTest too_old[] = {
        cmocka_unit_test(a_library_that_is_too_old_is_told_by_what_it_lacks),
    };
    const struct CMUnitTest given[] = {
        cmocka_unit_test(a_table_that_was_given_is_used_and_nothing_is_opened),
    };

    if (argc != 3) {
        fprintf(stderr, "usage: %s absent|old|too_old|given FILE\n", argv[0]);
        return 2;
    }
    found = argv[2];
    if (strcmp(argv[1], "absent") == 0)
        return cmocka_run_group_tests(absent, NULL, NULL);
    if (strcmp(argv[1], "old") == 0)
        return cmocka_run_group_tests(old, NULL, NULL);
    if (strcmp(argv[1], "too_old") == 0)
        return cmocka_run_group_tests(too_old, NULL, NULL);
    return cmocka_run_group_tests(given, NULL, NULL);
}
