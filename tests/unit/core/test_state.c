/* SPDX-License-Identifier: Apache-2.0 */
/* The state page: written, read while it is written, read of the stopped, the dead and the hostile,
 * found and taken away. */
#include "core/clock.h"
#include "core/err.h"
#include "core/state_file.h"
#include "core/state_page.h"
#include "core/state_text.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- a page in this process ---- */

static void open_own(const char *state)
{
    struct sl_config config;

    sl_config_defaults(&config);
    assert_int_equal(sl_config_set(&config, "STATE", state), 0);
    assert_int_equal(sl_config_set(&config, "JOB", "a job"), 0);
    sl_state_open(&config, 3, 8);
}

static struct sl_state_reader own_reader(void)
{
    struct sl_state_reader reader;
    size_t bytes;
    const void *page = sl_state_memory(&bytes);

    assert_non_null(page);
    assert_int_equal(sl_state_read_memory(page, bytes, &reader), 0);
    return reader;
}

static void a_record_is_read_as_it_was_put(void **state)
{
    struct sl_state_process process;
    struct sl_state_op op = {.comm = 7, .moved = 4096, .coll = "allreduce"}, back;

    (void)state;
    open_own("on");
    struct sl_state_reader reader = own_reader();
    int place = sl_state_take(SL_STATE_OP);

    assert_int_equal(sl_state_get(&reader, SL_STATE_OP, (uint32_t)place, &back, sizeof(back)),
                     SL_STATE_UNUSED);
    sl_state_put(SL_STATE_OP, place, &op);
    assert_int_equal(sl_state_get(&reader, SL_STATE_OP, (uint32_t)place, &back, sizeof(back)),
                     SL_STATE_WHOLE);
    assert_int_equal(back.comm, 7);
    assert_int_equal(back.moved, 4096);
    assert_string_equal(back.coll, "allreduce");
    sl_state_give(SL_STATE_OP, place);
    assert_int_equal(sl_state_get(&reader, SL_STATE_OP, (uint32_t)place, &back, sizeof(back)),
                     SL_STATE_WHOLE);
    assert_int_equal(back.comm, 0);
    assert_int_equal(sl_state_get(&reader, SL_STATE_PROCESS, 0, &process, sizeof(process)),
                     SL_STATE_WHOLE);
    assert_int_equal(process.pid, getpid());
    assert_int_equal(process.rank, 3);
    assert_string_equal(process.job, "a job");
    assert_true(process.start_ticks > 0);
}

static void records_end_when_all_are_taken(void **state)
{
    int places[SL_STATE_OPS];

    (void)state;
    open_own("on");
    for (int i = 0; i < SL_STATE_OPS; i++) {
        places[i] = sl_state_take(SL_STATE_OP);
        assert_true(places[i] >= 0);
    }
    assert_int_equal(sl_state_take(SL_STATE_OP), -1);
    sl_state_give(SL_STATE_OP, places[5]);
    assert_int_equal(sl_state_take(SL_STATE_OP), places[5]);
    for (int i = 0; i < SL_STATE_OPS; i++)
        sl_state_give(SL_STATE_OP, places[i]);
}

static void keep_stat(void *arg, int fd, bool lives)
{
    assert_true(lives);
    assert_int_equal(fstat(fd, arg), 0);
}

static uint64_t memory_of_own_page(void)
{
    struct stat st = {0};

    assert_int_equal(sl_state_file_find(getpid(), keep_stat, &st), 1);
    return (uint64_t)st.st_blocks * 512;
}

static int path_places[SL_STATE_PATHS_MAX];
static _Atomic int paths_taken; /* and written */

/* Path i is to rank i, and has sent i bytes. */
static void *take_paths(void *arg)
{
    for (int i = 0; i < SL_STATE_PATHS_MAX; i++) {
        struct sl_state_path path = {.comm = 1, .peer = i, .sent_bytes = (uint64_t)i};

        path_places[i] = sl_state_take(SL_STATE_PATH);
        if (path_places[i] < 0)
            break;
        sl_state_put(SL_STATE_PATH, path_places[i], &path);
        atomic_store(&paths_taken, i + 1);
    }
    return arg;
}

