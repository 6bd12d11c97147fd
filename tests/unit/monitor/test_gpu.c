/* SPDX-License-Identifier: Apache-2.0 */
/* GPUs: records of NVML's process, what they say, and that process with a library that answers,
 * hangs, ends, or loses a GPU (tests/fake/fake_nvml.c). */
#include "core/clock.h"
#include "core/err.h"
#include "monitor/gpu.h"
#include "monitor/source.h"
#include "tests/unit/monitor/engine_bed.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static struct sl_mon_gpu gpu;
static struct sl_mon_gpu_record record;

static int begin(void **state)
{
    (void)state;
    engine_begin(8);
    memset(&gpu, 0, sizeof(gpu));
    gpu.subject = sl_mon_subject(mon, SL_MON_GPU, "0000:9b:00.0");
    record = (struct sl_mon_gpu_record){.magic = SL_MON_GPU_MAGIC,
                                        .type = SL_MON_GPU_DEVICE,
                                        .has = 0x7f,
                                        .links = 0x3ffff,
                                        .ecc = 5,
                                        .name = "0000:9b:00.0"};
    return 0;
}

/* ---- records ---- */

static void a_record_is_taken_and_others_are_not(void **state)
{
    struct sl_mon_gpu_record read;

    (void)state;
    assert_true(sl_mon_gpu_parse(&record, sizeof(record), &read));
    assert_string_equal(read.name, "0000:9b:00.0");
    assert_false(sl_mon_gpu_parse(&record, sizeof(record) - 1, &read));
    strcpy(record.name, "../../etc");
    assert_false(sl_mon_gpu_parse(&record, sizeof(record), &read));
    strcpy(record.name, "0000:9b:00.0");
    record.index = SL_MON_GPUS_MAX;
    assert_false(sl_mon_gpu_parse(&record, sizeof(record), &read));
    record.index = 0;
    record.magic++;
    assert_false(sl_mon_gpu_parse(&record, sizeof(record), &read));
    record.magic--;
    record.type = 9;
    assert_false(sl_mon_gpu_parse(&record, sizeof(record), &read));
    record.type = SL_MON_GPU_ABSENT;
    memset(record.text, 1, sizeof(record.text));
    assert_true(sl_mon_gpu_parse(&record, sizeof(record), &read));
    assert_int_equal(strlen(read.text), sizeof(read.text) - 1);
    assert_int_equal(read.text[0], '?');
}

/* ---- what they say ---- */

static void reading(unsigned times)
{
    for (unsigned i = 0; i < times; i++) {
        now.mono_ns += 5 * SL_MON_S;
        sl_mon_set_time(mon, &now);
        sl_mon_gpu_judge(mon, &gpu, &record);
    }
}

static enum sl_mon_state state_of(enum sl_mon_check check)
{
    return (enum sl_mon_state)sl_mon_condition(gpu.subject, check)->state;
}

static void a_healthy_gpu_is_quiet(void **state)
{
    (void)state;
    record.reasons = 0x4; /* power, as asked for by software: normal under load */
    record.use = 99;
    reading(1);
    record.replays += 3;
    reading(100);
    assert_int_equal(told, 0);
    assert_true(sl_mon_in_use(mon, gpu.subject));
}

static void errors_of_before_are_no_evidence_and_new_ones_are(void **state)
{
    (void)state;
    reading(10);
    assert_int_equal(told, 0);
    record.ecc += 2;
    reading(1);
    assert_int_equal(state_of(SL_MON_CHECK_GPU_ECC), SL_MON_BAD);
    assert_string_equal(last_text, "2 uncorrectable errors of its memory more than before");
    assert_int_equal(gpu.ecc, 2);
    record.ecc = 0; /* the driver was loaded anew */
    reading(1);
    assert_int_equal(gpu.ecc, 2);
}

static void rows_that_wait_or_fail_are_told(void **state)
{
    (void)state;
    record.rows_wait = 1;
    reading(1);
    assert_int_equal(state_of(SL_MON_CHECK_GPU_ECC), SL_MON_BAD);
    assert_int_equal(state_of(SL_MON_CHECK_GPU_MEMORY), SL_MON_OK);
    record.rows_failed = 1;
    reading(1);
    assert_int_equal(state_of(SL_MON_CHECK_GPU_MEMORY), SL_MON_BAD);
}

static void a_gpu_that_is_slowed_down_is_told(void **state)
{
    (void)state;
    record.reasons = SL_MON_GPU_BRAKE | SL_MON_GPU_SLOWDOWN;
    record.temperature = 61;
    reading(3);
    assert_int_equal(state_of(SL_MON_CHECK_GPU_SLOWED), SL_MON_BAD);
    assert_string_equal(last_text, "its clocks are held down by the power supply's brake, at 61 C");
}

