/* SPDX-License-Identifier: Apache-2.0 */
/* The loader, with the real programs, in this kernel; where it lets nobody load them, that is said
 * and the rest is skipped. */
#include "ebpf/objects.h"
#include "ebpf/probe.h"
#include "ebpf/shared.h"

#include <sluice/error.h>

#include <errno.h>
#include <linux/capability.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#define LIST(...)                                                                                  \
    (const char *const[])                                                                          \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }

/* ---- objects that are not as they were built ---- */

const void *__real_sl_bpf_object(const char *name, size_t *len);
const void *__wrap_sl_bpf_object(const char *name, size_t *len);

static const char *word, *instead; /* of the same length; NULL: as built */
static char damaged[256 * 1024];

const void *__wrap_sl_bpf_object(const char *name, size_t *len)
{
    const void *bytes = __real_sl_bpf_object(name, len);

    if (bytes == NULL || word == NULL)
        return bytes;
    assert_true(*len <= sizeof(damaged) && strlen(word) == strlen(instead));
    memcpy(damaged, bytes, *len);
    for (size_t i = 0; i + strlen(word) <= *len; i++)
        if (memcmp(damaged + i, word, strlen(word)) == 0)
            memcpy(damaged + i, instead, strlen(word));
    return damaged;
}

static void skip_unless_it_loads(void)
{
    struct sl_bpf *bpf = NULL;

    word = NULL;
    if (sl_bpf_load("checksum", LIST("on_damaged"), &bpf) != 0) {
        printf("# skipped: %s\n", sluice_last_error());
        skip();
    }
    sl_bpf_close(bpf);
}

/* ---- cases ---- */

static void every_object_is_one_that_this_kernel_takes_or_names_what_it_lacks(void **state)
{
    static const struct {
        const char *object, *programs[4];
    } all[] = {{"retransmit", {"on_sent"}},
               {"window", {"on_probe"}},
               {"reset", {"on_send", "on_receive"}},
               {"checksum", {"on_damaged"}},
               {"drop", {"on_drop"}},
               {"xmit", {"on_xmit"}},
               {"timeout", {"on_timeout"}},
               {"qdisc", {"on_enqueue", "on_dequeue"}},
               {"stall", {"on_stall"}},
               {"sched", {"on_wakeup", "on_wakeup_new", "on_switch"}}};
    unsigned loaded = 0;

    (void)state;
    skip_unless_it_loads();
    for (unsigned i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        struct sl_bpf *bpf = NULL;
        int err = sl_bpf_load(all[i].object, all[i].programs, &bpf);

        if (err == 0)
            err = sl_bpf_attach(bpf);
        if (err != 0)
            printf("# %s: %s\n", all[i].object, sluice_last_error());
        assert_true(err == 0 || err == -ENOTSUP);
        loaded += err == 0;
        sl_bpf_close(bpf);
    }
    assert_true(loaded >= 8); /* stall is new, and drop reasons are not old */
}

/* UDP to a port of this host where nobody listens is a packet that is dropped. */
static void send_to_nobody(void)
{
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    (void)sendto(fd, "x", 1, 0, (const struct sockaddr *)&to, sizeof(to));
    close(fd);
}

static uint64_t drops(struct sl_bpf *bpf)
{
    uint64_t counts[SL_BPF_REASONS], sum = 0;

    assert_int_equal(sl_bpf_sums(bpf, "counts", counts, SL_BPF_REASONS), 0);
    for (unsigned i = 0; i < SL_BPF_REASONS; i++)
        sum += counts[i];
    return sum;
}

static void it_counts_while_it_is_attached(void **state)
{
    struct sl_bpf *bpf = NULL;
    uint64_t before;

    (void)state;
    skip_unless_it_loads();
    if (sl_bpf_load("drop", LIST("on_drop"), &bpf) != 0)
        assert_int_equal(sl_bpf_load("drop", LIST("on_drop_unsaid"), &bpf), 0);
    for (unsigned i = 0; i < 100; i++)
        send_to_nobody();
    assert_int_equal(drops(bpf), 0);
    assert_int_equal(sl_bpf_attach(bpf), 0);
    for (unsigned i = 0; i < 100; i++)
        send_to_nobody();
    before = drops(bpf);
    assert_true(before >= 100);
    sl_bpf_detach(bpf);
    before = drops(bpf);
    for (unsigned i = 0; i < 100; i++)
        send_to_nobody();
    assert_int_equal(drops(bpf), before);
    assert_int_equal(sl_bpf_attach(bpf), 0);
    send_to_nobody();
    assert_true(drops(bpf) > before);
    sl_bpf_close(bpf);
}

