/* SPDX-License-Identifier: Apache-2.0 */
/* Where ranks that are threads of this process meet, as often as they like: an exchange without a
 * socket. */
#ifndef SL_TESTS_MEETING_H
#define SL_TESTS_MEETING_H

#include "core/exchange.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define MEETING_BYTES 131072 /* of all ranks at once */

struct meeting {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int arrived;
    unsigned round;
    bool closed;                     /* a rank comes no more: nobody waits for it */
    uint8_t bytes[2][MEETING_BYTES]; /* of this round and the one before */
};

/* One rank's part in it. */
struct attendance {
    struct sl_exchange exchange; /* first */
    struct meeting *meeting;
};

void meeting_open(struct meeting *m);
/* Those who wait now or later get -ECONNRESET. */
void meeting_close(struct meeting *m);
struct attendance meeting_attend(struct meeting *m, int rank, int size);

#endif
