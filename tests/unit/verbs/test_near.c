/* SPDX-License-Identifier: Apache-2.0 */
/* Which ports a rank uses by where it is: SLUICE_VERBS_LOCALITY. */
#include "tests/fake/fake_cuda.h"
#include "tests/unit/verbs/world.h"
#include "tests/util/sysfs_tree.h"
#include "verbs/config.h"
#include "verbs/probe.h"

#define LEN 1000000

/* Cores that the rank may use: first to last, of each interface that is opened the next ones. */
static unsigned first_core[2], last_core[2], asked;

void __wrap_sl_host_cores(uint64_t mask[SL_CPU_WORDS]);

void __wrap_sl_host_cores(uint64_t mask[SL_CPU_WORDS])
{
    unsigned turn = asked++ % 2;

    memset(mask, 0, SL_CPU_WORDS * sizeof(*mask));
    for (unsigned i = first_core[turn]; i <= last_core[turn]; i++)
        mask[i / 64] |= UINT64_C(1) << i % 64;
}

static void bind_to(unsigned first, unsigned last)
{
    first_core[0] = first_core[1] = first;
    last_core[0] = last_core[1] = last;
    asked = 0;
}

static int begin(void **state)
{
    (void)state;
    tree_begin();
    bind_to(0, 2047);
    return 0;
}

/* ---- one end ---- */

static struct fake_ibv *fake;
static struct loop *loop;
static struct sl_config config;
static struct sl_worker worker;
static struct fake_cuda *cuda;

static void machine(const char *const *names)
{
    struct fake_ibv_device params;

    fake = fake_ibv_create(1);
    sl_ibv_replace(fake_ibv_table(fake), fake_ibv_mlx5(fake));
    for (; *names != NULL; names++) {
        fake_ibv_device_init(&params, *names);
        fake_ibv_device_add(fake, &params);
    }
    sl_config_defaults(&config);
    sl_verbs_config_edit(&config)->mp.staging_bytes = 1 << 20;
    loop = loop_create(1);
    worker = (struct sl_worker){.clock = loop_clock(loop), .config = &config};
    sl_rng_init(&worker.rng, 1);
}

static void dgx(void)
{
    static const char *const names[] = {"mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3", "mlx5_4", "mlx5_5",
                                        "mlx5_6", "mlx5_7", "stor0",  "stor1",  NULL};

    tree_dgx("mlx5_", "stor");
    machine(names);
}

/* The calling thread computes on that GPU of eight. */
static void on_gpu(unsigned gpu)
{
    static char addresses[FAKE_CUDA_DEVICES][32];
    void *context;

    cuda = fake_cuda_create(8);
    sl_cuda_replace(fake_cuda_table(cuda));
    for (unsigned i = 0; i < 8; i++) {
        snprintf(addresses[i], sizeof(addresses[i]), "%s", tree_dgx_gpu(i));
        for (char *c = addresses[i]; *c != '\0'; c++)
            *c = (char)(*c >= 'a' && *c <= 'f' ? *c - 'a' + 'A' : *c);
        fake_cuda_device(cuda, i)->address = addresses[i];
    }
    assert_int_equal(fake_cuda_table(cuda)->cuDevicePrimaryCtxRetain(&context, 1000 + (int)gpu), 0);
    assert_int_equal(fake_cuda_table(cuda)->cuCtxPushCurrent_v2(context), 0);
}

static int end(void **state)
{
    void *context;

    (void)state;
    tree_end();
    if (cuda != NULL) {
        fake_cuda_table(cuda)->cuCtxPopCurrent_v2(&context);
        sl_cuda_replace(NULL);
        fake_cuda_destroy(cuda);
        cuda = NULL;
    }
    if (fake != NULL) {
        assert_null(fake_ibv_misuse(fake));
        assert_int_equal(fake_ibv_live(fake), 0);
        fake_ibv_destroy(fake);
        sl_ibv_replace(NULL, NULL);
        assert_null(loop_misuse(loop));
        loop_destroy(loop);
        fake = NULL;
    }
    return 0;
}

