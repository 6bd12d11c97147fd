/* SPDX-License-Identifier: Apache-2.0 */
/* The cost functions of the engine, with the speeds of codecs that were measured here. */
#include "tools/compress/pays.h"

#include "core/err.h"
#include "lib/compress_setting.h"
#include "schedules/code_cost.h"

#define HOSTS 2
#define LATENCY_NS 30e3 /* of a message by TCP between two hosts of a switch */
#define STEP_NS 10
#define SLOWEST 1e3 /* bytes per second */
#define FASTEST 1e12

static const uint32_t hosts[HOSTS] = {0, 1};

static uint64_t code_bytes(const struct sl_code *code, uint64_t count)
{
    const struct sl_codec_spec *spec = &sl_container_of(code, struct pays_codec, code)->spec;

    return sl_codec_by_id(spec->id)->size(spec, count);
}

/* Work of an element, in units. */
static float work(const struct pays_machine *machine, double bytes_per_second, double esize)
{
    return (float)(esize / bytes_per_second / (sizeof(float) * machine->unit));
}

void pays_init(struct pays_codec *codec, const struct sl_codec_spec *spec,
               const struct pays_machine *machine, const struct speed *speed)
{
    double esize = (double)sluice_dtype_size((enum sluice_dtype)spec->dtype);
    bool fixed = (sl_codec_by_id(spec->id)->flags & SL_CODEC_FIXED) != 0;

    *codec = (struct pays_codec){
        .code = {.bytes = code_bytes,
                 .tile = SL_TILE,
                 .mark = 1,
                 .work = {.encode = work(machine, speed->encode, esize),
                          .decode = work(machine, speed->decode, esize),
                          .add = work(machine, speed->add, esize)},
                 .usual = fixed ? 0 : (float)(speed->wire * esize)},
        .spec = *spec,
    };
}

static double least_cost(const struct sl_algo *const *algos, const struct sl_shape *shape,
                         const struct sl_costs *costs)
{
    double best = -1;

    for (; *algos != NULL; algos++) {
        bool suits = ((*algos)->colls & SL_BIT(SL_ALLREDUCE)) != 0 && !(*algos)->needs_windows &&
                     !(*algos)->needs_unequal && !(*algos)->needs_hosts && (*algos)->cost != NULL;
        double cost = suits ? (*algos)->cost(shape, costs) : -1;

        if (cost >= 0 && (best < 0 || cost < best))
            best = cost;
    }
    return best;
}

double pays_gain(const struct pays_codec *codec, const struct pays_machine *machine, double link,
                 size_t bytes)
{
    const struct sl_link_cost net = {.alpha = LATENCY_NS, .beta = 1e9 / link};
    const struct sl_costs costs = {.shm = net,
                                   .net = net,
                                   .sync = LATENCY_NS,
                                   .copy = machine->copy * 1e9,
                                   .reduce = machine->copy * 1e9,
                                   .cross = machine->copy * 1e9,
                                   .step = STEP_NS,
                                   .code = machine->unit * 1e9,
                                   .ranks_per_core = 1};
    uint32_t esize = (uint32_t)sluice_dtype_size((enum sluice_dtype)codec->spec.dtype);
    struct sl_shape shape = {
        .coll = SL_ALLREDUCE, .size = HOSTS, .count = bytes / esize, .esize = esize, .host = hosts};
    double raw = least_cost(sl_algos, &shape, &costs);

    shape.code = &codec->code;
    return raw / least_cost(sl_coded_algos, &shape, &costs);
}

size_t pays_from(const struct pays_codec *codec, const struct pays_machine *machine, double link,
                 size_t most)
{
    size_t from = 0, bytes = SL_COMPRESSION_MIN_BYTES;

    while (bytes <= most / 2)
        bytes *= 2;
    for (; bytes >= SL_COMPRESSION_MIN_BYTES; bytes /= 2) {
        if (pays_gain(codec, machine, link, bytes) < SL_CODE_GAIN)
            break;
        from = bytes;
    }
    return from;
}

/* What pays on a link pays on slower ones. */
double pays_below(const struct pays_codec *codec, const struct pays_machine *machine, size_t bytes)
{
    double low = SLOWEST, high = FASTEST;

    if (pays_gain(codec, machine, low, bytes) < SL_CODE_GAIN)
        return 0;
    while (high / low > 1.001) {
        double middle = low * (high / low > 4 ? 2 : (1 + (high / low - 1) / 2));

        if (pays_gain(codec, machine, middle, bytes) < SL_CODE_GAIN)
            high = middle;
        else
            low = middle;
    }
    return low;
}
