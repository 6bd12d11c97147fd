/* SPDX-License-Identifier: Apache-2.0 */
/* sluice-compress encode and decode: elements to frames, and back. */
#include "tools/compress/tool.h"

#include "core/err.h"
#include "tools/compress/files.h"

static int encode_all(const struct sl_codec_spec *spec, struct file_in *in, struct file_out *out)
{
    size_t width = sluice_dtype_size((enum sluice_dtype)spec->dtype), got;
    size_t most = TOOL_FRAME_ELEMENTS - TOOL_FRAME_ELEMENTS % sl_codec_tile(spec);
    struct file_room elements = {0}, frame = {0};
    struct sl_codec_at at = {0};
    int err = file_room_grow(&elements, most * width);

    if (err == 0)
        err = file_room_grow(&frame, sl_frame_bound(spec, most));
    while (err == 0) {
        err = file_read(in, elements.at, most * width, &got);
        /* A file of nothing becomes one frame of nothing. */
        if (err != 0 || (got == 0 && at.first > 0))
            break;
        if (got % width != 0) {
            err = sl_fail(-EINVAL, "%s is no file of %s: it ends within an element", in->name,
                          sluice_dtype_name((enum sluice_dtype)spec->dtype));
            break;
        }
        err = file_write(out, frame.at,
                         sl_frame_write(spec, &at, elements.at, got / width, frame.at));
        at.first += got / width;
        if (got < most * width)
            break;
    }
    file_room_free(&elements);
    file_room_free(&frame);
    return err;
}

static int decode_all(struct file_in *in, struct file_out *out)
{
    struct file_room bytes = {0}, elements = {0};
    bool end = false;
    int err = 0;

    for (unsigned frames = 0; err == 0; frames++) {
        struct sl_frame frame;
        size_t len;

        err = file_read_frame(in, &bytes, &frame, &end);
        if (err == 0 && end && frames == 0)
            err = sl_fail(-EBADMSG, "%s is empty: it has no frame", in->name);
        if (err != 0 || end)
            break;
        len = frame.count * sluice_dtype_size((enum sluice_dtype)frame.spec.dtype);
        err = file_room_grow(&elements, len);
        if (err == 0)
            err = sl_frame_decode(&frame, bytes.at, elements.at);
        if (err == 0)
            err = file_write(out, elements.at, len);
    }
    file_room_free(&bytes);
    file_room_free(&elements);
    return err;
}

/* spec NULL: decode. */
static int work(const struct tool_options *options, const struct sl_codec_spec *spec)
{
    struct file_out out;
    struct file_in in;
    int err = file_open(options->files[0], &in), last;

    if (err != 0)
        return tool_complain();
    err = file_create(options->files[1], &in, &out);
    if (err == 0) {
        err = spec != NULL ? encode_all(spec, &in, &out) : decode_all(&in, &out);
        last = file_finish(&out, err == 0);
        err = err != 0 ? err : last;
    }
    file_close(&in);
    return err != 0 ? tool_complain() : TOOL_DONE;
}

int tool_encode(const struct tool_options *options)
{
    struct sl_codec_spec spec;

    if (options->codec_count != 1) {
        fprintf(stderr, "sluice-compress: encode takes one --codec\n");
        return TOOL_ARGUMENTS;
    }
    return sl_codec_parse(options->codecs[0], &spec) != 0 ? tool_complain() : work(options, &spec);
}

int tool_decode(const struct tool_options *options)
{
    return work(options, NULL);
}
