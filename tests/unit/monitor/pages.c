/* SPDX-License-Identifier: Apache-2.0 */
#include "pages.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

char tree[64];

static struct sl_state_section section(enum sl_state_kind kind, size_t bytes, uint32_t count,
                                       size_t offset)
{
    return (struct sl_state_section){
        .kind = kind, .record_bytes = (uint32_t)bytes, .count = count, .offset = offset};
}

#define SECTION(kind, member, rows)                                                                \
    section(kind, sizeof(page->member) / (rows), rows, offsetof(struct test_page, member))

void page_init(struct test_page *page, int pid, uint64_t start_ticks)
{
    struct stat st;

    memset(page, 0, sizeof(*page));
    memcpy(page->header.magic, SL_STATE_MAGIC, sizeof(page->header.magic));
    page->header.version = SL_STATE_VERSION;
    page->header.header_bytes = sizeof(page->header);
    page->header.section_bytes = sizeof(page->sections[0]);
    page->header.section_count = 7;
    page->header.file_bytes = sizeof(*page);
    page->sections[0] = SECTION(SL_STATE_PROCESS, process, 1);
    page->sections[1] = SECTION(SL_STATE_COMM, comms, PAGE_COMMS);
    page->sections[2] = SECTION(SL_STATE_OP, ops, PAGE_OPS);
    page->sections[3] = SECTION(SL_STATE_PATH, paths, PAGE_PATHS);
    page->sections[4] = SECTION(SL_STATE_EVENT, events, PAGE_EVENTS);
    page->sections[5] = SECTION(SL_STATE_EVENT_ROW, rows, PAGE_ROWS);
    page->sections[6] = SECTION(SL_STATE_CALL, calls, PAGE_CALLS);
    page->process = (struct sl_state_process){.turn = 2,
                                              .pid = pid,
                                              .uid = geteuid(),
                                              .start_ticks = start_ticks,
                                              .rank = 3,
                                              .size = 8,
                                              .program = "train",
                                              .version = "1.2",
                                              .job = "17"};
    if (stat("/proc/self/ns/pid", &st) == 0)
        page->process.pid_space = st.st_ino;
}

static void write_all(int fd, const void *data, size_t len)
{
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, data, len, 0), (ssize_t)len);
}

void page_write(const struct test_page *page, const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    write_all(fd, page, sizeof(*page));
    close(fd);
}

int page_memfd(const struct test_page *page)
{
    int fd = memfd_create("test-page", MFD_CLOEXEC);

    write_all(fd, page, sizeof(*page));
    return fd;
}

/* ---- a tree ---- */

static void run(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void run(const char *fmt, ...)
{
    char command[1024];
    va_list args;

    va_start(args, fmt);
    vsnprintf(command, sizeof(command), fmt, args);
    va_end(args);
    assert_int_equal(system(command), 0);
}

void tree_begin(void)
{
    strcpy(tree, "/tmp/sluice-tree-XXXXXX");
    assert_non_null(mkdtemp(tree));
    tree_put("cpu  1 2 3 4\n", "proc/stat");
    run("mkdir -p %s/shm %s/cgroup", tree, tree);
}

void tree_end(void)
{
    run("rm -rf %s", tree);
}

static void make_folders(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(path, 0755);
        *slash = '/';
    }
}

void tree_put(const char *text, const char *fmt, ...)
{
    char path[512];
    va_list args;
    int len = snprintf(path, sizeof(path), "%s/", tree), fd;

    va_start(args, fmt);
    vsnprintf(path + len, sizeof(path) - (size_t)len, fmt, args);
    va_end(args);
    make_folders(path);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    write_all(fd, text, strlen(text));
    close(fd);
}

void tree_remove(const char *fmt, ...)
{
    char path[256];
    va_list args;

    va_start(args, fmt);
    vsnprintf(path, sizeof(path), fmt, args);
    va_end(args);
    /* As the kernel does: who has its files open reads them no more. */
    run("find %s/%s -type f -exec truncate -s 0 {} + && rm -rf %s/%s", tree, path, tree, path);
}

void tree_process(int pid, const char *name, char state, uint64_t start_ticks, const char *group)
{
    char text[512];

    snprintf(text, sizeof(text),
             "%d (%s) %c 1 1 1 0 -1 0 0 0 0 0 100 50 0 0 20 0 1 0 %llu 3133440 366\n", pid, name,
             state, (unsigned long long)start_ticks);
    tree_put(text, "proc/%d/stat", pid);
    snprintf(text, sizeof(text), "Name:\t%s\nUid:\t%u\t%u\t%u\t%u\nNSpid:\t%d\n", name, geteuid(),
             geteuid(), geteuid(), geteuid(), pid);
    tree_put(text, "proc/%d/status", pid);
    tree_put(name, "proc/%d/cmdline", pid);
    tree_put("1000000 2000 10\n", "proc/%d/schedstat", pid);
    snprintf(text, sizeof(text), "4:memory:%s\n1:cpu:%s\n0::/\n", group, group);
    tree_put(text, "proc/%d/cgroup", pid);
}
