/* SPDX-License-Identifier: Apache-2.0 */
/* sluice-compress inspect: what a file of frames holds, and what its codec has cost. */
#include "tools/compress/tool.h"

#include "compress/elements.h"
#include "core/err.h"
#include "tools/compress/files.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Of all frames. */
struct facts {
    struct sl_frame first;
    uint64_t frames, raw_frames, elements, payload, original_bytes;
    /* Against the original. */
    uint64_t not_finite, differ;
    double error, signal, worst; /* sums of squares, and the largest difference */
};

static void compare(struct facts *facts, unsigned dtype, const char *original, const char *decoded,
                    size_t count)
{
    size_t width = sluice_dtype_size((enum sluice_dtype)dtype);
    float a[256], b[256];

    for (size_t i = 0; i < count; i += 256) {
        size_t n = count - i < 256 ? count - i : 256;

        sl_elements_widen(dtype, original + i * width, n, a);
        sl_elements_widen(dtype, decoded + i * width, n, b);
        for (size_t j = 0; j < n; j++) {
            double d = (double)a[j] - (double)b[j];

            facts->differ +=
                memcmp(original + (i + j) * width, decoded + (i + j) * width, width) != 0;
            if (!isfinite(a[j]) || !isfinite(b[j])) {
                facts->not_finite++;
                continue;
            }
            facts->error += d * d;
            facts->signal += (double)a[j] * (double)a[j];
            facts->worst = fmax(facts->worst, fabs(d));
        }
    }
}

/* The next frame's elements, and as many of the original beside them. */
static int compare_frame(struct facts *facts, const struct sl_frame *frame, const void *bytes,
                         struct file_in *original)
{
    struct file_room decoded = {0}, given = {0};
    size_t len = frame->count * sluice_dtype_size((enum sluice_dtype)frame->spec.dtype), got;
    int err = file_room_grow(&decoded, len);

    if (err == 0)
        err = file_room_grow(&given, len);
    if (err == 0)
        err = sl_frame_decode(frame, bytes, decoded.at);
    if (err == 0)
        err = file_read(original, given.at, len, &got);
    if (err == 0 && got < len)
        err = sl_fail(-EINVAL, "%s is not the original: it has fewer elements than the frames",
                      original->name);
    if (err == 0)
        compare(facts, frame->spec.dtype, given.at, decoded.at, frame->count);
    file_room_free(&decoded);
    file_room_free(&given);
    return err;
}

static int add_frame(struct facts *facts, const struct sl_frame *frame)
{
    if (facts->frames == 0)
        facts->first = *frame;
    if (memcmp(&facts->first.spec, &frame->spec, sizeof(frame->spec)) != 0)
        return sl_fail(-EINVAL, "frame %" PRIu64 " has another codec than the first one",
                       facts->frames);
    facts->frames++;
    facts->raw_frames += frame->raw;
    facts->elements += frame->count;
    facts->payload += frame->payload;
    facts->original_bytes += frame->count * sluice_dtype_size((enum sluice_dtype)frame->spec.dtype);
    return 0;
}

static int gather(struct file_in *in, struct file_in *original, struct facts *facts)
{
    struct file_room bytes = {0};
    char more;
    size_t got = 0;
    int err = 0;

    for (;;) {
        struct sl_frame frame;
        bool end;

        err = file_read_frame(in, &bytes, &frame, &end);
        if (err == 0 && end && facts->frames == 0)
            err = sl_fail(-EBADMSG, "%s is empty: it has no frame", in->name);
        if (err != 0 || end)
            break;
        err = add_frame(facts, &frame);
        if (err == 0 && original != NULL)
            err = compare_frame(facts, &frame, bytes.at, original);
        if (err != 0)
            break;
    }
    if (err == 0 && original != NULL)
        err = file_read(original, &more, 1, &got);
    if (err == 0 && got > 0)
        err = sl_fail(-EINVAL, "%s is not the original: it has more elements than the frames",
                      original->name);
    file_room_free(&bytes);
    return err;
}

static uint64_t file_bytes(const struct facts *facts)
{
    return facts->payload + facts->frames * SL_FRAME_HEAD;
}

static double ratio(const struct facts *facts)
{
    return facts->original_bytes > 0 ? (double)file_bytes(facts) / (double)facts->original_bytes
                                     : 1;
}

/* Squared error, as a part of the signal's square. */
static double nmse(const struct facts *facts)
{
    return facts->error > 0 ? facts->error / facts->signal : 0;
}

static void print_text(const struct facts *facts, const char *codec, bool compared)
{
    printf("codec      %s\n", codec);
    printf("type       %s\n", sluice_dtype_name((enum sluice_dtype)facts->first.spec.dtype));
    printf("elements   %" PRIu64 " in %" PRIu64 " frames, of which %" PRIu64
           " hold them as they are\n",
           facts->elements, facts->frames, facts->raw_frames);
    printf("bytes      %" PRIu64 " of %" PRIu64 ": %.4f\n", file_bytes(facts),
           facts->original_bytes, ratio(facts));
    if (facts->first.spec.seed != 0 || (facts->first.spec.flags & SL_SPEC_STOCHASTIC) != 0)
        printf("random     seed %" PRIu64 ", stream %u, step %u\n", facts->first.spec.seed,
               facts->first.at.stream, facts->first.at.step);
    printf("checksum   right\n");
    if (!compared)
        return;
    printf("differ     %" PRIu64 " elements\n", facts->differ);
    printf("error      %.4g of the square (NMSE), %.4g at most\n", nmse(facts), facts->worst);
    if (facts->not_finite > 0)
        printf("not finite %" PRIu64 " elements, not in the error\n", facts->not_finite);
}

/* A number of JSON: it has no infinity. */
static void print_number(const char *name, double x)
{
    if (isfinite(x))
        printf(", \"%s\": %.6g", name, x);
    else
        printf(", \"%s\": null", name);
}

static void print_json(const struct facts *facts, const char *codec, bool compared)
{
    printf("{\"codec\": \"%s\", \"dtype\": \"%s\", \"elements\": %" PRIu64 ", \"frames\": %" PRIu64
           ", \"raw_frames\": %" PRIu64 ", \"bytes\": %" PRIu64 ", \"original_bytes\": %" PRIu64,
           codec, sluice_dtype_name((enum sluice_dtype)facts->first.spec.dtype), facts->elements,
           facts->frames, facts->raw_frames, file_bytes(facts), facts->original_bytes);
    print_number("ratio", ratio(facts));
    printf(", \"seed\": %" PRIu64 ", \"stream\": %u, \"step\": %u", facts->first.spec.seed,
           facts->first.at.stream, facts->first.at.step);
    if (compared) {
        printf(", \"differ\": %" PRIu64 ", \"not_finite\": %" PRIu64, facts->differ,
               facts->not_finite);
        print_number("nmse", nmse(facts));
        print_number("error_max", facts->worst);
    }
    printf("}\n");
}

int tool_inspect(const struct tool_options *options)
{
    struct file_in in, original = {.fd = -1};
    struct facts facts = {0};
    bool compared = options->original != NULL;
    char codec[128];
    int err = file_open(options->files[0], &in);

    if (err != 0)
        return tool_complain();
    if (compared)
        err = file_open(options->original, &original);
    if (err == 0)
        err = gather(&in, compared ? &original : NULL, &facts);
    file_close(&in);
    file_close(&original);
    if (err != 0)
        return tool_complain();
    sl_codec_print(&facts.first.spec, codec, sizeof(codec));
    if (options->json)
        print_json(&facts, codec, compared);
    else
        print_text(&facts, codec, compared);
    return TOOL_DONE;
}
