/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transports in files of their own: sluice-NAME.so, for those that need a library that is not
 * everywhere, or comes from elsewhere. docs/adding-a-transport.md shows how one is made.
 *
 * A module exports one symbol, sluice_module (SL_MODULE, core/module.map). It is compiled with
 * core/module_side.c, which passes sentences and log lines on to the process: nothing of the
 * process has to be exported, so plugins that contain Sluice load modules as well. A module that
 * was taken is never closed.
 */
#ifndef SL_CORE_MODULE_H
#define SL_CORE_MODULE_H

#include "core/event.h"
#include "core/log.h"

#include <stddef.h>
#include <stdint.h>

struct sl_transport_ops;

/* The functions that the process lends a module. */
struct sl_module_host {
    int (*fail_in)(const char *file, int code, const char *text);
    const char *(*last_error)(void);
    const char *(*strerror)(int code);
    void (*tame_text)(char *text);
    void (*assert_failed)(const char *expr, const char *file, int line);
    int (*log_enabled)(const char *area, enum sl_log_level level);
    void (*log_line)(enum sl_log_level level, const char *area, const char *line);
    void (*event_put)(struct sl_event_ring *ring, const struct sl_event *event);
    const struct sl_transport_ops *(*transport_with)(uint32_t traits); /* as a sideband */
};

/* The exported symbol. */
struct sl_module {
    uint32_t abi; /* SL_TRANSPORT_ABI: lies here in every version */
    const struct sl_transport_ops *ops;
    const struct sl_module_host **host; /* set before anything of the module is called */
};

#define SL_MODULE_SYMBOL "sluice_module"

/* In a module's source, once: its transport. Includes core/transport.h before. */
#define SL_MODULE(transport)                                                                       \
    extern const struct sl_module_host *sl_module_host;                                            \
    extern const struct sl_module sluice_module;                                                   \
    __attribute__((visibility("default")))                                                         \
    const struct sl_module sluice_module = {SL_TRANSPORT_ABI, &(transport), &sl_module_host};

/* Loads the module in that file and registers its transport. -ENOENT: it cannot be opened;
 * -ENOTSUP: it is no module, or of another SL_TRANSPORT_ABI; else as sl_transport_register(). */
int sl_module_load(const char *path);

/* Loads each sluice-*.so of dir, in the order of their names. NULL: of the folder "sluice" beside
 * the file that this code is in (in bin/: ../lib/sluice too). Returns how many were loaded; one
 * that cannot be is kept below. */
unsigned sl_modules_load(const char *dir);

/* Modules that could not be loaded: the NAME of sluice-NAME.so, and why; NULL behind the last. */
const char *sl_module_refused(unsigned idx, const char **why);

#endif