/* Returns how many are there. */
static int check_paths(const struct sl_state_reader *reader)
{
    int whole = 0;

    for (uint32_t i = 0; i < sl_state_count(reader, SL_STATE_PATH); i++) {
        struct sl_state_path path;

        if (sl_state_get(reader, SL_STATE_PATH, i, &path, sizeof(path)) != SL_STATE_WHOLE ||
            path.comm == 0)
            continue;
        assert_int_equal(path.sent_bytes, path.peer);
        whole++;
    }
    return whole;
}

static void check_own_file(void *arg, int fd, bool lives)
{
    struct sl_state_reader reader;

    assert_true(lives);
    if (sl_state_read_fd(fd, &reader) != 0)
        fail_msg("%s", sluice_last_error());
    *(int *)arg = check_paths(&reader);
}

static void paths_get_their_memory_as_they_are_taken_and_any_reader_copes(void **state)
{
    int shown = 0;
    pthread_t writer;

    (void)state;
    open_own("on");
    struct sl_state_reader before = own_reader(), reader = before;
    uint64_t small = memory_of_own_page();

    assert_int_equal(sl_state_count(&before, SL_STATE_PATH), 0);
    assert_in_range(small, 1, 128 << 10);
    assert_int_equal(pthread_create(&writer, NULL, take_paths, NULL), 0);
    for (uint64_t end = sl_now(&sl_clock_monotonic) + 10 * SL_NS_PER_S;
         shown < SL_STATE_PATHS_MAX && sl_now(&sl_clock_monotonic) < end;) {
        int done = atomic_load(&paths_taken);

        assert_int_equal(sl_state_file_find(getpid(), check_own_file, &shown), 1);
        assert_true(shown >= done);
        reader = own_reader();
        assert_true(check_paths(&reader) >= shown);
    }
    pthread_join(writer, NULL);
    assert_int_equal(shown, SL_STATE_PATHS_MAX);
    assert_int_equal(sl_state_take(SL_STATE_PATH), -1);
    assert_in_range(memory_of_own_page(), small + SL_STATE_PATHS_MAX * sizeof(struct sl_state_path),
                    small + SL_STATE_PATHS_MAX * sizeof(struct sl_state_path) + 8192);
    assert_int_equal(check_paths(&before), 0); /* it knows the table of then */
    for (int i = 0; i < SL_STATE_PATHS_MAX; i++)
        sl_state_give(SL_STATE_PATH, path_places[i]);
    assert_int_equal(check_paths(&reader), 0);
    int place = sl_state_take(SL_STATE_PATH);

    assert_int_equal(place, 0);
    sl_state_give(SL_STATE_PATH, place);
}

/* ---- pages made up ---- */

/* A page with one communicator and one operation, of any sizes. */
struct made_up {
    struct sl_state_header header;
    struct sl_state_section sections[2];
    uint64_t room[512];
};

static struct made_up make_up(uint32_t comm_bytes, uint32_t op_bytes)
{
    struct made_up page = {
        .header = {.magic = {'S', 'L', 'U', 'I', 'C', 'E', 'S', 'T'},
                   .version = SL_STATE_VERSION,
                   .header_bytes = sizeof(struct sl_state_header),
                   .section_bytes = sizeof(struct sl_state_section),
                   .section_count = 2,
                   .file_bytes = sizeof(page)},
        .sections = {{.kind = SL_STATE_COMM,
                      .record_bytes = comm_bytes,
                      .count = 1,
                      .offset = offsetof(struct made_up, room)},
                     {.kind = SL_STATE_OP,
                      .record_bytes = op_bytes,
                      .count = 1,
                      .offset = offsetof(struct made_up, room) + 2048}},
    };
    struct sl_state_comm comm = {
        .turn = 2, .number = 1, .rank = 1, .size = 4, .calls = {.begun = {5}, .ended = {4}}};
    struct sl_state_op op = {
        .turn = 2, .comm = 1, .seq = 5, .root = -1, .peer = 2, .steps = 9, .step = 3};

    strcpy(op.coll, "allreduce");
    strcpy(op.doing, "waits for");
    memcpy(page.room, &comm, comm_bytes < sizeof(comm) ? comm_bytes : sizeof(comm));
    memcpy((char *)page.room + 2048, &op, op_bytes < sizeof(op) ? op_bytes : sizeof(op));
    return page;
}

