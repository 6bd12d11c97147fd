/* SPDX-License-Identifier: Apache-2.0 */
/* Texts of /proc and of cgroups, into which processes write their names: what is taken is whole and
 * within its bounds. */
#include "core/err.h"
#include "monitor/proctext.h"
#include "monitor/ranks.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void look_at_cgroup(const char *text)
{
    static const char *const controllers[] = {"", "cpu", "memory"};
    char path[32];

    for (unsigned i = 0; i < SL_ARRAY_LEN(controllers); i++) {
        if (!sl_proc_cgroup(text, controllers[i], path, sizeof(path)))
            continue;
        sl_assert(path[0] == '/' && strnlen(path, sizeof(path)) < sizeof(path));
        sl_assert(strstr(path, "/../") == NULL && strchr(path, '\n') == NULL);
        sl_assert(strlen(path) < 3 || strcmp(path + strlen(path) - 3, "/..") != 0);
    }
}

static void look_at_numbers(const char *text)
{
    uint64_t a, b, c;

    if (sl_proc_cpu_max(text, &a, &b))
        sl_assert(b > 0);
    if (sl_proc_limit(text, &a))
        sl_assert(a == UINT64_MAX || a < UINT64_C(1) << 60);
    (void)sl_proc_schedstat(text, &a, &b, &c);
    (void)sl_proc_field(text, "nr_periods", &a);
    (void)sl_proc_pressure(text, "some", &a);
}

static void look_at_process(const char *text)
{
    struct sl_proc_stat stat;
    uint32_t user;
    int32_t pid;

    if (sl_proc_stat(text, &stat)) {
        sl_assert(strnlen(stat.comm, sizeof(stat.comm)) < sizeof(stat.comm));
        sl_assert(stat.pid >= 0 && stat.parent >= 0 && stat.state != '\0');
    }
    if (sl_proc_status(text, &user, &pid))
        sl_assert(pid >= 0);
    if (sl_mon_page_name(text, &user, &pid))
        sl_assert(pid > 0);
    if (sl_mon_nccl_name(text, &pid))
        sl_assert(pid > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1); /* of its size, so that nobody reads beyond it */

    sl_assert(text != NULL);
    if (size > 0)
        memcpy(text, data, size);
    text[size] = '\0';
    look_at_process(text);
    look_at_cgroup(text);
    look_at_numbers(text);
    free(text);
    return 0;
}
