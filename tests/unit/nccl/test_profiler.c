/* SPDX-License-Identifier: Apache-2.0 */
/* The profiler tables: what NCCL's calls leave in the file, and that no order of calls can hurt. */
#include "core/err.h"
#include "core/rng.h"
#include "core/state_text.h"
#include "tools/nccl/abi_profiler_v4.h"
#include "tools/nccl/abi_profiler_v5.h"
#include "tools/nccl/events.h"
#include "tools/nccl/profiler.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

extern const struct sl_nccl_profiler_v4 ncclProfiler_v4;
extern const struct sl_nccl_profiler_v5 ncclProfiler_v5;
extern const struct sl_nccl_profiler_v5 ncclProfiler_v6;
extern const struct sl_nccl_profiler_v5 ncclProfiler_v7;

static const struct sl_nccl_profiler_v5 *const profiler = &ncclProfiler_v5;

struct view {
    struct sl_nccl_events *file;
    struct sl_nccl_event_record *slots, *ring;
    size_t bytes;
};

static void *start_profile(const char *setting, int *mask)
{
    void *ctx = (void *)(uintptr_t)77;

    setenv("SLUICE_NCCL_PROFILE", setting, 1);
    setenv("SLUICE_NCCL_PROFILE_EVENTS", "64", 1);
    *mask = -1;
    assert_int_equal(profiler->init(&ctx, 0xabc, mask, "world", 2, 16, 5, NULL), SL_NCCL_SUCCESS);
    return ctx;
}