static void a_link_that_was_up_and_is_down_is_told(void **state)
{
    (void)state;
    record.links = 0xff;
    reading(5);
    assert_int_equal(told, 0); /* those that never were up are by design */
    record.links = 0xfb;
    reading(2);
    assert_int_equal(state_of(SL_MON_CHECK_GPU_NVLINK), SL_MON_BAD);
    assert_string_equal(last_text, "1 of 8 NVLinks are down, the first is 2");
}

static void links_that_recover_are_told(void **state)
{
    (void)state;
    reading(1);
    for (unsigned i = 0; i < 2; i++) {
        record.repairs++;
        reading(1);
    }
    assert_int_equal(state_of(SL_MON_CHECK_GPU_NVLINK), SL_MON_BAD);
}

static void a_lost_gpu_is_told_and_nothing_else_of_it(void **state)
{
    (void)state;
    reading(1);
    record.is_lost = 1;
    record.links = 0;
    strcpy(record.text, "NVML: GPU is lost");
    reading(2);
    assert_int_equal(state_of(SL_MON_CHECK_GPU_LOST), SL_MON_BAD);
    assert_int_equal(state_of(SL_MON_CHECK_GPU_NVLINK), SL_MON_OK);
    assert_string_equal(last_text, "NVML: GPU is lost");
}

/* ---- the process ---- */

static char dir[64];
static struct sl_mon_config config;
static void *source;

static void say(const char *words)
{
    char path[128], part[128];
    FILE *file;

    snprintf(path, sizeof(path), "%s/said", dir);
    snprintf(part, sizeof(part), "%s/part", dir);
    file = fopen(part, "w");
    assert_non_null(file);
    fputs(words, file);
    fclose(file);
    assert_int_equal(rename(part, path), 0);
}

static int begin_process(void **state)
{
    struct sl_source_host host = {.config = &config};
    char path[128];

    begin(state);
    host.mon = mon;
    strcpy(dir, "/tmp/sluice-gpu-XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/said", dir);
    setenv("FAKE_NVML", path, 1);
    say("");
    sl_mon_config_defaults(&config);
    snprintf(config.nvml_library, sizeof(config.nvml_library), "%s", getenv("FAKE_NVML_LIBRARY"));
    config.period_ms = 30; /* a reading each 150 ms, silent after 450 */
    assert_int_equal(sl_source_gpu.create(&host, &source), 0);
    return 0;
}

static int end_process(void **state)
{
    char command[128];

    sl_source_gpu.destroy(source);
    snprintf(command, sizeof(command), "rm -r %s", dir);
    assert_int_equal(system(command), 0);
    return engine_end(state);
}

static void set_time(void)
{
    now.mono_ns = sl_now(&sl_clock_monotonic) + SL_MON_HOUR;
    sl_mon_set_time(mon, &now);
}

static int open_it(void)
{
    set_time();
    return sl_source_gpu.open(source);
}

static bool never(void)
{
    return false;
}

/* Until it fails, or that is so: within a time that is long, as others may use the machine. */
static int ticks(bool (*is_over)(void))
{
    uint64_t until_ns = sl_now(&sl_clock_monotonic) + 20 * SL_MON_S;
    int err = 0;

    while (err >= 0 && !is_over()) {
        if (sl_now(&sl_clock_monotonic) > until_ns)
            fail_msg("not within its time");
        usleep(5000);
        set_time();
        err = sl_source_gpu.tick(source);
    }
    return err;
}

static const struct sl_mon_condition *condition_of(const char *name, enum sl_mon_check check)
{
    const struct sl_mon_subject *subject = sl_mon_find(mon, sl_mon_checks[check].kind, name);

    return subject != NULL ? sl_mon_condition(subject, check) : NULL;
}

static bool is_bad(const char *name, enum sl_mon_check check)
{
    return condition_of(name, check) != NULL && condition_of(name, check)->state == SL_MON_BAD;
}

static bool are_read(void)
{
    const struct sl_mon_condition *host = condition_of("host", SL_MON_CHECK_HOST_GPUS);

    return host != NULL && host->good > 0;
}

static bool are_told(void)
{
    return is_bad("0000:9b:00.0", SL_MON_CHECK_GPU_ECC) &&
           is_bad("0000:9b:00.0", SL_MON_CHECK_GPU_SLOWED) &&
           is_bad("0000:9b:00.0", SL_MON_CHECK_GPU_NVLINK);
}

