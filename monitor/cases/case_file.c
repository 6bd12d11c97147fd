/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bundles:
 *
 *     sluice-case 1
 *     options {"rules":1,"at":null,"stall":30000000000,"false_isolations":"0.0001","scope":""}
 *     input 8123 SHA256 _dump_0
 *     ...8123 bytes...
 *     result 512 SHA256
 *     ...512 bytes...
 *     end SHA256 of all before this line
 *
 * Each line ends with "\n", and so does what follows bytes. One set of inputs has one such text.
 */
#include "core/err.h"
#include "monitor/cases/case.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char magic[] = "sluice-case 1\n";

bool sl_case_is(const char *bytes, size_t len)
{
    static const char begin[] = "sluice-case ";

    return len >= sizeof(begin) - 1 && memcmp(bytes, begin, sizeof(begin) - 1) == 0;
}

/* The scope as a text of JSON; it has no controls. */
static void quote(const char *text, char *out, size_t cap)
{
    size_t at = 0;

    for (; *text != '\0' && at + 3 < cap; text++) {
        if (*text == '"' || *text == '\\')
            out[at++] = '\\';
        out[at++] = *text;
    }
    out[at] = '\0';
}

/* The whole second line. */
static void options_line(unsigned rules, const struct sl_case_options *options, char *out,
                         size_t cap)
{
    char at[32] = "null", scope[2 * SL_CASE_SCOPE_MAX + 4];

    if (options->now_ns != SL_JOB_NEVER)
        snprintf(at, sizeof(at), "%" PRId64, options->now_ns);
    quote(options->scope, scope, sizeof(scope));
    snprintf(out, cap,
             "options {\"rules\":%u,\"at\":%s,\"stall\":%" PRId64
             ",\"false_isolations\":\"%.17g\",\"scope\":\"%s\"}\n",
             rules, at, options->stall_ns, options->false_isolations, scope);
}

/* ---- writing ---- */

struct out {
    FILE *file;
    struct sl_digest digest;
    bool is_bad;
};

static void put(struct out *out, const void *bytes, size_t len)
{
    sl_digest_add(&out->digest, bytes, len);
    out->is_bad = out->is_bad || (len > 0 && fwrite(bytes, 1, len, out->file) != len);
}

__attribute__((format(printf, 2, 3))) static void say(struct out *out, const char *format, ...)
{
    char text[SL_CASE_NAME_MAX + 512];
    va_list args;
    int len;

    va_start(args, format);
    len = vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (len < 0 || (size_t)len >= sizeof(text))
        out->is_bad = true;
    else
        put(out, text, (size_t)len);
}

static void write_all(struct out *out, const struct sl_inputs *inputs,
                      const struct sl_case_options *options, const char *result, size_t len)
{
    char text[512], sum[SL_DIGEST_TEXT];
    struct sl_digest digest;

    sl_digest_begin(&out->digest);
    say(out, "%s", magic);
    options_line(SL_RULES_VERSION, options, text, sizeof(text));
    say(out, "%s", text);
    for (size_t i = 0; i < inputs->count; i++) {
        const struct sl_input *it = &inputs->list[i];

        say(out, "input %zu %s %s\n", it->len, it->sum, it->name);
        put(out, it->bytes, it->len);
        say(out, "\n");
    }
    sl_digest_begin(&digest);
    sl_digest_add(&digest, result, len);
    sl_digest_end(&digest, sum);
    say(out, "result %zu %s\n", len, sum);
    put(out, result, len);
    say(out, "\n");
    sl_digest_end(&out->digest, sum);
    say(out, "end %s\n", sum);
}

int sl_case_print(const struct sl_inputs *inputs, const struct sl_case_options *options,
                  const char *result, size_t result_len, FILE *file)
{
    struct out out = {.file = file};

    errno = 0;
    write_all(&out, inputs, options, result, result_len);
    if (fflush(file) != 0 || out.is_bad)
        return sl_fail(errno != 0 ? -errno : -EIO, "the bundle cannot be written: %s",
                       sluice_strerror(errno != 0 ? -errno : -EIO));
    return 0;
}

