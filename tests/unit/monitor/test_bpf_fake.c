/* SPDX-License-Identifier: Apache-2.0 */
/* What the sources make of what BPF probes say, without any: RDMA events and queue pairs, transmit
 * timeouts, drops by name. */
#include "monitor/bpf.h"

#include "tests/unit/monitor/fake_bpf.h"

#include <fcntl.h>
#include <json-c/json.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

/* The module that RDMA needs is there. */
int __wrap_access(const char *path, int mode);
int __real_access(const char *path, int mode);
static bool is_without_rdma;

int __wrap_access(const char *path, int mode)
{
    if (strcmp(path, "/sys/module/ib_core") != 0)
        return __real_access(path, mode);
    errno = ENOENT;
    return is_without_rdma ? -1 : 0;
}

static struct sl_mon *mon;
static struct sl_mon_config config;
static struct sl_mon_time now;
static const struct sl_source_class *class;
static void *source;
static unsigned transitions, events;
static char last_text[SL_MON_TEXT], last_subject[SL_MON_NAME];
static char *text;

static void on_transition(void *arg, const struct sl_mon_transition *transition)
{
    (void)arg;
    if (transition->step.from == transition->step.to)
        events++;
    else
        transitions++;
    snprintf(last_text, sizeof(last_text), "%s", transition->evidence->text);
    snprintf(last_subject, sizeof(last_subject), "%s", transition->subject->name);
}

static int begin(void **state)
{
    const struct sl_mon_options options = {
        .subjects_max = 64, .next_id = 1, .on_transition = on_transition};

    (void)state;
    memset(&fake, 0, sizeof(fake));
    transitions = events = 0;
    last_text[0] = last_subject[0] = '\0';
    is_without_rdma = false;
    assert_int_equal(sl_mon_create(&options, &mon), 0);
    now = (struct sl_mon_time){
        .mono_ns = SL_MON_HOUR, .wall_ns = SL_MON_HOUR, .boot_ns = SL_MON_HOUR};
    sl_mon_set_time(mon, &now);
    sl_mon_config_defaults(&config);
    snprintf(config.rdma_root, sizeof(config.rdma_root), "/no/such/folder");
    return 0;
}

static void start(const struct sl_source_class *what)
{
    const struct sl_source_host host = {.mon = mon, .config = &config};

    class = what;
    assert_int_equal(class->create(&host, &source), 0);
    assert_int_equal(class->open(source), 0);
}

static int end(void **state)
{
    (void)state;
    if (source != NULL) {
        class->close(source);
        class->destroy(source);
    }
    source = NULL;
    assert_int_equal(fake.closed, fake.err == 0 && !is_without_rdma ? fake.opened : 0);
    sl_mon_destroy(mon);
    free(text);
    text = NULL;
    return 0;
}

static const char *metrics(void)
{
    size_t len;
    FILE *out;

    free(text);
    text = NULL;
    out = open_memstream(&text, &len);
    class->metrics(source, SL_MON_OPENMETRICS, out);
    fclose(out);
    return text;
}

/* ---- RDMA events ---- */

static void event(unsigned what, unsigned port, uint64_t at_ns)
{
    struct sl_bpf_rdma_event one = {
        .at_ns = at_ns, .event = what, .port = port, .qpn = 0x1a2, .device = "mlx5_3"};

    fake.events = &one;
    fake.event_count = 1;
    assert_int_equal(class->read(source), 1);
}

static void use_port(const char *name)
{
    sl_mon_use(mon, sl_mon_subject(mon, SL_MON_PORT, name));
}

static void a_port_that_comes_back_flapped_and_for_how_long_is_said(void **state)
{
    (void)state;
    start(&sl_source_bpf_rdma_event);
    use_port("mlx5_3:1");
    event(10, 1, SL_MON_HOUR);
    assert_int_equal(transitions, 0);
    event(9, 1, SL_MON_HOUR + 12000000);
    assert_int_equal(transitions, 1);
    assert_string_equal(last_subject, "mlx5_3:1");
    assert_string_equal(last_text, "the port went down and came back after 0.012 s");
    event(9, 1, SL_MON_HOUR + 13000000); /* told twice */
    assert_int_equal(transitions + events, 1);
    event(10, 1, SL_MON_HOUR + SL_MON_S);
    event(9, 1, SL_MON_HOUR + 3 * SL_MON_S);
    assert_int_equal(events, 1);
}

/* Another port came up; or it came up a second time; or after an hour. */
static void what_is_no_flap_accuses_nobody(void **state)
{
    (void)state;
    start(&sl_source_bpf_rdma_event);
    use_port("mlx5_3:1");
    use_port("mlx5_3:2");
    event(9, 1, SL_MON_HOUR);
    event(10, 1, SL_MON_HOUR);
    event(9, 2, SL_MON_HOUR + 1);
    event(10, 2, SL_MON_HOUR + 2);
    event(9, 2, 2 * SL_MON_HOUR + 2);
    event(9, 2, 2 * SL_MON_HOUR + 3);
    event(9, 2, 2 * SL_MON_HOUR + 4);
    assert_int_equal(transitions + events, 0);
}

