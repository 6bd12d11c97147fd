/* SPDX-License-Identifier: Apache-2.0 */
/* Finds out who this process is from the variables that launchers set.
 *
 * Launchers nest: torchrun runs under srun, mpirun inside an allocation. So they are asked from the
 * innermost out; the outer ones' ranks count nodes or agents, and are not a contradiction. */
#include "launch/launch.h"

#include "core/err.h"
#include "core/host.h"
#include "core/log.h"
#include "core/port_range.h"
#include "launch/nodelist.h"
#include "launch/wire.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PORT_FIRST 20000 /* of meeting places that are derived: below the kernel's own choices */
#define PORT_COUNT 10000
#define PORT_MORE 3 /* further ports, should another program hold the first */

struct env {
    sl_getter *get;
    void *arg;
    const struct sl_config *config;
};

static const char *value(const struct env *env, const char *name)
{
    const char *text = env->get(env->arg, name);

    return text != NULL && *text != '\0' ? text : NULL;
}

static const char *either(const struct env *env, const char *first, const char *second)
{
    return value(env, first) ?: value(env, second);
}

/* -1 when the variable is not set. */
static int number(const struct env *env, const char *name, int *out)
{
    const char *text = value(env, name);
    char *end;

    *out = -1;
    if (text == NULL)
        return 0;
    errno = 0;
    long n = strtol(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || n < 0 || n > SL_RANKS_MAX)
        return sl_fail(-EINVAL, "%s is '%.40s', but must be a number from 0 to %d", name, text,
                       SL_RANKS_MAX);
    *out = (int)n;
    return 0;
}

/* Rank, size and their like, from variables of these names; NULL: none. */
static int numbers(const struct env *env, const char *const name[4], struct sl_identity *id)
{
    int *const out[4] = {&id->rank, &id->size, &id->local_rank, &id->local_size};

    for (unsigned i = 0; i < 4; i++) {
        int err = 0;

        *out[i] = -1;
        if (name[i] != NULL)
            err = number(env, name[i], out[i]);
        if (err != 0)
            return err;
    }
    return 0;
}

/* Ports that all ranks derive alike from the job's name: within SLUICE_PORT_RANGE, if there is
 * one. */
static int derived_ports(const struct env *env, const char *job, struct sl_port_range *out)
{
    struct sl_port_range range;
    uint64_t hash = sl_hash_text(job);
    int err = sl_port_range_parse(env->config->port_range, &range);

    if (err != 0)
        return err;
    if (range.low == 0)
        range = (struct sl_port_range){PORT_FIRST, PORT_FIRST + PORT_COUNT - 1};
    unsigned span = sl_port_range_count(&range), more = span > PORT_MORE ? PORT_MORE : span - 1;
    out->low =
        (uint16_t)(range.low + (hash ^ hash >> 32) % (span > PORT_MORE ? span - PORT_MORE : 1));
    out->high = (uint16_t)(out->low + more);
    return 0;
}

static int write_root(struct sl_identity *id, const char *host, const struct sl_port_range *ports)
{
    bool v6 = strchr(host, ':') != NULL;
    int len =
        snprintf(id->root, sizeof(id->root), v6 ? "[%s]:%u" : "%s:%u", host, (unsigned)ports->low);

    if (ports->high > ports->low && len < (int)sizeof(id->root))
        len += snprintf(id->root + len, sizeof(id->root) - (size_t)len, "+%u",
                        sl_port_range_count(ports) - 1);
    if (len >= (int)sizeof(id->root))
        return sl_fail(-EINVAL, "the name of rank 0's host, %.60s..., is too long", host);
    return 0;
}

static bool one_host(const struct sl_identity *id)
{
    return id->size > 0 && id->local_size == id->size;
}

/* Variables of torchrun, or set by hand as torch.distributed wants them. The agent holds
 * MASTER_PORT itself, so we meet at one of the ports after it. */