/* "mlx5_0 (mlx5_1)": the rails of a rank that opens them now, those in reserve in brackets. */
static void expect(const char *expected)
{
    char text[512] = "";
    struct sl_iface *base;

    if (sl_verbs_ops.open(&worker, NULL, NULL, &base) != 0)
        fail_msg("%s", sluice_last_error());
    struct sl_verbs_iface *iface = sl_verbs_iface_of(base);

    for (unsigned i = 0; i < iface->mp.rail_count; i++) {
        const struct sl_verbs_rail *rail = &iface->rails[i];
        size_t len = strlen(text);

        snprintf(text + len, sizeof(text) - len, rail->base.is_far ? "%s(%s)" : "%s%s",
                 i > 0 ? " " : "", rail->port.device);
    }
    sl_verbs_ops.close(base);
    assert_string_equal(text, expected);
}

#define ALL "mlx5_0 mlx5_1 mlx5_2 mlx5_3 mlx5_4 mlx5_5 mlx5_6 mlx5_7 stor0 stor1"

static void a_rank_with_a_gpu_uses_the_nic_on_its_switch(void **state)
{
    (void)state;
    dgx();
    on_gpu(2);
    expect("(mlx5_0) (mlx5_1) mlx5_2 (mlx5_3) (mlx5_4) (mlx5_5) (mlx5_6) (mlx5_7) (stor0) (stor1)");
}

/* They are opened when a path needs them, unless all is to be there from the start. */
static void what_is_far_is_not_opened(void **state)
{
    struct sl_iface *base;

    (void)state;
    dgx();
    on_gpu(2);
    for (unsigned off = 0; off < 2; off++) {
        sl_verbs_config_edit(&config)->mp.lazy = off != 0 ? SL_OFF : SL_AUTO;
        assert_int_equal(sl_verbs_ops.open(&worker, NULL, NULL, &base), 0);
        assert_int_equal(fake_ibv_live_of(fake, FAKE_IBV_CONTEXT), off != 0 ? 10 : 1);
        assert_int_equal(fake_ibv_live_of(fake, FAKE_IBV_CQ), off != 0 ? 10 : 1);
        sl_verbs_ops.close(base);
    }
}

static void a_rank_on_one_processor_uses_what_is_there(void **state)
{
    (void)state;
    dgx();
    bind_to(56, 60);
    expect("(mlx5_0) (mlx5_1) (mlx5_2) (mlx5_3) mlx5_4 mlx5_5 mlx5_6 mlx5_7 (stor0) stor1");
}

static void a_rank_that_is_bound_to_nothing_uses_all(void **state)
{
    (void)state;
    dgx();
    expect(ALL);
    bind_to(55, 56); /* a core of each processor */
    expect(ALL);
}

static void off_and_what_users_list_override(void **state)
{
    (void)state;
    dgx();
    on_gpu(0);
    sl_verbs_config_edit(&config)->locality = SL_VERBS_LOCALITY_OFF;
    expect(ALL);
    sl_verbs_config_edit(&config)->locality = SL_VERBS_LOCALITY_AUTO;
    strcpy(sl_verbs_config_edit(&config)->mp.paths, "0>0,1>1");
    expect(ALL);
    strcpy(sl_verbs_config_edit(&config)->mp.paths, "auto");
    strcpy(sl_verbs_config_edit(&config)->devices, "mlx5_7,mlx5_0:1");
    expect("mlx5_7 mlx5_0");
    /* These say what may be used, not what is to be. */
    strcpy(sl_verbs_config_edit(&config)->devices, "^stor0,mlx5_*");
    expect("mlx5_0 (mlx5_1) (mlx5_2) (mlx5_3) (mlx5_4) (mlx5_5) (mlx5_6) (mlx5_7)");
    /* What is nearest is nearest of those. */
    strcpy(sl_verbs_config_edit(&config)->devices, "^mlx5_0,^stor*");
    expect("mlx5_1 mlx5_2 mlx5_3 (mlx5_4) (mlx5_5) (mlx5_6) (mlx5_7)");
}

static void near_opens_no_others(void **state)
{
    (void)state;
    dgx();
    on_gpu(7);
    sl_verbs_config_edit(&config)->locality = SL_VERBS_LOCALITY_NEAR;
    expect("mlx5_7");
    strcpy(sl_verbs_config_edit(&config)->devices, "mlx5_4,mlx5_0");
    expect("mlx5_4");
}

