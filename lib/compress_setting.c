/* SPDX-License-Identifier: Apache-2.0 */
/* Takes apart how a user asks for compression. */
#include "lib/compress_setting.h"

#include "collectives/code.h"
#include "core/config_row.h"
#include "core/err.h"

#include <stdio.h>
#include <string.h>

#define KEEP_BYTES SL_GIB /* what calls with all buffers keep, together */

#define MIN_BYTES_ALWAYS (64 * SL_KIB) /* what pays on most links */

static int parse_switch(const char *key, const char *value, bool *out)
{
    *out = strcmp(value, "on") == 0;
    return *out || strcmp(value, "off") == 0
               ? 0
               : sl_fail(-EINVAL, "%s=%s: the choices are on, off", key, value);
}

static int parse_when(const char *value, bool *always)
{
    *always = strcmp(value, "always") == 0;
    return *always || strcmp(value, "cost") == 0
               ? 0
               : sl_fail(-EINVAL, "when=%s: the choices are cost, always", value);
}

static int parse_bytes(const char *key, const char *value, int64_t *out)
{
    return sl_parse_bytes(value, out) == 0
               ? 0
               : sl_fail(-EINVAL, "%s=%s: that is no number of bytes, as 4096, 64k or 1M", key,
                         value);
}

/* One "key=value" of the text, if it is not the codec's own. 1: it is. */
static int parse_item(const char *item, struct sl_compression_setting *out)
{
    static const char min[] = "min=", feedback[] = "feedback=", measure[] = "measure=",
                      inside[] = "inside=", keep[] = "keep=", when[] = "when=",
                      recipe[] = "recipe=", vote[] = "vote=";

    if (strncmp(item, min, strlen(min)) == 0)
        return parse_bytes("min", item + strlen(min), &out->min_bytes);
    if (strncmp(item, keep, strlen(keep)) == 0)
        return parse_bytes("keep", item + strlen(keep), &out->keep_bytes);
    if (strncmp(item, feedback, strlen(feedback)) == 0)
        return parse_switch("feedback", item + strlen(feedback), &out->feedback);
    if (strncmp(item, measure, strlen(measure)) == 0)
        return parse_switch("measure", item + strlen(measure), &out->measure);
    if (strncmp(item, when, strlen(when)) == 0)
        return parse_when(item + strlen(when), &out->always);
    if (strncmp(item, recipe, strlen(recipe)) == 0)
        return sl_coding_find_recipe(item + strlen(recipe), &out->recipe);
    if (strncmp(item, vote, strlen(vote)) == 0)
        return parse_switch("vote", item + strlen(vote), &out->vote);
    if (strncmp(item, inside, strlen(inside)) == 0) {
        snprintf(out->inside, sizeof(out->inside), "%s", item + strlen(inside));
        return 0;
    }
    return 1;
}

/* "bq8:min=1M,seed=7" → codec "bq8:seed=7", min_bytes 1M. */
int sl_compression_parse(const char *text, struct sl_compression_setting *out)
{
    char copy[SL_COMPRESSION_TEXT_MAX], *rest = copy, *item;
    char mark = ':';

    *out =
        (struct sl_compression_setting){.min_bytes = -1, .keep_bytes = KEEP_BYTES, .inside = "raw"};
    if (strlen(text) >= sizeof(copy))
        return sl_fail(-EINVAL, "%zu characters are too many to ask for compression", strlen(text));
    memcpy(copy, text, strlen(text) + 1);
    item = strsep(&rest, ":");
    sl_text_add(out->codec, sizeof(out->codec), "%s", item);
    while (rest != NULL) {
        item = strsep(&rest, ",");
        int err = parse_item(item, out);

        if (err < 0)
            return err;
        if (err == 1) {
            sl_text_add(out->codec, sizeof(out->codec), "%c%s", mark, item);
            mark = ',';
        }
    }
    if (out->min_bytes < 0)
        out->min_bytes = out->always ? MIN_BYTES_ALWAYS : SL_COMPRESSION_MIN_BYTES;
    return 0;
}