static int see_torchrun(const struct env *env, struct sl_identity *id)
{
    const char *host = value(env, "MASTER_ADDR"), *run = value(env, "TORCHELASTIC_RUN_ID");
    struct sl_port_range ports = {0, 0};
    int master = 0;

    if (value(env, "RANK") == NULL || value(env, "WORLD_SIZE") == NULL || host == NULL)
        return -ENODEV;
    int err = numbers(
        env, (const char *const[]){"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}, id);

    err = err ?: number(env, "MASTER_PORT", &master);
    if (err != 0)
        return err;
    /* A restarted worker must not meet one of the round before. */
    snprintf(id->job, sizeof(id->job), "torchrun.%.180s.%.20s", run ?: "",
             value(env, "TORCHELASTIC_RESTART_COUNT") ?: "0");
    master = master < 0 ? 29500 : master;
    if (master + 1 + PORT_MORE > 65535 || *env->config->port_range != '\0')
        err = derived_ports(env, id->job, &ports);
    else
        ports = (struct sl_port_range){(uint16_t)(master + 1), (uint16_t)(master + 1 + PORT_MORE)};
    return err ?: write_root(id, one_host(id) ? "127.0.0.1" : host, &ports);
}

static int see_slurm(const struct env *env, struct sl_identity *id)
{
    const char *step = either(env, "SLURM_STEP_ID", "SLURM_STEPID");
    const char *job = either(env, "SLURM_JOB_ID", "SLURM_JOBID");
    const char *nodes = either(env, "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST");
    const char *size = value(env, "SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
    char host[SL_TEXT_MAX] = "127.0.0.1";
    struct sl_port_range ports;
    int node_count;

    /* A batch script or interactive shell has the variables too, but is no rank: its step has no
     * number, or one from the reserved end of the range. */
    if (value(env, "SLURM_PROCID") == NULL || job == NULL || step == NULL ||
        strtoull(step, NULL, 10) >= UINT64_C(0xfffffff0))
        return -ENODEV;
    int err = numbers(env, (const char *const[]){"SLURM_PROCID", size, "SLURM_LOCALID", NULL}, id);

    err =
        err
            ?: number(env,
                      value(env, "SLURM_STEP_NUM_NODES") ? "SLURM_STEP_NUM_NODES" : "SLURM_NNODES",
                      &node_count);
    if (err != 0)
        return err;
    if (node_count == 1)
        id->local_size = id->size;
    snprintf(id->job, sizeof(id->job), "slurm.%.40s.%.40s.%.20s", job, step,
             value(env, "SLURM_RESTART_COUNT") ?: "0");
    if (node_count != 1) {
        if (nodes == NULL)
            return sl_fail(-EINVAL, "Slurm's SLURM_STEP_NODELIST is not set; set "
                                    "SLUICE_ROOT=host:port for the host of rank 0");
        err = sl_nodelist_first(nodes, host, sizeof(host));
    }
    err = err ?: derived_ports(env, id->job, &ports);
    return err ?: write_root(id, host, &ports);
}

/* Open MPI without its PMIx library: enough on one host, since all ranks know the job's number and
 * a random key of it. */
static int see_openmpi(const struct env *env, struct sl_identity *id)
{
    const char *job = either(env, "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid");
    struct sl_port_range ports;

    if (value(env, "OMPI_COMM_WORLD_RANK") == NULL || value(env, "OMPI_COMM_WORLD_SIZE") == NULL)
        return -ENODEV;
    int err =
        numbers(env,
                (const char *const[]){"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                      "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
                id);
    if (err != 0)
        return err;
    snprintf(id->job, sizeof(id->job), "openmpi.%.200s", job ?: "");
    snprintf(id->secret, sizeof(id->secret), "%.200s",
             value(env, "OMPI_MCA_orte_precondition_transports") ?: "");
    if (!one_host(id) || job == NULL)
        return 0;
    err = derived_ports(env, id->job, &ports);
    return err ?: write_root(id, "127.0.0.1", &ports);
}

static int see_pmix(const struct env *env, struct sl_identity *id)
{
    if (value(env, "PMIX_NAMESPACE") == NULL || value(env, "PMIX_RANK") == NULL)
        return -ENODEV;
    snprintf(id->job, sizeof(id->job), "pmix.%.200s", value(env, "PMIX_NAMESPACE"));
    return numbers(env,
                   (const char *const[]){"PMIX_RANK", "OMPI_COMM_WORLD_SIZE",
                                         "OMPI_COMM_WORLD_LOCAL_RANK",
                                         "OMPI_COMM_WORLD_LOCAL_SIZE"},
                   id);
}

/* Slurm's PMI-2 plugin speaks PMI, but says nothing of the host; its variables do, unless another
 * launcher's ranks run inside the step, which they do not count. */
static int ask_slurm_for_host(const struct env *env, struct sl_identity *id)
{
    int rank, size, local_rank, node_count;
    int err = number(env, "SLURM_PROCID", &rank);

    err = err ?: number(env, "SLURM_STEP_NUM_TASKS", &size);
    err = err ?: number(env, "SLURM_LOCALID", &local_rank);
    err = err ?: number(env, "SLURM_STEP_NUM_NODES", &node_count);
    if (err != 0 || rank != id->rank || size != id->size)
        return err;
    id->local_rank = local_rank;
    if (node_count == 1)
        id->local_size = id->size;
    return 0;
}

static int see_pmi(const struct env *env, struct sl_identity *id)
{
    if (value(env, "PMI_FD") == NULL || value(env, "PMI_RANK") == NULL ||
        value(env, "PMI_SIZE") == NULL)
        return -ENODEV;
    snprintf(id->job, sizeof(id->job), "pmi");
    int err = numbers(
        env, (const char *const[]){"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
        id);
    if (err == 0 && id->local_rank < 0)
        err = ask_slurm_for_host(env, id);
    return err;
}

struct launcher {
    enum sl_launcher kind;
    const char *title;
    /* -ENODEV, without a sentence: this launcher did not start us. */
    int (*see)(const struct env *env, struct sl_identity *id);
    const char *needs; /* for the sentence when it is forced and absent */
};

/* From the innermost out. */
static const struct launcher launchers[] = {
    {SL_LAUNCHER_TORCHRUN, "torchrun", see_torchrun, "RANK, WORLD_SIZE and MASTER_ADDR"},
    {SL_LAUNCHER_PMI, "a PMI launcher (MPICH's mpiexec)", see_pmi, "PMI_FD, PMI_RANK and PMI_SIZE"},
    {SL_LAUNCHER_PMIX, "a PMIx launcher (Open MPI's mpirun, srun --mpi=pmix)", see_pmix,
     "PMIX_NAMESPACE and PMIX_RANK"},
    {SL_LAUNCHER_OPENMPI, "Open MPI", see_openmpi, "OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE"},
    {SL_LAUNCHER_SLURM, "Slurm's srun", see_slurm, "SLURM_PROCID, SLURM_JOB_ID and SLURM_STEP_ID"},
};

/* NULL: it sets no variables (auto, none, sluice). */
static const struct launcher *launcher_of(enum sl_launcher kind)
{
    for (size_t i = 0; i < SL_ARRAY_LEN(launchers); i++)
        if (launchers[i].kind == kind)
            return &launchers[i];
    return NULL;
}

static void identity_clear(struct sl_identity *id)
{
    *id = (struct sl_identity){-1, -1, -1, -1, SL_LAUNCHER_NONE, "", "", ""};
}

static int see(const struct launcher *launcher, const struct env *env, struct sl_identity *out)
{
    identity_clear(out);
    int err = launcher->see(env, out);

    if (err != 0)
        return err;
    out->launcher = launcher->kind;
    if (out->rank < 0 || out->size == 0 || (out->size > 0 && out->rank >= out->size))
        return sl_fail(-EINVAL, "%s calls this rank %d of %d", launcher->title, out->rank,
                       out->size);
    return 0;
}

/* Of PMI and the Open MPI family neither is inside the other by any rule, so they must agree. */
static int check_rivals(const struct env *env, const struct sl_identity *id)
{
    struct sl_identity rival;

    if (id->launcher != SL_LAUNCHER_PMI || see(launcher_of(SL_LAUNCHER_OPENMPI), env, &rival) != 0)
        return 0;
    if (rival.rank == id->rank && rival.size == id->size)
        return 0;
    return sl_fail(-EINVAL,
                   "PMI_RANK and PMI_SIZE call this rank %d of %d, OMPI_COMM_WORLD_RANK and "
                   "_SIZE rank %d of %d; set SLUICE_LAUNCHER=pmi or SLUICE_LAUNCHER=openmpi",
                   id->rank, id->size, rival.rank, rival.size);
}

static int find_launcher(const struct env *env, struct sl_identity *out)
{
    for (size_t i = 0; i < SL_ARRAY_LEN(launchers); i++) {
        int err = see(&launchers[i], env, out);

        if (err == 0)
            return check_rivals(env, out);
        if (err != -ENODEV)
            return err;
    }
    identity_clear(out);
    return -ENODEV;
}

static int force_launcher(const struct env *env, struct sl_identity *out)
{
    const struct launcher *launcher = launcher_of(env->config->launcher);
    int err = see(launcher, env, out);

    if (err != -ENODEV)
        return err;
    return sl_fail(-EINVAL, "SLUICE_LAUNCHER is %s, but its variables %s are not all set",
                   sl_launcher_name(launcher->kind), launcher->needs);
}

/* Rank and size as written in the configuration. A launcher may still give the meeting place, when
 * it says the same. */
static int explicit_identity(const struct env *env, bool ask, struct sl_identity *id)
{
    const struct sl_config *config = env->config;
    struct sl_identity found;

    if (config->rank < 0 || config->size <= 0 || config->rank >= config->size)
        return sl_fail(-EINVAL,
                       "SLUICE_RANK is %lld and SLUICE_SIZE is %lld; set both, with the rank "
                       "from 0 to size - 1",
                       (long long)config->rank, (long long)config->size);
    identity_clear(id);
    if (ask && *config->root == '\0' && config->size > 1) {
        int err = find_launcher(env, &found);

        if (err != 0 && err != -ENODEV)
            return err;
        if (err == 0 &&
            (found.rank != config->rank || (found.size >= 0 && found.size != config->size)))
            return sl_fail(-EINVAL,
                           "SLUICE_RANK and SLUICE_SIZE call this rank %lld of %lld, but %s "
                           "calls it rank %d of %d; set SLUICE_ROOT=host:port if the former "
                           "is meant",
                           (long long)config->rank, (long long)config->size,
                           sl_launcher_name(found.launcher), found.rank, found.size);
        if (err == 0)
            *id = found;
    }
    if (id->launcher == SL_LAUNCHER_NONE)
        id->launcher = SL_LAUNCHER_SLUICE;
    id->rank = (int)config->rank;
    id->size = (int)config->size;
    return 0;
}

/* PMIx's server knows what its variables do not say. */
static int check_size(const struct sl_identity *id)
{
    if (id->size >= 0 || id->launcher == SL_LAUNCHER_PMIX)
        return 0;
    return sl_fail(
        -EINVAL,
        "Slurm's srun calls this rank %d, but does not say of how many: SLURM_STEP_NUM_TASKS is "
        "not set; set SLUICE_RANK and SLUICE_SIZE",
        id->rank);
}

static int check_place(const struct sl_identity *id)
{
    if (id->size == 1 || *id->root != '\0' || id->launcher == SL_LAUNCHER_PMI ||
        id->launcher == SL_LAUNCHER_PMIX)
        return 0;
    if (id->launcher == SL_LAUNCHER_OPENMPI)
        return sl_fail(-EINVAL,
                       "Open MPI started %d ranks on several hosts, and its PMIx library "
                       "cannot be used here: install libpmix2, or give all ranks SLUICE_ROOT="
                       "host:port (mpirun -x) for the host of rank 0",
                       id->size);
    return sl_fail(-EINVAL,
                   "rank %d of %d does not know where to meet the others: set SLUICE_ROOT="
                   "host:port for the host of rank 0, on all ranks",
                   id->rank, id->size);
}

int sl_identify(const struct sl_config *config, sl_getter *get, void *arg, struct sl_identity *out)
{
    struct env env = {get, arg, config};
    struct sl_identity id;
    bool automatic = config->launcher == SL_LAUNCHER_AUTO;
    int err = 0;

    identity_clear(&id);
    if (config->rank >= 0 || config->size >= 0 || config->launcher == SL_LAUNCHER_SLUICE)
        err = explicit_identity(&env, automatic, &id);
    else if (automatic)
        err = find_launcher(&env, &id);
    else if (config->launcher != SL_LAUNCHER_NONE)
        err = force_launcher(&env, &id);
    if (err != 0 && err != -ENODEV)
        return err;
    if (id.launcher == SL_LAUNCHER_NONE) {
        if (*config->root != '\0')
            return sl_fail(-EINVAL,
                           "SLUICE_ROOT is set, but no launcher tells this rank who it is: "
                           "set SLUICE_RANK and SLUICE_SIZE");
        id.rank = id.local_rank = 0;
        id.size = id.local_size = 1;
    }
    if (config->local_rank >= 0)
        id.local_rank = (int)config->local_rank;
    if (config->local_size > 0)
        id.local_size = (int)config->local_size;
    if (*config->root != '\0')
        memcpy(id.root, config->root, sizeof(id.root));
    if (*config->job != '\0')
        memcpy(id.job, config->job, sizeof(id.job));
    if (*config->secret != '\0')
        memcpy(id.secret, config->secret, sizeof(id.secret));
    err = check_size(&id) ?: check_place(&id);
    if (err == 0)
        *out = id;
    return err;
}