static void near_says_what_it_left_out_when_nothing_is_usable(void **state)
{
    struct sl_iface *base = NULL;

    (void)state;
    dgx();
    on_gpu(1);
    fake_ibv_port_set(fake, 1, 1, IBV_PORT_DOWN);
    expect("(mlx5_0) mlx5_1 (mlx5_2) (mlx5_3) (mlx5_4) (mlx5_5) (mlx5_6) (mlx5_7) (stor0) (stor1)");
    sl_verbs_config_edit(&config)->locality = SL_VERBS_LOCALITY_NEAR;
    assert_int_equal(sl_verbs_ops.open(&worker, NULL, NULL, &base), -ENODEV);
    assert_non_null(strstr(sluice_last_error(), "mlx5_1:1: port is DOWN"));
    assert_non_null(strstr(sluice_last_error(), "mlx5_0:1: left out by SLUICE_VERBS_LOCALITY=near: "
                                                "others are nearer to this rank's GPU"));
}

static void whoever_prefers_a_device_has_chosen(void **state)
{
    const struct sl_device device = {.name = "mlx5_3:1"};

    (void)state;
    dgx();
    on_gpu(0);
    sl_verbs_prefer(&config, &device, -1);
    expect("mlx5_3 mlx5_0 mlx5_1 mlx5_2 mlx5_4 mlx5_5 mlx5_6 mlx5_7 stor0 stor1");
}

static void the_only_one_that_was_asked_for_is_not_held_back(void **state)
{
    const struct sl_device device = {.name = "mlx5_3:1"};
    struct sl_iface *base;

    (void)state;
    dgx();
    on_gpu(0);
    assert_int_equal(sl_verbs_ops.open(&worker, &device, NULL, &base), 0);
    assert_int_equal(sl_verbs_iface_of(base)->mp.rail_count, 1);
    assert_false(sl_verbs_iface_of(base)->rails[0].base.is_far);
    sl_verbs_ops.close(base);
}

/* The kernel of a virtual machine knows of no node. */
static void where_nothing_is_known_all_are_equal(void **state)
{
    static const char *const names[] = {"a", "b", NULL};

    (void)state;
    tree_nodes("0");
    tree_node(0, "0-7", "10");
    tree_rdma("a", "pci0000:00/0000:00:04.0", -1);
    tree_rdma("b", "pci0001:00/0001:00:05.0", -1);
    machine(names);
    expect("a b");
    bind_to(3, 3);
    expect("a b");
}

/* soft-RoCE has no device; its network interface has. One over a bridge has none either, and is not
 * known to be far. */
static void a_software_device_is_where_its_interface_is(void **state)
{
    static const char *const names[] = {"rxe0", "rxe1", "rxe2", NULL};

    (void)state;
    tree_nodes("0-1");
    tree_node(0, "0-3", "10 21");
    tree_node(1, "4-7", "21 10");
    tree_pci("pci0000:00/0000:00:04.0", 0);
    tree_pci("pci0000:80/0000:80:04.0", 1);
    tree_link("class/net/eth0/device", "devices/pci0000:00/0000:00:04.0");
    tree_link("class/net/eth1/device", "devices/pci0000:80/0000:80:04.0");
    tree_dirs("class/net/br0");
    tree_file("class/infiniband/rxe0/parent", "eth0\n");
    tree_file("class/infiniband/rxe1/parent", "eth1\n");
    tree_file("class/infiniband/rxe2/parent", "br0\n");
    machine(names);
    bind_to(4, 4);
    expect("(rxe0) rxe1 rxe2");
}

/* A NIC for management beside the rank, and fast ones at the other processor. */
static void a_slow_port_makes_no_fast_one_far(void **state)
{
    static const char *const names[] = {"a", NULL};
    struct fake_ibv_device params;

    (void)state;
    tree_nodes("0-1");
    tree_node(0, "0-3", "10 21");
    tree_node(1, "4-7", "21 10");
    tree_rdma("slow", "pci0000:00/0000:00:04.0", 0);
    tree_rdma("a", "pci0000:80/0000:80:04.0", 1);
    machine(names);
    fake_ibv_device_init(&params, "slow");
    params.ports[0].attr.active_speed = 1;
    params.ports[0].attr.active_width = 2;
    fake_ibv_device_add(fake, &params);
    bind_to(0, 0);
    expect("a slow");
    bind_to(4, 4);
    expect("a (slow)");
}

