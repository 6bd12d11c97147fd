/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps listening sockets between the making of a meeting place and its use. */
#include "launch/kept.h"

#include "core/err.h"

#include <pthread.h>

#define KEPT_MAX 256

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sl_listeners kept[KEPT_MAX];
static unsigned count;

int sl_kept_put(const struct sl_listeners *listeners)
{
    int err = 0;

    pthread_mutex_lock(&lock);
    if (count < KEPT_MAX)
        kept[count++] = *listeners;
    else
        err = sl_fail(-ENOMEM,
                      "%d meeting places of this process wait for their rank 0 already; make "
                      "a communicator of one first",
                      KEPT_MAX);
    pthread_mutex_unlock(&lock);
    return err;
}

bool sl_kept_take(uint16_t port, struct sl_listeners *out)
{
    bool found = false;

    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < count && !found; i++) {
        if (kept[i].port != port)
            continue;
        *out = kept[i];
        kept[i] = kept[--count];
        found = true;
    }
    pthread_mutex_unlock(&lock);
    return found;
}
