/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first exchange of a communicator: hellos, addresses, links and whatever else ranks tell each
 * other before they connect. The other ranks say what this one says, but for the edits of the
 * input: five bytes each, in which round and at which byte, and what is to lie there. Nobody can be
 * connected to, so it ends by an error: in a sentence that a terminal may show.
 */
#include "core/err.h"
#include "core/exchange.h"
#include "lib/api.h"

#include <stdlib.h>
#include <string.h>

#define RANKS_MAX 5
#define EDIT_BYTES 5

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct talk {
    struct sl_exchange base;
    const uint8_t *edits;
    size_t count;
    unsigned round;
};

static void edit(const struct talk *talk, uint8_t *all, size_t len)
{
    for (size_t i = 0; i < talk->count; i++) {
        const uint8_t *e = talk->edits + i * EDIT_BYTES;
        size_t theirs = ((size_t)talk->base.size - 1) * len, at = e[1] | (size_t)e[2] << 8;

        if ((e[0] & 0x7f) % 16 != talk->round || theirs == 0)
            continue;
        if ((e[0] & 0x80) != 0)
            all[len + at % theirs] ^= e[3];
        else
            memset(all + len + at % theirs, e[3], 1 + e[4] % (theirs - at % theirs));
    }
}

static int allgather(struct sl_exchange *base, const void *in, size_t len, void *out)
{
    struct talk *talk = (struct talk *)base;

    for (int r = 0; r < base->size; r++)
        memcpy((uint8_t *)out + (size_t)r * len, in, len);
    edit(talk, out, len);
    talk->round++;
    return 0;
}

static void check_sentence(const char *text)
{
    sl_assert(text[0] != '\0');
    for (; *text != '\0'; text++)
        sl_assert((unsigned char)*text >= ' ' && *text != 127);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sluice_comm *comm = NULL;
    struct sluice_config config;
    struct talk talk = {.base = {.allgather = allgather}};
    int err;

    /* Only what is of this host: an address that somebody made up is not dialled. */
    setenv("SLUICE_TRANSPORT", "shm", 1);
    setenv("SLUICE_CONNECT_TIMEOUT_MS", "1", 1);
    setenv("SLUICE_LOG", "error", 1);
    talk.base.size = size > 0 ? 1 + data[0] % RANKS_MAX : 2;
    talk.edits = data + 1;
    talk.count = size > 0 ? (size - 1) / EDIT_BYTES : 0;
    sluice_config_init(&config);
    err = sl_comm_create_over(&talk.base, &config, NULL, NULL, &comm);
    if (err != 0)
        check_sentence(sluice_last_error());
    sluice_comm_destroy(comm);
    return 0;
}