static void a_port_that_is_far_does_not_count_for_what_is_delivered(void **state)
{
    struct sl_iface *base;

    (void)state;
    dgx();
    bind_to(0, 0); /* mlx5_0 to 3, and stor0 */
    fake_ibv_port_set(fake, 7, 1, IBV_PORT_DOWN);
    assert_int_equal(sl_verbs_ops.open(&worker, NULL, NULL, &base), 0);
    assert_int_equal(base->ops->delivers(base), 1000);
    sl_verbs_ops.close(base);
    fake_ibv_port_set(fake, 0, 1, IBV_PORT_DOWN);
    assert_int_equal(sl_verbs_ops.open(&worker, NULL, NULL, &base), 0);
    assert_int_equal(base->ops->delivers(base), 800);
    sl_verbs_ops.close(base);
    for (unsigned i = 1; i < 9; i++)
        if (i < 4 || i == 8)
            fake_ibv_port_set(fake, i, 1, IBV_PORT_DOWN);
    assert_int_equal(sl_verbs_ops.open(&worker, NULL, NULL, &base), 0);
    assert_int_equal(base->ops->delivers(base), 400); /* 4 of 10 */
    sl_verbs_ops.close(base);
}

/* ---- what people see ---- */

static void list(const char *expected)
{
    static struct sl_device devices[16];
    char text[2048] = "";
    size_t count;

    assert_int_equal(sl_verbs_probe(&config, devices, 16, &count), 0);
    for (size_t i = 0; i < count; i++)
        sl_text_add(text, sizeof(text), "%s%s%s%s\n", devices[i].name,
                    devices[i].why[0] != '\0' ? " out: " : "", devices[i].why,
                    strstr(devices[i].detail, ", NUMA"));
    assert_string_equal(text, expected);
}

static void the_list_shows_node_and_distance(void **state)
{
    (void)state;
    dgx();
    bind_to(0, 3);
    sl_verbs_config_edit(&config)->locality = SL_VERBS_LOCALITY_NEAR;
    strcpy(sl_verbs_config_edit(&config)->devices, "mlx5_*,^mlx5_1,^mlx5_2,^mlx5_5,^mlx5_6");
    sl_verbs_config_edit(&config)->locality = SL_VERBS_LOCALITY_AUTO;
    list("mlx5_0:1, NUMA node 0 (near)\n"
         "mlx5_3:1, NUMA node 0 (near)\n"
         "mlx5_4:1, NUMA node 1 (far, in reserve)\n"
         "mlx5_7:1, NUMA node 1 (far, in reserve)\n"
         "mlx5_1:1 out: left out by SLUICE_VERBS_DEVICES 'mlx5_*,^mlx5_1,^mlx5_2,^mlx5_5,^mlx5_6', "
         "NUMA node 0 (near)\n"
         "mlx5_2:1 out: left out by SLUICE_VERBS_DEVICES 'mlx5_*,^mlx5_1,^mlx5_2,^mlx5_5,^mlx5_6', "
         "NUMA node 0 (near)\n"
         "mlx5_5:1 out: left out by SLUICE_VERBS_DEVICES 'mlx5_*,^mlx5_1,^mlx5_2,^mlx5_5,^mlx5_6', "
         "NUMA node 1 (far)\n"
         "mlx5_6:1 out: left out by SLUICE_VERBS_DEVICES 'mlx5_*,^mlx5_1,^mlx5_2,^mlx5_5,^mlx5_6', "
         "NUMA node 1 (far)\n"
         "stor0:1 out: left out by SLUICE_VERBS_DEVICES 'mlx5_*,^mlx5_1,^mlx5_2,^mlx5_5,^mlx5_6', "
         "NUMA node 0 (near)\n"
         "stor1:1 out: left out by SLUICE_VERBS_DEVICES 'mlx5_*,^mlx5_1,^mlx5_2,^mlx5_5,^mlx5_6', "
         "NUMA node 1 (far)\n");
}

