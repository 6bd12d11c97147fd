/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the command line: getopt_long does the splitting, a row per option says the rest. */
#include "options.h"

#include "colls.h"
#include "core/config.h"
#include "core/err.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

/* Options without a letter. */
enum {
    OPT_STEP = 256,
    OPT_BUDGET,
    OPT_NONBLOCKING,
    OPT_PERSISTENT,
    OPT_STATS,
    OPT_ALLOC,
    OPT_CSV,
    OPT_PLOT,
    OPT_LIST,
    OPT_EXPLAIN,
    OPT_SCHEDULE,
    OPT_STATUS,
    OPT_ALGO,
    OPT_KERNEL,
    OPT_BLOCKING,
    OPT_COMPUTE,
    OPT_TOUCH,
    OPT_HOSTS,
    OPT_COMPRESS,
};

static const struct option long_options[] = {
    {"ranks", required_argument, NULL, 'n'},
    {"hosts", required_argument, NULL, OPT_HOSTS},
    {"coll", required_argument, NULL, 'C'},
    {"minbytes", required_argument, NULL, 'b'},
    {"maxbytes", required_argument, NULL, 'e'},
    {"stepfactor", required_argument, NULL, 'f'},
    {"stepbytes", required_argument, NULL, OPT_STEP},
    {"iters", required_argument, NULL, 'i'},
    {"budget", required_argument, NULL, OPT_BUDGET},
    {"compute", required_argument, NULL, OPT_COMPUTE},
    {"touch", required_argument, NULL, OPT_TOUCH},
    {"warmup_iters", required_argument, NULL, 'w'},
    {"warmup", required_argument, NULL, 'w'},
    {"check", required_argument, NULL, 'c'},
    {"transport", required_argument, NULL, 't'},
    {"op", required_argument, NULL, 'o'},
    {"datatype", required_argument, NULL, 'd'},
    {"root", required_argument, NULL, 'r'},
    {"average", required_argument, NULL, 'a'},
    {"blocking", optional_argument, NULL, OPT_BLOCKING},
    {"nonblocking", no_argument, NULL, OPT_NONBLOCKING},
    {"persistent", no_argument, NULL, OPT_PERSISTENT},
    {"agg_iters", required_argument, NULL, 'm'},
    {"register", required_argument, NULL, 'R'},
    {"unaligned", required_argument, NULL, 'u'},
    {"run_cycles", required_argument, NULL, 'N'},
    {"timeout", required_argument, NULL, 'T'},
    {"report_timestamps", required_argument, NULL, 'S'},
    {"memory_report", required_argument, NULL, 'M'},
    {"stats", no_argument, NULL, 'v'},
    {"alloc", required_argument, NULL, OPT_ALLOC},
    {"json", required_argument, NULL, 'J'},
    {"output_file", required_argument, NULL, 'J'},
    {"csv", required_argument, NULL, OPT_CSV},
    {"plot", required_argument, NULL, OPT_PLOT},
    {"list", no_argument, NULL, OPT_LIST},
    {"explain", no_argument, NULL, OPT_EXPLAIN},
    {"print-schedule", no_argument, NULL, OPT_SCHEDULE},
    {"status", required_argument, NULL, OPT_STATUS},
    {"algo", required_argument, NULL, OPT_ALGO},
    {"kernel", required_argument, NULL, OPT_KERNEL},
    {"compress", required_argument, NULL, OPT_COMPRESS},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, 'V'},
    {NULL, 0, NULL, 0},
};

/* '+' as nothing but options is expected; ':' as we word the complaints ourselves. */
static const char short_options[] = "+:n:C:b:e:f:i:w:c:t:o:d:r:a:z:m:R:u:N:T:S:M:J:vhV";

void sb_options_init(struct sb_options *options)
{
    *options = (struct sb_options){
        .mode = SB_RUN,
        .colls = 1u << SB_ALLREDUCE,
        .dtypes = 1u << SLUICE_F32,
        .ops = 1u << SLUICE_SUM,
        .min_bytes = 8,
        .max_bytes = UINT64_C(128) << 20,
        .factor = 2,
        .budget_s = 0.2,
        .touch_bytes = 1 << 20,
        .warmup = 3,
        .check = 1,
        .agg = 1,
        .cycles = 1,
        .average = SB_MEAN,
        .blocking = true,
    };
}

static bool is_word(const char *word, const char *text, size_t len)
{
    return strlen(word) == len && strncasecmp(word, text, len) == 0;
}

