/* SPDX-License-Identifier: Apache-2.0 */
/* What is read of a file of NCCL's events: made by the layout that the plugin writes. */
#include "monitor/nccl.h"

#include "core/err.h"
#include "tools/nccl/abi_profiler.h"
#include "tools/nccl/events.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#define SLOTS 1000
#define RING 8

struct file {
    struct sl_nccl_events head;
    struct sl_nccl_event_record slots[SLOTS], ring[RING];
};

static struct file made;
static struct sl_mon_nccl nccl;
static int fd;

static void section(unsigned i, enum sl_state_kind kind, size_t bytes, uint32_t count, size_t at)
{
    made.head.sections[i] = (struct sl_state_section){
        .kind = kind, .record_bytes = (uint32_t)bytes, .count = count, .offset = at};
}

static int begin(void **state)
{
    (void)state;
    memset(&made, 0, sizeof(made));
    memcpy(made.head.header.magic, SL_STATE_MAGIC, 8);
    made.head.header.version = SL_STATE_VERSION;
    made.head.header.header_bytes = sizeof(made.head.header);
    made.head.header.section_bytes = sizeof(made.head.sections[0]);
    made.head.header.section_count = SL_NCCL_EVENTS_SECTIONS;
    made.head.header.file_bytes = sizeof(made);
    section(0, SL_STATE_PROCESS, sizeof(made.head.process), 1,
            offsetof(struct sl_nccl_events, process));
    section(1, SL_STATE_NCCL, sizeof(made.head.head), 1, offsetof(struct sl_nccl_events, head));
    section(2, SL_STATE_NCCL_COMM, sizeof(made.head.comm[0]), SL_NCCL_EVENTS_COMMS,
            offsetof(struct sl_nccl_events, comm));
    section(3, SL_STATE_NCCL_OPEN, sizeof(made.slots[0]), SLOTS, offsetof(struct file, slots));
    section(4, SL_STATE_NCCL_OVER, sizeof(made.ring[0]), RING, offsetof(struct file, ring));
    made.head.process.turn = 2;
    made.head.head.turn = 2;
    atomic_store(&made.head.head.written, 500);
    atomic_store(&made.head.head.dropped, 3);
    atomic_store(&made.head.comm[2].turn, 2);
    made.head.comm[2].id = 0xfeed;
    fd = memfd_create("test-nccl", MFD_CLOEXEC);
    assert_true(fd >= 0);
    sl_mon_nccl_init(&nccl, fd);
    return 0;
}

static int end(void **state)
{
    (void)state;
    close(fd);
    return 0;
}

static struct sl_nccl_event_record *slot(unsigned place, uint8_t type, uint64_t start_ns)
{
    struct sl_nccl_event_record *at = &made.slots[place];

    atomic_store(&at->turn, 5);
    at->type = type;
    at->start_ns = start_ns;
    at->comm = 2;
    at->rank = 3;
    return at;
}

static void read_all(unsigned readings)
{
    assert_int_equal(pwrite(fd, &made, sizeof(made), 0), sizeof(made));
    while (readings-- > 0)
        assert_int_equal(sl_mon_nccl_read(&nccl, 1), 0);
}

static void the_oldest_operation_and_its_step_are_told(void **state)
{
    struct sl_nccl_event_record *at = slot(900, SL_NCCL_EVENT_COLL, 1000);

    (void)state;
    at->op.seq = 77;
    at->op.count = 4096;
    at->op.root = 1;
    memcpy(at->op.func, "AllReduce", 10);
    memcpy(at->op.datatype, "ncclBflo", 8); /* without an end */
    slot(10, SL_NCCL_EVENT_P2P, 2000);
    at = slot(20, SL_NCCL_EVENT_PROXY_STEP, 3000);
    at->state = SL_NCCL_STATE_RECV_WAIT;
    at->state_ns = 3500;
    at = slot(21, SL_NCCL_EVENT_PROXY_STEP, 3000);
    at->state = SL_NCCL_STATE_SEND_GPU_WAIT;
    at->state_ns = 3400;
    read_all(3);
    assert_int_equal(nccl.now.open, 0); /* not yet round */
    read_all(1);
    assert_int_equal(nccl.written, 500);
    assert_int_equal(nccl.dropped, 3);
    assert_int_equal(nccl.now.open, 2);
    assert_int_equal(nccl.now.since_ns, 1000);
    assert_int_equal(nccl.now.seq, 77);
    assert_string_equal(nccl.now.func, "AllReduce");
    assert_string_equal(nccl.now.datatype, "ncclBflo");
    assert_int_equal(nccl.comm_id, 0xfeed);
    assert_string_equal(sl_mon_nccl_waits(nccl.now.step_state), "its own GPU, to fill the buffer");
    assert_int_equal(nccl.now.step_ns, 3400);
}

