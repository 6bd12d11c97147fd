/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kubernetes, by its API: classes of verdicts are conditions of the node, and a node that is out
 * has a taint with a mark of ours (NoSchedule: what runs goes on). A taint whose value somebody
 * changed, and a node that somebody cordoned, are his.
 *
 * Everything is asked for anew in each child: the token too, as it is replaced every hour.
 */
#include "monitor/event_line.h"
#include "monitor/isolate_kube_json.h"
#include "monitor/kube.h"
#include "monitor/child.h"

#include "core/dl.h"
#include "core/err.h"

#include <ctype.h>
#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BODY_MAX (16 << 20)
#define TOKEN_MAX 16384
#define URL_MAX (SL_MON_PATH + SL_KUBE_NEXT + 512)
#define PAGES_MAX 1000
/* A write that was answered within QUICK_NS is seen by all that look SETTLE_NS after theirs, if
 * their clocks differ by less than the rest. */
#define SETTLE_NS 1000000000
#define QUICK_NS 500000000
#define CONNECT_MS 5000
#define CONFLICTS 5

/* Found in the child, where the library is installed: the agent itself does not carry it. */
struct curl_table {
    CURL *(*easy_init)(void);
    CURLcode (*easy_setopt)(CURL *, CURLoption, ...);
    CURLcode (*easy_perform)(CURL *);
    CURLcode (*easy_getinfo)(CURL *, CURLINFO, ...);
    void (*easy_cleanup)(CURL *);
    void (*easy_reset)(CURL *);
    char *(*easy_escape)(CURL *, const char *, int);
    void (*curl_free)(void *);
    struct curl_slist *(*slist_append)(struct curl_slist *, const char *);
    void (*slist_free_all)(struct curl_slist *);
};

static const struct sl_dl_symbol symbols[] = {
#define SYMBOL(name)                                                                               \
    {                                                                                              \
        "curl_" #name, offsetof(struct curl_table, name), false                                    \
    }
    SYMBOL(easy_init),    SYMBOL(easy_setopt),
    SYMBOL(easy_perform), SYMBOL(easy_getinfo),
    SYMBOL(easy_cleanup), SYMBOL(easy_reset),
    SYMBOL(easy_escape),  {"curl_free", offsetof(struct curl_table, curl_free), false},
    SYMBOL(slist_append), SYMBOL(slist_free_all),
#undef SYMBOL
};

struct kube {
    const struct sl_isolate_order *order;
    struct curl_table curl;
    CURL *handle;
    char api[SL_MON_PATH + 32], header[TOKEN_MAX + 32]; /* "Authorization: Bearer ..."; "" */
    char *body;
    size_t len;
    uint64_t retry_ns; /* the API asks for */
    bool is_quick;     /* the taint of this attempt: its time tells who was first */
    struct sl_kube_node node;
};

/* ---- where it is ---- */

/* A token must not go over a network in clear. */
static bool is_safe(const char *api)
{
    static const char *const begins[] = {"https://",
                                         "http://127.0.0.1:", "http://[::1]:", "http://localhost:"};

    for (unsigned i = 0; i < SL_ARRAY_LEN(begins); i++)
        if (strncmp(api, begins[i], strlen(begins[i])) == 0)
            return true;
    return false;
}

static int check(const struct sl_mon_config *config)
{
    const char *api = config->isolate_api;

    if (api[0] != '\0' && !is_safe(api))
        return sl_fail(-EINVAL, "[isolate] api is to begin with https://, and is '%s'", api);
    if (api[0] == '\0' && getenv("KUBERNETES_SERVICE_HOST") == NULL)
        return sl_fail(-EINVAL, "[isolate] plug = kubernetes needs an api, as this is no pod: "
                                "KUBERNETES_SERVICE_HOST is not set");
    return 0;
}

