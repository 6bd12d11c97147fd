/* SPDX-License-Identifier: Apache-2.0 */
/* Variables of the plugins for NCCL: SLUICE_NCCL_*. */
#include "tools/nccl/config.h"

#include "core/err.h"
#include "lib/start.h"

#define AT(field) offsetof(struct sl_nccl_config, field)

static const struct sl_config_row rows[] = {
    SL_ROW_SWITCH(
        "NCCL_GPU", gpu, "auto",
        "Offer NCCL to move GPU memory without a copy through the host: auto and on, where RDMA "
        "devices take it; then connections are made over RDMA only; off."),
    SL_ROW_INT(
        "NCCL_FLOWS", flows, "4", "endpoints", 1, 1024,
        "How many endpoints NCCL's connections between two devices have: each one an endpoint "
        "of its own up to so many, further ones share them."),
    SL_ROW_TEXT(
        "NCCL_PROFILE", profile, "off",
        "What the NCCL plugin writes of NCCL's work to /dev/shm/sluice-nccl-PID-RANK: off, ops "
        "(operations), steps (and what each step of the network waits for), kernels (and GPU "
        "times); with ,keep the file stays when the job ends well."),
    SL_ROW_INT("NCCL_PROFILE_EVENTS", profile_events, "16384", "events", 64, 1 << 24,
               "How many finished events that file holds: the oldest give way."),
    SL_ROW_TEXT(
        "NCCL_ENV_FILE", env_file, "",
        "File of NCCL's settings, NAME=VALUE in lines, that libnccl-env-sluice.so gives to NCCL. "
        "Empty: /etc/sluice/nccl.env, if there is one."),
    SL_ROW_TEXT(
        "NCCL_TUNER", tuner, "",
        "Rules for NCCL's choice of algorithms, separated by ';', or @FILE with one per line: "
        "FUNCTION[:MIN-MAX]=ALGO/PROTO[,channels=N][,chunk=SIZE], each of the first four may be *. "
        "The first that fits counts. Empty: NCCL chooses."),
};

struct sl_config_section sl_nccl_section = {.area = "NCCL",
                                            .rows = rows,
                                            .row_count = SL_ARRAY_LEN(rows),
                                            .size = sizeof(struct sl_nccl_config)};

int sl_nccl_start(struct sl_config *config, char *const *envp)
{
    int err = sl_config_register(&sl_nccl_section);

    return err != 0 ? err : sl_start(config, envp);
}
