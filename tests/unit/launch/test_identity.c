/* SPDX-License-Identifier: Apache-2.0 */
/* Who a process is, by made-up environments. */
#include "launch/launch.h"

#include "core/err.h"
#include "launch/nodelist.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static const char *look(void *arg, const char *name)
{
    for (char *const *entry = arg; *entry != NULL; entry++)
        if (strncmp(*entry, name, strlen(name)) == 0 && (*entry)[strlen(name)] == '=')
            return *entry + strlen(name) + 1;
    return NULL;
}

/* Also the SLUICE_* variables of envp are in force. */
static int identify(char *const *envp, struct sl_identity *id)
{
    struct sl_config config;

    assert_int_equal(sl_config_from_env(&config, envp), 0);
    return sl_identify(&config, look, (void *)(uintptr_t)envp, id);
}

static void assert_rank(const struct sl_identity *id, const char *launcher, int rank, int size)
{
    assert_string_equal(sl_launcher_name(id->launcher), launcher);
    assert_int_equal(id->rank, rank);
    assert_int_equal(id->size, size);
}

static void without_a_launcher_a_process_is_alone(void **state)
{
    struct sl_identity id;

    (void)state;
    assert_int_equal(identify((char *[]){"PATH=/bin", "RANK=3", NULL}, &id), 0);
    assert_rank(&id, "none", 0, 1);
}

static void rank_size_and_root_may_be_written_out(void **state)
{
    struct sl_identity id;

    (void)state;
    assert_int_equal(identify((char *[]){"SLUICE_RANK=2", "SLUICE_SIZE=5", "SLUICE_ROOT=a:1",
                                         "SLUICE_JOB=j", "SLUICE_SECRET=s", NULL},
                              &id),
                     0);
    assert_rank(&id, "sluice", 2, 5);
    assert_string_equal(id.root, "a:1");
    assert_string_equal(id.job, "j");
    assert_string_equal(id.secret, "s");
}

static void a_rank_without_size_or_outside_of_it_is_refused(void **state)
{
    struct sl_identity id;

    (void)state;
    assert_int_equal(identify((char *[]){"SLUICE_RANK=2", NULL}, &id), -EINVAL);
    assert_int_equal(
        identify((char *[]){"SLUICE_RANK=2", "SLUICE_SIZE=2", "SLUICE_ROOT=a:1", NULL}, &id),
        -EINVAL);
    assert_string_equal(sluice_last_error(),
                        "SLUICE_RANK is 2 and SLUICE_SIZE is 2; set both, with "
                        "the rank from 0 to size - 1");
}

static void a_rank_without_a_meeting_place_says_what_to_set(void **state)
{
    struct sl_identity id;

    (void)state;
    assert_int_equal(identify((char *[]){"SLUICE_RANK=1", "SLUICE_SIZE=2", NULL}, &id), -EINVAL);
    assert_non_null(strstr(sluice_last_error(), "set SLUICE_ROOT=host:port"));
    assert_int_equal(identify((char *[]){"SLUICE_ROOT=a:1", NULL}, &id), -EINVAL);
    assert_non_null(strstr(sluice_last_error(), "set SLUICE_RANK and SLUICE_SIZE"));
}

static void torchrun_meets_after_its_agents_port(void **state)
{
    struct sl_identity id;
    char *envp[] = {"RANK=3",
                    "WORLD_SIZE=8",
                    "LOCAL_RANK=1",
                    "LOCAL_WORLD_SIZE=2",
                    "MASTER_ADDR=gpu01",
                    "MASTER_PORT=29400",
                    "TORCHELASTIC_RUN_ID=run",
                    "TORCHELASTIC_RESTART_COUNT=2",
                    NULL};

    (void)state;
    assert_int_equal(identify(envp, &id), 0);
    assert_rank(&id, "torchrun", 3, 8);
    assert_int_equal(id.local_rank, 1);
    assert_int_equal(id.local_size, 2);
    assert_string_equal(id.root, "gpu01:29401+3");
    assert_string_equal(id.job, "torchrun.run.2");
    envp[4] = "MASTER_ADDR=fd00::1";
    assert_int_equal(identify(envp, &id), 0);
    assert_string_equal(id.root, "[fd00::1]:29401+3");
    envp[3] = "LOCAL_WORLD_SIZE=8"; /* all on one host: nobody outside needs to reach it */
    assert_int_equal(identify(envp, &id), 0);
    assert_string_equal(id.root, "127.0.0.1:29401+3");
}