static void find_api(struct kube *kube)
{
    const char *host = getenv("KUBERNETES_SERVICE_HOST");
    const char *port = getenv("KUBERNETES_SERVICE_PORT");
    size_t len;

    if (kube->order->config->isolate_api[0] != '\0')
        snprintf(kube->api, sizeof(kube->api), "%s", kube->order->config->isolate_api);
    else
        snprintf(kube->api, sizeof(kube->api),
                 host != NULL && strchr(host, ':') != NULL ? "https://[%s]:%s" : "https://%s:%s",
                 host != NULL ? host : "", port != NULL ? port : "443");
    len = strlen(kube->api);
    while (len > 0 && kube->api[len - 1] == '/')
        kube->api[--len] = '\0';
}

static int read_token(struct kube *kube)
{
    static const char begin[] = "Authorization: Bearer ";
    const char *path = kube->order->config->isolate_token;
    char *token = kube->header + sizeof(begin) - 1;
    FILE *file;
    size_t len;

    kube->header[0] = '\0';
    if (path[0] == '\0')
        return 0;
    file = fopen(path, "re");
    if (file == NULL)
        return sl_fail(-errno, "the token %s cannot be read: %s", path, sluice_strerror(-errno));
    memcpy(kube->header, begin, sizeof(begin));
    len = fread(token, 1, TOKEN_MAX - 1, file);
    fclose(file);
    while (len > 0 && isspace((unsigned char)token[len - 1]))
        len--;
    token[len] = '\0';
    for (size_t i = 0; i < len; i++)
        if (!isgraph((unsigned char)token[i]))
            return sl_fail(-EINVAL, "the token %s is not one: it has a blank in it", path);
    return len > 0 ? 0 : sl_fail(-EINVAL, "the token %s is empty", path);
}

/* As the API has names; what is none must not become part of an address. */
static int check_node(const char *name)
{
    size_t len = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-.");

    return len > 0 && name[len] == '\0' && name[0] != '.'
               ? 0
               : sl_fail(-EINVAL, "'%s' is no name of a node: see [isolate] node", name);
}

static int open_kube(const struct sl_isolate_order *order, struct kube *kube)
{
    static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4", NULL};
    int err = check_node(order->node);

    memset(kube, 0, sizeof(*kube));
    kube->order = order;
    if (err == 0)
        err = sl_dl_open(names, symbols, SL_ARRAY_LEN(symbols), &kube->curl);
    if (err != 0)
        return err;
    find_api(kube);
    err = read_token(kube);
    if (err != 0)
        return err;
    kube->handle = kube->curl.easy_init();
    return kube->handle != NULL ? 0 : sl_fail(-ENOMEM, "libcurl cannot be begun");
}

/* ---- one request ---- */

static size_t on_body(char *data, size_t size, size_t count, void *arg)
{
    struct kube *kube = arg;
    size_t len = size * count;
    char *more;

    if (kube->len + len > BODY_MAX)
        return 0;
    more = realloc(kube->body, kube->len + len + 1);
    if (more == NULL)
        return 0;
    kube->body = more;
    memcpy(more + kube->len, data, len);
    kube->len += len;
    more[kube->len] = '\0';
    return len;
}

static size_t on_header(char *data, size_t size, size_t count, void *arg)
{
    static const char name[] = "retry-after:";
    struct kube *kube = arg;
    size_t len = size * count;
    char text[32];

    if (len < sizeof(name) || strncasecmp(data, name, sizeof(name) - 1) != 0)
        return len;
    snprintf(text, sizeof(text), "%.*s", (int)(len - sizeof(name) + 1), data + sizeof(name) - 1);
    long seconds = strtol(text, NULL, 10); /* a date, which it may be elsewhere, is 0 */

    if (seconds > 0 && seconds < 86400)
        kube->retry_ns = (uint64_t)seconds * SL_MON_S;
    return len;
}