static struct view look(void)
{
    struct view view;
    struct stat st;
    int fd = open(sl_nccl_profile_path(), O_RDONLY);

    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    view.bytes = (size_t)st.st_size;
    view.file = mmap(NULL, view.bytes, PROT_READ, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(view.file, MAP_FAILED);
    close(fd);
    view.slots = (struct sl_nccl_event_record *)(view.file + 1);
    view.ring = view.slots + SL_NCCL_EVENTS_SLOTS;
    return view;
}

static void *start_step(void *ctx, void *op, int step)
{
    struct sl_nccl_profile_event_v5 what = {
        .type = SL_NCCL_PROFILE_PROXY_STEP, .parent = op, .rank = 5, .proxy_step.step = step};
    void *event = NULL;

    assert_int_equal(profiler->start(ctx, &event, &what), SL_NCCL_SUCCESS);
    return event;
}

static void it_is_off_unless_asked_for(void **state)
{
    int mask;
    void *ctx = start_profile("off", &mask), *event = (void *)(uintptr_t)1;
    struct sl_nccl_profile_event_v5 what = {.type = SL_NCCL_PROFILE_COLL};

    (void)state;
    assert_int_equal(mask, 0);
    assert_int_equal(profiler->start(ctx, &event, &what), SL_NCCL_SUCCESS);
    assert_null(event);
    profiler->finalize(ctx);
    ctx = start_profile("everything", &mask); /* not a word of ours */
    assert_int_equal(mask, 0);
    profiler->finalize(ctx);
}

static void settings_choose_the_kinds(void **state)
{
    int mask;
    void *ctx = start_profile("ops", &mask);

    (void)state;
    assert_int_equal(mask, SL_NCCL_PROFILE_COLL | SL_NCCL_PROFILE_P2P | SL_NCCL_PROFILE_PROXY_OP);
    profiler->finalize(ctx);
    ctx = start_profile("steps", &mask);
    assert_true((mask & SL_NCCL_PROFILE_PROXY_STEP) != 0 &&
                (mask & SL_NCCL_PROFILE_KERNEL_CH) == 0);
    profiler->finalize(ctx);
    ctx = start_profile("kernels", &mask);
    assert_true((mask & SL_NCCL_PROFILE_KERNEL_CH) != 0);
    profiler->finalize(ctx);
    assert_int_not_equal(access(sl_nccl_profile_path(), F_OK), 0);
    ctx = start_profile("ops,keep", &mask);
    profiler->finalize(ctx);
    assert_int_equal(access(sl_nccl_profile_path(), F_OK), 0);
    unlink(sl_nccl_profile_path());
}

static void a_collective_and_its_parts_are_recorded(void **state)
{
    int mask;
    void *ctx = start_profile("kernels", &mask), *coll = NULL, *op = NULL, *step, *kernel = NULL;
    struct sl_nccl_profile_event_v5 what = {.type = SL_NCCL_PROFILE_COLL,
                                            .rank = 5,
                                            .coll = {.seq = 12,
                                                     .func = "AllReduce",
                                                     .count = 1000,
                                                     .datatype = "ncclFloat32",
                                                     .algo = "RING",
                                                     .proto = "SIMPLE",
                                                     .channels = 2}};
    union sl_nccl_profile_args args = {.proxy_step.bytes = 4096}, gpu = {.kernel_ch.gpu_ns = 500};
    struct view view;
    const struct sl_nccl_event_record *r;

    (void)state;
    profiler->start(ctx, &coll, &what);
    what = (struct sl_nccl_profile_event_v5){.type = SL_NCCL_PROFILE_PROXY_OP,
                                             .parent = coll,
                                             .rank = 5,
                                             .proxy_op = {.pid = getpid(),
                                                          .channel = 1,
                                                          .peer = 6,
                                                          .steps = 4,
                                                          .chunk_bytes = 4096,
                                                          .is_send = 1}};
    profiler->start(ctx, &op, &what);
    step = start_step(ctx, op, 0);
    for (int i = 0; i < 100; i++)
        profiler->state(step, i == 0 ? SL_NCCL_STATE_SEND_GPU_WAIT : SL_NCCL_STATE_SEND_PEER_WAIT,
                        NULL);
    what = (struct sl_nccl_profile_event_v5){.type = SL_NCCL_PROFILE_KERNEL_CH,
                                             .parent = coll,
                                             .kernel_ch = {.channel = 1, .gpu_ns = 100}};
    profiler->start(ctx, &kernel, &what);
    assert_true(coll != NULL && op != NULL && step != NULL && kernel != NULL);

    view = look();
    assert_memory_equal(view.file->header.magic, SL_STATE_MAGIC, 8);
    assert_int_equal(view.file->comm[0].lives, 1);
    assert_int_equal(view.file->comm[0].id, 0xabc);
    assert_string_equal(view.file->comm[0].name, "world");
    r = &view.slots[(uintptr_t)step & (SL_NCCL_EVENTS_SLOTS - 1)];
    assert_int_equal(r->state, SL_NCCL_STATE_SEND_PEER_WAIT); /* going on, and what it waits for */
    assert_int_equal(r->step.polls, 99);
    assert_int_equal(r->step.is_send, 1);
    assert_int_equal(r->parent, (uintptr_t)op);

    profiler->state(step, SL_NCCL_STATE_SEND_WAIT, &args);
    profiler->stop(step);
    profiler->state(kernel, SL_NCCL_STATE_KERNEL_STOP, &gpu);
    profiler->stop(kernel);
    profiler->stop(op);
    profiler->stop(coll);
    assert_int_equal(view.file->head.written, 4);
    r = &view.ring[0];
    assert_int_equal(r->turn, 1);
    assert_int_equal(r->type, SL_NCCL_EVENT_PROXY_STEP);
    assert_int_equal(r->step.bytes, 4096);
    assert_true(r->step.wait_ns[0] + r->step.wait_ns[1] + r->step.wait_ns[2] <=
                r->stop_ns - r->start_ns);
    assert_true(r->step.wait_ns[1] > 0);
    assert_int_equal(view.ring[1].kernel.gpu_stop_ns, 500);
    assert_int_equal(view.ring[2].proxy.peer, 6);
    r = &view.ring[3];
    assert_int_equal(r->op.seq, 12);
    assert_string_equal(r->op.func, "AllReduce");
    assert_memory_equal(r->op.datatype, "ncclFlo", 8); /* cut, with its end */
    assert_string_equal(r->op.proto, "SIMPLE");
    munmap(view.file, view.bytes);
    profiler->finalize(ctx);
}

static void handles_that_are_over_are_ignored(void **state)
{
    int mask;
    void *ctx = start_profile("steps", &mask), *old, *new;
    struct view view;

    (void)state;
    old = start_step(ctx, NULL, 1);
    profiler->stop(old);
    assert_int_equal(profiler->stop(old), SL_NCCL_SUCCESS);
    assert_int_equal(profiler->state(old, SL_NCCL_STATE_RECV_WAIT, NULL), SL_NCCL_SUCCESS);
    assert_int_equal(profiler->stop(NULL), SL_NCCL_SUCCESS);
    view = look();
    assert_int_equal(view.file->head.written, 1);
    assert_int_equal(view.file->head.late, 2);
    for (int i = 0; i < SL_NCCL_EVENTS_SLOTS; i++) { /* the slot comes around */
        new = start_step(ctx, NULL, 2);
        assert_non_null(new);
        assert_ptr_not_equal(new, old);
        profiler->stop(old);
        profiler->stop(new);
    }
    assert_int_equal(view.file->head.written, 1 + SL_NCCL_EVENTS_SLOTS);
    munmap(view.file, view.bytes);
    profiler->finalize(ctx);
    assert_int_equal(profiler->stop(old), SL_NCCL_SUCCESS); /* also when all is over */
}

static void starts_beyond_the_pool_are_dropped_and_counted(void **state)
{
    int mask;
    void *ctx = start_profile("steps", &mask), *events[SL_NCCL_EVENTS_SLOTS];
    struct view view = look();

    (void)state;
    for (int i = 0; i < SL_NCCL_EVENTS_SLOTS; i++) {
        events[i] = start_step(ctx, NULL, i);
        assert_non_null(events[i]);
    }
    assert_null(start_step(ctx, NULL, 0));
    assert_int_equal(view.file->head.dropped, 1);
    for (int i = 0; i < SL_NCCL_EVENTS_SLOTS; i++)
        profiler->stop(events[i]);
    assert_non_null(start_step(ctx, NULL, 0));
    munmap(view.file, view.bytes);
    profiler->finalize(ctx);
}

static void every_version_says_the_same(void **state)
{
    int mask = 0;
    void *a = NULL, *b = NULL, *event = NULL;
    struct sl_nccl_profile_event_v4 four = {
        .type = SL_NCCL_PROFILE_P2P, .rank = 3, .p2p = {.func = "Send", .count = 9, .peer = 4}};
    struct sl_nccl_profile_event_v5 six = {
        .type = SL_NCCL_PROFILE_P2P,
        .rank = 3,
        .p2p = {.func = "Send", .count = 9, .peer = 4, .tag = 78}}; /* not there before v7 */
    struct sl_nccl_profile_event_v5 copy = {.type = SL_NCCL_PROFILE_CE_COLL};
    struct view view;

    (void)state;
    setenv("SLUICE_NCCL_PROFILE", "ops", 1);
    assert_int_equal(ncclProfiler_v4.init(&a, &mask, NULL, 7, 1, 8, 3, NULL), SL_NCCL_SUCCESS);
    assert_int_equal(ncclProfiler_v6.init(&b, 7, &mask, "two", 1, 8, 3, NULL), SL_NCCL_SUCCESS);
    assert_ptr_not_equal(a, b);
    ncclProfiler_v4.start(a, &event, &four);
    ncclProfiler_v4.stop(event);
    ncclProfiler_v6.start(b, &event, &six);
    ncclProfiler_v6.stop(event);
    ncclProfiler_v6.start(b, &event, &copy);
    assert_null(event);
    view = look();
    assert_int_equal(view.file->head.written, 2);
    assert_int_equal(view.ring[0].comm, 0);
    assert_int_equal(view.ring[1].comm, 1);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(view.ring[i].type, SL_NCCL_EVENT_P2P);
        assert_string_equal(view.ring[i].op.func, "Send");
        assert_int_equal(view.ring[i].op.root, 4);
        assert_int_equal(view.ring[i].op.count, 9);
        assert_int_equal(view.ring[i].op.tag, 0);
    }
    munmap(view.file, view.bytes);
    ncclProfiler_v4.finalize(a);
    ncclProfiler_v6.finalize(b);
}

