/* SPDX-License-Identifier: Apache-2.0 */
/* Dumps of PyTorch's Flight Recorder and pickles: one small dump in all protocols and in JSON, and
 * what is refused. */
#include "core/err.h"
#include "monitor/read/pickle.h"
#include "monitor/read/read.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static char bytes[16 << 10];

static size_t load(const char *name)
{
    char path[1024];
    FILE *file;
    size_t len;

    snprintf(path, sizeof(path), "%s/%s", getenv("SLUICE_TEST_CORPUS"), name);
    file = fopen(path, "rb");
    if (file == NULL)
        fail_msg("%s is not there", path);
    len = fread(bytes, 1, sizeof(bytes), file);
    fclose(file);
    return len;
}

static uint32_t comm_by_label(const struct sl_job *job, const char *label)
{
    for (uint32_t c = 0; c < job->comm_count; c++)
        if (strcmp(sl_job_string(job, job->comms[c].label), label) == 0)
            return c;
    fail_msg("there is no communicator %s", label);
    return SL_JOB_NONE;
}

static void check_count(const struct sl_job *job, size_t at, uint32_t comm, uint64_t issued,
                        uint64_t done)
{
    assert_int_equal(job->counts[at].rank, 1);
    assert_int_equal(job->counts[at].comm, comm);
    assert_int_equal(job->counts[at].kind, SL_JOB_KINDS);
    assert_int_equal(job->counts[at].issued, issued);
    assert_int_equal(job->counts[at].done, done);
}

static void check_dump(const struct sl_job *job)
{
    uint32_t world = comm_by_label(job, "default_pg (0)"), pipe = comm_by_label(job, "PIPE (3)"),
             last = comm_by_label(job, "group 12");
    const struct sl_job_op *op = job->ops;

    assert_int_equal(job->comm_count, 3);
    assert_int_equal(job->comms[world].member_count, 3);
    assert_int_equal(job->comms[pipe].members[1], 2);
    assert_int_equal(job->op_count, 3);
    assert_true(job->ranks[1].is_told && !job->ranks[0].is_told);
    assert_int_equal(op[0].kind, SL_JOB_ALLREDUCE);
    assert_int_equal(op[0].state, SL_JOB_DONE);
    assert_int_equal(op[0].seq, 6);
    assert_int_equal(op[0].bytes, 128);
    assert_int_equal(op[0].issue_ns, 1000000000010);
    assert_int_equal(op[0].end_ns, 1000000000012);
    assert_string_equal(sl_job_string(job, op[0].shape), "32 x Float");
    assert_int_equal(op[1].kind, SL_JOB_RECV);
    assert_int_equal(op[1].state, SL_JOB_STARTED);
    assert_int_equal(op[1].peer, 2);
    assert_int_equal(op[1].comm, pipe);
    assert_int_equal(op[1].seq, 9);
    assert_true(op[1].is_seq_own);
    assert_int_equal(op[2].state, SL_JOB_ISSUED);
    assert_int_equal(op[2].start_ns, SL_JOB_NEVER);
    assert_string_equal(sl_job_string(job, op[2].name), "nccl:_all_gather_base");
    /* Group 12 has no entry: it is the third of three. */
    assert_int_equal(job->count_count, 3);
    for (size_t i = 0; i < 3; i++) {
        uint32_t comm = job->counts[i].comm;

        check_count(job, i, comm,
                    comm == world  ? 7
                    : comm == pipe ? 9
                                   : 33,
                    comm == world  ? 6
                    : comm == pipe ? 8
                                   : 33);
        assert_true(comm == world || comm == pipe || comm == last);
    }
}

static void a_dump_is_the_same_in_all_its_forms(void **state)
{
    static const char *const forms[] = {"protocol-0", "protocol-1", "protocol-2", "protocol-3",
                                        "protocol-4", "protocol-5", "json"};

    (void)state;
    for (unsigned i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        struct sl_job *job = sl_job_new();
        char name[64];
        size_t len;

        snprintf(name, sizeof(name), "diagnosis_flight/%s", forms[i]);
        len = load(name);
        if (sl_read_bytes(job, "a.2/_dump_1.json", bytes, len) != 0)
            fail_msg("%s: %s", forms[i], sluice_last_error());
        assert_int_equal(sl_job_seal(job), 0);
        check_dump(job);
        sl_job_free(job);
    }
}

static void a_dump_that_is_cut_is_refused_wherever_it_is(void **state)
{
    static const char *const forms[] = {"diagnosis_flight/protocol-2",
                                        "diagnosis_flight/protocol-4", "diagnosis_flight/json"};

    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        size_t len = load(forms[i]);

        for (size_t cut = 1200; cut < len - 1; cut += 3) {
            struct sl_job *job = sl_job_new();

            assert_int_equal(sl_read_bytes(job, "_dump_1", bytes, cut), -EBADMSG);
            assert_non_null(strstr(sluice_last_error(), "_dump_1"));
            sl_job_free(job);
        }
    }
}

