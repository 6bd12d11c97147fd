/* SPDX-License-Identifier: Apache-2.0 */
#include "core/tune_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

static void a_torn_file_of_costs_is_no_file(void **state)
{
    char folder[] = "/tmp/sluice-tune-XXXXXX", path[128];
    uint64_t kept[4] = {1, 2, 3, 4}, got[4] = {0};
    struct sl_config config;

    (void)state;
    assert_non_null(mkdtemp(folder));
    sl_config_defaults(&config);
    snprintf(config.tune_dir, sizeof(config.tune_dir), "%s/new", folder);
    assert_false(sl_tune_cache_read(&config, 7, got, sizeof(got)));
    sl_tune_cache_write(&config, 7, kept, sizeof(kept));
    assert_true(sl_tune_cache_read(&config, 7, got, sizeof(got)));
    assert_memory_equal(kept, got, sizeof(kept));
    assert_false(sl_tune_cache_read(&config, 7, got, sizeof(got) - 8)); /* of another build */
    snprintf(path, sizeof(path), "%s/new/links-%016llx", folder, 7ULL);
    assert_int_equal(truncate(path, sizeof(kept) + 4), 0);
    assert_false(sl_tune_cache_read(&config, 7, got, sizeof(got)));
    sl_tune_cache_write(&config, 7, kept, sizeof(kept)); /* and is written anew */
    assert_true(sl_tune_cache_read(&config, 7, got, sizeof(got)));
    assert_int_equal(unlink(path), 0);
    snprintf(path, sizeof(path), "%s/new", folder);
    assert_int_equal(rmdir(path), 0); /* nothing else was left there */
    rmdir(folder);
}

static void a_folder_that_cannot_be_written_keeps_nothing_and_does_no_harm(void **state)
{
    uint64_t kept = 1, got;
    struct sl_config config;

    (void)state;
    sl_config_defaults(&config);
    snprintf(config.tune_dir, sizeof(config.tune_dir), "/proc/sluice");
    sl_tune_cache_write(&config, 7, &kept, sizeof(kept));
    assert_false(sl_tune_cache_read(&config, 7, &got, sizeof(got)));
}

/* ---- folders that others write to ---- */

struct place {
    char folder[64], path[128];
    struct sl_config config;
};

static int set_up(void **state)
{
    struct place *p = calloc(1, sizeof(*p));

    snprintf(p->folder, sizeof(p->folder), "/tmp/sluice-tune-XXXXXX");
    assert_non_null(mkdtemp(p->folder));
    sl_config_defaults(&p->config);
    snprintf(p->config.tune_dir, sizeof(p->config.tune_dir), "%s", p->folder);
    snprintf(p->path, sizeof(p->path), "%s/links-%016llx", p->folder, 7ULL);
    *state = p;
    return 0;
}

static int tear_down(void **state)
{
    struct place *p = *state;
    DIR *dir = opendir(p->folder);

    for (struct dirent *e = readdir(dir); e != NULL; e = readdir(dir))
        unlinkat(dirfd(dir), e->d_name, 0);
    closedir(dir);
    rmdir(p->folder);
    free(p);
    return 0;
}

static unsigned files_in(const char *folder)
{
    DIR *dir = opendir(folder);
    unsigned count = 0;

    for (struct dirent *e = readdir(dir); e != NULL; e = readdir(dir))
        count += e->d_name[0] != '.';
    closedir(dir);
    return count;
}

static void a_link_in_the_way_is_neither_written_nor_read(void **state)
{
    struct place *p = *state;
    uint64_t kept = 1, got;
    char precious[128], link[160], text[16] = {0};
    int fd;

    snprintf(precious, sizeof(precious), "%s/precious", p->folder);
    fd = open(precious, O_RDWR | O_CREAT, 0600);
    assert_int_equal(write(fd, "precious", 8), 8);
    /* The name that earlier versions wrote to first, of this process. */
    snprintf(link, sizeof(link), "%s.%d", p->path, (int)getpid());
    assert_int_equal(symlink(precious, link), 0);
    sl_tune_cache_write(&p->config, 7, &kept, sizeof(kept));
    assert_int_equal(pread(fd, text, sizeof(text), 0), 8);
    assert_string_equal(text, "precious");
    assert_true(sl_tune_cache_read(&p->config, 7, &got, sizeof(got)));
    /* A whole file of ours, but behind a link. */
    snprintf(link, sizeof(link), "%s/links-%016llx", p->folder, 8ULL);
    assert_int_equal(symlink(p->path, link), 0);
    assert_false(sl_tune_cache_read(&p->config, 8, &got, sizeof(got)));
    /* A link in place of the file is replaced. */
    sl_tune_cache_write(&p->config, 8, &kept, sizeof(kept));
    assert_true(sl_tune_cache_read(&p->config, 8, &got, sizeof(got)));
    close(fd);
}