static bool keep_line(void *arg, const char *text, size_t len)
{
    return fwrite(text, 1, len, arg) == len;
}

/* Owned by the caller; NULL: it was refused. */
static char *text_of(const void *page, size_t bytes)
{
    struct sl_state_reader reader;
    char *text = NULL;
    size_t len;

    if (sl_state_read_memory(page, bytes, &reader) != 0)
        return NULL;
    FILE *out = open_memstream(&text, &len);

    sl_state_text_all(&reader, true, 0, keep_line, out);
    fclose(out);
    return text;
}

static void expect_text(const struct made_up *page, const char *words)
{
    char *text = text_of(page, sizeof(*page));

    if (text == NULL || strstr(text, words) == NULL)
        fail_msg("'%s' is not in: %s", words, text != NULL ? text : sluice_last_error());
    free(text);
}

static void the_route_of_a_path_is_told_where_the_page_has_it(void **state)
{
    struct made_up page = make_up(sizeof(struct sl_state_comm), sizeof(struct sl_state_op));
    struct sl_state_path path = {.turn = 2,
                                 .comm = 1,
                                 .peer = 2,
                                 .name = "mlx5_0:1 > 192.0.2.2",
                                 .state = "up",
                                 .label = 0xbeef,
                                 .source_port = 49168,
                                 .weight = 25,
                                 .is_avoided = 1};

    (void)state;
    page.sections[1].kind = SL_STATE_PATH;
    page.sections[1].record_bytes = sizeof(path);
    memcpy((char *)page.room + 2048, &path, sizeof(path));
    expect_text(&page, "path mlx5_0:1 > 192.0.2.2 to rank 2: up, label beef (port 49168), weight "
                       "25, avoided, sent 0 bytes");
    page.sections[1].record_bytes = offsetof(struct sl_state_path, label); /* an older page */
    expect_text(&page, "path mlx5_0:1 > 192.0.2.2 to rank 2: up, sent 0 bytes");
}

static void older_and_newer_pages_are_read_as_far_as_both_know(void **state)
{
    struct made_up older = make_up(sizeof(struct sl_state_comm), 88),
                   newer =
                       make_up(sizeof(struct sl_state_comm) + 64, sizeof(struct sl_state_op) + 8);

    (void)state;
    expect_text(&older, "communicator of 4 ranks, this is rank 1, 5 collectives called\n");
    expect_text(&newer, "  allreduce number 5 ()");
    newer.sections[0].kind = 4711;
    expect_text(&newer, "");
    newer.header.version++;
    assert_null(text_of(&newer, sizeof(newer)));
    assert_non_null(strstr(sluice_last_error(), "its version is 2"));
}

static void what_is_being_written_is_not_guessed(void **state)
{
    struct made_up page = make_up(sizeof(struct sl_state_comm), sizeof(struct sl_state_op));

    (void)state;
    expect_text(&page, "allreduce number 5 () at step 3 of 9, waits for rank 2");
    ((char *)page.room)[2048] = 3;
    expect_text(&page, "1 entries were being written, and are not shown");
    expect_text(&page, "  1 under way\n");
}

static void a_page_that_lies_about_its_sizes_is_refused(void **state)
{
    const struct made_up good = make_up(sizeof(struct sl_state_comm), sizeof(struct sl_state_op));

    (void)state;
#define REFUSED(field, value)                                                                      \
    do {                                                                                           \
        struct made_up bad = good;                                                                 \
        bad.field = value;                                                                         \
        assert_null(text_of(&bad, sizeof(bad)));                                                   \
    } while (0)
    REFUSED(header.magic[0], 'X');
    REFUSED(header.file_bytes, sizeof(good) + 1);
    REFUSED(header.file_bytes, 40);
    REFUSED(header.header_bytes, 0);
    REFUSED(header.header_bytes, UINT32_MAX - 7);
    REFUSED(header.section_bytes, 0);
    REFUSED(header.section_bytes, UINT32_MAX - 7);
    REFUSED(header.section_count, UINT32_MAX);
    REFUSED(sections[0].count, UINT32_MAX);
    REFUSED(sections[0].count, 100);
    REFUSED(sections[0].record_bytes, 0);
    REFUSED(sections[0].record_bytes, 12);
    REFUSED(sections[0].record_bytes, UINT32_MAX - 7);
    REFUSED(sections[1].offset, UINT64_MAX - 7);
    REFUSED(sections[1].offset, sizeof(good));
    REFUSED(sections[1].offset, 41);
#undef REFUSED
    for (size_t bytes = 0; bytes < sizeof(good); bytes += 8)
        assert_null(text_of(&good, bytes));
}

