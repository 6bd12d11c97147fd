/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What belongs to an MPI communicator: whether its calls are taken, and the engine's communicator
 * beside it.
 *
 * It lives as an attribute of the communicator, so that MPI itself tells when that is freed
 * (MPI_Comm_free, MPI_Comm_disconnect); duplicates get none of it and start anew. An attribute of
 * MPI_COMM_SELF tells of MPI_Finalize. Whether a call is taken follows from what MPI wants to be
 * the same on all ranks: the communicator, its calls so far, bytes, operator. So ranks agree
 * without a word.
 */
#include "core/err.h"
#include "core/host.h"
#include "core/log.h"
#include "tools/preload/mpi_module.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENGINES_MAX 256 /* of this process: each holds memory and, between hosts, connections */
#define PROBES 8        /* looks for a message at a time, so that MPI moves */

static struct sl_preload_map places;
static pthread_mutex_t keyval_lock = PTHREAD_MUTEX_INITIALIZER;
static int place_keyval = MPI_KEYVAL_INVALID, end_keyval = MPI_KEYVAL_INVALID;
static _Atomic int engines;
static _Atomic bool ended;    /* MPI_Finalize has begun */
static int own_rank;          /* in the world */
static int probe_tag = 32767; /* the largest there is: nobody sends it to itself */

/* ---- the end of communicators ---- */

static int copy_nothing(MPI_Comm comm, int keyval, void *extra, void *in, void *out, int *flag)
{
    (void)comm, (void)keyval, (void)extra, (void)in, (void)out;
    *flag = 0;
    return MPI_SUCCESS;
}

static void free_place(struct sl_mpi_place *place)
{
    if (place->comm != NULL) {
        sluice_comm_destroy(place->comm);
        atomic_fetch_sub(&engines, 1);
    }
    free(place->sizes);
    free(place);
}

/* A communicator goes. */
static int place_gone(MPI_Comm comm, int keyval, void *value, void *extra)
{
    struct sl_mpi_place *place = sl_preload_map_remove(&places, (uintptr_t)comm);

    (void)keyval, (void)value, (void)extra;
    if (place != NULL) /* else MPI_Finalize has begun, and all are gone */
        free_place(place);
    return MPI_SUCCESS;
}

/* MPI_Finalize begins: MPI_COMM_SELF goes first. */
static int all_gone(MPI_Comm comm, int keyval, void *value, void *extra)
{
    struct sl_mpi_place *place;

    (void)comm, (void)keyval, (void)value, (void)extra;
    atomic_store(&ended, true);
    while ((place = sl_preload_map_pop(&places)) != NULL)
        free_place(place);
    return MPI_SUCCESS;
}

/* Once: who this rank is, and the tag to look for. */
static void learn_world(void)
{
    int *tag_max, found = 0;

    if (sl_mpi.next.Comm_rank(sl_mpi.world, &own_rank) == MPI_SUCCESS)
        sl_mpi.host->rank(own_rank);
    if (sl_mpi.next.Comm_get_attr(sl_mpi.world, MPI_TAG_UB, &tag_max, &found) == MPI_SUCCESS &&
        found)
        probe_tag = *tag_max;
}

static int make_keyvals(void)
{
    int err = MPI_SUCCESS;

    pthread_mutex_lock(&keyval_lock);
    if (place_keyval == MPI_KEYVAL_INVALID) {
        err = sl_mpi.next.Comm_create_keyval(copy_nothing, all_gone, &end_keyval, NULL);
        if (err == MPI_SUCCESS)
            err = sl_mpi.next.Comm_set_attr(sl_mpi.self, end_keyval, &places);
        if (err == MPI_SUCCESS)
            err = sl_mpi.next.Comm_create_keyval(copy_nothing, place_gone, &place_keyval, NULL);
        if (err == MPI_SUCCESS)
            learn_world();
    }
    pthread_mutex_unlock(&keyval_lock);
    return err;
}

/* ---- places ---- */

static bool mpi_runs(void)
{
    int begun = 0, over = 0;

    return !atomic_load(&ended) && sl_mpi.next.Initialized(&begun) == MPI_SUCCESS && begun &&
           sl_mpi.next.Finalized(&over) == MPI_SUCCESS && !over;
}