static void the_list_shows_what_is_on_the_gpus_switch(void **state)
{
    (void)state;
    dgx();
    on_gpu(4);
    strcpy(sl_verbs_config_edit(&config)->devices, "mlx5_*");
    sl_verbs_config_edit(&config)->locality = SL_VERBS_LOCALITY_NEAR;
    list("mlx5_4:1, NUMA node 1 (on the GPU's PCI switch)\n"
         "stor0:1 out: left out by SLUICE_VERBS_DEVICES 'mlx5_*', NUMA node 0 (far)\n"
         "stor1:1 out: left out by SLUICE_VERBS_DEVICES 'mlx5_*', NUMA node 1 (near)\n"
#define OUT " out: left out by SLUICE_VERBS_LOCALITY=near: others are nearer to this rank's GPU"
         "mlx5_0:1" OUT ", NUMA node 0 (far)\n"
         "mlx5_1:1" OUT ", NUMA node 0 (far)\n"
         "mlx5_2:1" OUT ", NUMA node 0 (far)\n"
         "mlx5_3:1" OUT ", NUMA node 0 (far)\n"
         "mlx5_5:1" OUT ", NUMA node 1 (near)\n"
         "mlx5_6:1" OUT ", NUMA node 1 (near)\n"
         "mlx5_7:1" OUT ", NUMA node 1 (near)\n");
#undef OUT
}

/* ---- two ends ---- */

/* Both on processor 0, where a0 and b1 are; a1 and b0 are on the other one. */
static void two_hosts_of(void (*more)(struct fake_ibv_device *params))
{
    tree_nodes("0-1");
    tree_node(0, "0-3", "10 21");
    tree_node(1, "4-7", "21 10");
    tree_rdma("a0", "pci0000:00/0000:00:04.0", 0);
    tree_rdma("a1", "pci0000:80/0000:80:04.0", 1);
    tree_rdma("b0", "pci0000:80/0000:80:05.0", 1);
    tree_rdma("b1", "pci0000:00/0000:00:05.0", 0);
    world_prepare(more);
    bind_to(0, 0);
}

static void two_hosts(void)
{
    two_hosts_of(NULL);
}

static int end_world(void **state)
{
    world_end();
    return end(state);
}

/* The path of a side by its rail of that number. */
static struct sl_mp_path *by_rail(unsigned side, unsigned rail)
{
    for (unsigned i = 0; i < world_ep(side)->path_count; i++)
        if (world_ep(side)->paths[i]->rail->idx == rail)
            return world_ep(side)->paths[i];
    fail_msg("side %u has no path by rail %u", side, rail);
    return NULL;
}

static uint64_t sent(unsigned side, unsigned rail)
{
    return by_rail(side, rail)->stats.sent_bytes;
}

static void all_up(void)
{
    for (unsigned side = 0; side < 2; side++)
        WORLD_UNTIL(world_ep(side)->paths_up == world_ep(side)->path_count);
}

/* What a message of LEN and back adds: all by one rail of a side, next to nothing by the other. */
static void carries(unsigned side, unsigned rail)
{
    uint64_t before = sent(side, rail), other = sent(side, !rail);

    world_message(LEN);
    assert_true(sent(side, rail) - before >= LEN);
    assert_true(sent(side, !rail) - other < LEN / 100);
}

static void each_end_sends_by_what_is_near_it(void **state)
{
    (void)state;
    two_hosts();
    world_join();
    all_up();
    carries(0, 0);
    carries(1, 1);
}

static void one_end_that_is_bound_to_nothing_sends_by_all(void **state)
{
    uint64_t before[2];

    (void)state;
    two_hosts();
    last_core[1] = 7;
    world_join();
    all_up();
    for (unsigned rail = 0; rail < 2; rail++)
        before[rail] = sent(1, rail);
    carries(0, 0);
    for (unsigned rail = 0; rail < 2; rail++)
        assert_true(sent(1, rail) - before[rail] > LEN / 4);
}

static void without_locality_all_carry(void **state)
{
    (void)state;
    two_hosts();
    for (unsigned side = 0; side < 2; side++)
        sl_verbs_config_edit(&world[side].config)->locality = SL_VERBS_LOCALITY_OFF;
    world_join();
    all_up();
    world_message(4 * LEN);
    for (unsigned side = 0; side < 2; side++)
        for (unsigned rail = 0; rail < 2; rail++)
            assert_true(sent(side, rail) > LEN / 2);
}

static void on_infiniband(struct fake_ibv_device *params, uint8_t subnet)
{
    struct fake_ibv_gid *gid = &params->ports[0].gids[0];

    params->ports[0].attr.link_layer = IBV_LINK_LAYER_INFINIBAND;
    params->ports[0].attr.sm_lid = 1;
    *gid = (struct fake_ibv_gid){
        .gid.raw =
            {0xfe,
             0x80, [7] = subnet, [14] = (uint8_t)params->name[0], [15] = (uint8_t)params->name[1]},
        .type = IBV_GID_TYPE_IB};
}

