/* SPDX-License-Identifier: Apache-2.0 */
/* The table of the kinds of steps. */
#include "schedules/step.h"

#include <stddef.h>

#define REDUCES (SL_STEP_REMOTE_FIRST | SL_STEP_FINAL)

const struct sl_step_row sl_step_rows[SL_STEP_KIND_COUNT] = {
    [SL_STEP_SEND] = {.name = "send",
                      .peer_word = "to",
                      .doing = "sends to",
                      .message = SL_SENDS,
                      .wire_src = SL_MAY_WIRE,
                      .src = true},
    [SL_STEP_RECV] = {.name = "recv",
                      .peer_word = "from",
                      .doing = "waits for a message of",
                      .message = SL_RECEIVES,
                      .flags = SL_STEP_UP_TO,
                      .wire_dst = SL_MAY_WIRE,
                      .dst = true},
    [SL_STEP_RECV_REDUCE] = {.name = "recv_reduce",
                             .peer_word = "with",
                             .doing = "waits for a message of",
                             .message = SL_RECEIVES,
                             .flags = REDUCES,
                             .src = true,
                             .dst = true,
                             .reduces = true},
    [SL_STEP_COPY] = {.name = "copy", .work = SL_WORK_COPY, .src = true, .dst = true},
    [SL_STEP_REDUCE] = {.name = "reduce",
                        .work = SL_WORK_REDUCE,
                        .flags = REDUCES,
                        .src = true,
                        .dst = true,
                        .reduces = true},
    [SL_STEP_POST] = {.name = "post", .tells = true, .windows = true},
    [SL_STEP_AWAIT] = {.name = "await", .peer_word = "of", .waits = true, .windows = true},
    [SL_STEP_REDUCE_WIN] = {.name = "reduce_win",
                            .flags = SL_STEP_FINAL | SL_STEP_TO_WIN,
                            .src = true,
                            .dst = true,
                            .reduces = true,
                            .windows = true,
                            .reads_theirs = true},
    [SL_STEP_GET] =
        {.name = "get", .peer_word = "of", .dst = true, .windows = true, .reads_theirs = true},
    [SL_STEP_ENCODE] = {.name = "encode",
                        .work = SL_WORK_ENCODE,
                        .flags = SL_STEP_UP_TO,
                        .wire_dst = SL_MUST_WIRE,
                        .src = true,
                        .dst = true,
                        .needs_runner = true},
    [SL_STEP_DECODE] = {.name = "decode",
                        .work = SL_WORK_DECODE,
                        .wire_src = SL_MUST_WIRE,
                        .src = true,
                        .dst = true,
                        .needs_runner = true},
    [SL_STEP_DECODE_REDUCE] = {.name = "decode_reduce",
                               .work = SL_WORK_DECODE_REDUCE,
                               .flags = REDUCES,
                               .wire_src = SL_MUST_WIRE,
                               .src = true,
                               .dst = true,
                               .reduces = true,
                               .needs_runner = true},
    [SL_STEP_ENCODE_TERM] = {.name = "encode_term",
                             .work = SL_WORK_ENCODE_TERM,
                             .src = true,
                             .dst = true,
                             .needs_runner = true},
    [SL_STEP_DECODE_SUM] = {.name = "decode_sum",
                            .work = SL_WORK_DECODE_SUM,
                            .flags = SL_STEP_FINAL,
                            .src = true,
                            .dst = true,
                            .needs_runner = true},
};

static const char *const buf_names[SL_BUF_COUNT] = {
    [SL_BUF_NONE] = "-",  [SL_BUF_IN] = "in",   [SL_BUF_OUT] = "out",
    [SL_BUF_TMP] = "tmp", [SL_BUF_WIN] = "win", [SL_BUF_WIRE] = "wire",
};

const char *sl_step_kind_name(unsigned kind)
{
    return kind < SL_STEP_KIND_COUNT ? sl_step_rows[kind].name : "?";
}

const char *sl_buf_name(unsigned buf)
{
    return buf < SL_BUF_COUNT ? buf_names[buf] : NULL;
}