static int describe(MPI_Comm comm, struct sl_mpi_place *place)
{
    int inter = 0, err = sl_mpi.next.Comm_test_inter(comm, &inter);

    place->handle = comm;
    if (err == MPI_SUCCESS)
        err = sl_mpi.next.Comm_rank(comm, &place->rank);
    if (err == MPI_SUCCESS)
        err = sl_mpi.next.Comm_size(comm, &place->size);
    place->never = inter || place->size == 1;
    place->why = SL_WHY_COMM;
    return err;
}

/* NULL: MPI is to answer the call itself, as nothing can be known of the communicator. */
static struct sl_mpi_place *make_place(MPI_Comm comm)
{
    if (comm == sl_mpi.none || (uintptr_t)comm == 0 || !mpi_runs() || make_keyvals() != MPI_SUCCESS)
        return NULL;
    struct sl_mpi_place *place = calloc(1, sizeof(*place));

    /* A rank that passes calls on alone would leave the others waiting. */
    if (place == NULL) {
        sl_error("preload", "no memory for an MPI communicator");
        abort();
    }
    if (describe(comm, place) != MPI_SUCCESS) {
        free(place);
        return NULL;
    }
    if (sl_preload_map_add(&places, (uintptr_t)comm, place) != 0 ||
        sl_mpi.next.Comm_set_attr(comm, place_keyval, place) != MPI_SUCCESS) {
        sl_error("preload", "no memory to keep what belongs to an MPI communicator");
        abort();
    }
    return place;
}

/* ---- engines ---- */

static int exchange(void *arg, const void *in, size_t len, void *out)
{
    struct sl_mpi_place *place = arg;
    const size_t piece_max = INT_MAX / 2;

    if (len > piece_max)
        return sl_fail(-EINVAL, "%zu bytes are too many for the start", len);
    return sl_mpi.next.Allgather(in, (int)len, sl_mpi.byte, out, (int)len, sl_mpi.byte,
                                 place->handle) == MPI_SUCCESS
               ? 0
               : sl_fail(-EIO, "MPI_Allgather failed");
}

/* Ranks may wait in MPI for what this one sent before it came here: MPI moves while we wait, as it
 * does when a message is looked for that is not there (on MPI_COMM_SELF, MPICH would not). Several
 * times, as a long message moves a fragment a time, and a waiting thread may sleep for a
 * millisecond in between. */
static void poke(void *arg)
{
    int flag;

    (void)arg;
    for (int i = 0; i < PROBES; i++)
        sl_mpi.next.Iprobe(own_rank, probe_tag, sl_mpi.world, &flag, MPI_STATUS_IGNORE);
}

/* What must be the same on all ranks for them to decide alike. */
static uint64_t facts(void)
{
    const char *version = sluice_version_string();

    return sl_hash(SL_HASH_START ^ (uint64_t)sl_mpi.early_calls, version, strlen(version));
}

static void refuse(struct sl_mpi_place *place, const char *sentence)
{
    place->never = true;
    place->why = SL_WHY_ENGINE;
    sl_mpi.host->note(sl_mpi.host, sentence);
}

/* A communicator's first call: do all ranks go by the same rules? */
static void meet(struct sl_mpi_place *place)
{
    uint64_t mine = facts(), *all = calloc((size_t)place->size, sizeof(*all));

    sl_assert(all != NULL); /* alone, this rank cannot stay away */
    place->met = true;
    if (sl_mpi_meet(place, mine, all) != 0)
        refuse(place, sluice_last_error());
    for (int r = 0; r < place->size && !place->never; r++)
        if (all[r] != mine)
            refuse(place,
                   "ranks take calls by other rules: give all of them the same Sluice and the same "
                   "SLUICE_PRELOAD_* variables");
    free(all);
}