static void one_subnet(struct fake_ibv_device *params)
{
    on_infiniband(params, 7);
}

static void the_subnet_of_all(struct fake_ibv_device *params)
{
    on_infiniband(params, 0);
}

/* What one end sends by then arrives at what is near to the other. */
static void near_ports_of_one_subnet_meet(void **state)
{
    (void)state;
    two_hosts_of(one_subnet);
    world_join();
    all_up();
    assert_int_equal(by_rail(0, 0)->remote_rail, 1);
    assert_int_equal(by_rail(0, 1)->remote_rail, 0);
    carries(0, 0);
    carries(1, 1);
}

/* Where nobody gave subnets to fabrics, rails of one number may have a fabric of their own. */
static void near_ports_keep_their_numbers_where_subnets_tell_nothing(void **state)
{
    (void)state;
    two_hosts_of(the_subnet_of_all);
    world_join();
    all_up();
    assert_int_equal(by_rail(0, 0)->remote_rail, 0);
    assert_int_equal(world_ep(0)->peer.far, 1);
    assert_int_equal(world_ep(1)->peer.far, 2);
    carries(0, 0);
}

/* The near one goes down, the far one carries; the near one returns, and carries again. */
static void the_far_one_carries_while_the_near_one_cannot(void **state)
{
    (void)state;
    two_hosts();
    world_join();
    all_up();
    carries(0, 0);
    fake_ibv_port_set(world_fake, 0, 1, IBV_PORT_DOWN);
    WORLD_UNTIL(world_ep(0)->paths_up == 1 && world_ep(1)->paths_up == 1);
    carries(0, 1);
    assert_ptr_equal(world_ep(0)->frame_path, by_rail(0, 1));
    fake_ibv_port_set(world_fake, 0, 1, IBV_PORT_ACTIVE);
    all_up();
    WORLD_UNTIL(world_ep(0)->frame_path == by_rail(0, 0)); /* by the far one's fence */
    all_up();
    carries(0, 0);
    carries(1, 1);
}

static void a_near_port_without_a_link_at_start_joins_and_carries(void **state)
{
    (void)state;
    two_hosts();
    fake_ibv_port_set(world_fake, 0, 1, IBV_PORT_DOWN);
    world_join();
    carries(0, 1);
    fake_ibv_port_set(world_fake, 0, 1, IBV_PORT_ACTIVE);
    all_up();
    WORLD_UNTIL(world_ep(0)->frame_path == by_rail(0, 0));
    all_up();
    carries(0, 0);
}

/* ---- paths that are made later ---- */

static void join_lazy(void (*more)(struct fake_ibv_device *params), unsigned down)
{
    two_hosts_of(more);
    for (unsigned side = 0; side < 2; side++)
        sl_verbs_config_edit(&world[side].config)->mp.lazy = SL_ON;
    if (down != UINT_MAX)
        fake_ibv_port_set(world_fake, down, 1, IBV_PORT_DOWN);
    world_join();
}

static void later(void)
{
    uint64_t until_ns = loop_now(world_loop) + 2 * SL_NS_PER_S;

    while (loop_now(world_loop) < until_ns)
        world_progress();
}

/* However much there is to send, what is far from both ends has no part in it. */
static void what_is_far_from_both_ends_is_made_when_the_near_one_fails(void **state)
{
    (void)state;
    join_lazy(one_subnet, UINT_MAX);
    world_message(64);
    world_message(LEN);
    later();
    for (unsigned side = 0; side < 2; side++) {
        assert_int_equal(world_ep(side)->paths_up, 1);
        assert_int_equal(world_ep(side)->frame_path->rail->idx, side);
    }
    fake_ibv_port_set(world_fake, 0, 1, IBV_PORT_DOWN);
    WORLD_UNTIL(world_ep(0)->paths_up == 1 && world_ep(0)->frame_path == by_rail(0, 1));
    carries(0, 1);
    fake_ibv_port_set(world_fake, 0, 1, IBV_PORT_ACTIVE);
    WORLD_UNTIL(world_ep(0)->frame_path == by_rail(0, 0) &&
                world_ep(1)->frame_path == by_rail(1, 1));
    all_up();
    carries(0, 0);
    carries(1, 1);
}