static int read_as(const char *name, const char *text)
{
    struct sl_job *job = sl_job_new();
    int err = sl_read_bytes(job, name, text, strlen(text));

    sl_job_free(job);
    return err;
}

#define HEAD_REST "\"version\":\"2.9\",\"pg_config\":"
#define HEAD "{" HEAD_REST
#define GROUPS                                                                                     \
    "{\"0\":{\"desc\":\"\",\"ranks\":\"[0, 1, 2]\"},\"1\":{\"desc\":\"\",\"ranks\":\"[2, 1]\"}}"

static void the_rank_is_in_the_name_and_in_all_groups(void **state)
{
    (void)state;
    assert_int_equal(read_as("_dump_1", HEAD GROUPS "}"), 0);
    assert_int_equal(read_as("_dump_1", "{\"\":7," /* no key */ HEAD_REST GROUPS "}"), 0);
    assert_int_equal(read_as("run7/rank02.pkl.gz", HEAD GROUPS "}"), 0);
    assert_int_equal(read_as("_dump_0", HEAD GROUPS "}"), -EBADMSG);
    assert_non_null(strstr(sluice_last_error(), "does not tell of which rank it is"));
    assert_int_equal(read_as("dump", HEAD GROUPS "}"), -EBADMSG);
    assert_int_equal(read_as("dump", HEAD "{\"0\":{\"ranks\":\"[4]\"}}}"), 0);
    assert_int_equal(read_as("dump", HEAD "{\"0\":{\"ranks\":\"[4]\"},\"1\":{\"ranks\":\"[5]\"}}}"),
                     -EBADMSG);
    assert_non_null(strstr(sluice_last_error(), "no rank is a member of all"));
}

static void dumps_that_make_no_sense_are_refused(void **state)
{
    static const char *const bad[] = {
        "{\"pg_config\":{}}",
        "{\"version\":\"1.0\",\"pg_config\":{}}",
        HEAD "[]}",
        HEAD "{\"0\":[]}}",
        HEAD "{\"0\":{\"ranks\":\"0, 1\"}}}",
        HEAD "{\"0\":{\"ranks\":\"[0, x]\"}}}",
        HEAD "{\"0\":{\"ranks\":\"[0, 99999999]\"}}}",
        HEAD "{\"0\":{\"ranks\":\"[1, 1]\"}}}",
        HEAD GROUPS ",\"entries\":{}}",
        HEAD GROUPS ",\"entries\":[7]}",
        HEAD GROUPS ",\"entries\":[{}]}",
        HEAD GROUPS ",\"entries\":[{\"process_group\":[\"0\",\"\"],\"state\":\"odd\"}]}",
        HEAD GROUPS ",\"entries\":[{\"process_group\":[\"0\",\"\"],\"state\":\"started\"}]}",
        HEAD GROUPS ",\"entries\":[{\"process_group\":[\"0\",\"\"],\"state\":\"started\","
                    "\"collective_seq_id\":-4}]}",
    };

    (void)state;
    for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (read_as("_dump_1", bad[i]) != -EBADMSG)
            fail_msg("%s is taken", bad[i]);
}

/* The counts of a dump with two groups, as "group issued" each. */
static void expect_counts(const char *entries, const char *text)
{
    static const char head[] = "{\"version\":\"2.9\",\"pg_config\":" GROUPS
                               ",\"pg_status\":{\"4\":{\"last_enqueued_collective\":40},"
                               "\"7\":{\"last_enqueued_collective\":70}},\"entries\":";
    struct sl_job *job = sl_job_new();
    char dump[1024], got[128] = "";

    snprintf(dump, sizeof(dump), "%s%s}", head, entries);
    assert_int_equal(sl_read_bytes(job, "_dump_1", dump, strlen(dump)), 0);
    for (size_t i = 0; i < job->count_count; i++)
        sl_text_add(got, sizeof(got), "%s %d, ",
                    sl_job_string(job, job->comms[job->counts[i].comm].label),
                    (int)job->counts[i].issued);
    assert_string_equal(got, text);
    sl_job_free(job);
}

static void last_numbers_are_of_groups_in_order_unless_entries_contradict(void **state)
{
#define ENTRY(group, id)                                                                           \
    "[{\"process_group\":[\"" group "\",\"\"],\"pg_id\":" id                                       \
    ",\"state\":\"started\",\"collective_seq_id\":1}]"
    (void)state;
    expect_counts("[]", "group 0 40, group 1 70, ");
    expect_counts(ENTRY("1", "7"), "group 0 40, group 1 70, ");
    expect_counts(ENTRY("1", "4"), "group 1 40, ");
    expect_counts(ENTRY("0", "9"), "");
#undef ENTRY
}

/* ---- pickles ---- */

struct memory {
    struct sl_read_in in;
    const char *at;
    size_t left;
};

static long more(struct sl_read_in *in, void *buffer, size_t cap)
{
    struct memory *memory = (struct memory *)in;
    size_t len = memory->left < cap ? memory->left : cap;

    memcpy(buffer, memory->at, len);
    memory->at += len;
    memory->left -= len;
    return (long)len;
}