static void make_engine(struct sl_mpi_place *place)
{
    struct sl_preload_peers peers = {.rank = place->rank,
                                     .size = place->size,
                                     .arg = place,
                                     .allgather = exchange,
                                     .poke = poke,
                                     .facts = facts()};

    place->sizes = calloc((size_t)place->size, 4 * sizeof(*place->sizes));
    if (place->sizes == NULL)
        peers.refuse = sl_fail(-ENOMEM, "no memory for %d ranks", place->size);
    if (atomic_fetch_add(&engines, 1) >= ENGINES_MAX)
        peers.refuse = sl_fail(-EMFILE, "%d communicators have an engine already", ENGINES_MAX);
    if (sl_preload_comm_create(&peers, &place->comm) == 0)
        return;
    place->comm = NULL;
    atomic_fetch_sub(&engines, 1);
    refuse(place, sluice_last_error());
}

/* May the call be taken now? Makes the engine when its time has come. */
static bool has_engine(struct sl_mpi_place *place, enum sl_mpi_call call)
{
    int64_t early = place->handle == sl_mpi.world ? 0 : sl_mpi.early_calls;

    if (SL_LIKELY(place->comm != NULL))
        return true;
    if (!place->never && !place->met)
        meet(place);
    if (!place->never && place->seen++ < early) {
        sl_mpi_passed(call, SL_WHY_EARLY);
        return false;
    }
    if (!place->never)
        make_engine(place);
    if (place->never)
        sl_mpi_passed(call, place->why);
    return !place->never;
}

/* ---- a call ---- */

bool sl_mpi_begin(struct sl_mpi_job *job, enum sl_mpi_call call, MPI_Comm comm, int root)
{
    struct sl_mpi_place *place = sl_preload_map_get(&places, (uintptr_t)comm);

    if (SL_UNLIKELY(place == NULL))
        place = make_place(comm);
    if (SL_UNLIKELY(place == NULL)) {
        sl_mpi_passed(call, SL_WHY_COMM);
        return false;
    }
    if (SL_UNLIKELY(root < 0 || root >= place->size)) { /* MPI has words for it */
        sl_mpi_passed(call, SL_WHY_FORM);
        return false;
    }
    if (SL_UNLIKELY(!has_engine(place, call)))
        return false;
    job->call = call;
    job->place = place;
    job->bytes = 0;
    job->start_ns = sl_mpi.host->report ? sl_preload_now() : 0;
    return true;
}

/* An MPI error of class MPI_ERR_OTHER whose text is the engine's first sentence, where MPI keeps
 * texts for that class (Open MPI does, MPICH does not). */
static int code_of_failure(void)
{
    static _Atomic int kept;
    int code = atomic_load(&kept), len = 0;
    char text[MPI_MAX_ERROR_STRING], back[MPI_MAX_ERROR_STRING] = "";

    if (code != 0)
        return code;
    snprintf(text, sizeof(text), "%.200s", sluice_last_error());
    if (sl_mpi.next.Add_error_code(MPI_ERR_OTHER, &code) != MPI_SUCCESS ||
        sl_mpi.next.Add_error_string(code, text) != MPI_SUCCESS ||
        sl_mpi.next.Error_string(code, back, &len) != MPI_SUCCESS || strcmp(text, back) != 0)
        code = MPI_ERR_OTHER;
    atomic_store(&kept, code);
    return code;
}

int sl_mpi_end(struct sl_mpi_job *job, int err)
{
    struct sl_mpi_place *place = job->place;

    if (SL_LIKELY(err == 0)) {
        sl_preload_taken(sl_mpi.host, job->call, job->bytes,
                         sl_mpi.host->report ? sl_preload_now() - job->start_ns : 0);
        return MPI_SUCCESS;
    }
    if (!place->told)
        sl_error("preload", "an MPI collective failed: %s", sluice_last_error());
    place->told = true;
    sl_mpi.host->note(sl_mpi.host, sluice_last_error());
    int code = code_of_failure();

    sl_mpi.next.Comm_call_errhandler(place->handle, code);
    return code;
}

int sl_mpi_give_up(struct sl_mpi_job *job, int err)
{
    char why[512];

    snprintf(why, sizeof(why), "%s", sluice_last_error());
    sluice_comm_abort(job->place->comm);
    sluice_comm_async_error(job->place->comm); /* so that the others hear of it now */
    return sl_fail(err, "%s", why);
}
