/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/ctl/ask.h"

#include "core/dl.h"
#include "core/err.h"
#include "tools/ctl/command.h"

#include <curl/curl.h>
#include <errno.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TIMEOUT_S 10u /* beside what the agent was asked to wait */

static struct {
    __typeof__(curl_easy_init) *curl_easy_init;
    __typeof__(curl_easy_setopt) *curl_easy_setopt;
    __typeof__(curl_easy_perform) *curl_easy_perform;
    __typeof__(curl_easy_getinfo) *curl_easy_getinfo;
    __typeof__(curl_easy_strerror) *curl_easy_strerror;
    __typeof__(curl_easy_cleanup) *curl_easy_cleanup;
} curl;

int sc_ask_open(void)
{
#define SYMBOL(name)                                                                               \
    {                                                                                              \
#name, offsetof(__typeof__(curl), name), false                                             \
    }
    static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4", NULL};
    static const struct sl_dl_symbol symbols[] = {
        SYMBOL(curl_easy_init),    SYMBOL(curl_easy_setopt),   SYMBOL(curl_easy_perform),
        SYMBOL(curl_easy_getinfo), SYMBOL(curl_easy_strerror), SYMBOL(curl_easy_cleanup)};
#undef SYMBOL

    if (curl.curl_easy_init != NULL)
        return 0;
    if (sl_dl_open(names, symbols, SL_ARRAY_LEN(symbols), &curl) != 0)
        return sl_fail(-ENOTSUP, "the agent is asked by libcurl, which is not there (libcurl4): %s",
                       sluice_last_error());
    return 0;
}

/* ---- one request ---- */

struct body {
    char *text;
    size_t len;
};

static size_t on_data(char *data, size_t one, size_t count, void *arg)
{
    struct body *body = arg;
    char *more;

    if (count > SC_ANSWER_MAX - body->len)
        return 0;
    more = realloc(body->text, body->len + count + 1);
    if (more == NULL)
        return 0;
    body->text = more;
    memcpy(body->text + body->len, data, count);
    body->len += count;
    body->text[body->len] = '\0';
    return one * count;
}

static bool is_http(const char *socket)
{
    return strncmp(socket, "http://", 7) == 0;
}

static int unreachable(const char *socket, CURLcode code)
{
    const char *what = (curl.curl_easy_strerror)(code);

    if (code == CURLE_OPERATION_TIMEDOUT)
        return sl_fail(-ETIMEDOUT, "the agent at %s does not answer", socket);
    if (code == CURLE_COULDNT_CONNECT)
        return sl_fail(-ECONNREFUSED,
                       "no agent answers at %s: is sluiced running, and may you open its socket?",
                       socket);
    return sl_fail(-ECONNRESET, "the agent at %s: %s", socket, what);
}

static int perform(const char *socket, const char *method, const char *target, unsigned wait_s,
                   struct body *body, long *status)
{
    char url[1200];
    CURL *easy = (curl.curl_easy_init)();
    CURLcode code;

    if (easy == NULL)
        return sl_fail(-ENOMEM, "libcurl does not begin");
    snprintf(url, sizeof(url), "%s%s", is_http(socket) ? socket : "http://sluiced", target);
    if (!is_http(socket))
        (void)(curl.curl_easy_setopt)(easy, CURLOPT_UNIX_SOCKET_PATH, socket);
    (void)(curl.curl_easy_setopt)(easy, CURLOPT_URL, url);
    (void)(curl.curl_easy_setopt)(easy, CURLOPT_CUSTOMREQUEST, method);
    (void)(curl.curl_easy_setopt)(easy, CURLOPT_PROXY, "");
    (void)(curl.curl_easy_setopt)(easy, CURLOPT_NOSIGNAL, 1L);
    (void)(curl.curl_easy_setopt)(easy, CURLOPT_CONNECTTIMEOUT, (long)TIMEOUT_S);
    (void)(curl.curl_easy_setopt)(easy, CURLOPT_TIMEOUT, (long)(TIMEOUT_S + wait_s));
    (void)(curl.curl_easy_setopt)(easy, CURLOPT_WRITEFUNCTION, on_data);
    (void)(curl.curl_easy_setopt)(easy, CURLOPT_WRITEDATA, body);
    code = (curl.curl_easy_perform)(easy);
    (void)(curl.curl_easy_getinfo)(easy, CURLINFO_RESPONSE_CODE, status);
    (curl.curl_easy_cleanup)(easy);
    return code == CURLE_OK ? 0 : unreachable(socket, code);
}

int sc_ask(const char *socket, const char *method, const char *target, unsigned wait_s,
           struct json_object **out)
{
    struct body body = {NULL, 0};
    struct json_object *answer;
    long status = 0;
    int err = sc_ask_open();

    err = err ?: perform(socket, method, target, wait_s, &body, &status);
    if (err != 0) {
        free(body.text);
        return err;
    }
    answer = body.text != NULL ? json_tokener_parse(body.text) : NULL;
    free(body.text);
    if (!json_object_is_type(answer, json_type_object) || sc_int(answer, "version") < 1) {
        json_object_put(answer);
        return sl_fail(-EPROTO, "what answers at %s is no agent of Sluice", socket);
    }
    if (sc_text(answer, "error")[0] != '\0')
        err = sl_fail(-EREMOTEIO, "%s", sc_text(answer, "error"));
    if (err != 0)
        json_object_put(answer);
    else
        *out = answer;
    return err;
}

int sc_get(const char *socket, const char *target, struct json_object **out)
{
    int err = sc_ask(socket, "GET", target, 0, out);

    if (err == 0)
        return 0;
    sc_complain();
    return err == -EREMOTEIO || err == -ENOTSUP ? SC_FAILED : SC_UNREACHABLE;
}

void sc_escape(const char *value, char *out, unsigned cap)
{
    unsigned used = 0;

    for (; *value != '\0' && used + 4 <= cap; value++) {
        unsigned char c = (unsigned char)*value;
        bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                        (c >= '0' && c <= '9') || strchr("-_.:", c) != NULL;

        used += (unsigned)snprintf(out + used, cap - used, is_plain ? "%c" : "%%%02X", c);
    }
    out[used] = '\0';
}

/* ---- what is in an answer ---- */

struct json_object *sc_part(struct json_object *object, const char *key)
{
    struct json_object *part;

    return json_object_is_type(object, json_type_object) &&
                   json_object_object_get_ex(object, key, &part)
               ? part
               : NULL;
}

const char *sc_text(struct json_object *object, const char *key)
{
    struct json_object *part = sc_part(object, key);
    const char *text = part != NULL ? json_object_get_string(part) : NULL;

    return text != NULL ? text : "";
}

double sc_real(struct json_object *object, const char *key)
{
    return json_object_get_double(sc_part(object, key));
}

long long sc_int(struct json_object *object, const char *key)
{
    return json_object_get_int64(sc_part(object, key));
}

bool sc_true(struct json_object *object, const char *key)
{
    return json_object_get_boolean(sc_part(object, key));
}

unsigned sc_length(struct json_object *array)
{
    return json_object_is_type(array, json_type_array) ? (unsigned)json_object_array_length(array)
                                                       : 0;
}

struct json_object *sc_at(struct json_object *array, unsigned i)
{
    return i < sc_length(array) ? json_object_array_get_idx(array, i) : NULL;
}

int sc_print_json(struct json_object *answer)
{
    puts(json_object_to_json_string_ext(answer,
                                        JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE));
    json_object_put(answer);
    if (fflush(stdout) == 0)
        return SC_GOOD;
    sl_fail(-EIO, "standard output cannot be written");
    return sc_complain();
}