static int judge(struct kube *kube, const char *what, long code)
{
    char message[SL_MON_TEXT];

    if (code >= 200 && code < 300)
        return 0;
    sl_kube_message(kube->body, kube->len, message, sizeof(message));
    switch (code) {
    case 409:
        return sl_fail(-EAGAIN, "Kubernetes: %s: 409, somebody else was quicker: %s", what,
                       message);
    case 429: return sl_fail(-EBUSY, "Kubernetes: %s: 429, too many requests: %s", what, message);
    case 401:
    case 403:
        return sl_fail(-EACCES,
                       "Kubernetes: %s: %ld: %s (it needs get, list, patch of nodes and patch of "
                       "nodes/status)",
                       what, code, message);
    case 404: return sl_fail(-ENOENT, "Kubernetes: %s: 404: %s", what, message);
    default: return sl_fail(-EIO, "Kubernetes: %s: %ld: %s", what, code, message);
    }
}

static int transfer(struct kube *kube, const char *what)
{
    CURLcode code = kube->curl.easy_perform(kube->handle);
    long status = 0;

    if (code == CURLE_OPERATION_TIMEDOUT)
        return sl_fail(-ETIMEDOUT, "Kubernetes: %s: %s did not answer in time", what, kube->api);
    if (code != CURLE_OK)
        return sl_fail(-EIO, "Kubernetes: %s: %s cannot be talked to (libcurl's error %d%s)", what,
                       kube->api, (int)code,
                       code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE
                           ? ": its certificate is not signed by [isolate] ca"
                       : code == CURLE_COULDNT_CONNECT ? ": nobody listens there"
                                                       : "");
    kube->curl.easy_getinfo(kube->handle, CURLINFO_RESPONSE_CODE, &status);
    return judge(kube, what, status);
}

