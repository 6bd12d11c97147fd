/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A deterministic transport within one process, with a clock of its own: what `tcp` is to the verbs
 * transport, with delays, stalls and losses by a seed or on demand. It takes control messages of
 * SL_CTRL_ROOM bytes, as tcp does. One world at a time, and one thread.
 */
#ifndef SL_TESTS_FAKE_LOOP_H
#define SL_TESTS_FAKE_LOOP_H

#include "core/transport.h"

#include <stdbool.h>

struct loop;

struct loop *loop_create(uint64_t seed);
void loop_destroy(struct loop *loop); /* takes NULL */

/* Opens in the world that there is. */
extern const struct sl_transport_ops loop_ops;

/* The clock: each look lets a microsecond pass, and calls look (if any) before. */
const struct sl_clock *loop_clock(const struct loop *loop);
void loop_on_look(struct loop *loop, void (*look)(void *arg), void *arg);
uint64_t loop_now(const struct loop *loop);
void loop_pass(struct loop *loop, uint64_t ns);

/* How long messages are under way (default: 2 us, no more), and how many an endpoint takes (16 of
 * either kind). eagain_in: 1 in so many posts is refused all the same; 0: none. */
void loop_weather(struct loop *loop, uint64_t latency_ns, uint64_t jitter_ns, uint32_t eagain_in);

/* Sends of up to 64 KiB are done at once, and not only half of them. */
void loop_takes_at_once(struct loop *loop);

/* Faults of a connection, named by one of its endpoints, in order of creation from 0. */
unsigned loop_ep_count(const struct loop *loop);
/* Nothing arrives at either end until for_ns have passed. */
void loop_stall(struct loop *loop, unsigned idx, uint64_t for_ns);
/* Both ends lose it, each at a time of its own within within_ns; what was under way is lost. */
void loop_lose(struct loop *loop, unsigned idx, int status, uint64_t within_ns);

/* That end alone loses it. */
void loop_lose_here(struct loop *loop, unsigned idx, int status);
/* The process of that end dies: both lose it, and nobody is there when the other dials again. */
void loop_die(struct loop *loop, unsigned idx);
/* 1 in so many redials comes to nothing at first; 0: none. */
void loop_redials(struct loop *loop, uint32_t fail_in);

/* Interfaces and endpoints that are not closed. */
unsigned loop_live(const struct loop *loop);
/* The first thing that was done wrong, or NULL. */
const char *loop_misuse(const struct loop *loop);

#endif
