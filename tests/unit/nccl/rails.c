/* SPDX-License-Identifier: Apache-2.0 */
/* Fakes beneath the plugin. */
#include "tests/unit/nccl/rails.h"

#include "core/transport.h"
#include "tests/fake/fake_ibv.h"
#include "verbs/memlock.h"
#include "verbs/iface.h"
#include "verbs/verbs.h"
#include "core/registry.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#define STEPS 3 /* of the wire for each progress */

struct fake_ibv *rails_fake;
struct fake_cuda *rails_cuda;

/* The machine's own limit is not what is tested. */
bool __wrap_sl_verbs_memlock_fits(uint64_t more, char *why, size_t cap);

bool __wrap_sl_verbs_memlock_fits(uint64_t more, char *why, size_t cap)
{
    (void)more, (void)why, (void)cap;
    return true;
}

/* The driver counts as loaded where there are GPUs. */
void *__real_dlopen(const char *name, int flags);
void *__wrap_dlopen(const char *name, int flags);

void *__wrap_dlopen(const char *name, int flags)
{
    if (name != NULL && strcmp(name, "libcuda.so.1") == 0 && (flags & RTLD_NOLOAD) != 0)
        return rails_cuda != NULL ? __real_dlopen(NULL, RTLD_LAZY) : NULL;
    return __real_dlopen(name, flags);
}

int __real_sl_transport_list(const char *list, const struct sl_transport_ops **out, unsigned cap,
                             unsigned *count);
int __wrap_sl_transport_list(const char *list, const struct sl_transport_ops **out, unsigned cap,
                             unsigned *count);

static int progress(struct sl_iface *iface, unsigned budget)
{
    fake_ibv_run(rails_fake, STEPS);
    return sl_verbs_ops.progress(iface, budget);
}

int __wrap_sl_transport_list(const char *list, const struct sl_transport_ops **out, unsigned cap,
                             unsigned *count)
{
    static struct sl_transport_ops ops;
    int err = __real_sl_transport_list(list, out, cap, count);

    for (unsigned i = 0; err == 0 && i < *count; i++)
        if (out[i]->open == sl_verbs_ops.open) {
            ops = *out[i];
            ops.progress = progress;
            out[i] = &ops;
        }
    return err;
}

void rails_up(unsigned gpus)
{
    struct fake_ibv_device params;

    rails_fake = fake_ibv_create(11);
    for (unsigned i = 0; i < 2; i++) {
        char name[8];

        snprintf(name, sizeof(name), "a%u", i);
        fake_ibv_device_init(&params, name);
        fake_ibv_device_add(rails_fake, &params);
    }
    fake_ibv_delay(rails_fake, 3);
    sl_ibv_replace(fake_ibv_table(rails_fake), fake_ibv_mlx5(rails_fake));
    if (gpus == 0)
        return;
    rails_cuda = fake_cuda_create(gpus);
    sl_cuda_replace(fake_cuda_table(rails_cuda));
}

void rails_down(void)
{
    if (fake_ibv_misuse(rails_fake) != NULL)
        fail_msg("%s", fake_ibv_misuse(rails_fake));
    assert_int_equal(fake_ibv_live(rails_fake), 0);
    fake_ibv_destroy(rails_fake);
    rails_fake = NULL;
    if (rails_cuda == NULL)
        return;
    if (fake_cuda_misuse(rails_cuda) != NULL)
        fail_msg("%s", fake_cuda_misuse(rails_cuda));
    assert_int_equal(fake_cuda_live(rails_cuda), 0);
    sl_cuda_replace(NULL);
    fake_cuda_destroy(rails_cuda);
    rails_cuda = NULL;
}
