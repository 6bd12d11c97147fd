/* SPDX-License-Identifier: Apache-2.0 */
/* DPDK's start, in children; what ports are, and those that cannot be opened. */
#include "core/err.h"
#include "core/log.h"
#include "dpdk/port/huge.h"
#include "dpdk/port/inside.h"
#include "dpdk/port/ports.h"
#include "tests/unit/dpdk/port_pair.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include <rte_config.h>
#include <rte_eal.h>
#include <rte_log.h>

/* ---- starting DPDK: once a process, so in children, before this one does ---- */

static void in_a_child(int (*act)(void))
{
    int status;
    pid_t child = fork();

    if (child == 0)
        _exit(act());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static int open_list(const char *list)
{
    static struct sl_dpdk_port *ports[SL_DPDK_PORTS_MAX];
    struct sl_dpdk_port_settings settings = {.list = list, .rank = -1, .local_rank = -1};
    size_t count;

    return sl_dpdk_ports_get(&settings, ports, SL_DPDK_PORTS_MAX, &count);
}

/* One descriptor more, where EAL needs two: it gives up halfway. */
static int fail_twice(void)
{
    int next = dup(0);
    struct rlimit files = {(rlim_t)next + 1, (rlim_t)next + 1};

    close(next);
    if (setrlimit(RLIMIT_NOFILE, &files) != 0 || open_list("net_null0") != -EMFILE)
        return 1;
    return open_list("net_null0") == -EMFILE && strstr(sluice_last_error(), "a new one") != NULL
               ? 0
               : 2;
}

static void a_start_that_failed_is_told_again_and_ends_nothing(void **state)
{
    (void)state;
    in_a_child(fail_twice);
}

static int start_before(void)
{
    char *words[] = {"test", "--no-huge", "--no-pci", "--no-shconf", "--no-telemetry"};
    char text[256] = "";
    FILE *own = fmemopen(text, sizeof(text), "w");

    if (rte_eal_init(SL_ARRAY_LEN(words), words) < 0 || rte_openlog_stream(own) != 0)
        return 1;
    if (open_list("net_null0") != 0)
        return 2;
    rte_log(RTE_LOG_ERR, RTE_LOGTYPE_USER1, "a line of the program\n");
    fflush(own);
    return strstr(text, "a line of the program") != NULL ? 0 : 3;
}

static void a_program_that_has_started_dpdk_keeps_its_log(void **state)
{
    (void)state;
    in_a_child(start_before);
}

/* Each with buffers of a size of its own: 400 MB in all. */
static int open_many(void)
{
    char list[512] = "";

    for (unsigned i = 0; i < 12; i++)
        sl_text_add(list, sizeof(list), "net_null%u@mtu=%u ", i, SL_DPDK_MTU_MOST - 64 * i);
    return open_list(list) == 0 ? 0 : 1;
}

static void there_is_memory_for_many_ports(void **state)
{
    (void)state;
    in_a_child(open_many);
}

/* As a container's filter of system calls has it. */
static int forbid_memory_policies(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_get_mempolicy, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {SL_ARRAY_LEN(code), code};

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
        return 1;
    if (sl_dpdk_memory_policy_allowed() || sl_dpdk_huge_pages_free(0))
        return 2;
    return open_list("net_null0") == 0 ? 0 : 3;
}

static void without_memory_policies_it_starts_without_huge_pages(void **state)
{
    (void)state;
    in_a_child(forbid_memory_policies);
}

/* ---- what a port is ---- */

static void the_threads_affinity_and_signals_stay_as_they_were(void **state)
{
    struct sl_dpdk_port_settings settings = port_pair_settings(NULL);
    cpu_set_t before, after;
    sigset_t signals_before, signals_after;
    struct port_end a;

    (void)state;
    sched_getaffinity(0, sizeof(before), &before);
    pthread_sigmask(SIG_SETMASK, NULL, &signals_before);
    assert_int_equal(port_end_open(&a, &settings, 0), 0);
    sched_getaffinity(0, sizeof(after), &after);
    pthread_sigmask(SIG_SETMASK, NULL, &signals_after);
    assert_true(CPU_EQUAL(&before, &after));
    for (int i = 1; i < NSIG; i++)
        assert_int_equal(sigismember(&signals_before, i), sigismember(&signals_after, i));
    port_end_close(&a);
}

static void a_port_tells_what_it_is(void **state)
{
    struct sl_dpdk_port_settings settings = port_pair_settings(NULL);
    struct sl_dpdk_port_info info, other;
    struct port_end a;

    (void)state;
    assert_int_equal(port_end_open(&a, &settings, 0), 0);
    sl_dpdk_port_info(a.ports[0], &info);
    sl_dpdk_port_info(a.ports[1], &other);
    assert_string_equal(info.name, "ring:a/0");
    assert_string_equal(info.driver, "net_ring");
    assert_int_equal(info.frame_most, 9014);
    assert_true(info.is_up);
    assert_true(info.sends_segments);
    assert_int_equal(info.address.ip[0], 169);
    assert_int_equal(info.address.prefix, 16);
    assert_int_equal(info.address.udp_port, SL_DPDK_UDP_PORT);
    assert_int_equal(info.address.segment, other.address.segment);
    assert_int_equal(sl_dpdk_port_fd(a.port), -1);
    assert_int_equal(sl_dpdk_port_arm(a.port), -ENOTSUP);
    port_end_close(&a);
}

/* Two NICs of a host are rarely on one wire: pairs are made by subnets then. */
static void a_nic_is_on_a_wire_only_if_it_is_named(void **state)
{
    struct sl_dpdk_port_settings settings = {
        .list = "net_null0@ip=10.1.0.2/24 net_null1@ip=10.2.0.2/24@segment=blue",
        .rank = -1,
        .local_rank = -1};
    struct sl_dpdk_port_info info, named;
    struct port_end a;

    (void)state;
    assert_int_equal(port_end_open(&a, &settings, 0), 0);
    sl_dpdk_port_info(a.ports[0], &info);
    sl_dpdk_port_info(a.ports[1], &named);
    assert_int_equal(info.address.segment, 0);
    assert_int_equal(named.address.segment, sl_dpdk_hash("blue"));
    port_end_close(&a);
}

static uint32_t frame_most_of(const char *driver, const char *args)
{
    struct sl_dpdk_spec spec = {.kind = SL_DPDK_VDEV};
    struct sl_dpdk_traits traits;

    snprintf(spec.args, sizeof(spec.args), "%s", args);
    sl_dpdk_driver_traits(driver, &spec, &traits);
    return traits.frame_most;
}

static void a_port_that_takes_too_little_says_what_to_change(void **state)
{
    static const char *const lists[] = {"net_null0", "net_memif9,socket=/tmp/none.sock,bsize=500"};
    struct sl_dpdk_port *ports[SL_DPDK_PORTS_MAX];
    size_t count;

    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        struct sl_dpdk_port_settings settings = {
            .list = lists[i], .mtu = i == 0 ? 575 : 0, .rank = -1, .local_rank = -1};

        assert_int_equal(sl_dpdk_ports_get(&settings, ports, SL_DPDK_PORTS_MAX, &count), -EINVAL);
        assert_non_null(strstr(sluice_last_error(), "576 are the least"));
    }
    assert_int_equal(frame_most_of("net_af_packet", "framesz=2048"), 1968);
    assert_int_equal(frame_most_of("net_af_packet", "framesz=16"), 1);
}

