/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settings that lanes of all kinds have, each under a name of its own: SLUICE_VERBS_PATHS and so
 * on. The struct that a backend's rows are of has this one in it, called mp, and its rows are
 * written with the macros below where they are the same for all. AREA: what their names start with.
 */
#ifndef SL_MULTIPATH_CONFIG_H
#define SL_MULTIPATH_CONFIG_H

#include "core/config_row.h"
#include "multipath/iface.h"
#include "multipath/plan.h"

/* In the order of the row's choices. */
enum sl_mp_fallback_choice { SL_MP_FALLBACK_OFF, SL_MP_FALLBACK_TCP };

struct sl_mp_config {
    char paths[SL_PATH_LIST_BYTES];
    enum sl_mp_fallback_choice fallback;
    int64_t paths_per_rail, lazy, reserve;
    int64_t eager_bytes, piece_bytes, staging_bytes, path_wait_ms;
};

/* check: names the variable to sl_path_list_check(). */
#define SL_MP_ROW_PATHS(AREA, check, help)                                                         \
    SL_ROW_CHECKED_LONG(AREA "_PATHS", mp.paths, "auto", SL_PATH_LIST_BYTES, check, help)

#define SL_MP_ROW_LAZY(AREA)                                                                       \
    SL_ROW_SWITCH(AREA "_LAZY", mp.lazy, "auto",                                                   \
                  "Paths of a connection are made when they are needed: on (one, and all when "    \
                  "long messages go or that one is in trouble), auto (as on, and a second one, "   \
                  "to another rail, soon after the first is used), off (all at once).")

#define SL_MP_ROW_RESERVE(AREA)                                                                    \
    SL_ROW_SWITCH(AREA "_RESERVE", mp.reserve, "auto",                                             \
                  "on: a connection keeps to the first rail that has a path and holds the others " \
                  "in reserve; off: it spreads over all. auto: off, but on under NCCL, which "     \
                  "spreads its connections over devices itself.")

#define SL_MP_ROW_EAGER_BYTES(AREA)                                                                \
    SL_ROW_BYTES(AREA "_EAGER_BYTES", mp.eager_bytes, "4096", 256, 64 * SL_KIB,                    \
                 "Messages up to this size are copied through receive buffers; longer ones are "   \
                 "written in place.")

#define SL_MP_ROW_PATH_WAIT_MS(AREA)                                                               \
    SL_ROW_INT(AREA "_PATH_WAIT_MS", mp.path_wait_ms, "10000", "ms", 1, SL_DAY_MS,                 \
               "How long a connection without any path waits for one to return.")

#define SL_MP_ROW_FALLBACK(AREA)                                                                   \
    SL_ROW_CHOICE(AREA "_FALLBACK", mp.fallback, "off", "off tcp",                                 \
                  "What a connection without any path does meanwhile: off (waits) or tcp "         \
                  "(continues over TCP).")

/* magic: of addresses of such lanes. */
struct sl_mp_settings sl_mp_settings_of(const struct sl_mp_config *own, int64_t connect_timeout_ms,
                                        uint16_t magic);

/* How many pieces of staging an interface has by SLUICE_..._STAGING_BYTES. */
unsigned sl_mp_chunks_of(const struct sl_mp_config *own);

#endif