#define HOLE_PATHS 60000

/* What its owner has not backed, or what a hostile one says to be there. */
static void records_in_a_hole_are_unused_and_stay_a_hole(void **state)
{
    struct made_up page = make_up(sizeof(struct sl_state_comm), sizeof(struct sl_state_op));
    uint64_t bytes = sizeof(page) + HOLE_PATHS * sizeof(struct sl_state_path);
    int fd = memfd_create("page", MFD_CLOEXEC);
    struct sl_state_reader reader;
    struct stat before, after;
    char *text = NULL;
    size_t len;

    (void)state;
    page.header.file_bytes = bytes;
    page.sections[1] = (struct sl_state_section){.kind = SL_STATE_PATH,
                                                 .record_bytes = sizeof(struct sl_state_path),
                                                 .count = HOLE_PATHS,
                                                 .offset = sizeof(page)};
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    assert_int_equal(pwrite(fd, &page, sizeof(page), 0), sizeof(page));
    assert_int_equal(fstat(fd, &before), 0);
    assert_int_equal(sl_state_read_fd(fd, &reader), 0);
    assert_int_equal(sl_state_count(&reader, SL_STATE_PATH), HOLE_PATHS);
    FILE *out = open_memstream(&text, &len);

    assert_true(sl_state_text_all(&reader, true, 0, keep_line, out));
    fclose(out);
    assert_null(strstr(text, "path"));
    free(text);
    assert_int_equal(fstat(fd, &after), 0);
    assert_int_equal(after.st_blocks, before.st_blocks);
    page.sections[1].count++; /* beyond the end */
    assert_int_equal(pwrite(fd, &page, sizeof(page), 0), sizeof(page));
    assert_int_equal(sl_state_read_fd(fd, &reader), -EPROTO);
    close(fd);
}

static void a_page_cannot_steer_the_terminal(void **state)
{
    struct made_up page = make_up(sizeof(struct sl_state_comm), sizeof(struct sl_state_op));
    struct sl_state_op *op = (struct sl_state_op *)(void *)((char *)page.room + 2048);

    (void)state;
    memset(op->path, 'x', sizeof(op->path)); /* without an end */
    memcpy(op->path, "a\x1b[2J\x07\nb\x7f", 9);
    expect_text(&page, "rank 2 by a?[2J??b?xxx");
}

/* ---- while it is written ---- */

#define SCRIBBLES 500

static _Atomic bool writing;

/* Records whose numbers are all alike. */
static void *put_alike(void *arg)
{
    int place = *(int *)arg;

    for (uint64_t i = 1; atomic_load(&writing); i++) {
        struct sl_state_op op = {
            .comm = i, .since_ns = i, .updated_ns = i, .idle_ns = i, .count = i, .moved = i};

        sl_state_put(SL_STATE_OP, place, &op);
        if (i % 4 == 0)
            sched_yield();
    }
    return NULL;
}

static void no_record_is_of_two_writings(void **state)
{
    unsigned whole = 0;
    pthread_t writer;

    (void)state;
    open_own("on");
    struct sl_state_reader reader = own_reader();
    int place = sl_state_take(SL_STATE_OP);

    atomic_store(&writing, true);
    assert_int_equal(pthread_create(&writer, NULL, put_alike, &place), 0);
    for (uint64_t end = sl_now(&sl_clock_monotonic) + 10 * SL_NS_PER_S;
         whole < SCRIBBLES && sl_now(&sl_clock_monotonic) < end;) {
        struct sl_state_op op;

        if (sl_state_get(&reader, SL_STATE_OP, (uint32_t)place, &op, sizeof(op)) !=
                SL_STATE_WHOLE ||
            op.comm == 0)
            continue;
        whole++;
        if (op.since_ns != op.comm || op.idle_ns != op.comm || op.count != op.comm ||
            op.moved != op.comm)
            fail_msg("record %llu has parts of another", (unsigned long long)op.comm);
    }
    atomic_store(&writing, false);
    pthread_join(writer, NULL);
    sl_state_give(SL_STATE_OP, place);
    assert_int_equal(whole, SCRIBBLES);
}

