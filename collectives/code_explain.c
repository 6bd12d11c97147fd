/* SPDX-License-Identifier: Apache-2.0 */
/* Says why a call is compressed, or is not. */
#include "collectives/code.h"

#include "collectives/select.h"
#include "schedules/code_cost.h"

/* Rates, in ns a byte of elements of the call; ranks that share a core share them, too. */
static void explain_codec(const struct sluice_comm *comm, const struct sl_call *call,
                          const struct sl_code *code, FILE *out)
{
    const char *name =
        comm->codec_name != NULL ? comm->codec_name(sl_code_mark_name(code->mark)) : NULL;
    double esize = (double)sluice_dtype_size(call->dtype);

    fprintf(out,
            "  codec %s: encode %.3f ns/B, decode %.3f ns/B, decode and add %.3f ns/B, %.4f of the "
            "bytes\n",
            name != NULL ? name : "?", sl_code_work_ns(&comm->costs, 1, code->work.encode) / esize,
            sl_code_work_ns(&comm->costs, 1, code->work.decode) / esize,
            sl_code_work_ns(&comm->costs, 1, code->work.add) / esize,
            sl_code_bytes_of(code, 64 * (uint64_t)code->tile) / (64.0 * code->tile * esize));
}

static void explain_algos(const struct sluice_comm *comm, const struct sl_call *call,
                          const struct sl_coding_choice *choice, FILE *out)
{
    const char *not_asked = comm->coding->recipe != NULL ? ", not with this recipe="
                                                         : ", only where recipe= asks for it";
    struct sl_shape shape;

    sl_call_shape(comm, call, &shape);
    shape.code = choice->code;
    shape.inner = choice->inner;
    for (const struct sl_algo *const *a = sl_coded_algos; *a != NULL; a++) {
        double ns = sl_coding_suits(comm, *a, call->coll) ? sl_select_coded(comm, *a, &shape) : -1;

        if (((*a)->colls & 1u << call->coll) == 0)
            continue;
        if (ns >= 0)
            fprintf(out, "  %-14s %12.2f us, encoded%s\n", (*a)->name, ns / 1000,
                    sl_coding_may(comm->coding, comm, *a, &shape) ? "" : not_asked);
        if (ns >= 0 && (*a)->needs_terms)
            sl_select_explain_terms(comm, &shape, out);
        if (ns < 0)
            fprintf(out, "  %-14s %15s\n", (*a)->name, "does not suit");
    }
}

static void explain_choice(const struct sluice_comm *comm, const struct sl_coding_choice *choice,
                           FILE *out)
{
    double gain = choice->ns > 0 ? choice->raw_ns / choice->ns : 0;
    bool always = comm->coding->always;

    if (choice->raw == NULL)
        fprintf(out, "  %s, as nothing else is possible\n", choice->algo->name);
    else if (always)
        fprintf(out, "  %s, as when=always asks for; predicted %.2f times as fast as %s\n",
                choice->algo->name, gain, choice->raw->name);
    else if (comm->host_count == 1)
        fprintf(out, "  sent as it is: all ranks are on one host, where encoding is more work than "
                     "moving bytes\n");
    else
        fprintf(out, "  %s: %s is predicted %.2f times as fast as %s, and %.1f is asked for\n",
                choice->taken ? "compressed" : "sent as it is", choice->algo->name, gain,
                choice->raw->name, SL_CODE_GAIN);
}

void sl_coding_explain(const struct sluice_comm *comm, const struct sl_call *call,
                       const struct sl_coding_choice *choice, FILE *out)
{
    struct sl_coding *coding = comm->coding;

    if (choice->algo != NULL) {
        explain_codec(comm, call, choice->code, out);
        explain_algos(comm, call, choice, out);
        explain_choice(comm, choice, out);
    } else {
        fprintf(out,
                "  not compressed: the codec is not for this call, or it has less than the "
                "%llu bytes of min=\n",
                (unsigned long long)coding->min_bytes);
    }
    uint64_t from = sl_coding_pays_from(coding, comm, call);

    if (from != 0)
        fprintf(out, "  calls like this one are compressed from %llu KiB on\n",
                (unsigned long long)(from >> 10));
    else
        fprintf(out, "  calls like this one are compressed at no size\n");
}