/* NCCL's proxy may work for another process, whose handles mean nothing here. */
static void a_parent_of_another_process_is_none(void **state)
{
    int mask;
    void *ctx = start_profile("ops", &mask), *event = NULL;
    struct view view;

    (void)state;
    for (int other = 0; other < 2; other++) {
        struct sl_nccl_profile_event_v5 what = {.type = SL_NCCL_PROFILE_PROXY_OP,
                                                .parent = (void *)(uintptr_t)0x5001,
                                                .proxy_op = {.pid = getpid() + other}};

        profiler->start(ctx, &event, &what);
        profiler->stop(event);
    }
    view = look();
    assert_int_equal(view.ring[0].parent, 0x5001);
    assert_int_equal(view.ring[1].parent, 0);
    munmap(view.file, view.bytes);
    profiler->finalize(ctx);
}

/* Since 2.31: the program's tag, symmetric memory, phases of kernels. */
static void what_version_7_adds_is_recorded(void **state)
{
    int mask = 0;
    void *ctx = NULL, *coll = NULL, *p2p = NULL, *kernel = NULL, *phase = NULL;
    struct sl_nccl_profile_event_v5 what = {
        .type = SL_NCCL_PROFILE_COLL,
        .coll = {.func = "AllGather", .channels = 255, .symmetric = true, .tag = 77}};
    union sl_nccl_profile_args gpu = {.kernel_ch.gpu_ns = 900};
    struct view view;

    (void)state;
    setenv("SLUICE_NCCL_PROFILE", "ops", 1);
    assert_int_equal(ncclProfiler_v7.init(&ctx, 7, &mask, NULL, 1, 8, 3, NULL), SL_NCCL_SUCCESS);
    assert_int_equal(mask & SL_NCCL_PROFILE_KERNEL_PHASE, 0);
    ncclProfiler_v7.finalize(ctx);
    setenv("SLUICE_NCCL_PROFILE", "kernels", 1);
    assert_int_equal(ncclProfiler_v7.init(&ctx, 7, &mask, NULL, 1, 8, 3, NULL), SL_NCCL_SUCCESS);
    assert_true((mask & SL_NCCL_PROFILE_KERNEL_PHASE) != 0);
    ncclProfiler_v7.start(ctx, &coll, &what);
    what = (struct sl_nccl_profile_event_v5){.type = SL_NCCL_PROFILE_P2P,
                                             .p2p = {.func = "Send", .peer = 4, .tag = 78}};
    ncclProfiler_v7.start(ctx, &p2p, &what);
    what = (struct sl_nccl_profile_event_v5){.type = SL_NCCL_PROFILE_KERNEL_CH,
                                             .parent = coll,
                                             .kernel_ch = {.channel = 2, .gpu_ns = 100}};
    ncclProfiler_v7.start(ctx, &kernel, &what);
    what = (struct sl_nccl_profile_event_v5){
        .type = SL_NCCL_PROFILE_KERNEL_PHASE,
        .parent = kernel,
        .kernel_phase = {.channel = 2, .phase = 1, .gpu_ns = 200}};
    ncclProfiler_v7.start(ctx, &phase, &what);
    ncclProfiler_v7.state(phase, SL_NCCL_STATE_PHASE_STOP, &gpu);
    ncclProfiler_v7.stop(phase);
    ncclProfiler_v7.stop(kernel);
    ncclProfiler_v7.stop(p2p);
    ncclProfiler_v7.stop(coll);
    view = look();
    assert_int_equal(view.ring[0].type, SL_NCCL_EVENT_KERNEL_PHASE);
    assert_int_equal(view.ring[0].parent, (uintptr_t)kernel);
    assert_int_equal(view.ring[0].kernel.phase, 1);
    assert_int_equal(view.ring[0].kernel.gpu_start_ns, 200);
    assert_int_equal(view.ring[0].kernel.gpu_stop_ns, 900);
    assert_int_equal(view.ring[2].op.tag, 78);
    assert_int_equal(view.ring[3].op.tag, 77);
    assert_int_equal(view.ring[3].op.symmetric, 1);
    assert_int_equal(view.ring[3].op.channels, 255);
    munmap(view.file, view.bytes);
    ncclProfiler_v7.finalize(ctx);
}