static void what_is_over_or_being_written_is_not(void **state)
{
    (void)state;
    slot(0, SL_NCCL_EVENT_COLL, 1000)->stop_ns = 1500;
    atomic_store(&slot(1, SL_NCCL_EVENT_COLL, 1000)->turn, 6);
    atomic_store(&slot(2, SL_NCCL_EVENT_COLL, 1000)->turn, 5 + SL_NCCL_WRITING);
    slot(3, SL_NCCL_EVENT_PROXY_STEP, 1000)->state = 19; /* waits for nothing */
    read_all(4);
    assert_int_equal(nccl.now.open, 0);
    assert_int_equal(nccl.now.step_ns, 0);
}

static void names_of_states_are_those_of_the_plugin(void **state)
{
    (void)state;
    assert_string_equal(sl_mon_nccl_waits(SL_NCCL_STATE_SEND_WAIT), "the network, to take it");
    assert_string_equal(sl_mon_nccl_waits(SL_NCCL_STATE_SEND_PEER_WAIT), "the peer, to ask for it");
    assert_string_equal(sl_mon_nccl_waits(SL_NCCL_STATE_RECV_FLUSH_WAIT),
                        "its GPU's memory, to show it");
    assert_string_equal(sl_mon_nccl_waits(SL_NCCL_STATE_RECV_GPU_WAIT),
                        "its own GPU, to empty the buffer");
    assert_null(sl_mon_nccl_waits(0));
}

static void what_is_no_such_file_is_refused(void **state)
{
    (void)state;
    read_all(1);
    assert_int_equal(ftruncate(fd, sizeof(made) - 1), 0);
    assert_int_equal(sl_mon_nccl_read(&nccl, 4), -EPROTO);
    made.head.sections[3].record_bytes = 64;
    assert_int_equal(pwrite(fd, &made, sizeof(made), 0), sizeof(made));
    assert_int_equal(sl_mon_nccl_read(&nccl, 4), -EPROTO);
    made.head.sections[3].kind = 99;
    assert_int_equal(pwrite(fd, &made, sizeof(made), 0), sizeof(made));
    assert_int_equal(sl_mon_nccl_read(&nccl, 4), -EPROTO);
}

static void random_files_do_no_harm(void **state)
{
    unsigned seed = 3;

    (void)state;
    for (unsigned i = 0; i < SLOTS; i++)
        slot(i, (uint8_t)(1 + i % 4), i);
    const struct file good = made;

    for (unsigned round = 0; round < 200; round++) {
        char *raw = (char *)&made;

        made = good;
        for (unsigned i = 0; i < 20; i++)
            raw[(unsigned)rand_r(&seed) % (i < 10 ? 1024 : sizeof(made))] = (char)rand_r(&seed);
        assert_int_equal(pwrite(fd, &made, sizeof(made), 0), sizeof(made));
        for (unsigned i = 0; i < 5; i++)
            (void)sl_mon_nccl_read(&nccl, 1 + i);
        assert_true(strlen(nccl.now.func) < sizeof(nccl.now.func));
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        CASE(the_oldest_operation_and_its_step_are_told),
        CASE(what_is_over_or_being_written_is_not),
        CASE(names_of_states_are_those_of_the_plugin),
        CASE(what_is_no_such_file_is_refused),
        CASE(random_files_do_no_harm),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