static void a_tracepoint_that_is_not_there_is_said_and_takes_no_other_with_it(void **state)
{
    struct sl_bpf *bad = NULL, *good = NULL;

    (void)state;
    skip_unless_it_loads();
    word = "tcp_bad_csum", instead = "tcp_bad_cake";
    assert_int_equal(sl_bpf_load("checksum", LIST("on_damaged"), &bad), -ENOTSUP);
    word = NULL;
    assert_null(bad);
    assert_string_equal(
        sluice_last_error(),
        "this kernel has no tracepoint or function that the BPF probe 'checksum' is for");
    assert_int_equal(sl_bpf_load("checksum", LIST("on_damaged"), &good), 0);
    assert_int_equal(sl_bpf_attach(good), 0);
    sl_bpf_close(good);
}

static void a_field_that_is_not_there_is_in_the_kernels_words(void **state)
{
    struct sl_bpf *bad = NULL;

    (void)state;
    skip_unless_it_loads();
    word = "snd_wnd", instead = "snd_wmd";
    assert_int_not_equal(sl_bpf_load("window", LIST("on_probe"), &bad), 0);
    word = NULL;
    assert_null(bad);
    assert_non_null(strstr(sluice_last_error(), "the kernel refuses the BPF probe 'window'"));
    assert_non_null(strstr(sluice_last_error(), "snd_wmd"));
}

static void an_object_that_is_no_object_is_refused(void **state)
{
    struct sl_bpf *bpf = NULL;

    (void)state;
    skip_unless_it_loads();
    word = "\x7f"
           "ELF",
    instead = "\x7f"
              "FLE";
    assert_int_not_equal(sl_bpf_load("window", LIST("on_probe"), &bpf), 0);
    word = NULL;
    assert_int_equal(sl_bpf_load("nonesuch", LIST("on_probe"), &bpf), -ENOENT);
    assert_null(bpf);
}

/* As fexit is refused here and there, and kprobes elsewhere. */
static void of_several_ways_the_first_that_works_is_taken(void **state)
{
    const char *const *const ways[] = {LIST("on_send"), LIST("on_receive")};
    const char *const *const drop[] = {LIST("on_drop_unsaid"), LIST("on_drop")};
    struct sl_bpf *bpf = NULL;

    (void)state;
    skip_unless_it_loads();
    assert_int_equal(sl_bpf_open_first("drop", drop, 2, NULL, &bpf), 0);
    send_to_nobody();
    assert_true(drops(bpf) > 0);
    sl_bpf_close(bpf);
    bpf = NULL;
    word = "tcp_send_reset", instead = "tcp_send_roses";
    assert_int_equal(sl_bpf_open_first("reset", ways, 1, NULL, &bpf), -ENOTSUP);
    assert_null(bpf);
    assert_int_equal(sl_bpf_open_first("reset", ways, 2, NULL, &bpf), 0);
    word = NULL;
    sl_bpf_close(bpf);
}

/* Both ways, where there is RDMA: fexit and fentry; kprobes. */
static void each_way_to_watch_rdma_loads_where_the_kernel_has_it(void **state)
{
    static const struct {
        const char *object, *programs[6];
    } ways[] = {
        {"qp", {"create_exit", "modify_exit", "destroy_exit"}},
        {"qp", {"create_return", "modify_call", "modify_return", "destroy_call", "destroy_return"}},
        {"rdma_event", {"dispatch_entry", "owner_entry"}},
        {"rdma_event", {"dispatch_call", "owner_call"}}};
    unsigned worked = 0;

    (void)state;
    skip_unless_it_loads();
    if (access("/sys/module/ib_uverbs", F_OK) != 0) {
        printf("# skipped: no RDMA device was ever here (no module ib_uverbs)\n");
        skip();
    }
    for (unsigned i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        struct sl_bpf *bpf = NULL;
        int err = sl_bpf_load(ways[i].object, ways[i].programs, &bpf);

        if (err == 0)
            err = sl_bpf_attach(bpf);
        printf("# %s by %s: %s\n", ways[i].object, ways[i].programs[0],
               err == 0 ? "up" : sluice_last_error());
        worked += err == 0;
        sl_bpf_close(bpf);
    }
    assert_true(worked >= 2);
}