static bool add_line(void *arg, const char *text, size_t len)
{
    char *out = arg;
    size_t used = strlen(out);

    snprintf(out + used, 4096 - used, "%.*s", (int)len, text);
    return true;
}

static void the_file_is_read_as_any_state_page(void **state)
{
    char text[4096] = "", want[64];
    int mask, fd;
    void *ctx = start_profile("ops", &mask);
    struct sl_state_reader reader;
    struct sl_nccl_event_comm comm;

    (void)state;
    fd = open(sl_nccl_profile_path(), O_RDONLY);
    assert_true(fd >= 0);
    assert_int_equal(sl_state_read_fd(fd, &reader), 0);
    assert_true(sl_state_text_all(&reader, true, 0, add_line, text));
    snprintf(want, sizeof(want), "process %d (nccl_test_profi), rank 5 of 16 on ", (int)getpid());
    if (strstr(text, want) == NULL)
        fail_msg("%s", text);
    assert_int_equal(sl_state_count(&reader, SL_STATE_NCCL_OPEN), SL_NCCL_EVENTS_SLOTS);
    assert_int_equal(sl_state_count(&reader, SL_STATE_NCCL_OVER), 64);
    assert_int_equal(sl_state_get(&reader, SL_STATE_NCCL_COMM, 0, &comm, sizeof(comm)),
                     SL_STATE_WHOLE);
    assert_int_equal(comm.id, 0xabc);
    assert_int_equal(sl_state_get(&reader, SL_STATE_NCCL_COMM, 1, &comm, sizeof(comm)),
                     SL_STATE_UNUSED);
    close(fd);
    profiler->finalize(ctx);
}