/* The last that may be tried is a port too. */
static void torchruns_port_at_the_end_gives_way_to_one_of_the_job(void **state)
{
    struct sl_identity id;
    char *envp[] = {"RANK=3", "WORLD_SIZE=8", "MASTER_ADDR=gpu01", "MASTER_PORT=65531", NULL};
    unsigned port = 0;

    (void)state;
    assert_int_equal(identify(envp, &id), 0);
    assert_string_equal(id.root, "gpu01:65532+3");
    envp[3] = "MASTER_PORT=65532";
    assert_int_equal(identify(envp, &id), 0);
    assert_int_equal(sscanf(id.root, "gpu01:%u+3", &port), 1);
    assert_true(port > 0 && port + 3 < 65532);
}

static void slurm_meets_on_its_first_host_at_a_port_of_the_job(void **state)
{
    struct sl_identity id, other;
    char *envp[] = {"SLURM_PROCID=5",
                    "SLURM_STEP_NUM_TASKS=16",
                    "SLURM_LOCALID=1",
                    "SLURM_JOB_ID=77",
                    "SLURM_STEP_ID=0",
                    "SLURM_STEP_NUM_NODES=4",
                    "SLURM_STEP_NODELIST=gpu[07-09,12]",
                    NULL};

    (void)state;
    assert_int_equal(identify(envp, &id), 0);
    assert_rank(&id, "slurm", 5, 16);
    assert_memory_equal(id.root, "gpu07:2", 7);
    assert_string_equal(id.job, "slurm.77.0.0");
    envp[0] = "SLURM_PROCID=6";
    assert_int_equal(identify(envp, &other), 0);
    assert_string_equal(id.root, other.root);
}

/* Where a firewall lets nothing else through. */
static void a_derived_place_keeps_to_the_range_of_ports(void **state)
{
    static const struct {
        const char *range, *root;
    } cases[] = {{"SLUICE_PORT_RANGE=65535-65535", "gpu01:65535"},
                 {"SLUICE_PORT_RANGE=20000-20001", "gpu01:20000+1"},
                 {"SLUICE_PORT_RANGE=20000-20003", "gpu01:20000+3"}};
    struct sl_identity id;
    unsigned port = 0;

    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(cases); i++) {
        char *envp[] = {"RANK=3", "WORLD_SIZE=8", "MASTER_ADDR=gpu01",
                        (char *)(uintptr_t)cases[i].range, NULL};

        assert_int_equal(identify(envp, &id), 0);
        assert_string_equal(id.root, cases[i].root);
    }
    assert_int_equal(identify((char *[]){"RANK=3", "WORLD_SIZE=8", "MASTER_ADDR=gpu01",
                                         "SLUICE_PORT_RANGE=20000-20009", NULL},
                              &id),
                     0);
    assert_int_equal(sscanf(id.root, "gpu01:%u+3", &port), 1);
    assert_in_range(port, 20000, 20006);
}

static void a_slurm_rank_without_a_size_is_refused(void **state)
{
    struct sl_identity id;

    (void)state;
    assert_int_equal(identify((char *[]){"SLURM_PROCID=1", "SLURM_JOB_ID=77", "SLURM_STEP_ID=0",
                                         "SLURM_NNODES=1", NULL},
                              &id),
                     -EINVAL);
    assert_non_null(strstr(sluice_last_error(), "SLURM_STEP_NUM_TASKS is not set"));
}

static void a_slurm_batch_script_is_no_rank(void **state)
{
    struct sl_identity id;

    (void)state;
    assert_int_equal(
        identify((char *[]){"SLURM_PROCID=0", "SLURM_NTASKS=16", "SLURM_JOB_ID=77", NULL}, &id), 0);
    assert_rank(&id, "none", 0, 1);
    assert_int_equal(identify((char *[]){"SLURM_PROCID=0", "SLURM_NTASKS=16", "SLURM_JOB_ID=77",
                                         "SLURM_STEP_ID=4294967290", NULL},
                              &id),
                     0);
    assert_rank(&id, "none", 0, 1);
}

#define OPEN_MPI                                                                                   \
    "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_LOCAL_RANK=1",            \
        "OMPI_MCA_ess_base_jobid=1888747521", "OMPI_MCA_orte_precondition_transports=f9c6-cdc9"