static void set_options(struct kube *kube, const char *url, uint64_t left_ns)
{
    CURLcode (*set)(CURL *, CURLoption, ...) = kube->curl.easy_setopt;
    CURL *handle = kube->handle;
    long left_ms = (long)(left_ns / 1000000);

    kube->curl.easy_reset(handle);
    set(handle, CURLOPT_URL, url);
    set(handle, CURLOPT_NOSIGNAL, 1L);
    set(handle, CURLOPT_PROXY, "");
    set(handle, CURLOPT_TIMEOUT_MS, left_ms > 0 ? left_ms : 1L);
    set(handle, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    set(handle, CURLOPT_WRITEFUNCTION, on_body);
    set(handle, CURLOPT_WRITEDATA, kube);
    set(handle, CURLOPT_HEADERFUNCTION, on_header);
    set(handle, CURLOPT_HEADERDATA, kube);
    set(handle, CURLOPT_USERAGENT, "sluiced");
    if (strncmp(url, "https:", 6) == 0 && kube->order->config->isolate_ca[0] != '\0')
        set(handle, CURLOPT_CAINFO, kube->order->config->isolate_ca);
}

/* what: for sentences. type: of a patch; NULL: it is asked. */
static int request(struct kube *kube, const char *what, const char *path, const char *accept,
                   const char *type, const char *patch)
{
    uint64_t now = sl_mon_child_now();
    struct curl_slist *headers = NULL;
    char url[URL_MAX], line[128];
    int err;

    snprintf(url, sizeof(url), "%s%s", kube->api, path);
    kube->len = 0;
    kube->retry_ns = 0;
    set_options(kube, url, now < kube->order->deadline_ns ? kube->order->deadline_ns - now : 0);
    snprintf(line, sizeof(line), "Accept: %s", accept);
    headers = kube->curl.slist_append(headers, line);
    if (kube->header[0] != '\0')
        headers = kube->curl.slist_append(headers, kube->header);
    if (patch != NULL) {
        snprintf(line, sizeof(line), "Content-Type: application/%s", type);
        headers = kube->curl.slist_append(headers, line);
        kube->curl.easy_setopt(kube->handle, CURLOPT_CUSTOMREQUEST, "PATCH");
        kube->curl.easy_setopt(kube->handle, CURLOPT_POSTFIELDS, patch);
    }
    kube->curl.easy_setopt(kube->handle, CURLOPT_HTTPHEADER, headers);
    err = transfer(kube, what);
    kube->curl.slist_free_all(headers);
    return err;
}

/* ---- what is asked ---- */

static int get_node(struct kube *kube)
{
    char path[128];
    int err;

    snprintf(path, sizeof(path), "/api/v1/nodes/%s", kube->order->node);
    err = request(kube, "reading this node", path, "application/json", NULL, NULL);
    if (err != 0)
        return err;
    sl_kube_node_fini(&kube->node);
    return sl_kube_node_read(kube->body, kube->len, &kube->node);
}

/* Names and annotations alone: a node's whole object has tens of kilobytes. */
static int list(struct kube *kube, const char *what, const char *query, bool all_pages,
                const char *self, const char *since, struct sl_kube_list *out)
{
    static const char accept[] = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    char path[SL_KUBE_NEXT + 256];
    char *next;
    int err;

    *out = (struct sl_kube_list){.count = 0};
    for (unsigned page = 0; page < PAGES_MAX; page++) {
        next = kube->curl.easy_escape(kube->handle, out->next, 0);
        snprintf(path, sizeof(path), "/api/v1/nodes?%s%s%s", query,
                 out->next[0] != '\0' && next != NULL ? "&continue=" : "",
                 out->next[0] != '\0' && next != NULL ? next : "");
        kube->curl.curl_free(next);
        err = request(kube, what, path, accept, NULL, NULL);
        if (err == 0)
            err = sl_kube_list_read(kube->body, kube->len, self, since, out);
        if (err != 0 || out->next[0] == '\0' || !all_pages)
            return err;
    }
    return sl_fail(-EBADMSG, "Kubernetes: %s: the list does not end", what);
}

/* A server need not say how many are left: then they are counted. */
static int count_all(struct kube *kube, struct sl_kube_list *out)
{
    int err = list(kube, "counting nodes", "limit=1", false, "", "", out);

    if (err != 0 || out->next[0] == '\0' || out->remaining > 0)
        return err;
    return list(kube, "counting nodes", "limit=500", true, "", "", out);
}

static int count(struct kube *kube, struct sl_isolate_view *view)
{
    const char *self = kube->order->node;
    /* Who went first cannot be told by a time from before a slow write: then all others count. */
    const char *since =
        view->node == SL_ISOLATE_OUT_BY_US && kube->is_quick ? kube->node.since : "";
    struct sl_kube_list all, ours, others;
    int err = count_all(kube, &all);

    if (err == 0)
        err = list(kube, "counting nodes that are out by agents",
                   "limit=500&labelSelector=sluice%2Fisolated", true, self, since, &ours);
    if (err == 0)
        err = list(kube, "counting nodes that are cordoned",
                   "limit=500&fieldSelector=spec.unschedulable%3Dtrue"
                   "&labelSelector=%21sluice%2Fisolated",
                   true, self, "", &others);
    if (err != 0)
        return err;
    view->all = all.count + (unsigned)all.remaining;
    view->before = ours.before + others.count;
    return 0;
}

static int look(void *arg, struct sl_isolate_view *out)
{
    struct kube *kube = arg;
    struct sl_isolate_view view;
    int err = get_node(kube);

    if (err != 0)
        return err;
    view = kube->node.view;
    err = count(kube, &view);
    if (err == 0)
        *out = view;
    return err;
}

static int patch(struct kube *kube, const char *what, const char *under, const char *type,
                 char *text)
{
    char path[128];
    int err;

    if (text == NULL)
        return sl_fail(-ENOMEM, "no memory for a patch");
    snprintf(path, sizeof(path), "/api/v1/nodes/%s%s", kube->order->node, under);
    err = request(kube, what, path, "application/json", type, text);
    free(text);
    return err;
}

static int take_out(void *arg)
{
    struct kube *kube = arg;
    char why[SL_MON_TEXT], since[48];
    uint64_t from = sl_mon_child_now();
    struct timespec at;
    int err;

    clock_gettime(CLOCK_REALTIME, &at);
    sl_mon_time_text((uint64_t)at.tv_sec * SL_MON_S + (uint64_t)at.tv_nsec, since, sizeof(since));
    sl_isolate_reason(&kube->order->action, why, sizeof(why));
    err = patch(kube, "tainting this node", "", "merge-patch+json",
                sl_kube_out_patch(&kube->node, kube->order->mark, since, why));
    kube->is_quick = sl_mon_child_now() - from < QUICK_NS;
    return err;
}

static int bring_back(void *arg)
{
    struct kube *kube = arg;

    return patch(kube, "taking the taint from this node", "", "merge-patch+json",
                 sl_kube_back_patch(&kube->node));
}

static void settle(void *arg)
{
    const struct timespec pause = {.tv_sec = SETTLE_NS / 1000000000,
                                   .tv_nsec = SETTLE_NS % 1000000000};

    (void)arg;
    (void)nanosleep(&pause, NULL);
}

static const struct sl_isolate_ops ops = {
    .look = look, .out = take_out, .back = bring_back, .settle = settle};

static int tell_conditions(struct kube *kube)
{
    char now[48];
    char *text;
    int err = -EAGAIN;

    snprintf(now, sizeof(now), "%s", "");
    sl_mon_time_text(kube->order->wall_ns / SL_MON_S * SL_MON_S, now, sizeof(now));
    strcpy(now + strlen(now) - 5, "Z"); /* the API's times of conditions have no fractions */
    for (unsigned i = 0; i < CONFLICTS && err == -EAGAIN; i++) {
        err = get_node(kube);
        if (err == 0)
            err = sl_kube_tell_patch(&kube->node, kube->order->told, kube->order->told_count, now,
                                     &text);
        if (err == 0 && text != NULL)
            err = patch(kube, "setting conditions of this node", "/status",
                        "strategic-merge-patch+json", text);
    }
    return err;
}

static void find(const struct sl_isolate_order *order, struct sl_isolate_answer *out)
{
    static struct kube kube; /* of the child */
    int err = open_kube(order, &kube);

    if (err == 0)
        err = get_node(&kube);
    out->retry_ns = kube.retry_ns;
    if (err != 0) {
        sl_isolate_failed(err, out);
        return;
    }
    out->result = SL_ISOLATE_IS_DONE;
    out->is_out = kube.node.view.node == SL_ISOLATE_OUT_BY_US;
    snprintf(out->mark, sizeof(out->mark), "%s", kube.node.view.mark);
}

static void act(const struct sl_isolate_order *order, struct sl_isolate_answer *out)
{
    static struct kube kube;
    int err = open_kube(order, &kube);

    if (err != 0)
        sl_isolate_failed(err, out);
    else
        sl_isolate_act(&ops, &kube, order, out);
    out->retry_ns = kube.retry_ns;
}

static void tell(const struct sl_isolate_order *order, struct sl_isolate_answer *out)
{
    static struct kube kube;
    int err = open_kube(order, &kube);

    if (err == 0)
        err = tell_conditions(&kube);
    out->retry_ns = kube.retry_ns;
    if (err != 0)
        sl_isolate_failed(err, out);
    else
        out->result = SL_ISOLATE_IS_DONE;
}

int sl_kube_get(const struct sl_mon_config *config, uint64_t deadline_ns, const char *what,
                const char *path, char **body, size_t *len)
{
    static struct kube kube; /* of the child */
    static struct sl_isolate_order order;
    int err;

    order.config = config;
    order.deadline_ns = deadline_ns;
    snprintf(order.node, sizeof(order.node), "none");
    err = check(config);
    if (err == 0)
        err = open_kube(&order, &kube);
    if (err == 0)
        err = request(&kube, what, path, "application/json", NULL, NULL);
    if (err != 0)
        return err;
    *body = kube.body;
    *len = kube.len;
    return 0;
}

const struct sl_isolate_plug sl_isolate_kube = {
    .name = "kubernetes", .check = check, .act = act, .find = find, .tell = tell};
