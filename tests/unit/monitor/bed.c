/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/monitor/bed.h"

#include "core/err.h"
#include "monitor/source.h"
#include "tests/util/quick_dir.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

struct bed bed;

static void tell_time(void *arg, struct sl_mon_time *out)
{
    (void)arg;
    *out = bed.now;
}

void bed_run(const char *fmt, ...)
{
    char command[1024];
    va_list args;

    va_start(args, fmt);
    vsnprintf(command, sizeof(command), fmt, args);
    va_end(args);
    assert_int_equal(system(command), 0);
}

void bed_put(const char *file, const char *text)
{
    char path[512];
    int fd;

    snprintf(path, sizeof(path), "%s/rdma/mlx5_0/ports/1/%s", bed.folder, file);
    /* Cut afterwards: a file that was emptied and written is flushed to the disk when it closes. */
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    assert_int_equal(ftruncate(fd, (off_t)strlen(text)), 0);
    close(fd);
}

void bed_stop(void)
{
    sl_agent_close(bed.agent);
    bed.agent = NULL;
}

void bed_restart(void)
{
    const struct sl_agent_options options = {
        .config = &bed.config, .version = "1.2", .now = tell_time, .boot_id = bed.boot_id};

    bed_stop();
    if (sl_agent_open(&options, &bed.agent) != 0)
        fail_msg("%s", sluice_last_error());
}

int bed_begin(void **state)
{
    (void)state;
    memset(&bed, 0, sizeof(bed));
    assert_true(quick_dir(bed.folder, sizeof(bed.folder), "sluice-agent"));
    bed_run("mkdir -p %s/rdma/mlx5_0/ports/1/counters", bed.folder);
    bed_put("state", "4: ACTIVE\n");
    bed_put("rate", "400 Gb/sec (4X NDR)\n");
    bed_put("counters/port_xmit_packets", "0\n");
    bed_put("counters/symbol_error", "0\n");
    sl_mon_config_defaults(&bed.config);
    for (unsigned i = 0; i < sl_source_class_count; i++) {
        size_t wanted = sl_source_classes[i]->wanted;

        *(enum sl_mon_wanted *)(void *)((char *)&bed.config + wanted) = SL_MON_OFF;
    }
    bed.config.rdma = SL_MON_ON;
    snprintf(bed.config.rdma_root, sizeof(bed.config.rdma_root), "%s/rdma", bed.folder);
    snprintf(bed.config.store_path, sizeof(bed.config.store_path), "%s/state.db", bed.folder);
    snprintf(bed.config.events_path, sizeof(bed.config.events_path), "%s/events", bed.folder);
    bed.now = (struct sl_mon_time){
        .mono_ns = SL_MON_HOUR, .wall_ns = UINT64_C(1764103151123000000), .boot_ns = SL_MON_HOUR};
    bed.boot_id = "boot-1";
    bed_restart();
    return 0;
}

int bed_end(void **state)
{
    (void)state;
    bed_stop();
    bed_run("rm -rf %s", bed.folder);
    return 0;
}

void bed_pass(uint64_t ns)
{
    bed.now.mono_ns += ns;
    bed.now.wall_ns += ns;
    bed.now.boot_ns += ns;
}

void bed_second(void)
{
    char text[32];

    snprintf(text, sizeof(text), "%u\n", bed.packets += 1000);
    bed_put("counters/port_xmit_packets", text);
    bed_pass(SL_MON_S);
    sl_agent_tick(bed.agent);
}

unsigned bed_lines(char *last, size_t cap)
{
    char path[512], line[2048];
    unsigned count = 0;
    FILE *file;

    snprintf(path, sizeof(path), "%s/events", bed.folder);
    file = fopen(path, "re");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        count++;
        snprintf(last, cap, "%s", line);
    }
    fclose(file);
    return count;
}

/* The caller frees it. */
static char *metrics(void)
{
    char *text = NULL;
    size_t len;
    FILE *out = open_memstream(&text, &len);

    assert_non_null(out);
    assert_true(sl_agent_metrics(bed.agent, SL_MON_OPENMETRICS, out));
    fclose(out);
    return text;
}

bool bed_has_metric(const char *line)
{
    char *text = metrics();
    bool has = strstr(text, line) != NULL;

    free(text);
    return has;
}

void bed_expect_metric(const char *line, bool there)
{
    char *text = metrics();

    if ((strstr(text, line) != NULL) != there)
        fail_msg("%s %s in\n%s", line, there ? "is not" : "is", text);
    free(text);
}

enum sl_mon_state bed_state(enum sl_mon_check check, const char *name)
{
    const struct sl_mon_subject *subject =
        sl_mon_find(sl_agent_mon(bed.agent), sl_mon_checks[check].kind, name);

    return subject == NULL ? SL_MON_OK : sl_mon_condition(subject, check)->state;
}