/* ---- the tool ---- */

static const char *tool_path;

static void print_events(const char *options, char *out, size_t cap)
{
    char command[512];
    FILE *pipe;
    size_t len;

    snprintf(command, sizeof(command), "'%s' %s %d", tool_path, options, (int)getpid());
    pipe = popen(command, "r");
    assert_non_null(pipe);
    len = fread(out, 1, cap - 1, pipe);
    out[len] = '\0';
    assert_int_equal(pclose(pipe), 0);
}

static void the_tool_prints_what_is_over_and_what_is_going_on(void **state)
{
    static char text[65536];
    int mask;
    void *ctx = start_profile("steps", &mask), *coll = NULL, *step;
    struct sl_nccl_profile_event_v5 what = {
        .type = SL_NCCL_PROFILE_COLL, .rank = 5, .coll = {.seq = 3, .func = "All\"Gather"}};

    (void)state;
    if (tool_path == NULL) {
        print_message("no sluice-nccl-events was named\n");
        skip();
    }
    profiler->start(ctx, &coll, &what);
    profiler->stop(coll);
    step = start_step(ctx, NULL, 8);
    profiler->state(step, SL_NCCL_STATE_RECV_GPU_WAIT, NULL);
    print_events("", text, sizeof(text));
    assert_non_null(strstr(text, "\"finished\":1"));
    assert_non_null(strstr(text, "\"id\":\"0000000000000abc\",\"rank\":5,\"ranks\":16"));
    assert_non_null(strstr(text, "\"func\":\"All?Gather\",\"seq\":3")); /* JSON stays JSON */
    assert_non_null(strstr(text, "\"step\":8"));
    assert_non_null(strstr(text, "\"waits_for\":\"this rank's GPU, to empty the buffer\""));
    print_events("--open", text, sizeof(text));
    assert_null(strstr(text, "All?Gather"));
    assert_non_null(strstr(text, "\"step\":8"));
    profiler->stop(step);
    print_events("--open", text, sizeof(text));
    assert_null(strstr(text, "\"step\":8"));
    profiler->finalize(ctx);
}

