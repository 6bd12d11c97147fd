/* SPDX-License-Identifier: Apache-2.0 */
/* Control messages: their sizes, and reading what a peer sent. */
#include "multipath/control.h"

#include "core/err.h"

#include <stdio.h>
#include <string.h>

#define HEAD offsetof(struct sl_mp_control, caller)

_Static_assert(sizeof(struct sl_mp_control) <= SL_CTRL_ROOM, "tcp takes it");

void sl_mp_control_why(struct sl_mp_control *control, const char *why)
{
    static const char more[] = " ... (the rest: at its sender)";
    size_t cap = sizeof(control->down.why), len = strlen(why);

    if (len < cap)
        memcpy(control->down.why, why, len + 1);
    else
        snprintf(control->down.why, cap, "%.*s%s", (int)(cap - sizeof(more)), why, more);
}

size_t sl_mp_control_size(const struct sl_mp_control *control)
{
    switch (control->kind) {
    case SL_MP_CONTROL_CALLER: return control->epoch <= SL_CTRL_MAX ? HEAD + control->epoch : 0;
    case SL_MP_CONTROL_SIDEBAND_DONE:
    case SL_MP_CONTROL_LEAVE:
    case SL_MP_CONTROL_ACK: return HEAD;
    case SL_MP_CONTROL_HELLO: return HEAD + sizeof(struct sl_mp_hello);
    case SL_MP_CONTROL_OFFER:
    case SL_MP_CONTROL_ACCEPT: return HEAD + sizeof(struct sl_mp_offer);
    case SL_MP_CONTROL_PATHS: return HEAD + sizeof(struct sl_mp_paths);
    case SL_MP_CONTROL_REFUSE:
    case SL_MP_CONTROL_BYE:
    case SL_MP_CONTROL_DOWN: return HEAD + sizeof(((struct sl_mp_control *)0)->down);
    case SL_MP_CONTROL_CLOSE:
    case SL_MP_CONTROL_CLOSED: return HEAD + sizeof(((struct sl_mp_control *)0)->close);
    case SL_MP_CONTROL_SIDEBAND_OVER: return HEAD + sizeof(((struct sl_mp_control *)0)->sideband);
    default: return 0;
    }
}

static int check_paths(const struct sl_mp_paths *paths)
{
    if (paths->count > SL_MP_PATHS_MAX)
        return sl_fail(-EBADMSG, "the peer asks for %u paths", paths->count);
    for (unsigned i = 0; i < paths->count; i++)
        if (paths->pairs[i].local >= SL_MP_RAILS_MAX || paths->pairs[i].remote >= SL_MP_RAILS_MAX)
            return sl_fail(-EBADMSG, "the peer asks for a path from rail %u to rail %u",
                           paths->pairs[i].local, paths->pairs[i].remote);
    return 0;
}

/* Before all else, even the length: the place of the version is the same in all versions. */
static int check_version(const struct sl_mp_control *control, size_t len)
{
    if (control->kind != SL_MP_CONTROL_HELLO || len < HEAD + sizeof(control->hello.version) ||
        control->hello.version == SL_MP_VERSION)
        return 0;
    return sl_fail(-EPROTO,
                   "the peer speaks version %u of the multi-path protocol, this side %u: "
                   "install the same Sluice everywhere",
                   control->hello.version, SL_MP_VERSION);
}

int sl_mp_control_read(const void *bytes, size_t len, struct sl_mp_control *out)
{
    memset(out, 0, sizeof(*out));
    if (len < HEAD || len > sizeof(*out))
        return sl_fail(-EBADMSG, "a control message of %zu bytes is none", len);
    memcpy(out, bytes, len);
    int err = check_version(out, len);

    if (err != 0)
        return err;
    if (len != sl_mp_control_size(out))
        return sl_fail(-EBADMSG, "a control message of kind %u has %zu bytes, not %zu", out->kind,
                       len, sl_mp_control_size(out));
    if (out->kind == SL_MP_CONTROL_CALLER || out->kind == SL_MP_CONTROL_ACK ||
        out->kind == SL_MP_CONTROL_SIDEBAND_DONE || out->kind == SL_MP_CONTROL_CLOSE ||
        out->kind == SL_MP_CONTROL_CLOSED || out->kind == SL_MP_CONTROL_SIDEBAND_OVER ||
        out->kind == SL_MP_CONTROL_LEAVE)
        return 0;
    if (out->kind == SL_MP_CONTROL_HELLO)
        return out->hello.rail_count <= SL_MP_RAILS_MAX &&
                       out->hello.first < out->hello.rail_count &&
                       out->hello.first % SL_MP_HELLO_RAILS == 0
                   ? 0
                   : sl_fail(-EBADMSG, "the peer says it has %u rails, from rail %u on",
                             out->hello.rail_count, out->hello.first);
    if (out->kind == SL_MP_CONTROL_PATHS)
        return check_paths(&out->paths);
    if (out->kind == SL_MP_CONTROL_OFFER || out->kind == SL_MP_CONTROL_ACCEPT)
        return out->offer.local_rail < SL_MP_RAILS_MAX && out->offer.remote_rail < SL_MP_RAILS_MAX
                   ? 0
                   : sl_fail(-EBADMSG, "an offer names rail %u, rail %u", out->offer.local_rail,
                             out->offer.remote_rail);
    out->down.why[sizeof(out->down.why) - 1] = '\0';
    return 0;
}
