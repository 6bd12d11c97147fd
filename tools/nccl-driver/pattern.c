/* SPDX-License-Identifier: Apache-2.0 */
/* What messages hold, and what is there where they do not. */
#include "tools/nccl-driver/pattern.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define STEPS_AROUND 40 /* messages before and after that bytes may be of */
#define PARTS_MAX 4     /* that a description names */
#define WORD_FACTOR UINT64_C(0x9e3779b97f4a7c15)
#define WORD_FACTOR_INVERSE UINT64_C(0xf1de83e19937733d)

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

uint64_t pattern_key(int conn, int tag, unsigned step)
{
    return mix(((uint64_t)(unsigned)conn << 48) ^ ((uint64_t)(unsigned)tag << 32) ^ step) | 1;
}

static uint64_t word_at(uint64_t key, size_t at)
{
    uint64_t x = (key + at) * WORD_FACTOR;

    return x ^ (x >> 29);
}

/* The sum of key and place that the word was made from. */
static uint64_t sum_of(uint64_t word)
{
    return (word ^ (word >> 29) ^ (word >> 58)) * WORD_FACTOR_INVERSE;
}

void pattern_fill(uint8_t *data, size_t len, int conn, int tag, unsigned step)
{
    uint64_t key = pattern_key(conn, tag, step), word;
    size_t i;

    for (i = 0; i + 8 <= len; i += 8) {
        word = word_at(key, i);
        memcpy(data + i, &word, 8);
    }
    word = word_at(key, i);
    memcpy(data + i, &word, len - i);
}

size_t pattern_differs(const uint8_t *data, size_t len, int conn, int tag, unsigned step)
{
    uint64_t key = pattern_key(conn, tag, step), word, have;
    size_t i;

    for (i = 0; i + 8 <= len; i += 8) {
        word = word_at(key, i);
        memcpy(&have, data + i, 8);
        if (have != word)
            break;
    }
    word = word_at(key, i);
    for (size_t b = 0; b < 8 && i + b < len; b++)
        if (data[i + b] != (uint8_t)(word >> (8 * b)))
            return i + b;
    return len;
}

/* ---- where bytes belong ---- */

enum origin { RIGHT, BEFORE, AFTER, MESSAGE, UNKNOWN };

struct place {
    enum origin origin;
    int tag;
    unsigned step;
    uint64_t at; /* of a message: its byte */
};

static bool all_are(const uint8_t *data, size_t len, uint8_t byte)
{
    for (size_t i = 0; i < len; i++)
        if (data[i] != byte)
            return false;
    return true;
}

/* Of the messages around this one the one that has that word. */
static bool message_of(const struct pattern *p, uint64_t sum, struct place *out)
{
    unsigned first = p->step > STEPS_AROUND ? p->step - STEPS_AROUND : 0;

    for (unsigned t = 0; t < p->tag_count; t++)
        for (unsigned step = first; step <= p->step + STEPS_AROUND; step++) {
            uint64_t at = sum - pattern_key(p->conn, p->tags[t], step);

            if (at >= p->largest)
                continue;
            *out = (struct place){MESSAGE, p->tags[t], step, at};
            return true;
        }
    return false;
}

/* Where the word at i belongs; the last one may be shorter. */
static struct place place_of(const struct pattern *p, const uint8_t *data, size_t len, size_t i)
{
    size_t count = len - i < 8 ? len - i : 8;
    uint64_t word = word_at(pattern_key(p->conn, p->tag, p->step), i);
    struct place place = {.origin = UNKNOWN};

    if (memcmp(data + i, &word, count) == 0)
        place.origin = RIGHT;
    else if (all_are(data + i, count, PATTERN_FRESH))
        place.origin = BEFORE;
    else if (all_are(data + i, count, PATTERN_SPENT))
        place.origin = AFTER;
    else if (count == 8) {
        memcpy(&word, data + i, 8);
        message_of(p, sum_of(word), &place);
    }
    return place;
}

/* Does b, so many bytes behind a, go on with the same? */
static bool goes_on(const struct place *a, const struct place *b, size_t behind)
{
    return a->origin == b->origin &&
           (a->origin != MESSAGE ||
            (a->tag == b->tag && a->step == b->step && a->at + behind == b->at));
}

static int part_text(const struct place *place, size_t count, char *text, size_t cap)
{
    switch (place->origin) {
    case RIGHT: return snprintf(text, cap, "%zu right ones", count);
    case BEFORE: return snprintf(text, cap, "%zu bytes from before the receive", count);
    case AFTER:
        return snprintf(text, cap, "%zu bytes that the sender wrote once its request was done",
                        count);
    case MESSAGE:
        return snprintf(text, cap, "%zu bytes of message %u of tag %d from its byte %llu on", count,
                        place->step, place->tag, (unsigned long long)place->at);
    case UNKNOWN: break;
    }
    return snprintf(text, cap, "%zu unknown bytes", count);
}

void pattern_describe(const struct pattern *p, const uint8_t *data, size_t len, size_t wrong,
                      char *text, size_t cap)
{
    size_t begin = wrong & ~(size_t)7, used = 0;

    text[0] = '\0';
    for (unsigned parts = 0; begin < len && used < cap; parts++) {
        struct place first = place_of(p, data, len, begin), next;
        size_t end = begin;

        if (parts == PARTS_MAX) {
            snprintf(text + used, cap - used, ", ...");
            return;
        }
        do {
            end += 8;
            if (end < len)
                next = place_of(p, data, len, end);
        } while (end < len && goes_on(&first, &next, end - begin));
        end = end < len ? end : len;
        if (parts > 0)
            used += (size_t)snprintf(text + used, cap - used, ", ");
        if (used < cap)
            used += (size_t)part_text(&first, end - begin, text + used, cap - used);
        begin = end;
    }
}