static bool is_lost(void)
{
    return is_bad("0000:9c:00.0", SL_MON_CHECK_GPU_LOST);
}

static void what_the_library_says_arrives(void **state)
{
    (void)state;
    assert_int_equal(open_it(), 0);
    assert_int_equal(ticks(are_read), 0);
    assert_int_equal(told, 0);
    assert_non_null(sl_mon_find(mon, SL_MON_GPU, "0000:9c:00.0"));
    say("ecc 3 reasons 64 links 131071");
    assert_int_equal(ticks(are_told), 0);
    assert_int_equal(condition_of("0000:9c:00.0", SL_MON_CHECK_GPU_ECC)->state, SL_MON_OK);
    sl_source_gpu.close(source);
}

static void a_gpu_that_gets_lost_is_told(void **state)
{
    (void)state;
    assert_int_equal(open_it(), 0);
    assert_int_equal(ticks(are_read), 0);
    say("lost 2");
    assert_int_equal(ticks(is_lost), 0);
    assert_int_equal(condition_of("0000:9b:00.0", SL_MON_CHECK_GPU_LOST)->state, SL_MON_OK);
    sl_source_gpu.close(source);
}

static uint64_t good;

static bool are_read_again(void)
{
    return condition_of("host", SL_MON_CHECK_HOST_GPUS)->good > good;
}

/* It is killed in time, begun again later and later, and told when it does not answer twice. */
static void a_library_that_hangs_is_left(void **state)
{
    (void)state;
    assert_int_equal(open_it(), 0);
    assert_int_equal(ticks(are_read), 0);
    say("hang 1");
    assert_int_equal(ticks(never), -ENODEV);
    assert_non_null(strstr(sluice_last_error(), "NVML did not answer for"));
    sl_source_gpu.close(source);
    assert_int_equal(open_it(), -ENODEV); /* not yet */
    assert_non_null(strstr(sluice_last_error(), "is asked again in"));
    usleep(310000);
    assert_int_equal(open_it(), 0);
    assert_int_equal(ticks(never), -ENODEV);
    sl_source_gpu.close(source);
    assert_int_equal(condition_of("host", SL_MON_CHECK_HOST_GPUS)->state, SL_MON_BAD);
    usleep(310000);
    assert_int_equal(open_it(), -ENODEV); /* twice as long */
    usleep(310000);
    say("");
    assert_int_equal(open_it(), 0);
    good = condition_of("host", SL_MON_CHECK_HOST_GPUS)->good;
    assert_int_equal(ticks(are_read_again), 0);
    assert_int_equal(condition_of("host", SL_MON_CHECK_HOST_GPUS)->bads, 2);
    sl_source_gpu.close(source);
}

static void a_library_that_crashes_takes_only_its_process(void **state)
{
    (void)state;
    assert_int_equal(open_it(), 0);
    assert_int_equal(ticks(are_read), 0);
    say("crash 1");
    assert_int_equal(ticks(never), -ENODEV);
    assert_string_equal(sluice_last_error(), "NVML's process ended");
    sl_source_gpu.close(source);
}

static void what_is_absent_says_why(void **state)
{
    (void)state;
    say("absent 1");
    assert_int_equal(open_it(), 0);
    assert_int_equal(ticks(never), -ENODEV);
    assert_string_equal(sluice_last_error(),
                        "NVML cannot be had: NVML does not begin: Driver Not Loaded");
    sl_source_gpu.close(source);
    strcpy(config.nvml_library, "/none/libnvidia-ml.so.1");
    assert_int_equal(open_it(), -ENODEV);
    assert_null(sl_mon_find(mon, SL_MON_GPU, "0000:9c:00.0"));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, engine_end)
#define PROCESS(name) cmocka_unit_test_setup_teardown(name, begin_process, end_process)

int main(void)
{
    const struct CMUnitTest tests[] = {CASE(a_record_is_taken_and_others_are_not),
                                       CASE(a_healthy_gpu_is_quiet),
                                       CASE(errors_of_before_are_no_evidence_and_new_ones_are),
                                       CASE(rows_that_wait_or_fail_are_told),
                                       CASE(a_gpu_that_is_slowed_down_is_told),
                                       CASE(a_link_that_was_up_and_is_down_is_told),
                                       CASE(links_that_recover_are_told),
                                       CASE(a_lost_gpu_is_told_and_nothing_else_of_it),
                                       PROCESS(what_the_library_says_arrives),
                                       PROCESS(a_gpu_that_gets_lost_is_told),
                                       PROCESS(a_library_that_hangs_is_left),
                                       PROCESS(a_library_that_crashes_takes_only_its_process),
                                       PROCESS(what_is_absent_says_why)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