static void open_mpi_is_known_by_pmix_and_on_one_host_without(void **state)
{
    struct sl_identity id;

    (void)state;
    assert_int_equal(identify((char *[]){OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE=4", "PMIX_RANK=1",
                                         "PMIX_NAMESPACE=n", NULL},
                              &id),
                     0);
    assert_rank(&id, "pmix", 1, 4);
    assert_string_equal(id.root, "");
    assert_int_equal(identify((char *[]){OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE=4", NULL}, &id), 0);
    assert_rank(&id, "openmpi", 1, 4);
    assert_memory_equal(id.root, "127.0.0.1:2", 11);
    assert_string_equal(id.secret, "f9c6-cdc9");
    assert_int_equal(identify((char *[]){OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE=2", NULL}, &id),
                     -EINVAL);
    assert_non_null(strstr(sluice_last_error(), "SLUICE_ROOT=host:port (mpirun -x)"));
}

static void mpich_is_known_by_pmi(void **state)
{
    struct sl_identity id;

    (void)state;
    assert_int_equal(identify((char *[]){"PMI_FD=8", "PMI_RANK=1", "PMI_SIZE=2",
                                         "MPI_LOCALNRANKS=2", "MPI_LOCALRANKID=1", NULL},
                              &id),
                     0);
    assert_rank(&id, "pmi", 1, 2);
    assert_int_equal(id.local_size, 2);
}

#define SLURM_PMI2                                                                                 \
    "PMI_FD=8", "PMI_RANK=2", "PMI_SIZE=3", "SLURM_JOB_ID=1", "SLURM_STEP_ID=0",                   \
        "SLURM_STEP_NUM_TASKS=3", "SLURM_LOCALID=1"

static void slurms_variables_tell_pmis_ranks_of_their_host(void **state)
{
    struct sl_identity id;

    (void)state;
    assert_int_equal(
        identify((char *[]){SLURM_PMI2, "SLURM_PROCID=2", "SLURM_STEP_NUM_NODES=1", NULL}, &id), 0);
    assert_rank(&id, "pmi", 2, 3);
    assert_int_equal(id.local_rank, 1);
    assert_int_equal(id.local_size, 3);
    assert_int_equal(
        identify((char *[]){SLURM_PMI2, "SLURM_PROCID=2", "SLURM_STEP_NUM_NODES=2", NULL}, &id), 0);
    assert_int_equal(id.local_rank, 1);
    assert_int_equal(id.local_size, -1);
    /* Of a launcher inside a step, whose ranks Slurm does not count. */
    assert_int_equal(
        identify((char *[]){SLURM_PMI2, "SLURM_PROCID=0", "SLURM_STEP_NUM_NODES=1", NULL}, &id), 0);
    assert_rank(&id, "pmi", 2, 3);
    assert_int_equal(id.local_rank, -1);
}

static void two_mpi_launchers_that_disagree_are_named(void **state)
{
    struct sl_identity id;
    char *envp[] = {OPEN_MPI, "PMI_FD=8", "PMI_RANK=0", "PMI_SIZE=2", NULL, NULL};

    (void)state;
    assert_int_equal(identify(envp, &id), -EINVAL);
    assert_string_equal(
        sluice_last_error(),
        "PMI_RANK and PMI_SIZE call this rank 0 of 2, OMPI_COMM_WORLD_RANK and _SIZE "
        "rank 1 of 4; set SLUICE_LAUNCHER=pmi or SLUICE_LAUNCHER=openmpi");
    envp[8] = "SLUICE_LAUNCHER=pmi";
    assert_int_equal(identify(envp, &id), 0);
    assert_rank(&id, "pmi", 0, 2);
}

static void torchrun_inside_slurm_wins(void **state)
{
    struct sl_identity id;

    (void)state;
    assert_int_equal(
        identify((char *[]){"SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=2", "SLURM_JOB_ID=7",
                            "SLURM_STEP_ID=0", "SLURM_STEP_NODELIST=a[1-2]", "RANK=9",
                            "WORLD_SIZE=16", "MASTER_ADDR=a1", "MASTER_PORT=1234", NULL},
                 &id),
        0);
    assert_rank(&id, "torchrun", 9, 16);
}

static void a_launcher_that_differs_from_the_written_rank_is_named(void **state)
{
    struct sl_identity id;

    (void)state;
    assert_int_equal(identify((char *[]){"SLUICE_RANK=0", "SLUICE_SIZE=2", "PMI_FD=8", "PMI_RANK=1",
                                         "PMI_SIZE=2", NULL},
                              &id),
                     -EINVAL);
    assert_non_null(strstr(sluice_last_error(), "but pmi calls it rank 1 of 2"));
}

static void a_forced_launcher_must_be_there(void **state)
{
    struct sl_identity id;

    (void)state;
    assert_int_equal(identify((char *[]){"SLUICE_LAUNCHER=slurm", NULL}, &id), -EINVAL);
    assert_string_equal(sluice_last_error(),
                        "SLUICE_LAUNCHER is slurm, but its variables "
                        "SLURM_PROCID, SLURM_JOB_ID and SLURM_STEP_ID are not all "
                        "set");
    assert_int_equal(
        identify((char *[]){"SLUICE_LAUNCHER=none", "PMI_FD=8", "PMI_RANK=1", "PMI_SIZE=2", NULL},
                 &id),
        0);
    assert_rank(&id, "none", 0, 1);
}

static void numbers_that_are_none_are_named(void **state)
{
    struct sl_identity id;

    (void)state;
    assert_int_equal(identify((char *[]){"PMI_FD=8", "PMI_RANK=one", "PMI_SIZE=2", NULL}, &id),
                     -EINVAL);
    assert_string_equal(sluice_last_error(),
                        "PMI_RANK is 'one', but must be a number from 0 to 1048576");
    assert_int_equal(identify((char *[]){"PMI_FD=8", "PMI_RANK=2", "PMI_SIZE=2", NULL}, &id),
                     -EINVAL);
}

static void the_first_host_of_a_list_is_found(void **state)
{
    static const char *const cases[][2] = {
        {"login", "login"},
        {"a,b,c", "a"},
        {"gpu[3-9]", "gpu3"},
        {"gpu[03,07-09],x", "gpu03"},
        {"r[1-2]n[05-06]-ib", "r1n05-ib"},
        {"a.b-c_d", "a.b-c_d"},
    };
    char host[64];

    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(cases); i++) {
        assert_int_equal(sl_nodelist_first(cases[i][0], host, sizeof(host)), 0);
        assert_string_equal(host, cases[i][1]);
    }
}

static void a_list_that_is_none_is_refused(void **state)
{
    static const char *const cases[] = {"",       ",a",   "gpu[", "gpu[]",        "gpu[a-b]",
                                        "gpu[1-", "gpu]", "a b",  "gpu[1]extra[", "\xc3\xa4"};
    char host[64];

    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(cases); i++)
        assert_int_equal(sl_nodelist_first(cases[i], host, sizeof(host)), -EINVAL);
    assert_int_equal(sl_nodelist_first("gpu[123-124]", host, 6), -EINVAL);
    assert_int_equal(sl_nodelist_first("gpu[123-124]", host, 7), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_launcher_a_process_is_alone),
        cmocka_unit_test(rank_size_and_root_may_be_written_out),
        cmocka_unit_test(a_rank_without_size_or_outside_of_it_is_refused),
        cmocka_unit_test(a_rank_without_a_meeting_place_says_what_to_set),
        cmocka_unit_test(torchrun_meets_after_its_agents_port),
        cmocka_unit_test(torchruns_port_at_the_end_gives_way_to_one_of_the_job),
        cmocka_unit_test(slurm_meets_on_its_first_host_at_a_port_of_the_job),
        cmocka_unit_test(a_derived_place_keeps_to_the_range_of_ports),
        cmocka_unit_test(a_slurm_rank_without_a_size_is_refused),
        cmocka_unit_test(a_slurm_batch_script_is_no_rank),
        cmocka_unit_test(open_mpi_is_known_by_pmix_and_on_one_host_without),
        cmocka_unit_test(mpich_is_known_by_pmi),
        cmocka_unit_test(slurms_variables_tell_pmis_ranks_of_their_host),
        cmocka_unit_test(two_mpi_launchers_that_disagree_are_named),
        cmocka_unit_test(torchrun_inside_slurm_wins),
        cmocka_unit_test(a_launcher_that_differs_from_the_written_rank_is_named),
        cmocka_unit_test(a_forced_launcher_must_be_there),
        cmocka_unit_test(numbers_that_are_none_are_named),
        cmocka_unit_test(the_first_host_of_a_list_is_found),
        cmocka_unit_test(a_list_that_is_none_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