/* ---- the tool and files of others ---- */

/* Runs the tool on a file or a process; returns its exit status, out what it says on both
 * streams. */
static int run_tool(const char *given, char *out, size_t cap)
{
    char command[512];
    FILE *pipe;
    size_t len;
    int status;

    snprintf(command, sizeof(command), "exec timeout 20 '%s' %s 2>&1", tool_path, given);
    pipe = popen(command, "r");
    assert_non_null(pipe);
    len = fread(out, 1, cap - 1, pipe);
    out[len] = '\0';
    status = pclose(pipe);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* A file of events of process pid in the shared folder, as its writer leaves it. */
static int make_file(int pid, uint32_t ring, char *path, size_t cap)
{
    const size_t record = sizeof(struct sl_nccl_event_record);
    struct sl_nccl_events head = {
        .header = {.magic = {'S', 'L', 'U', 'I', 'C', 'E', 'S', 'T'},
                   .version = SL_STATE_VERSION,
                   .header_bytes = sizeof(head.header),
                   .section_bytes = sizeof(head.sections[0]),
                   .section_count = 4,
                   .file_bytes = sizeof(head) + (1 + (size_t)ring) * record},
        .sections = {{SL_STATE_PROCESS, sizeof(head.process), 1, 0,
                      offsetof(struct sl_nccl_events, process), 0},
                     {SL_STATE_NCCL, sizeof(head.head), 1, 0, offsetof(struct sl_nccl_events, head),
                      0},
                     {SL_STATE_NCCL_OPEN, (uint32_t)record, 1, 0, sizeof(head), 0},
                     {SL_STATE_NCCL_OVER, (uint32_t)record, ring, 0, sizeof(head) + record, 0}},
        .process = {.turn = 2, .pid = pid},
        .head = {.turn = 2, .written = ring}};
    int fd;

    snprintf(path, cap, SL_NCCL_EVENTS_PATH "-%d-0", pid);
    unlink(path);
    fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, &head, sizeof(head)), sizeof(head));
    assert_int_equal(ftruncate(fd, (off_t)(sizeof(head) + (1 + (size_t)ring) *
                                                              sizeof(struct sl_nccl_event_record))),
                     0);
    return fd;
}

static void the_tool_reads_no_file_of_another_user(void **state)
{
    char path[96], text[4096], given[32];
    int fd;

    (void)state;
    if (tool_path == NULL || geteuid() != 0) {
        print_message("only root can make another user's file\n");
        skip();
    }
    fd = make_file((int)getpid(), 64, path, sizeof(path));
    snprintf(given, sizeof(given), "%d", (int)getpid());
    assert_int_equal(run_tool(given, text, sizeof(text)), 0);
    assert_int_equal(fchown(fd, 65534, 65534), 0);
    assert_int_equal(run_tool(given, text, sizeof(text)), 1);
    assert_non_null(strstr(text, "it belongs to user 65534"));
    assert_int_equal(run_tool(path, text, sizeof(text)), 0); /* by its name: as it was asked */
    unlink(path);
    close(fd);
    assert_int_equal(symlink("/etc/passwd", path), 0);
    assert_int_equal(run_tool(given, text, sizeof(text)), 1);
    unlink(path);
}

static void the_tool_waits_for_no_pipe(void **state)
{
    char path[96], text[4096];

    (void)state;
    if (tool_path == NULL) {
        print_message("no sluice-nccl-events was named\n");
        skip();
    }
    snprintf(path, sizeof(path), SL_NCCL_EVENTS_PATH "-test-%d", (int)getpid());
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(run_tool(path, text, sizeof(text)), 1);
    assert_non_null(strstr(text, "it is no file of events"));
    unlink(path);
}