static void each_end_has_a_near_path_first(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 4; round++) {
        if (round > 0)
            world_end();
        join_lazy(NULL, UINT_MAX);
        WORLD_UNTIL(world_ep(0)->paths_up == 2 && world_ep(1)->paths_up == 2);
        world_message(64);
        for (unsigned side = 0; side < 2; side++)
            WORLD_UNTIL(world_ep(side)->frame_path == by_rail(side, side));
    }
}

/* It was for later when its port was down, and nothing else asks for it. */
static void a_near_path_is_made_when_its_port_comes_up(void **state)
{
    (void)state;
    for (unsigned device = 0; device < 4; device += 3) { /* a0, b1: near by either end */
        if (device > 0)
            world_end();
        join_lazy(one_subnet, device);
        world_message(64);
        assert_int_equal(world_ep(0)->paths_up, 1);
        fake_ibv_port_set(world_fake, device, 1, IBV_PORT_ACTIVE);
        for (unsigned side = 0; side < 2; side++)
            WORLD_UNTIL(world_ep(side)->frame_path == by_rail(side, side));
    }
}

/* A port that comes and goes must not drag the frames along each time. */
static void frames_return_to_what_stays_up(void **state)
{
    uint64_t since_ns;

    (void)state;
    two_hosts();
    world_join();
    all_up();
    world_message(64);
    for (unsigned i = 0; i < 3; i++) {
        fake_ibv_port_set(world_fake, 0, 1, IBV_PORT_DOWN);
        WORLD_UNTIL(world_ep(0)->paths_up == 1);
        fake_ibv_port_set(world_fake, 0, 1, IBV_PORT_ACTIVE);
        WORLD_UNTIL(world_ep(0)->paths_up == 2);
    }
    since_ns = by_rail(0, 0)->up_ns;
    assert_ptr_equal(world_ep(0)->frame_path, by_rail(0, 1));
    WORLD_UNTIL(world_ep(0)->frame_path != by_rail(0, 1));
    assert_true(loop_now(world_loop) - since_ns >= SL_NS_PER_S);
}

static void frames_begin_on_a_near_port(void **state)
{
    (void)state;
    for (unsigned idx = 0; idx < 2; idx++) {
        two_hosts();
        world[0].worker.local_idx = idx;
        world_join();
        assert_ptr_equal(world_ep(0)->frame_path, by_rail(0, 0));
        if (idx < 1)
            world_end();
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)
#define WORLD(name) cmocka_unit_test_setup_teardown(name, begin, end_world)
    const struct CMUnitTest tests[] = {
        CASE(a_rank_with_a_gpu_uses_the_nic_on_its_switch),
        CASE(what_is_far_is_not_opened),
        CASE(a_rank_on_one_processor_uses_what_is_there),
        CASE(a_rank_that_is_bound_to_nothing_uses_all),
        CASE(off_and_what_users_list_override),
        CASE(near_opens_no_others),
        CASE(near_says_what_it_left_out_when_nothing_is_usable),
        CASE(whoever_prefers_a_device_has_chosen),
        CASE(the_only_one_that_was_asked_for_is_not_held_back),
        CASE(where_nothing_is_known_all_are_equal),
        CASE(a_software_device_is_where_its_interface_is),
        CASE(a_slow_port_makes_no_fast_one_far),
        CASE(a_port_that_is_far_does_not_count_for_what_is_delivered),
        CASE(the_list_shows_node_and_distance),
        CASE(the_list_shows_what_is_on_the_gpus_switch),
        WORLD(each_end_sends_by_what_is_near_it),
        WORLD(one_end_that_is_bound_to_nothing_sends_by_all),
        WORLD(without_locality_all_carry),
        WORLD(near_ports_of_one_subnet_meet),
        WORLD(near_ports_keep_their_numbers_where_subnets_tell_nothing),
        WORLD(the_far_one_carries_while_the_near_one_cannot),
        WORLD(a_near_port_without_a_link_at_start_joins_and_carries),
        WORLD(what_is_far_from_both_ends_is_made_when_the_near_one_fails),
        WORLD(each_end_has_a_near_path_first),
        WORLD(a_near_path_is_made_when_its_port_comes_up),
        WORLD(frames_return_to_what_stays_up),
        WORLD(frames_begin_on_a_near_port)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