static int unpickle(const char *from, size_t len, struct sl_values *values, uint32_t *root)
{
    struct memory memory = {.in = {.name = "x.pkl", .more = more}, .at = from, .left = len};

    *values = (struct sl_values){.list = NULL};
    return sl_pickle_read(&memory.in, values, root);
}

static void plain_data_is_read_in_all_protocols(void **state)
{
    (void)state;
    for (char protocol = '0'; protocol <= '5'; protocol++) {
        static const int64_t numbers[] = {1, -1, (int64_t)1 << 40, INT64_MIN};
        char name[] = "diagnosis_pickle/plain-0";
        struct sl_values values;
        uint32_t root, list, link = 0, member;
        int64_t number;

        name[sizeof(name) - 2] = protocol;
        if (unpickle(bytes, load(name), &values, &root) != 0)
            fail_msg("%s: %s", name, sluice_last_error());
        list = sl_value_get(&values, root, "a");
        if (protocol >= '3') /* the one list, by the memo */
            assert_int_equal(sl_value_get(&values, root, "again"), list);
        for (unsigned i = 0; i < 4; i++) {
            assert_true(sl_value_next(&values, list, &link, &member));
            assert_true(sl_value_int(&values, member, &number));
            assert_int_equal(number, numbers[i]);
        }
        assert_true(sl_value_next(&values, list, &link, &member));
        assert_true(sl_value_is(&values, member, SL_VALUE_FLOAT));
        assert_true(values.list[member].real == 3.5);
        assert_true(sl_value_next(&values, list, &link, &member));
        assert_true(sl_value_true(&values, member));
        assert_int_equal(values.list[list].count, protocol < '3' ? 14 : 15);
        link = 0;
        assert_false(sl_value_next(&values, SL_VALUE_NONE, &link, &member));
        sl_values_fini(&values);
    }
}

static void expect_refused(const char *from, size_t len, const char *words)
{
    struct sl_values values;
    uint32_t root;

    assert_int_equal(unpickle(from, len, &values, &root), -EBADMSG);
    if (strstr(sluice_last_error(), words) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", sluice_last_error(), words);
    sl_values_fini(&values);
}

static void what_finds_or_calls_something_is_refused_by_name(void **state)
{
    (void)state;
    expect_refused(bytes, load("diagnosis_pickle/reduce"), "byte 20: the opcode GLOBAL is refused");
    expect_refused(bytes, load("diagnosis_pickle/stack-global"),
                   "the opcode STACK_GLOBAL is refused");
    expect_refused("(R.", 3, "REDUCE");
    expect_refused("\x80\x02]0.", 5, "POP");
    expect_refused("\xff", 1, "0xff is no opcode");
}

static void pickles_that_make_no_sense_are_refused(void **state)
{
    (void)state;
#define BAD(text, words) expect_refused(text, sizeof(text) - 1, words)
    BAD("", "ends too early");
    BAD("\x80\x06.", "protocol");
    BAD(".", "other than one value");
    BAD("NN.", "other than one value");
    BAD("(N.", "other than one value");
    BAD("N.N", "something follows");
    BAD("Nu.", "no mark");
    BAD("(u.", "too few");
    BAD("N(Ne.", "no list");
    BAD("](N(Ne.", "no list");
    BAD("]((Ne.", "too few");
    BAD("}(Nu.", "a key has no value");
    BAD("}Ns.", "too few");
    BAD("(}NNs(s.", "too few");
    BAD("N\x86.", "too few");
    BAD("(Nd.", "a key has no value");
    BAD("h\x01.", "memo has no such value");
    BAD("Nq\x01.", "not filled in turn");
    BAD("q\x01.", "too few");
    BAD("I12x\n.", "no number");
    BAD("L99999999999999999999L\n.", "no number");
    BAD("\x8a\x09xxxxxxxxx.", "more than 64 bits");
    BAD("Sab\n.", "quotation");
    BAD("p\n.", "no place of the memo");
    BAD("\x8e\xff\xff\xff\xff\xff\xff\xff\xff", "too long");
    BAD("X\xff\xff\xff\x3f"
        "abc",
        "ends too early");
#undef BAD
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_dump_is_the_same_in_all_its_forms),
        cmocka_unit_test(a_dump_that_is_cut_is_refused_wherever_it_is),
        cmocka_unit_test(the_rank_is_in_the_name_and_in_all_groups),
        cmocka_unit_test(dumps_that_make_no_sense_are_refused),
        cmocka_unit_test(last_numbers_are_of_groups_in_order_unless_entries_contradict),
        cmocka_unit_test(plain_data_is_read_in_all_protocols),
        cmocka_unit_test(what_finds_or_calls_something_is_refused_by_name),
        cmocka_unit_test(pickles_that_make_no_sense_are_refused),
    };

    return cmocka_run_group_tests_name("diagnosis_flight", tests, NULL, NULL);
}