/* Sizes are what they were when they were checked, whatever the file says and is by then. */
static void a_file_that_changes_while_it_is_read_hurts_nobody(void **state)
{
    static char text[1 << 20];
    uint32_t ring = 100000, none = 0;
    char path[96];
    int fd, status;
    pid_t other;

    (void)state;
    if (tool_path == NULL) {
        print_message("no sluice-nccl-events was named\n");
        skip();
    }
    fd = make_file((int)getpid(), ring, path, sizeof(path)); /* others may run this test, too */
    other = fork();
    assert_true(other >= 0);
    if (other == 0 && prctl(PR_SET_PDEATHSIG, SIGKILL) == 0) /* until it is killed */
        for (;; usleep(300)) {
            (void)!ftruncate(fd, sizeof(struct sl_nccl_events));
            (void)!ftruncate(fd, (off_t)(sizeof(struct sl_nccl_events) +
                                         (1 + (size_t)ring) * sizeof(struct sl_nccl_event_record)));
            (void)!pwrite(fd, &none, sizeof(none),
                          offsetof(struct sl_nccl_events, sections[3].count));
            usleep(200);
            (void)!pwrite(fd, &ring, sizeof(ring),
                          offsetof(struct sl_nccl_events, sections[3].count));
        }
    for (int i = 0; i < 40; i++) {
        status = run_tool(path, text, sizeof(text));
        if (status != 0) {
            assert_int_equal(status, 1);
            assert_non_null(strstr(text, "it holds no events of NCCL"));
        }
    }
    kill(other, SIGKILL);
    waitpid(other, NULL, 0);
    unlink(path);
    close(fd);
}

/* ---- many threads ---- */

#define THREADS 4
#define ROUNDS 20000

static void *hammer(void *ctx)
{
    void *last = NULL;

    for (int i = 0; i < ROUNDS; i++) {
        void *step = start_step(ctx, NULL, i);

        profiler->state(step, SL_NCCL_STATE_SEND_PEER_WAIT, NULL);
        profiler->stop(last); /* again */
        profiler->stop(step);
        last = step;
    }
    return NULL;
}

static void threads_do_not_disturb_each_other(void **state)
{
    pthread_t threads[THREADS];
    int mask;
    void *ctx = start_profile("steps", &mask);
    struct view view = look();

    (void)state;
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, hammer, ctx), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(view.file->head.written + view.file->head.dropped, THREADS * ROUNDS);
    for (unsigned i = 0; i < SL_NCCL_EVENTS_SLOTS; i++)
        assert_int_equal(view.slots[i].turn % 2, 0);
    for (unsigned i = 0; i < view.file->sections[4].count; i++)
        assert_int_equal(view.ring[i].type, SL_NCCL_EVENT_PROXY_STEP);
    munmap(view.file, view.bytes);
    profiler->finalize(ctx);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_off_unless_asked_for),
        cmocka_unit_test(settings_choose_the_kinds),
        cmocka_unit_test(a_collective_and_its_parts_are_recorded),
        cmocka_unit_test(handles_that_are_over_are_ignored),
        cmocka_unit_test(starts_beyond_the_pool_are_dropped_and_counted),
        cmocka_unit_test(every_version_says_the_same),
        cmocka_unit_test(a_parent_of_another_process_is_none),
        cmocka_unit_test(what_version_7_adds_is_recorded),
        cmocka_unit_test(the_file_is_read_as_any_state_page),
        cmocka_unit_test(the_tool_prints_what_is_over_and_what_is_going_on),
        cmocka_unit_test(the_tool_reads_no_file_of_another_user),
        cmocka_unit_test(the_tool_waits_for_no_pipe),
        cmocka_unit_test(a_file_that_changes_while_it_is_read_hurts_nobody),
        cmocka_unit_test(threads_do_not_disturb_each_other),
    };

    tool_path = argc > 1 ? argv[1] : NULL;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
