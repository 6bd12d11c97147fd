/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several communicators of one process: what they open and register at their devices is counted,
 * and an event of a device reaches each of them.
 *
 * usage: devices COMMUNICATORS DIR    as rank 0 or 1 of 2; SLUICE_VERBS_DEVICES names the devices
 *   DIR/broken  appears once a rail is broken, after both ranks have printed "counted"
 *
 * Prints "counted", and "done" after more sums on each communicator. Exit
 * status 1: something is there more often than it should; 3: an operation failed.
 */
#include <sluice/sluice.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define EXIT_WRONG 1
#define EXIT_USAGE 2
#define EXIT_FAILED 3
#define COMMS_MAX 16
#define ELEMENTS 40000
#define BUFFER_BYTES (1u << 20)
#define PATIENCE_S 60

/* Of the devices of this rank, which nobody else uses. */
struct counts {
    int contexts, domains, regions;
};

static struct sluice_comm *comms[COMMS_MAX];
static unsigned comm_count;
static float in[ELEMENTS], out[ELEMENTS];

static int failed(const char *what)
{
    printf("failed: %s: %s\n", what, sluice_last_error());
    return EXIT_FAILED;
}

/* "... name 3 ..." */
static int number_after(const char *line, const char *name)
{
    char text[32];
    const char *at;

    snprintf(text, sizeof(text), " %s ", name);
    at = strstr(line, text);
    return at == NULL ? 0 : atoi(at + strlen(text));
}

/* As the kernel tells: "0: rxe0: qp 4 cq 3 pd 2 mr 5 ctx 1 srq 1". */
static bool count(struct counts *all)
{
    const char *devices = getenv("SLUICE_VERBS_DEVICES");
    FILE *lines = popen("rdma resource show", "r");
    char line[512], name[64];
    bool any = false;

    *all = (struct counts){0};
    while (lines != NULL && devices != NULL && fgets(line, sizeof(line), lines) != NULL) {
        if (sscanf(line, "%*d: %63[^:]:", name) != 1 || strstr(devices, name) == NULL)
            continue;
        all->contexts += number_after(line, "ctx");
        all->domains += number_after(line, "pd");
        all->regions += number_after(line, "mr");
        any = true;
    }
    return lines != NULL && pclose(lines) == 0 && any;
}

/* Both ranks have counted before either goes on. */
static int counted(struct counts *all)
{
    if (!count(all)) {
        printf("wrong: the kernel tells nothing about the devices\n");
        return EXIT_WRONG;
    }
    return sluice_barrier(comms[0], NULL) != 0 ? failed("barrier") : 0;
}

/* One sum on each communicator, checked. */
static int carry(void)
{
    for (unsigned c = 0; c < comm_count; c++) {
        for (unsigned i = 0; i < ELEMENTS; i++)
            in[i] = (float)(i % 1000 + c);
        if (sluice_allreduce(comms[c], in, out, ELEMENTS, SLUICE_F32, SLUICE_SUM, NULL) != 0)
            return failed("allreduce");
        for (unsigned i = 0; i < ELEMENTS; i++)
            if (out[i] != 2 * in[i]) {
                printf("wrong: element %u on communicator %u\n", i, c);
                return EXIT_WRONG;
            }
    }
    return 0;
}

/* Each with settings of its own, or they would share the first one's interfaces. */
static int make_more(unsigned wanted)
{
    int rank = sluice_comm_rank(comms[0]), err = 0;

    while (comm_count < wanted && err == 0) {
        struct sluice_unique_id id;
        struct sluice_config config;

        sluice_config_init(&config);
        config.timeout_ms = 1000 * (PATIENCE_S + comm_count);
        if (rank == 0)
            err = sluice_unique_id_create(&id);
        if (err == 0)
            err = sluice_broadcast(comms[0], &id, &id, sizeof(id), SLUICE_U8, 0, NULL);
        if (err == 0)
            err = sluice_comm_create_id(&id, rank, 2, &config, &comms[comm_count]);
        comm_count += err == 0;
    }
    return err != 0 ? failed("another communicator") : 0;
}

static int expect(const char *what, int now, int before, int more)
{
    if (now == before + more)
        return 0;
    printf("wrong: %d %s, not %d\n", now, what, before + more);
    return EXIT_WRONG;
}

/* The same buffer on all of them. */
static int register_everywhere(const struct counts *one, const struct counts *all)
{
    struct sluice_buffer *buffers[COMMS_MAX];
    struct counts with = {0}, after = {0};
    void *memory = aligned_alloc(4096, BUFFER_BYTES);
    int status = 0;

    for (unsigned c = 0; c < comm_count; c++)
        if (sluice_register(comms[c], memory, BUFFER_BYTES, &buffers[c]) != 0)
            return failed("register");
    status = counted(&with);
    for (unsigned c = 0; c < comm_count; c++)
        sluice_deregister(comms[c], buffers[c]);
    if (status == 0)
        status = counted(&after);
    printf("registered by all: %d regions, %d before, %d after\n", with.regions, all->regions,
           after.regions);
    free(memory);
    if (status == 0)
        status = expect("regions with a buffer of all", with.regions, all->regions, one->contexts);
    return status != 0 ? status : expect("regions after it", after.regions, all->regions, 0);
}

static double now_s(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static int wait_for(const char *dir, const char *name)
{
    double end = now_s() + PATIENCE_S;
    char path[256];

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    while (access(path, F_OK) != 0) {
        if (now_s() > end) {
            printf("wrong: %s does not come\n", path);
            return EXIT_WRONG;
        }
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL); /* between looks */
    }
    return 0;
}

static int run(unsigned wanted, const char *dir)
{
    struct counts one, all;
    int status = carry();

    if (status == 0)
        status = counted(&one);
    if (status == 0)
        status = make_more(wanted);
    if (status == 0)
        status = carry();
    if (status == 0)
        status = counted(&all);
    if (status != 0)
        return status;
    printf("1 communicator: %d contexts, %d domains; %u: %d, %d\n", one.contexts, one.domains,
           wanted, all.contexts, all.domains);
    status = one.contexts > 0 ? expect("contexts", all.contexts, one.contexts, 0) : EXIT_WRONG;
    if (status == 0)
        status = expect("domains", all.domains, one.domains, 0);
    if (status == 0)
        status = register_everywhere(&one, &all);
    if (status != 0)
        return status;
    printf("counted\n");
    status = wait_for(dir, "broken");
    for (unsigned round = 0; round < 3 && status == 0; round++)
        status = carry();
    return status;
}

int main(int argc, char **argv)
{
    int wanted = argc == 3 ? atoi(argv[1]) : 0, status;

    if (wanted < 1 || wanted > COMMS_MAX) {
        fprintf(stderr, "usage: devices COMMUNICATORS DIR\n");
        return EXIT_USAGE;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (sluice_comm_from_env(&comms[0]) != 0)
        return failed("the first communicator");
    comm_count = 1;
    status = run((unsigned)wanted, argv[2]);
    while (comm_count > 0)
        sluice_comm_destroy(comms[--comm_count]);
    if (status == 0)
        printf("done\n");
    return status;
}