/* Any word of the page, at any time. */
static void *scribble(void *arg)
{
    _Atomic uint64_t *words = arg;
    uint64_t seed = 1;

    while (atomic_load(&writing)) {
        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
        atomic_store_explicit(&words[seed % (sizeof(struct made_up) / 8)], seed >> 7,
                              memory_order_relaxed);
    }
    return NULL;
}

static void a_page_that_changes_under_its_reader_hurts_nobody(void **state)
{
    struct made_up good = make_up(sizeof(struct sl_state_comm), sizeof(struct sl_state_op)), *page;
    int fd = memfd_create("page", MFD_CLOEXEC);
    FILE *out = fopen("/dev/null", "we");
    pthread_t writer;

    (void)state;
    assert_int_equal(write(fd, &good, sizeof(good)), sizeof(good));
    page = mmap(NULL, sizeof(good), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(page != MAP_FAILED && out != NULL);
    atomic_store(&writing, true);
    assert_int_equal(pthread_create(&writer, NULL, scribble, page), 0);
    for (int i = 0; i < SCRIBBLES; i++) {
        struct sl_state_reader reader;

        if (i % 2 == 0) /* else most readings end at the header */
            for (size_t k = 0; k < offsetof(struct made_up, room) / 8; k++)
                atomic_store_explicit((_Atomic uint64_t *)page + k, ((uint64_t *)&good)[k],
                                      memory_order_relaxed);
        if (sl_state_read_fd(fd, &reader) == 0)
            sl_state_text_all(&reader, true, 0, keep_line, out);
        if (sl_state_read_memory(page, sizeof(good), &reader) == 0)
            sl_state_text_all(&reader, true, 0, keep_line, out);
    }
    atomic_store(&writing, false);
    pthread_join(writer, NULL);
    fclose(out);
    munmap(page, sizeof(good));
    close(fd);
}

static void a_file_that_is_cut_under_its_reader_is_no_page_any_more(void **state)
{
    struct made_up good = make_up(sizeof(struct sl_state_comm), sizeof(struct sl_state_op));
    int fd = memfd_create("page", MFD_CLOEXEC);
    struct sl_state_reader reader;
    struct sl_state_op op;

    (void)state;
    assert_int_equal(write(fd, &good, sizeof(good)), sizeof(good));
    assert_int_equal(sl_state_read_fd(fd, &reader), 0);
    assert_int_equal(ftruncate(fd, 1000), 0);
    assert_int_equal(sl_state_get(&reader, SL_STATE_OP, 0, &op, sizeof(op)), SL_STATE_TORN);
    assert_int_equal(op.comm, 0);
    close(fd);
}

/* ---- other processes ---- */

/* A process with a page; it says a byte and waits to be killed. */
static pid_t start_owner(const char *setting, void (*then)(void))
{
    int ready[2];
    char byte;

    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();

    if (pid == 0) {
        open_own(setting);
        if (then != NULL)
            then();
        if (write(ready[1], "", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return pid;
}

static void end_owner(pid_t pid)
{
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

struct seen {
    int pages;
    bool lives;
    int32_t pid;
    uint64_t torn;
};

static void see(void *arg, int fd, bool lives)
{
    struct seen *seen = arg;
    struct sl_state_reader reader;
    struct sl_state_process process;
    struct sl_state_op op;

    assert_int_equal(sl_state_read_fd(fd, &reader), 0);
    sl_state_get(&reader, SL_STATE_PROCESS, 0, &process, sizeof(process));
    seen->pages++;
    seen->lives = lives;
    seen->pid = process.pid;
    for (uint32_t i = 0; i < sl_state_count(&reader, SL_STATE_OP); i++)
        seen->torn += sl_state_get(&reader, SL_STATE_OP, i, &op, sizeof(op)) == SL_STATE_TORN;
}

static struct seen look_at(pid_t pid)
{
    struct seen seen = {0};

    int found = sl_state_file_find(pid, see, &seen);

    assert_int_equal(found, seen.pages);
    return seen;
}

/* As it would be if the process died in the middle of sl_state_put(). */
static void begin_to_write(void)
{
    struct sl_state_op op = {.comm = 1};
    size_t bytes;
    struct sl_state_reader reader = own_reader();
    int place = sl_state_take(SL_STATE_OP);

    sl_state_put(SL_STATE_OP, place, &op);
    for (unsigned i = 0; i < reader.section_count; i++)
        if (reader.sections[i].kind == SL_STATE_OP)
            ++*(uint64_t *)(uintptr_t)((const char *)sl_state_memory(&bytes) +
                                       reader.sections[i].offset +
                                       (size_t)place * reader.sections[i].record_bytes);
}

static void the_page_of_a_stopped_and_of_a_killed_process_is_read(void **state)
{
    pid_t pid = start_owner("on", begin_to_write);
    struct seen seen = look_at(pid);

    (void)state;
    assert_int_equal(seen.pages, 1);
    assert_true(seen.lives);
    assert_int_equal(seen.pid, pid);
    kill(pid, SIGSTOP);
    seen = look_at(pid);
    assert_int_equal(seen.pages, 1);
    assert_true(seen.lives);
    end_owner(pid);
    seen = look_at(pid);
    assert_int_equal(seen.pages, 1);
    assert_false(seen.lives);
    assert_int_equal(seen.pid, pid);
    assert_int_equal(seen.torn, 1);
    sl_state_file_clean(sl_wall_s());
    assert_int_equal(look_at(pid).pages, 1);
    sl_state_file_clean(sl_wall_s() + 4000);
    assert_int_equal(sl_state_file_find(pid, see, &seen), -ESRCH);
    assert_non_null(strstr(sluice_last_error(), "there is no process"));
}

/* As from another mount namespace. */
static void the_page_of_a_living_process_needs_no_name(void **state)
{
    pid_t pid = start_owner("on", NULL);
    char path[64];

    (void)state;
    snprintf(path, sizeof(path), "/dev/shm/sluice.%u.%d.0", (unsigned)geteuid(), (int)pid);
    assert_int_equal(unlink(path), 0);
    struct seen seen = look_at(pid);

    assert_int_equal(seen.pages, 1);
    assert_int_equal(seen.pid, pid);
    end_owner(pid);
}

static unsigned open_descriptors(void)
{
    unsigned count = 0;

    for (int fd = 0; fd < 256; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

/* Of a process that had this number. */
static void a_name_that_was_left_behind_is_taken_and_costs_nothing(void **state)
{
    unsigned before = open_descriptors();
    struct sl_state_file file;
    char path[64];
    int left = -1;

    (void)state;
    for (int i = 0; left < 0 && i < 8; i++) { /* the page of this process has the first */
        snprintf(path, sizeof(path), "/dev/shm/sluice.%u.%d.%d", (unsigned)geteuid(), (int)getpid(),
                 i);
        left = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
    }
    assert_true(left >= 0);
    close(left);
    assert_int_equal(sl_state_file_open(4096, 4096, &file), 0);
    sl_state_file_publish(&file);
    assert_string_equal(file.path, path);
    assert_int_equal(open_descriptors(), before + 1);
    sl_state_file_close(&file, false);
    assert_int_equal(open_descriptors(), before);
    assert_int_equal(access(path, F_OK), -1);
}

static void no_more_than_so_many_dead_pages_stay(void **state)
{
    pid_t pids[SL_STATE_DEAD_MAX + 3];
    int left = 0;

    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(pids); i++) {
        pids[i] = start_owner("on", NULL);
        end_owner(pids[i]);
    }
    sl_state_file_clean(sl_wall_s());
    for (size_t i = 0; i < SL_ARRAY_LEN(pids); i++) {
        struct seen seen = {0};

        left += sl_state_file_find(pids[i], see, &seen) == 1;
    }
    assert_in_range(left, 0, SL_STATE_DEAD_MAX);
    sl_state_file_clean(sl_wall_s() + 4000);
}

static void end_well(void)
{
    exit(0);
}

static pid_t run_to_its_end(const char *setting)
{
    pid_t pid = fork();

    if (pid == 0) {
        open_own(setting);
        end_well();
    }
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    return pid;
}

static void a_process_that_ends_well_leaves_nothing_unless_it_was_asked_to(void **state)
{
    struct seen seen = {0};
    char path[64];
    pid_t pid = run_to_its_end("on");

    (void)state;
    assert_int_equal(sl_state_file_find(pid, see, &seen), -ESRCH);
    pid = run_to_its_end("keep");
    assert_int_equal(look_at(pid).pages, 1);
    sl_state_file_clean(sl_wall_s() + 4000);
    assert_int_equal(look_at(pid).pages, 1);
    snprintf(path, sizeof(path), "/dev/shm/sluice.%u.%d.0", (unsigned)geteuid(), (int)pid);
    assert_int_equal(unlink(path), 0);
}

static void off_makes_no_page(void **state)
{
    pid_t pid = start_owner("off", NULL);

    (void)state;
    assert_int_equal(look_at(pid).pages, 0);
    end_owner(pid);
}

/* What a child does with its own page does not show on its parent's, and neither goes with the
 * other's end. */
static void a_child_has_a_page_of_its_own(void **state)
{
    int status;

    (void)state;
    open_own("on");
    struct seen seen = look_at(getpid());
    pid_t pid = fork();

    assert_int_equal(seen.pages, 1);
    if (pid == 0) {
        size_t bytes;

        if (sl_state_memory(&bytes) != NULL)
            _exit(1);
        if (sl_state_take(SL_STATE_OP) >= 0)
            _exit(2);
        open_own("on");
        seen = look_at(getpid());
        exit(seen.pages == 1 && seen.pid == (int32_t)getpid() ? 0 : 3);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    seen = look_at(getpid());
    assert_int_equal(seen.pages, 1);
    assert_int_equal(seen.pid, getpid());
}

static void a_page_that_another_user_made_is_not_believed(void **state)
{
    pid_t pid = start_owner("on", NULL);
    char path[64];

    (void)state;
    end_owner(pid);
    snprintf(path, sizeof(path), "/dev/shm/sluice.%u.%d.0", (unsigned)geteuid(), (int)pid);
    struct stat st;

    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    if (geteuid() == 0) {
        struct seen seen = {0};

        assert_int_equal(chown(path, 65534, 65534), 0);
        assert_int_equal(sl_state_file_find(pid, see, &seen), -ESRCH);
        sl_state_file_clean(sl_wall_s() + 4000);
        assert_int_equal(access(path, F_OK), 0);
    }
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_record_is_read_as_it_was_put),
        cmocka_unit_test(records_end_when_all_are_taken),
        cmocka_unit_test(paths_get_their_memory_as_they_are_taken_and_any_reader_copes),
        cmocka_unit_test(the_route_of_a_path_is_told_where_the_page_has_it),
        cmocka_unit_test(older_and_newer_pages_are_read_as_far_as_both_know),
        cmocka_unit_test(what_is_being_written_is_not_guessed),
        cmocka_unit_test(a_page_that_lies_about_its_sizes_is_refused),
        cmocka_unit_test(records_in_a_hole_are_unused_and_stay_a_hole),
        cmocka_unit_test(a_page_cannot_steer_the_terminal),
        cmocka_unit_test(no_record_is_of_two_writings),
        cmocka_unit_test(a_page_that_changes_under_its_reader_hurts_nobody),
        cmocka_unit_test(a_file_that_is_cut_under_its_reader_is_no_page_any_more),
        cmocka_unit_test(the_page_of_a_stopped_and_of_a_killed_process_is_read),
        cmocka_unit_test(the_page_of_a_living_process_needs_no_name),
        cmocka_unit_test(a_name_that_was_left_behind_is_taken_and_costs_nothing),
        cmocka_unit_test(no_more_than_so_many_dead_pages_stay),
        cmocka_unit_test(a_process_that_ends_well_leaves_nothing_unless_it_was_asked_to),
        cmocka_unit_test(off_makes_no_page),
        cmocka_unit_test(a_child_has_a_page_of_its_own),
        cmocka_unit_test(a_page_that_another_user_made_is_not_believed),
    };

    return cmocka_run_group_tests_name("state", tests, NULL, NULL);
}