static void put(const char *path, const char *what)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, what, strlen(what)), strlen(what));
    close(fd);
}

/* Loopback stands for an interface that is up; one that is down by its flags is named by a path. */
static void a_port_whose_interface_was_taken_down_did_not_flap(void **state)
{
    char folder[] = "/tmp/sluice-bpf-XXXXXX", command[512], path[512];

    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(command, sizeof(command), "mkdir -p %s/mlx5_3/ports/1/gid_attrs/ndevs %s/net", folder,
             folder);
    assert_int_equal(system(command), 0);
    snprintf(config.rdma_root, sizeof(config.rdma_root), "%s", folder);
    start(&sl_source_bpf_rdma_event);
    use_port("mlx5_3:1");
    snprintf(path, sizeof(path), "%s/net/flags", folder);
    put(path, "0x1002\n");
    snprintf(command, sizeof(command), "../../..%s/net\n", folder);
    snprintf(path, sizeof(path), "%s/mlx5_3/ports/1/gid_attrs/ndevs/0", folder);
    put(path, command);
    event(10, 1, SL_MON_HOUR);
    event(9, 1, SL_MON_HOUR + 12000000);
    assert_int_equal(transitions, 0);
    put(path, "lo\n");
    event(10, 1, SL_MON_HOUR);
    event(9, 1, SL_MON_HOUR + 12000000);
    assert_int_equal(transitions, 1);
    snprintf(command, sizeof(command), "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

static void a_device_that_fails_is_named_by_its_address(void **state)
{
    char folder[] = "/tmp/sluice-bpf-XXXXXX", command[512];

    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(command, sizeof(command),
             "mkdir -p %s/mlx5_3 && ln -s ../../../0000:0c:00.0 %s/mlx5_3/device", folder, folder);
    assert_int_equal(system(command), 0);
    snprintf(config.rdma_root, sizeof(config.rdma_root), "%s", folder);
    start(&sl_source_bpf_rdma_event);
    event(8, 0, SL_MON_HOUR);
    assert_int_equal(transitions, 1);
    assert_string_equal(last_subject, "0000:0c:00.0");
    assert_non_null(strstr(last_text, "DEVICE_FATAL"));
    snprintf(command, sizeof(command), "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

/* One may be a program's own overrun; what a peer or a program did wrong says nothing of a NIC. */
static void
three_queue_pairs_that_fail_are_a_fault_of_the_nic_and_other_errors_are_none(void **state)
{
    struct sl_mon_subject *nic;

    (void)state;
    start(&sl_source_bpf_rdma_event);
    for (unsigned i = 0; i < 20; i++) {
        event(2, 0, SL_MON_HOUR);
        event(3, 0, SL_MON_HOUR);
        event(0, 0, SL_MON_HOUR);
    }
    assert_int_equal(transitions, 0);
    event(1, 0, SL_MON_HOUR);
    event(1, 0, SL_MON_HOUR);
    nic = sl_mon_find(mon, SL_MON_NIC, "mlx5_3");
    assert_non_null(nic);
    assert_int_not_equal(sl_mon_subject_state(nic), SL_MON_BAD);
    event(1, 0, SL_MON_HOUR);
    assert_int_equal(sl_mon_subject_state(nic), SL_MON_BAD);
    assert_string_equal(last_text, "queue pair 0x1a2 of mlx5_3 failed (QP_FATAL)");
    assert_non_null(strstr(metrics(), "sluice_rdma_qp_fatal_total{device=\"mlx5_3\"} 3\n"));
    assert_non_null(
        strstr(text, "sluice_rdma_events_total{device=\"mlx5_3\",event=\"qp_access_error\"} 20\n"));
}

static void events_of_numbers_and_names_that_nobody_knows_do_no_harm(void **state)
{
    struct sl_bpf_rdma_event odd[4] = {{.event = 4000000000u, .port = 4000000000u},
                                       {.event = 10, .port = 255},
                                       {.event = 9, .port = 511},
                                       {.event = 20}};

    (void)state;
    start(&sl_source_bpf_rdma_event);
    memset(odd[0].device, 'x', sizeof(odd[0].device));
    snprintf(odd[1].device, sizeof(odd[1].device), "../../etc");
    snprintf(odd[2].device, sizeof(odd[2].device), "a");
    snprintf(odd[3].device, sizeof(odd[3].device), "a");
    fake.events = odd;
    fake.event_count = 4;
    assert_int_equal(class->read(source), 4);
    assert_int_equal(transitions, 0);
    assert_non_null(
        strstr(metrics(), "sluice_rdma_events_total{device=\"a\",event=\"other\"} 1\n"));
    assert_null(strstr(text, "etc"));
}

static void without_rdma_nothing_is_loaded_and_that_is_said(void **state)
{
    const struct sl_source_host host = {.mon = mon, .config = &config};

    (void)state;
    is_without_rdma = true;
    class = &sl_source_bpf_qp;
    assert_int_equal(class->create(&host, &source), 0);
    assert_int_equal(class->open(source), -ENODEV);
    assert_non_null(strstr(sluice_last_error(), "ib_core is not loaded"));
    is_without_rdma = false;
    fake.is_without_modules = true;
    assert_int_equal(class->open(source), -EPERM);
    assert_non_null(strstr(sluice_last_error(), "CAP_SYS_ADMIN"));
    assert_int_equal(fake.opened, 0);
    class->destroy(source);
    source = NULL;
}

/* ---- queue pairs ---- */

static void queue_pairs_are_counted_by_device_and_state(void **state)
{
    const uint64_t keys[4] = {1, 2, 3, 4};
    const struct sl_bpf_qp qps[4] = {
        {.device = "mlx5_0", .state = 3, .qpn = 17, .type = 2, .peer_qpn = 34, .flow_label = 5},
        {.device = "mlx5_0", .state = 3},
        {.device = "mlx5_1", .state = 6},
        {.device = "mlx5_1", .state = 77}};
    struct json_object *out = json_object_new_object();

    (void)state;
    start(&sl_source_bpf_qp);
    fake.keys = keys, fake.values = qps;
    fake.key_bytes = sizeof(keys[0]), fake.value_bytes = sizeof(qps[0]);
    fake.entries = 4;
    fake.counts[0] = 4;
    assert_int_equal(class->tick(source), 0);
    assert_int_equal(class->tick(source), 0);
    assert_int_equal(fake.listed, 1); /* nothing changed */
    assert_non_null(strstr(metrics(), "sluice_rdma_qps_seen{device=\"mlx5_0\",state=\"rts\"} 2\n"));
    assert_non_null(strstr(text, "sluice_rdma_qps_seen{device=\"mlx5_1\",state=\"err\"} 1\n"));
    assert_non_null(strstr(text, "sluice_rdma_qps_seen{device=\"mlx5_1\",state=\"rts\"} 0\n"));
    assert_non_null(strstr(text, "sluice_rdma_qp_changes_total{kind=\"created\"} 4\n"));
    class->json(source, out);
    assert_non_null(strstr(json_object_to_json_string_ext(out, JSON_C_TO_STRING_PLAIN),
                           "\"qpn\":17,\"type\":\"RC\",\"state\":\"rts\",\"pid\":0,\"peer_gid\":"
                           "\"::\",\"peer_qpn\":34,\"flow_label\":5}"));
    json_object_put(out);
    fake.entries = 0;
    fake.counts[2] = 4;
    assert_int_equal(class->tick(source), 0);
    assert_non_null(strstr(metrics(), "sluice_rdma_qps_seen{device=\"mlx5_0\",state=\"rts\"} 0\n"));
}

/* ---- transmit queues ---- */

static void a_queue_that_the_watchdog_found_accuses_its_interface(void **state)
{
    const struct sl_bpf_queue_key keys[2] = {{.ifindex = 3, .queue = 5},
                                             {.ifindex = 4, .queue = 0}};
    struct sl_bpf_timeout values[2] = {{.count = 1, .device = "eth7"},
                                       {.count = 1, .device = "veth9"}};

    (void)state;
    start(&sl_source_bpf_timeout);
    fake.keys = keys, fake.values = values;
    fake.key_bytes = sizeof(keys[0]), fake.value_bytes = sizeof(values[0]);
    assert_int_equal(class->tick(source), 0);
    assert_int_equal(transitions, 0);
    fake.entries = 2;
    assert_int_equal(class->tick(source), 0);
    assert_int_equal(transitions, 1); /* veth9 is of those that are not watched */
    assert_string_equal(last_subject, "eth7");
    assert_non_null(strstr(last_text, "transmit queue 5 stood still"));
    assert_int_equal(class->tick(source), 0);
    assert_int_equal(transitions + events, 1);
    values[0].count = 4;
    assert_int_equal(class->tick(source), 0);
    assert_int_equal(events, 1);
    assert_non_null(strstr(last_text, "3 times since the last look"));
    assert_non_null(strstr(metrics(), "sluice_net_transmit_timeouts_total{device=\"eth7\"} 4\n"));
    assert_null(strstr(text, "veth9"));
}

/* The kernel's map may let an entry go for others; and a source may be closed and opened. */
static void counts_of_an_entry_that_began_anew_only_go_up(void **state)
{
    const uint32_t key = 3;
    struct sl_bpf_xmit value = {.busy = 10, .dropped = 2, .device = "eth7"};

    (void)state;
    start(&sl_source_bpf_xmit);
    fake.keys = &key, fake.values = &value;
    fake.key_bytes = sizeof(key), fake.value_bytes = sizeof(value);
    fake.entries = 1;
    assert_int_equal(class->tick(source), 0);
    value.busy = 4, value.dropped = 3;
    assert_int_equal(class->tick(source), 0);
    class->close(source);
    assert_int_equal(class->open(source), 0);
    value.busy = 1, value.dropped = 0;
    assert_int_equal(class->tick(source), 0);
    assert_non_null(strstr(
        metrics(), "sluice_net_transmit_failures_total{device=\"eth7\",kind=\"busy\"} 15\n"));
    assert_non_null(
        strstr(text, "sluice_net_transmit_failures_total{device=\"eth7\",kind=\"dropped\"} 3\n"));
}

/* ---- drops, and what is common ---- */

static void drops_have_the_names_of_the_running_kernel(void **state)
{
    (void)state;
    start(&sl_source_bpf_drop);
    fake.counts[3] = 30, fake.counts[5] = 50, fake.counts[0] = 1,
    fake.counts[SL_BPF_REASONS - 1] = 4;
    assert_int_equal(class->tick(source), 0);
    assert_non_null(strstr(metrics(), "sluice_net_drops_total{reason=\"NO_SOCKET\"} 30\n"));
    assert_non_null(strstr(text, "sluice_net_drops_total{reason=\"TCP_CSUM\"} 50\n"));
    assert_non_null(strstr(text, "sluice_net_drops_total{reason=\"NETFILTER_DROP\"} 0\n"));
    assert_non_null(strstr(text, "sluice_net_drops_total{reason=\"OTHER\"} 5\n"));
    assert_null(strstr(text, "PINK"));
    fake.counts[7] = 1;
    assert_int_equal(class->tick(source), 0);
    assert_non_null(strstr(metrics(), "sluice_net_drops_total{reason=\"PINK\"} 1\n"));
}

static void counters_go_on_after_a_source_was_opened_again(void **state)
{
    (void)state;
    start(&sl_source_bpf_reset);
    fake.counts[0] = 7;
    class->close(source);
    fake.counts[0] = 0;
    assert_int_equal(class->open(source), 0);
    fake.counts[0] = 2;
    assert_int_equal(class->tick(source), 0);
    assert_non_null(strstr(metrics(), "sluice_tcp_resets_total{direction=\"sent\"} 9\n"));
    assert_non_null(strstr(text, "sluice_tcp_resets_total{direction=\"received\"} 0\n"));
}

/* Each try costs the kernel's types to be read: not every ten seconds. */
static void what_this_kernel_refuses_is_asked_for_once(void **state)
{
    const struct sl_source_host host = {.mon = mon, .config = &config};

    (void)state;
    fake.err = -ENOTSUP;
    class = &sl_source_bpf_window;
    assert_int_equal(class->create(&host, &source), 0);
    for (unsigned i = 0; i < 5; i++) {
        assert_int_equal(class->open(source), -ENOTSUP);
        assert_string_equal(sluice_last_error(), "no probe window in this kernel of mine");
    }
    assert_int_equal(fake.opened, 1);
    assert_non_null(strstr(metrics(), "sluice_tcp_zero_windows_total 0\n"));
    class->destroy(source);
    fake.opened = 0;
    fake.err = -ENOMEM;
    assert_int_equal(class->create(&host, &source), 0);
    assert_int_equal(class->open(source), -ENOMEM);
    assert_int_equal(class->open(source), -ENOMEM);
    assert_int_equal(fake.opened, 2);
    class->destroy(source);
    source = NULL;
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        CASE(a_port_that_comes_back_flapped_and_for_how_long_is_said),
        CASE(what_is_no_flap_accuses_nobody),
        CASE(a_port_whose_interface_was_taken_down_did_not_flap),
        CASE(a_device_that_fails_is_named_by_its_address),
        CASE(three_queue_pairs_that_fail_are_a_fault_of_the_nic_and_other_errors_are_none),
        CASE(events_of_numbers_and_names_that_nobody_knows_do_no_harm),
        CASE(without_rdma_nothing_is_loaded_and_that_is_said),
        CASE(queue_pairs_are_counted_by_device_and_state),
        CASE(a_queue_that_the_watchdog_found_accuses_its_interface),
        CASE(counts_of_an_entry_that_began_anew_only_go_up),
        CASE(drops_have_the_names_of_the_running_kernel),
        CASE(counters_go_on_after_a_source_was_opened_again),
        CASE(what_this_kernel_refuses_is_asked_for_once)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
