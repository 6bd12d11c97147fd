/* SPDX-License-Identifier: Apache-2.0 */
/* Watches RDMA queue pairs as the node agent does, and prints those of a device that are ready to
 * send, with their peers, as soon as there are so many: qps DEVICE COUNT SECONDS. */
#include "core/err.h"
#include "monitor/source.h"

#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* How many there are; they are printed as well. */
static unsigned of_device(struct json_object *all, const char *device, bool is_shown)
{
    struct json_object *list = json_object_object_get(all, "qps");
    unsigned count = 0;

    for (size_t i = 0; i < json_object_array_length(list); i++) {
        struct json_object *qp = json_object_array_get_idx(list, i);
        const char *name = json_object_get_string(json_object_object_get(qp, "device"));
        const char *state = json_object_get_string(json_object_object_get(qp, "state"));

        if (strcmp(name, device) != 0 || strcmp(state, "rts") != 0)
            continue;
        count++;
        if (is_shown)
            puts(json_object_to_json_string_ext(qp, JSON_C_TO_STRING_PLAIN));
    }
    return count;
}

int main(int argc, char **argv)
{
    const struct sl_source_class *class = &sl_source_bpf_qp;
    const struct timespec moment = {.tv_nsec = 100000000};
    struct sl_mon_config config;
    struct sl_source_host host = {.config = &config};
    void *source = NULL;
    unsigned found = 0, wanted;

    if (argc != 4)
        return 2;
    wanted = (unsigned)atoi(argv[2]);
    sl_mon_config_defaults(&config);
    if (class->create(&host, &source) != 0 || class->open(source) != 0) {
        fprintf(stderr, "qps: %s\n", sluice_last_error());
        return 1;
    }
    puts("watching");
    fflush(stdout);
    for (int i = 0; i < 10 * atoi(argv[3]) && found < wanted; i++) {
        struct json_object *all = json_object_new_object();

        if (class->tick(source) == 0)
            class->json(source, all);
        found = of_device(all, argv[1], false);
        if (found >= wanted)
            (void)of_device(all, argv[1], true);
        json_object_put(all);
        (void)nanosleep(&moment, NULL);
    }
    class->close(source);
    class->destroy(source);
    return found >= wanted ? 0 : 1;
}
