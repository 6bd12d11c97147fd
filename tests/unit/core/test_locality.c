/* SPDX-License-Identifier: Apache-2.0 */
/* How far devices are from a rank, on machines that the cases make up. */
#include "core/locality.h"
#include "core/transport.h"
#include "tests/util/sysfs_tree.h"

#define ALL 0, 4095

static struct sl_locality rank;

static int begin(void **state)
{
    (void)state;
    tree_begin();
    return 0;
}

static int end(void **state)
{
    (void)state;
    tree_end();
    return 0;
}

/* A rank on cores first to last, and on a GPU, or NULL. */
static void sits(unsigned first, unsigned last, const char *gpu)
{
    uint64_t cores[SL_CPU_WORDS] = {0};

    for (unsigned i = first; i <= last && i < 64 * SL_CPU_WORDS; i++)
        cores[i / 64] |= UINT64_C(1) << i % 64;
    sl_locality_read(cores, gpu, &rank);
}

static struct sl_distance distance(const char *name)
{
    struct sl_device device;
    char path[PATH_MAX];

    sl_sysfs_path(path, sizeof(path), "class/infiniband/%s/device", name);
    sl_sysfs_pci(path, &device);
    return sl_locality_distance(&rank, &device);
}

static void expect(const char *name, enum sl_distance_kind kind, unsigned cost)
{
    struct sl_distance found = distance(name);

    if (found.kind != kind || found.cost != cost)
        fail_msg("%s: kind %d, cost %u; not %d, %u", name, found.kind, found.cost, kind, cost);
}

static void the_nic_on_the_gpus_switch_is_nearest(void **state)
{
    (void)state;
    tree_dgx("mlx5_", "stor");
    for (unsigned gpu = 0; gpu < 8; gpu++) {
        sits(ALL, tree_dgx_gpu(gpu));
        assert_int_equal(rank.gpu_node, gpu / 4);
        for (unsigned i = 0; i < 8; i++) {
            char name[16];

            snprintf(name, sizeof(name), "mlx5_%u", i);
            if (i == gpu)
                expect(name, SL_DISTANCE_SWITCH, 0);
            else if (i / 4 == gpu / 4)
                expect(name, SL_DISTANCE_NODE, 0);
            else
                expect(name, SL_DISTANCE_OTHER, 21);
        }
        expect(gpu < 4 ? "stor0" : "stor1", SL_DISTANCE_NODE, 0);
        expect(gpu < 4 ? "stor1" : "stor0", SL_DISTANCE_OTHER, 21);
    }
}

static void without_a_gpu_the_cores_decide(void **state)
{
    (void)state;
    tree_dgx("mlx5_", "stor");
    sits(120, 127, NULL); /* second threads of the first processor */
    assert_int_equal(rank.nodes, 1);
    expect("mlx5_0", SL_DISTANCE_NODE, 0);
    expect("mlx5_7", SL_DISTANCE_OTHER, 21);
    sits(56, 56, NULL);
    expect("mlx5_0", SL_DISTANCE_OTHER, 21);
    expect("mlx5_7", SL_DISTANCE_NODE, 0);
    sits(ALL, NULL); /* bound to nothing */
    expect("mlx5_0", SL_DISTANCE_NODE, 0);
    expect("mlx5_7", SL_DISTANCE_NODE, 0);
}

static void a_gpu_that_is_not_there_counts_for_none(void **state)
{
    (void)state;
    tree_dgx("mlx5_", "stor");
    sits(56, 56, "0000:ff:00.0");
    expect("mlx5_7", SL_DISTANCE_NODE, 0);
}

/* Two switches below one root port, one of them below the other; a card with a switch of its own;
 * functions of one device. */
static void switches_in_a_row_are_farther_than_one(void **state)
{
#define PORT "pci0000:00/0000:00:01.0/0000:01:00.0"
    (void)state;
    tree_nodes("0");
    tree_node(0, "0-7", "10");
    tree_pci(PORT "/0000:02:00.0/0000:03:00.0", 0);
    tree_rdma("same", PORT "/0000:02:01.0/0000:04:00.0", 0);
    tree_rdma("function", PORT "/0000:02:00.0/0000:03:00.1", 0);
    tree_rdma("card", PORT "/0000:02:02.0/0000:05:00.0/0000:06:00.0/0000:07:00.0", 0);
    tree_rdma("root", "pci0000:00/0000:00:02.0/0000:10:00.0", 0);
    tree_rdma("complex", "pci0000:20/0000:20:02.0/0000:21:00.0", 0);
    /* A bus whose name begins as the GPU's does. */
    tree_rdma("likeness", "pci0000:00/0000:00:01.00/0000:30:00.0", 0);
    sits(ALL, "0000:03:00.0");
    expect("same", SL_DISTANCE_SWITCH, 0);
    expect("function", SL_DISTANCE_SWITCH, 0);
    expect("card", SL_DISTANCE_SWITCHES, 0);
    expect("root", SL_DISTANCE_NODE, 0);
    expect("complex", SL_DISTANCE_NODE, 0);
    expect("likeness", SL_DISTANCE_NODE, 0);
#undef PORT
}