int sl_case_write(const struct sl_inputs *inputs, const struct sl_case_options *options,
                  const char *result, size_t result_len, const char *path)
{
    char beside[4096];
    FILE *file;
    int fd, err;

    if (strlen(path) + 24 > sizeof(beside))
        return sl_fail(-ENAMETOOLONG, "the name of the bundle is too long");
    snprintf(beside, sizeof(beside), "%s.%d.part", path, (int)getpid());
    fd = open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    file = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (file == NULL)
        return sl_fail(-errno, "%s cannot be written: %s", path, sluice_strerror(-errno));
    err = sl_case_print(inputs, options, result, result_len, file);
    if (err == 0 && fsync(fd) != 0)
        err = sl_fail(-errno, "%s cannot be written: %s", path, sluice_strerror(-errno));
    if (fclose(file) != 0 && err == 0)
        err = sl_fail(-EIO, "%s cannot be written", path);
    if (err == 0 && rename(beside, path) != 0)
        err = sl_fail(-errno, "%s cannot be given its name: %s", path, sluice_strerror(-errno));
    if (err != 0)
        unlink(beside);
    return err;
}

/* ---- reading ---- */

struct in {
    const char *name, *bytes;
    size_t len, at;
};

static int bad(const struct in *in, const char *what)
{
    return sl_fail(-EBADMSG, "%s, byte %zu: %s", in->name, in->at, what);
}

/* The line here, without its end; NULL: there is none. */
static const char *take_line(struct in *in, size_t *len)
{
    const char *line = in->bytes + in->at, *end = NULL;
    size_t left = in->len - in->at;

    if (left > 0)
        end = memchr(line, '\n', left < 4096 ? left : 4096);
    if (end == NULL)
        return NULL;
    *len = (size_t)(end - line);
    in->at += *len + 1;
    return line;
}

/* "WORD LEN SUM" and, where it is asked for, " NAME"; then the bytes and a line's end. */
static int take_block(struct in *in, const char *word, const char **bytes, size_t *len,
                      char sum[SL_DIGEST_TEXT], char *name)
{
    size_t begin = in->at, text_len, used = 0;
    const char *line = take_line(in, &text_len);
    char text[SL_CASE_NAME_MAX + 128], again[SL_CASE_NAME_MAX + 128], format[48];
    struct sl_digest digest;
    char own[SL_DIGEST_TEXT];

    if (line == NULL || text_len >= sizeof(text) || memchr(line, '\0', text_len) != NULL)
        return bad(in, "a line is missing, or too long");
    memcpy(text, line, text_len);
    text[text_len] = '\0';
    snprintf(format, sizeof(format), "%s %%zu %%64[0-9a-f]%%zn", word);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    if (sscanf(text, format, len, sum, &used) != 2 || used == 0 || strlen(sum) != 64)
        return in->at = begin, bad(in, "that is no line of a bundle");
#pragma GCC diagnostic pop
    if (name != NULL) {
        if (text[used] != ' ' || text_len - used - 1 > SL_CASE_NAME_MAX)
            return in->at = begin, bad(in, "an input has no name");
        strcpy(name, text + used + 1);
    }
    snprintf(again, sizeof(again), "%s %zu %s%s%s", word, *len, sum, name != NULL ? " " : "",
             name != NULL ? name : "");
    if (strcmp(again, text) != 0)
        return in->at = begin, bad(in, "that is no line of a bundle");
    if (*len >= in->len - in->at)
        return bad(in, "it ends before the bytes that this line tells of");
    *bytes = in->bytes + in->at;
    in->at += *len;
    if (in->bytes[in->at] != '\n')
        return bad(in, "after these bytes a line is to end");
    in->at++;
    sl_digest_begin(&digest);
    sl_digest_add(&digest, *bytes, *len);
    sl_digest_end(&digest, own);
    return strcmp(own, sum) == 0 ? 0 : bad(in, "the bytes before are not those of their sum");
}

/* The text between quotes at *at, which goes behind it. */
static bool unquote(const char **at, char *out, size_t cap)
{
    size_t len = 0;
    const char *c = *at;

    for (; *c != '"' && *c != '\0' && len + 1 < cap; c++) {
        if (*c == '\\')
            c++;
        if (*c == '\0' || (unsigned char)*c < ' ' || *c == 0x7f)
            return false;
        out[len++] = *c;
    }
    out[len] = '\0';
    *at = c + 1;
    return *c == '"';
}