static void a_file_that_others_may_write_is_not_believed(void **state)
{
    struct place *p = *state;
    uint64_t kept = 1, got;

    sl_tune_cache_write(&p->config, 7, &kept, sizeof(kept));
    assert_int_equal(chmod(p->path, 0620), 0);
    assert_false(sl_tune_cache_read(&p->config, 7, &got, sizeof(got)));
    assert_int_equal(chmod(p->path, 0602), 0);
    assert_false(sl_tune_cache_read(&p->config, 7, &got, sizeof(got)));
    assert_int_equal(chmod(p->path, 0644), 0);
    assert_true(sl_tune_cache_read(&p->config, 7, &got, sizeof(got)));
    if (geteuid() != 0)
        return; /* only root can give files away */
    assert_int_equal(chown(p->path, 65534, 65534), 0);
    assert_false(sl_tune_cache_read(&p->config, 7, &got, sizeof(got)));
}

static void age(const char *path, time_t seconds)
{
    /* the same for all files: two whose ages differ were not written in one second */
    static time_t now;
    struct timespec times[2];

    now = now != 0 ? now : time(NULL);
    times[0] = times[1] = (struct timespec){.tv_sec = now - seconds};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void what_killed_writers_left_behind_goes_with_the_next_write(void **state)
{
    struct place *p = *state;
    uint64_t kept = 1;
    char old[160], fresh[160];

    snprintf(old, sizeof(old), "%s.4711", p->path);
    snprintf(fresh, sizeof(fresh), "%s.0123456789abcdef", p->path);
    close(open(old, O_WRONLY | O_CREAT, 0600));
    close(open(fresh, O_WRONLY | O_CREAT, 0600));
    age(old, 3600);
    sl_tune_cache_write(&p->config, 8, &kept, sizeof(kept));
    assert_int_equal(access(old, F_OK), -1);
    assert_int_equal(access(fresh, F_OK), 0); /* its writer may be at work */
    assert_int_equal(files_in(p->folder), 2);
}

/* Written so long ago. */
static void make_file(const struct place *p, uint64_t key, time_t seconds)
{
    char path[160];

    snprintf(path, sizeof(path), "%s/links-%016llx", p->folder, (unsigned long long)key);
    close(open(path, O_WRONLY | O_CREAT, 0600));
    age(path, seconds);
}

static bool is_there(const struct place *p, uint64_t key)
{
    char path[160];

    snprintf(path, sizeof(path), "%s/links-%016llx", p->folder, (unsigned long long)key);
    return access(path, F_OK) == 0;
}

static void what_nobody_believes_any_more_goes_with_the_next_write(void **state)
{
    struct place *p = *state;
    uint64_t kept = 1;
    char other[160];

    make_file(p, 1, 31 * 24 * 3600);
    make_file(p, 2, 29 * 24 * 3600);
    snprintf(other, sizeof(other), "%s/precious", p->folder);
    close(open(other, O_WRONLY | O_CREAT, 0600));
    age(other, 31 * 24 * 3600);
    sl_tune_cache_write(&p->config, 8, &kept, sizeof(kept));
    assert_false(is_there(p, 1));
    assert_true(is_there(p, 2) && is_there(p, 8));
    assert_int_equal(access(other, F_OK), 0); /* no file of ours */
}

static void files_do_not_pile_up(void **state)
{
    struct place *p = *state;
    uint64_t kept = 1;

    /* Neither ascending nor descending as they are found. */
    for (uint64_t i = 0; i < 100; i++)
        make_file(p, 1000 + i, (time_t)(60 + i * 37 % 100));
    sl_tune_cache_write(&p->config, 8, &kept, sizeof(kept));
    assert_int_equal(files_in(p->folder), 64);
    assert_true(is_there(p, 8));
    for (uint64_t i = 0; i < 100; i++)
        assert_int_equal(is_there(p, 1000 + i), i * 37 % 100 < 63); /* the newest */
    sl_tune_cache_write(&p->config, 9, &kept, sizeof(kept));
    assert_int_equal(files_in(p->folder), 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_torn_file_of_costs_is_no_file),
        cmocka_unit_test(a_folder_that_cannot_be_written_keeps_nothing_and_does_no_harm),
        cmocka_unit_test_setup_teardown(a_link_in_the_way_is_neither_written_nor_read, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_file_that_others_may_write_is_not_believed, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(what_killed_writers_left_behind_goes_with_the_next_write,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_nobody_believes_any_more_goes_with_the_next_write,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(files_do_not_pile_up, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