/* EPYC with four nodes to a processor: what is on the same processor is nearer. Node 2 has no
 * cores on, so numbers in the table are not places in it. */
static void the_firmwares_table_tells_how_far_other_nodes_are(void **state)
{
    (void)state;
    tree_nodes("0-1,3-4");
    tree_node(0, "0-15", "10 12 12 32");
    tree_node(1, "16-31", "12 10 12 32");
    tree_node(3, "48-63", "12 12 10 32");
    tree_node(4, "64-127", "32 32 32 10");
    tree_rdma("here", "pci0000:00/0000:00:01.0", 3);
    tree_rdma("there", "pci0000:40/0000:40:01.0", 4);
    sits(0, 15, NULL);
    expect("here", SL_DISTANCE_OTHER, 12);
    expect("there", SL_DISTANCE_OTHER, 32);
    sits(48, 70, NULL); /* on both */
    assert_int_equal(rank.nodes, 1 << 3 | 1 << 4);
    expect("here", SL_DISTANCE_NODE, 0);
    expect("there", SL_DISTANCE_NODE, 0);
}

/* Virtual machines have one node, and say so of no device. */
static void a_machine_that_does_not_tell_makes_all_equal(void **state)
{
    (void)state;
    tree_nodes("0");
    tree_node(0, "0-7", "10");
    tree_rdma("a", "pci0000:00/0000:00:04.0", -1);
    tree_rdma("b", "pci0001:00/0001:00:05.0", -1);
    tree_pci("pci0000:00/0000:00:06.0", -1);
    sits(ALL, NULL);
    expect("a", SL_DISTANCE_UNKNOWN, 0);
    expect("b", SL_DISTANCE_UNKNOWN, 0);
    sits(ALL, "0000:00:06.0");
    expect("a", SL_DISTANCE_NODE, 0); /* one root complex at least */
    expect("b", SL_DISTANCE_UNKNOWN, 0);
}

static void what_is_on_no_bus_and_a_machine_without_nodes_are_unknown(void **state)
{
    (void)state;
    tree_dirs("class/infiniband/rxe0");
    tree_rdma("a", "pci0000:00/0000:00:04.0", 0);
    sits(ALL, NULL);
    assert_int_equal(rank.nodes, 0);
    expect("a", SL_DISTANCE_UNKNOWN, 0);
    expect("rxe0", SL_DISTANCE_UNKNOWN, 0);
    tree_pci("pci0000:00/0000:00:06.0", 0);
    sits(ALL, "0000:00:06.0");
    expect("rxe0", SL_DISTANCE_UNKNOWN, 0);
}

static void lists_that_make_no_sense_are_read_as_far_as_they_do(void **state)
{
    (void)state;
    tree_nodes("0-1,99999999999999999999");
    tree_node(0, "0-3,x", "10 zwanzig");
    tree_node(1, "4-99999999999999999999", "999 10");
    tree_rdma("a", "pci0000:00/0000:00:04.0", 1);
    tree_rdma("b", "pci0000:00/0000:00:05.0", 64);
    sits(0, 0, NULL);
    assert_int_equal(rank.nodes, 1);
    expect("a", SL_DISTANCE_OTHER, 0);
    expect("b", SL_DISTANCE_UNKNOWN, 0);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        CASE(the_nic_on_the_gpus_switch_is_nearest),
        CASE(without_a_gpu_the_cores_decide),
        CASE(a_gpu_that_is_not_there_counts_for_none),
        CASE(switches_in_a_row_are_farther_than_one),
        CASE(the_firmwares_table_tells_how_far_other_nodes_are),
        CASE(a_machine_that_does_not_tell_makes_all_equal),
        CASE(what_is_on_no_bus_and_a_machine_without_nodes_are_unknown),
        CASE(lists_that_make_no_sense_are_read_as_far_as_they_do)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
