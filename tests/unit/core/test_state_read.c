/* SPDX-License-Identifier: Apache-2.0 */
/* State pages made up: of other versions, damaged, hostile, and changed under their reader. */
#include "core/err.h"
#include "core/state_text.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* ---- changed under its reader ---- */

#define SCRIBBLES 500

static _Atomic bool writing;

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_route_of_a_path_is_told_where_the_page_has_it),
        cmocka_unit_test(older_and_newer_pages_are_read_as_far_as_both_know),
        cmocka_unit_test(what_is_being_written_is_not_guessed),
        cmocka_unit_test(a_page_that_lies_about_its_sizes_is_refused),
        cmocka_unit_test(records_in_a_hole_are_unused_and_stay_a_hole),
        cmocka_unit_test(a_page_cannot_steer_the_terminal),
        cmocka_unit_test(a_page_that_changes_under_its_reader_hurts_nobody),
        cmocka_unit_test(a_file_that_is_cut_under_its_reader_is_no_page_any_more),
    };

    return cmocka_run_group_tests_name("state_read", tests, NULL, NULL);
}