int sb_dtype_find(const char *name, size_t len)
{
    static const struct {
        const char *name;
        enum sluice_dtype dtype;
    } words[] = {
        {"int8", SLUICE_I8},     {"char", SLUICE_I8},       {"uint8", SLUICE_U8},
        {"int32", SLUICE_I32},   {"int", SLUICE_I32},       {"uint32", SLUICE_U32},
        {"int64", SLUICE_I64},   {"uint64", SLUICE_U64},    {"half", SLUICE_F16},
        {"float16", SLUICE_F16}, {"fp16", SLUICE_F16},      {"float", SLUICE_F32},
        {"float32", SLUICE_F32}, {"fp32", SLUICE_F32},      {"double", SLUICE_F64},
        {"float64", SLUICE_F64}, {"bfloat16", SLUICE_BF16}, {"i8", SLUICE_I8},
        {"u8", SLUICE_U8},       {"i32", SLUICE_I32},       {"u32", SLUICE_U32},
        {"i64", SLUICE_I64},     {"u64", SLUICE_U64},       {"f16", SLUICE_F16},
        {"f32", SLUICE_F32},     {"f64", SLUICE_F64},       {"bf16", SLUICE_BF16},
    };

    for (size_t i = 0; i < SL_ARRAY_LEN(words); i++)
        if (is_word(words[i].name, name, len))
            return (int)words[i].dtype;
    return -1;
}

int sb_op_find(const char *name, size_t len)
{
    static const char *const words[SLUICE_OP_COUNT] = {[SLUICE_SUM] = "sum",
                                                       [SLUICE_PROD] = "prod",
                                                       [SLUICE_MAX] = "max",
                                                       [SLUICE_MIN] = "min",
                                                       [SLUICE_AVG] = "avg"};

    for (int i = 0; i < SLUICE_OP_COUNT; i++)
        if (is_word(words[i], name, len))
            return i;
    return -1;
}

/* A list of names, or "all", as a set of bits. */
static int parse_set(const char *option, const char *text, int (*find)(const char *, size_t),
                     int count, const char *choices, uint32_t *out)
{
    uint32_t set = 0;

    if (strcasecmp(text, "all") == 0) {
        *out = (1u << count) - 1;
        return 0;
    }
    while (*text != '\0') {
        size_t len = strcspn(text, ",");
        int found = find(text, len);

        if (found < 0)
            return sl_fail(-EINVAL, "%s: '%.*s' is not one of %s, all", option, (int)len, text,
                           choices);
        set |= 1u << found;
        text += len;
        text += *text == ',';
    }
    if (set == 0)
        return sl_fail(-EINVAL, "%s is empty: give one or more of %s, or all", option, choices);
    *out = set;
    return 0;
}

static int parse_int(const char *option, const char *text, long low, long high, int *out)
{
    char *end;
    long value;

    errno = 0;
    value = strtol(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || value < low || value > high)
        return sl_fail(-EINVAL, "%s is '%s', but must be a whole number from %ld to %ld", option,
                       text, low, high);
    *out = (int)value;
    return 0;
}

static int parse_flag(const char *option, const char *text, bool *out)
{
    int value = 0, err = parse_int(option, text, 0, 1, &value);

    if (err == 0)
        *out = value != 0;
    return err;
}

static int parse_seconds(const char *option, const char *text, double low, double *out)
{
    char *end;
    double value = strtod(text, &end);

    if (end == text || *end != '\0' || !(value >= low && value <= 86400))
        return sl_fail(-EINVAL, "%s is '%s', but must be seconds from %g to 86400", option, text,
                       low);
    *out = value;
    return 0;
}

static int parse_size(const char *option, const char *text, uint64_t *out)
{
    int64_t bytes;

    if (sl_parse_bytes(text, &bytes) != 0)
        return sl_fail(-EINVAL, "%s is '%s', but must be a size such as 8, 64k, 1M or 2G", option,
                       text);
    *out = (uint64_t)bytes;
    return 0;
}

static int parse_factor(const char *text, double *out)
{
    char *end;
    double value = strtod(text, &end);

    if (end == text || *end != '\0' || !(value > 1 && value <= 1e6))
        return sl_fail(-EINVAL, "-f is '%s', but must be a number above 1", text);
    *out = value;
    return 0;
}

static int parse_root(const char *text, int *out)
{
    if (strcasecmp(text, "all") == 0) {
        *out = -1;
        return 0;
    }
    return parse_int("-r", text, -1, 1 << 20, out);
}

static int parse_alloc(const char *text, bool *out)
{
    if (strcmp(text, "malloc") != 0 && strcmp(text, "sluice") != 0)
        return sl_fail(-EINVAL, "--alloc is '%s', but must be malloc or sluice", text);
    *out = strcmp(text, "sluice") == 0;
    return 0;
}

