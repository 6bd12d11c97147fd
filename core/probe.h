/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Static probes for bpftrace, perf and systemtap: docs/probes.md. Without a listener, a site is
 * one nop of one byte; where <sys/sdt.h> was not there at build (meson's option "probes"), it is
 * nothing.
 *
 * Arguments should be at hand: the compiler has to have their values ready, listened to or not.
 */
#ifndef SL_CORE_PROBE_H
#define SL_CORE_PROBE_H

#if SL_PROBES
#include <sys/sdt.h>

#define SL_PROBE2(name, a, b) STAP_PROBE2(sluice, name, a, b)
#define SL_PROBE3(name, a, b, c) STAP_PROBE3(sluice, name, a, b, c)
#define SL_PROBE4(name, a, b, c, d) STAP_PROBE4(sluice, name, a, b, c, d)
#else
#define SL_PROBE2(name, a, b) ((void)(a), (void)(b))
#define SL_PROBE3(name, a, b, c) ((void)(a), (void)(b), (void)(c))
#define SL_PROBE4(name, a, b, c, d) ((void)(a), (void)(b), (void)(c), (void)(d))
#endif

#endif