/* In a process of its own, which cannot have them back. */
static void without_capabilities_it_says_which_it_wants(void **state)
{
    pid_t pid = fork();
    int status;

    (void)state;
    if (pid == 0) {
        struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
        struct __user_cap_data_struct none[2] = {{0}};
        struct sl_bpf *bpf = NULL;

        word = NULL;
        if (syscall(SYS_capset, &head, none) != 0)
            _exit(2);
        if (sl_bpf_load("checksum", LIST("on_damaged"), &bpf) != -EPERM || bpf != NULL)
            _exit(3);
        if (sl_bpf_may_read_modules())
            _exit(5);
        _exit(strcmp(sluice_last_error(), "the BPF probe 'checksum' needs the capabilities CAP_BPF "
                                          "and CAP_PERFMON (or CAP_SYS_ADMIN)") == 0
                  ? 0
                  : 4);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void on_name(void *arg, const char *name, uint64_t value)
{
    unsigned *found = arg;

    (void)value;
    *found += strcmp(name, "SKB_DROP_REASON_NO_SOCKET") == 0;
}

static void reasons_have_this_kernels_names(void **state)
{
    unsigned found = 0;

    (void)state;
    skip_unless_it_loads();
    if (sl_bpf_enum("skb_drop_reason", on_name, &found) != 0) {
        printf("# skipped: %s\n", sluice_last_error());
        skip();
    }
    assert_int_equal(found, 1);
    assert_int_equal(sl_bpf_enum("no_such_enum_of_it", on_name, &found), -ENOTSUP);
}

static void entries_are_listed_put_and_removed(void **state)
{
    enum { MANY = 300 };
    static uint32_t keys[SL_BPF_PROCESSES];
    static struct sl_bpf_process values[SL_BPF_PROCESSES];
    struct sl_bpf *bpf = NULL;
    uint64_t sum = 0;

    (void)state;
    skip_unless_it_loads();
    assert_int_equal(sl_bpf_load("sched", LIST("on_wakeup"), &bpf), 0);
    assert_int_equal(sl_bpf_list(bpf, "processes", keys, values, SL_BPF_PROCESSES), 0);
    for (uint32_t i = 1; i <= MANY; i++) {
        const struct sl_bpf_process value = {.wait_ns = i};

        assert_int_equal(sl_bpf_put(bpf, "processes", &i, &value), 0);
    }
    assert_int_equal(sl_bpf_list(bpf, "processes", keys, values, SL_BPF_PROCESSES), MANY);
    for (unsigned i = 0; i < MANY; i++) {
        assert_int_equal(values[i].wait_ns, keys[i]);
        sum += keys[i];
    }
    assert_int_equal(sum, MANY * (MANY + 1) / 2);
    assert_int_equal(sl_bpf_list(bpf, "processes", keys, values, 100) <= 100, 1);
    for (uint32_t i = 1; i <= MANY; i++)
        sl_bpf_remove(bpf, "processes", &i);
    assert_int_equal(sl_bpf_list(bpf, "processes", keys, values, SL_BPF_PROCESSES), 0);
    assert_int_equal(sl_bpf_get(bpf, "processes", &keys[0], &values[0]), -ENOENT);
    sl_bpf_close(bpf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_object_is_one_that_this_kernel_takes_or_names_what_it_lacks),
        cmocka_unit_test(it_counts_while_it_is_attached),
        cmocka_unit_test(a_tracepoint_that_is_not_there_is_said_and_takes_no_other_with_it),
        cmocka_unit_test(a_field_that_is_not_there_is_in_the_kernels_words),
        cmocka_unit_test(an_object_that_is_no_object_is_refused),
        cmocka_unit_test(of_several_ways_the_first_that_works_is_taken),
        cmocka_unit_test(each_way_to_watch_rdma_loads_where_the_kernel_has_it),
        cmocka_unit_test(without_capabilities_it_says_which_it_wants),
        cmocka_unit_test(reasons_have_this_kernels_names),
        cmocka_unit_test(entries_are_listed_put_and_removed)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
