/* SPDX-License-Identifier: Apache-2.0 */
/* Speeds of ports as the codes that queue pairs and control messages have for them. Pure. */
#ifndef SL_VERBS_RATE_H
#define SL_VERBS_RATE_H

#include <stdint.h>

/* Bytes per second of an enum ibv_rate; 0: it is none, or IBV_RATE_MAX. */
uint64_t sl_verbs_rate_speed(uint8_t rate);

/* The lowest enum ibv_rate that is not below the speed; IBV_RATE_MAX: it is unknown (0), or above
 * all. */
uint8_t sl_verbs_rate_of(uint64_t speed);

/* The limit of what a port of that speed sends to one of that rate; IBV_RATE_MAX: none is needed,
 * or one of the two is not known. */
uint8_t sl_verbs_rate_towards(uint64_t speed, uint8_t peer);

#endif
