/* SPDX-License-Identifier: Apache-2.0 */
/* Room for shared memory in control groups of both versions, which are files in a folder here. */
#include "shm/room.h"

#include "core/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#define MIB ((size_t)1 << 20)

static char folder[64];

/* With 64-bit offsets, as this tree is built, fopen() goes by this name. */
FILE *__real_fopen64(const char *path, const char *mode);
FILE *__wrap_fopen64(const char *path, const char *mode);

FILE *__wrap_fopen64(const char *path, const char *mode)
{
    char here[512];

    snprintf(here, sizeof(here), "%s%s", folder, path);
    return __real_fopen64(here, mode);
}

/* The clock stands until a case says later(). */
static time_t clock_s;

int __wrap_clock_gettime(clockid_t id, struct timespec *ts);

int __wrap_clock_gettime(clockid_t id, struct timespec *ts)
{
    (void)id;
    *ts = (struct timespec){.tv_sec = clock_s};
    return 0;
}

static void later(void)
{
    clock_s++;
}

/* A file of the machine that the code sees, with its folders. */
static void put(const char *path, const char *text)
{
    char here[512];

    snprintf(here, sizeof(here), "%s%s", folder, path);
    for (char *slash = strchr(here + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(here, 0700);
        *slash = '/';
    }
    FILE *f = __real_fopen64(here, "w");

    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static int fresh(void **state)
{
    (void)state;
    later(); /* what another case saw serves no more */
    snprintf(folder, sizeof(folder), "/tmp/sluice-room-XXXXXX");
    assert_non_null(mkdtemp(folder));
    put("/proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\n");
    return 0;
}

static int clean(void **state)
{
    char command[128];

    (void)state;
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    return system(command);
}

static int ask(size_t mib)
{
    return shm_room_check("a ring", "ask for less", mib * MIB, mib * MIB);
}

static void refused(size_t mib, const char *words)
{
    assert_int_equal(ask(mib), -ENOMEM);
    if (strstr(sluice_last_error(), words) == NULL)
        fail_msg("'%s' does not say '%s'", sluice_last_error(), words);
}

static void a_group_at_its_limit_is_refused_with_its_figures(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/job\n");
    put("/sys/fs/cgroup/job/memory.max", "104857600\n");    /* 100 MiB */
    put("/sys/fs/cgroup/job/memory.current", "73400320\n"); /* 70 MiB */
    put("/sys/fs/cgroup/job/memory.stat", "anon 73400320\n");
    assert_int_equal(ask(29), 0);
    refused(31, "the control group has 30.0 MiB left of its limit of 100.0 MiB");
}

static void pages_of_files_count_as_free(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/job\n");
    put("/sys/fs/cgroup/job/memory.max", "104857600\n");
    put("/sys/fs/cgroup/job/memory.current", "99614720\n"); /* 95 MiB, of which 50 are of files */
    put("/sys/fs/cgroup/job/memory.stat",
        "anon 47185920\ninactive_file 41943040\nactive_file 10485760\n");
    assert_int_equal(ask(54), 0);
    refused(56, "55.0 MiB left");
}

static void groups_of_version_1_count_too(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "5:cpu:/else\n4:memory:/a/b\n");
    put("/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "104857600\n");
    put("/sys/fs/cgroup/memory/a/b/memory.usage_in_bytes", "52428800\n");
    assert_int_equal(ask(49), 0);
    refused(51, "50.0 MiB left");
}

static void the_narrowest_group_above_decides(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/a/b\n");
    put("/sys/fs/cgroup/a/b/memory.max", "max\n");
    put("/sys/fs/cgroup/a/b/memory.current", "1\n");
    put("/sys/fs/cgroup/a/memory.max", "20971520\n");
    put("/sys/fs/cgroup/a/memory.current", "0\n");
    assert_int_equal(ask(20), 0);
    refused(21, "limit of 20.0 MiB");
}

static void of_groups_with_equal_room_the_nearest_is_told(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/a/b\n");
    put("/sys/fs/cgroup/a/b/memory.max", "20971520\n");
    put("/sys/fs/cgroup/a/b/memory.current", "10485760\n");
    put("/sys/fs/cgroup/a/memory.max", "31457280\n");
    put("/sys/fs/cgroup/a/memory.current", "20971520\n"); /* another group below it has 10 MiB */
    refused(11, "10.0 MiB left of its limit of 20.0 MiB");
}

static void without_a_limit_what_the_machine_has_decides(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/\n");
    assert_int_equal(ask(8191), 0);
    refused(8193, "only 8192.0 MiB are available");
}

static void put_used(const char *bytes)
{
    put("/sys/fs/cgroup/job/memory.current", bytes);
}

static void one_look_serves_small_requests_of_a_moment(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/job\n");
    put("/sys/fs/cgroup/job/memory.max", "2147483648\n"); /* 2 GiB: 8 MiB are small */
    put_used("0\n");
    assert_int_equal(ask(1), 0);
    put_used("2147483648\n");
    assert_int_equal(ask(5), 0);
    refused(5, "0.0 MiB left"); /* together they are not */
    put_used("0\n");
    assert_int_equal(ask(1), 0);
    put_used("2147483648\n");
    later();
    refused(1, "0.0 MiB left");
}

static void a_limit_of_files_comes_first(void **state)
{
    struct rlimit before, small;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = (struct rlimit){.rlim_cur = 65536, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    int err = ask(1);

    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(err, -ENOMEM);
    assert_non_null(strstr(sluice_last_error(), "ulimit -f"));
}

/* Before a byte of the file is filled, so that peers need not wait for that. */
static void a_limit_of_addresses_is_seen_beforehand(void **state)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    print_message("the sanitizer needs the address space\n");
    skip();
#endif
    struct rlimit before, small;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    small = (struct rlimit){.rlim_cur = 1024 * MIB, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_AS, &small), 0);
    int fits = ask(512), err = ask(1024);
    struct rlimit set;

    assert_int_equal(getrlimit(RLIMIT_AS, &set), 0);
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    if (set.rlim_cur != small.rlim_cur) {
        print_message("an emulator sets no limit of addresses\n");
        skip();
    }
    assert_int_equal(fits, 0);
    assert_int_equal(err, -ENOMEM);
    assert_non_null(strstr(sluice_last_error(), "ulimit -v"));
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, fresh, clean)
    const struct CMUnitTest tests[] = {CASE(a_group_at_its_limit_is_refused_with_its_figures),
                                       CASE(pages_of_files_count_as_free),
                                       CASE(groups_of_version_1_count_too),
                                       CASE(the_narrowest_group_above_decides),
                                       CASE(of_groups_with_equal_room_the_nearest_is_told),
                                       CASE(without_a_limit_what_the_machine_has_decides),
                                       CASE(one_look_serves_small_requests_of_a_moment),
                                       CASE(a_limit_of_files_comes_first),
                                       CASE(a_limit_of_addresses_is_seen_beforehand)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