/* "lo" has 65,536 bytes, and a buffer less. */
static void an_interface_with_a_huge_mtu_has_usual_frames(void **state)
{
    struct sl_dpdk_spec spec = {.kind = SL_DPDK_VDEV, .name = "net_af_packet0", .args = "iface=lo"};

    (void)state;
    assert_int_equal(sl_dpdk_driver_args(&spec), 0);
    assert_int_equal(spec.mtu, SL_DPDK_MTU_USUAL);
    assert_non_null(strstr(spec.args, "framesz="));
}

/* ---- lists ---- */

static void ports_that_are_not_there_are_told(void **state)
{
    struct sl_dpdk_port_settings settings = {.list = "", .rank = -1, .local_rank = -1};
    struct sl_dpdk_port *ports[SL_DPDK_PORTS_MAX];
    size_t count;

    (void)state;
    assert_int_equal(sl_dpdk_ports_get(&settings, ports, SL_DPDK_PORTS_MAX, &count), -ENODEV);
    settings.list = "net_nothing0";
    assert_int_equal(sl_dpdk_ports_get(&settings, ports, SL_DPDK_PORTS_MAX, &count), -ENODEV);
    assert_non_null(strstr(sluice_last_error(), "net_nothing0"));
    settings.list = "lo";
    assert_int_equal(sl_dpdk_ports_get(&settings, ports, SL_DPDK_PORTS_MAX, &count), -ENODEV);
    assert_non_null(strstr(sluice_last_error(), "net_af_packet0,iface=lo"));
    settings.list = "0000:ff:1f.7";
    assert_int_equal(sl_dpdk_ports_get(&settings, ports, SL_DPDK_PORTS_MAX, &count), -ENODEV);
    settings.list = "ring:a/0 net_af_packet0,iface=nosuch0";
    assert_int_equal(sl_dpdk_ports_get(&settings, ports, SL_DPDK_PORTS_MAX, &count), -ENODEV);
    assert_non_null(strstr(sluice_last_error(), "nosuch0"));
    settings.list = "ring:a/0 ring:a/1";
    assert_int_equal(sl_dpdk_ports_get(&settings, ports, 1, &count), -EINVAL);
    settings.inject = "loss=2";
    assert_int_equal(sl_dpdk_ports_get(&settings, ports, SL_DPDK_PORTS_MAX, &count), -EINVAL);
    assert_non_null(strstr(sluice_last_error(), "loss=2"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_start_that_failed_is_told_again_and_ends_nothing),
        cmocka_unit_test(a_program_that_has_started_dpdk_keeps_its_log),
        cmocka_unit_test(there_is_memory_for_many_ports),
        cmocka_unit_test(without_memory_policies_it_starts_without_huge_pages),
        cmocka_unit_test(the_threads_affinity_and_signals_stay_as_they_were),
        cmocka_unit_test(a_port_tells_what_it_is),
        cmocka_unit_test(a_nic_is_on_a_wire_only_if_it_is_named),
        cmocka_unit_test(a_port_that_takes_too_little_says_what_to_change),
        cmocka_unit_test(an_interface_with_a_huge_mtu_has_usual_frames),
        cmocka_unit_test(ports_that_are_not_there_are_told),
    };

    if (getenv("PEER_LOG") != NULL)
        sl_log_configure(getenv("PEER_LOG"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