/* What is read has to print as the line that it was read from. */
static int take_options(struct in *in, struct sl_case *out)
{
    size_t begin = in->at, len;
    const char *line = take_line(in, &len), *at;
    char text[1024], again[1024];
    struct sl_case_options *options = &out->options;
    int used = 0;

    *options = (struct sl_case_options){.now_ns = SL_JOB_NEVER};
    if (line == NULL || len + 2 > sizeof(text) || memchr(line, '\0', len) != NULL)
        return bad(in, "the line of options is missing, or too long");
    memcpy(text, line, len);
    memcpy(text + len, "\n", 2);
    at = text;
    if (sscanf(at, "options {\"rules\":%9u,\"at\":%n", &out->rules, &used) != 1 || used == 0)
        return in->at = begin, bad(in, "these are no options of a bundle");
    at += used;
    if (strncmp(at, "null", 4) == 0)
        at += 4;
    else if (sscanf(at, "%20" SCNd64 "%n", &options->now_ns, &used) == 1)
        at += used;
    used = 0;
    if (sscanf(at, ",\"stall\":%20" SCNd64 ",\"false_isolations\":\"%30lf\",\"scope\":\"%n",
               &options->stall_ns, &options->false_isolations, &used) != 2 ||
        used == 0)
        return in->at = begin, bad(in, "these are no options of a bundle");
    at += used;
    if (!unquote(&at, options->scope, sizeof(options->scope)) || strcmp(at, "}\n") != 0)
        return in->at = begin, bad(in, "these are no options of a bundle");
    options_line(out->rules, options, again, sizeof(again));
    if (strcmp(again, text) != 0 || options->stall_ns < 0 ||
        !(options->false_isolations > 0 && options->false_isolations < 1e6))
        return in->at = begin, bad(in, "these are no options of a bundle");
    return 0;
}

static bool begins(const struct in *in, const char *word)
{
    size_t len = strlen(word);

    return in->len - in->at >= len && memcmp(in->bytes + in->at, word, len) == 0;
}

static int take_inputs(struct in *in, struct sl_case *out)
{
    while (begins(in, "input ")) {
        char name[SL_CASE_NAME_MAX + 1], sum[SL_DIGEST_TEXT];
        const struct sl_input *last;
        const char *bytes;
        size_t len, begin = in->at;
        int err = take_block(in, "input", &bytes, &len, sum, name);

        if (err != 0)
            return err;
        last = out->inputs->count > 0 ? &out->inputs->list[out->inputs->count - 1] : NULL;
        if (strchr(name, '/') != NULL ||
            (last != NULL && sl_input_order(last->name, last->sum, name, sum) >= 0))
            return in->at = begin, bad(in, "inputs are to have names without folders, in order");
        err = sl_inputs_add(out->inputs, name, bytes, len);
        if (err == -EINVAL)
            return in->at = begin, bad(in, "that is no name of an input");
        if (err != 0)
            return err;
    }
    return 0;
}

static int take_end(struct in *in)
{
    char sum[SL_DIGEST_TEXT], text[80];
    struct sl_digest digest;

    sl_digest_begin(&digest);
    sl_digest_add(&digest, in->bytes, in->at);
    sl_digest_end(&digest, sum);
    snprintf(text, sizeof(text), "end %s\n", sum);
    if (!begins(in, text))
        return bad(in, "the sum of all is wrong, or missing: the bundle is damaged");
    in->at += strlen(text);
    return in->at == in->len ? 0 : bad(in, "something follows the end");
}

int sl_case_parse(const char *name, const char *bytes, size_t len, struct sl_case *out)
{
    struct in in = {.name = name, .bytes = bytes, .len = len};
    char sum[SL_DIGEST_TEXT];
    const char *result;
    size_t result_len;
    int err;

    *out = (struct sl_case){.inputs = NULL};
    if (!sl_case_is(bytes, len))
        return bad(&in, "that is no bundle of a diagnosis");
    if (!begins(&in, magic))
        return bad(&in, "this bundle is of a form that this program does not know");
    in.at = strlen(magic);
    out->inputs = sl_inputs_new();
    err = out->inputs == NULL ? sl_fail(-ENOMEM, "no memory for a bundle") : 0;
    if (err == 0)
        err = take_options(&in, out);
    if (err == 0)
        err = take_inputs(&in, out);
    if (err == 0)
        err = take_block(&in, "result", &result, &result_len, sum, NULL);
    if (err == 0)
        err = take_end(&in);
    if (err == 0) {
        out->result = malloc(result_len + 1);
        err = out->result == NULL ? sl_fail(-ENOMEM, "no memory for a bundle") : 0;
    }
    if (err != 0) {
        sl_case_free(out);
        return err;
    }
    memcpy(out->result, result, result_len);
    out->result[result_len] = '\0';
    out->result_len = result_len;
    return 0;
}

void sl_case_free(struct sl_case *it)
{
    sl_inputs_free(it->inputs);
    free(it->result);
    *it = (struct sl_case){.inputs = NULL};
}