/* "bq8,bq4:seed=7,min=0,sign" is three: what has a value and no colon before it goes on with the
 * parameters of the codec before it. */
static int parse_codecs(const char *text, struct sb_options *o)
{
    o->codec_count = 0;
    while (*text != '\0') {
        size_t len = strcspn(text, ","), name = strcspn(text, ":=,");
        bool goes_on = text[name] == '=' && o->codec_count > 0;
        char *codec = o->codecs[o->codec_count - goes_on];

        if (o->codec_count - goes_on == SB_CODECS_MAX)
            return sl_fail(-EINVAL, "--compress takes at most %d codecs", SB_CODECS_MAX);
        if (!goes_on)
            codec[0] = '\0';
        if (strlen(codec) + len + 2 > SB_CODEC_TEXT || len == 0)
            return sl_fail(-EINVAL, "--compress is '%s', but must be codecs as in bq8,bq4:seed=7",
                           text);
        if (goes_on)
            strcat(codec, strchr(codec, ':') != NULL ? "," : ":");
        strncat(codec, text, len);
        o->codec_count += !goes_on;
        text += len;
        text += *text == ',';
    }
    return o->codec_count > 0
               ? 0
               : sl_fail(-EINVAL, "--compress is empty: give one or more codecs, or raw");
}

#define COLL_CHOICES                                                                               \
    "allreduce, all_gather, reduce_scatter, broadcast, reduce, gather, scatter, alltoall, "        \
    "alltoallv, barrier, sendrecv"
#define DTYPE_CHOICES "i8, u8, i32, u32, i64, u64, f16, bf16, f32, f64"
#define OP_CHOICES "sum, prod, max, min, avg"

static int complain(int opt, char **argv)
{
    const char *text = argv[optind - 1];

    if (opt == ':')
        return sl_fail(-EINVAL, "%s needs a value; sluice-bench --help explains it", text);
    if (optopt == 'g' || optopt == 'p' || optopt == 'G' || optopt == 'y')
        return sl_fail(-EINVAL,
                       "-%c of nccl-tests is about GPUs and has no meaning here; ranks on this "
                       "machine are started with -n",
                       optopt);
    return sl_fail(-EINVAL, "there is no option %s; see sluice-bench --help", text);
}

/* Numbers of one kind and another. */
static int set_number(struct sb_options *o, int opt, const char *arg)
{
    int average = SB_MEAN, err;

    switch (opt) {
    case 'n': return parse_int("-n", arg, 1, 4096, &o->ranks);
    case OPT_HOSTS: return parse_int("--hosts", arg, 1, 4096, &o->hosts);
    case 'b': return parse_size("-b", arg, &o->min_bytes);
    case 'e': return parse_size("-e", arg, &o->max_bytes);
    case OPT_STEP: return parse_size("--stepbytes", arg, &o->step_bytes);
    case 'f': o->step_bytes = 0; return parse_factor(arg, &o->factor);
    case 'i': return parse_int("-i", arg, 0, 100000000, &o->iters);
    case OPT_BUDGET: return parse_seconds("--budget", arg, 0.001, &o->budget_s);
    case OPT_COMPUTE: return parse_int("--compute", arg, 0, 10000000, &o->compute_us);
    case OPT_TOUCH: return parse_size("--touch", arg, &o->touch_bytes);
    case 'w': return parse_int("-w", arg, 0, 1000000, &o->warmup);
    case 'c': return parse_int("-c", arg, 0, 1000000, &o->check);
    case 'r': return parse_root(arg, &o->root);
    case 'm': return parse_int("-m", arg, 1, 64, &o->agg);
    case 'u': return parse_int("-u", arg, 0, 512, (int *)&o->unaligned);
    case 'N': return parse_int("-N", arg, 1, 1000000, &o->cycles);
    case 'T': return parse_seconds("-T", arg, 0.001, &o->timeout_s);
    case OPT_STATUS:
        o->mode = SB_STATUS;
        return parse_int("--status", arg, 1, INT32_MAX, &o->status_pid);
    default:
        sl_assert(opt == 'a');
        err = parse_int("-a", arg, 0, 3, &average);
        if (err == 0)
            o->average = (enum sb_average)average;
        return err;
    }
}

static int set_option(struct sb_options *o, int opt, const char *arg)
{
    switch (opt) {
    case 'C': return parse_set("-C", arg, sb_coll_find, SB_COLL_COUNT, COLL_CHOICES, &o->colls);
    case 'd':
        return parse_set("-d", arg, sb_dtype_find, SLUICE_DTYPE_COUNT, DTYPE_CHOICES, &o->dtypes);
    case 'o': return parse_set("-o", arg, sb_op_find, SLUICE_OP_COUNT, OP_CHOICES, &o->ops);
    case 'z': return parse_flag("-z", arg, &o->blocking);
    case OPT_BLOCKING: return parse_flag("--blocking", arg != NULL ? arg : "1", &o->blocking);
    case OPT_NONBLOCKING: o->blocking = false; return 0;
    case OPT_PERSISTENT: o->persistent = true; return 0;
    case 'R': return parse_flag("-R", arg, &o->register_buffers);
    case 'S': return parse_flag("-S", arg, &o->timestamps);
    case 'M': return parse_flag("-M", arg, &o->memory);
    case 'v': o->stats = true; return 0;
    case OPT_ALLOC: return parse_alloc(arg, &o->shared_buffers);
    case 't': o->transport = arg; return 0;
    case OPT_ALGO: o->algo = arg; return 0;
    case OPT_KERNEL: o->kernel = arg; return 0;
    case OPT_COMPRESS: return parse_codecs(arg, o);
    case 'J': o->json = arg; return 0;
    case OPT_CSV: o->csv = arg; return 0;
    case OPT_PLOT: o->plot = arg; return 0;
    case OPT_LIST: o->mode = SB_LIST; return 0;
    case OPT_EXPLAIN: o->mode = SB_EXPLAIN; return 0;
    case OPT_SCHEDULE: o->mode = SB_SCHEDULE; return 0;
    case 'h': o->mode = SB_HELP; return 0;
    case 'V': o->mode = SB_VERSION; return 0;
    default: return set_number(o, opt, arg);
    }
}

/* Reports that would mix, or overwrite each other. */
static int check_files(const struct sb_options *o)
{
    const char *const files[] = {o->json, o->csv, o->plot};
    static const char *const options[] = {"--json", "--csv", "--plot"};

    for (size_t a = 0; a < SL_ARRAY_LEN(files); a++)
        for (size_t b = a + 1; b < SL_ARRAY_LEN(files); b++)
            if (files[a] != NULL && files[b] != NULL && strcmp(files[a], files[b]) == 0)
                return sl_fail(-EINVAL, "%s and %s both write to '%s': give each a file of its own",
                               options[a], options[b], files[a]);
    return 0;
}

/* What only fits together, or not, once all is read. */
static int check_options(const struct sb_options *o)
{
    if (o->min_bytes > o->max_bytes)
        return sl_fail(-EINVAL, "-b %llu is above -e %llu; give a larger -e or a smaller -b",
                       (unsigned long long)o->min_bytes, (unsigned long long)o->max_bytes);
    if (o->ranks == 1 && o->colls == 1u << SB_SENDRECV)
        return sl_fail(-EINVAL, "-C sendrecv takes two ranks, and -n 1 starts one");
    if (o->hosts > 0 && o->ranks < o->hosts)
        return sl_fail(-EINVAL, "--hosts %d takes -n with at least as many ranks", o->hosts);
    if (o->ranks > 0 && o->root >= o->ranks)
        return sl_fail(-EINVAL, "-r %d is not a rank: -n %d starts ranks 0 to %d", o->root,
                       o->ranks, o->ranks - 1);
    return check_files(o);
}

int sb_options_parse(struct sb_options *options, int argc, char **argv)
{
    bool max_given = false;
    int opt, err;

    sb_options_init(options);
    optind = 0; /* a fresh start: tests parse many command lines */
    opterr = 0;
    while ((opt = getopt_long(argc, argv, short_options, long_options, NULL)) != -1) {
        if (opt == ':' || opt == '?')
            return complain(opt, argv);
        err = set_option(options, opt, optarg);
        if (err != 0)
            return err;
        max_given |= opt == 'e';
    }
    if (optind < argc)
        return sl_fail(-EINVAL,
                       "'%s' is not an option; a collective is chosen with -C, as in -C %s",
                       argv[optind], argv[optind]);
    /* -b 1G alone means that one size. */
    if (!max_given && options->min_bytes > options->max_bytes)
        options->max_bytes = options->min_bytes;
    return check_options(options);
}

uint64_t sb_options_next_size(const struct sb_options *options, uint64_t bytes)
{
    double next = options->step_bytes > 0 ? (double)bytes + (double)options->step_bytes
                                          : (double)bytes * options->factor;
    uint64_t result;

    if (next > (double)options->max_bytes)
        return 0;
    result = options->step_bytes > 0 ? bytes + options->step_bytes : (uint64_t)next;
    return result > bytes ? result : bytes + 1;
}
