/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of members, out of text, of Kubernetes' JSON and of DNS. No I/O. */
#include "monitor/cluster/members.h"

#include "core/err.h"

#include <arpa/nameser.h>
#include <errno.h>
#include <json-c/json.h>
#include <resolv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the list ---- */

static int put(struct sl_members_list *list, const char *host, size_t len, uint16_t port)
{
    if (list->count == SL_MEMBERS_MAX)
        return sl_fail(-E2BIG, "there are more than %d members", SL_MEMBERS_MAX);
    if (list->count == list->cap) {
        unsigned cap = list->cap == 0 ? 64 : 2 * list->cap;
        struct sl_member *more = reallocarray(list->list, cap, sizeof(*more));

        if (more == NULL)
            return sl_fail(-ENOMEM, "no memory for members");
        list->list = more;
        list->cap = cap;
    }
    memset(&list->list[list->count], 0, sizeof(*list->list));
    memcpy(list->list[list->count].host, host, len);
    list->list[list->count++].port = port;
    return 1;
}

/* What an address or a name is made of; no user, no path. */
static bool is_host(const char *host, size_t len)
{
    if (len == 0 || len >= SL_MEMBER_HOST || host[0] == '-')
        return false;
    for (size_t i = 0; i < len; i++)
        if (strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:%",
                   host[i]) == NULL ||
            host[i] == '\0')
            return false;
    return true;
}

static bool is_port(const char *text, size_t len, uint16_t *out)
{
    unsigned long port = 0;

    if (len == 0 || len > 5)
        return false;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        port = port * 10 + (unsigned long)(text[i] - '0');
    }
    if (port == 0 || port > 65535)
        return false;
    *out = (uint16_t)port;
    return true;
}

static int refuse(const char *line, size_t len)
{
    return sl_fail(-EINVAL, "'%.*s' is no member: a host, or host:port", (int)(len < 80 ? len : 80),
                   line);
}

int sl_members_add(struct sl_members_list *list, const char *line, size_t len, uint16_t port)
{
    const char *end = memchr(line, '#', len), *colon, *bracket;
    size_t host;

    len = end != NULL ? (size_t)(end - line) : len;
    while (len > 0 && strchr(" \t\r", line[len - 1]) != NULL)
        len--;
    while (len > 0 && strchr(" \t", line[0]) != NULL) {
        line++;
        len--;
    }
    if (len == 0)
        return 0;
    if (line[0] == '[') {
        bracket = memchr(line, ']', len);
        if (bracket == NULL)
            return refuse(line, len);
        host = (size_t)(bracket - line) - 1;
        if (bracket + 1 < line + len &&
            (bracket[1] != ':' || !is_port(bracket + 2, (size_t)(line + len - bracket) - 2, &port)))
            return refuse(line, len);
        return is_host(line + 1, host) ? put(list, line + 1, host, port) : refuse(line, len);
    }
    colon = memchr(line, ':', len);
    /* With more colons than one it is an address of IPv6. */
    if (colon != NULL && memchr(colon + 1, ':', (size_t)(line + len - colon) - 1) == NULL) {
        if (!is_port(colon + 1, (size_t)(line + len - colon) - 1, &port))
            return refuse(line, len);
        host = (size_t)(colon - line);
    } else {
        host = len;
    }
    return is_host(line, host) ? put(list, line, host, port) : refuse(line, len);
}

static int by_host(const void *a, const void *b)
{
    const struct sl_member *x = a, *y = b;
    int order = strcmp(x->host, y->host);

    return order != 0 ? order : (int)x->port - (int)y->port;
}

void sl_members_sort(struct sl_members_list *list)
{
    unsigned kept = 0;

    if (list->count > 0)
        qsort(list->list, list->count, sizeof(*list->list), by_host);
    for (unsigned i = 0; i < list->count; i++)
        if (kept == 0 || by_host(&list->list[kept - 1], &list->list[i]) != 0)
            list->list[kept++] = list->list[i];
    list->count = kept;
}

void sl_members_list_free(struct sl_members_list *list)
{
    free(list->list);
    *list = (struct sl_members_list){.count = 0};
}

/* ---- Kubernetes ---- */

static struct json_object *get(struct json_object *object, const char *key)
{
    struct json_object *out = NULL;

    return json_object_is_type(object, json_type_object) &&
                   json_object_object_get_ex(object, key, &out)
               ? out
               : NULL;
}

static size_t length(struct json_object *array)
{
    return json_object_is_type(array, json_type_array) ? json_object_array_length(array) : 0;
}

static int take_slice(struct sl_members_list *list, struct json_object *slice, uint16_t port)
{
    struct json_object *ports = get(slice, "ports"), *endpoints = get(slice, "endpoints"), *number;

    if (length(ports) > 0) {
        number = get(json_object_array_get_idx(ports, 0), "port");
        if (json_object_is_type(number, json_type_int) && json_object_get_int(number) > 0 &&
            json_object_get_int(number) < 65536)
            port = (uint16_t)json_object_get_int(number);
    }
    for (size_t i = 0; i < length(endpoints); i++) {
        struct json_object *addresses = get(json_object_array_get_idx(endpoints, i), "addresses");
        struct json_object *first =
            length(addresses) > 0 ? json_object_array_get_idx(addresses, 0) : NULL;
        const char *text =
            json_object_is_type(first, json_type_string) ? json_object_get_string(first) : "";
        int err = is_host(text, strlen(text)) ? put(list, text, strlen(text), port) : 0;

        if (err < 0)
            return err;
    }
    return 0;
}

int sl_members_slices(struct sl_members_list *list, const char *text, size_t len, uint16_t port,
                      char *next, size_t cap)
{
    struct json_tokener *tokener = json_tokener_new_ex(16);
    struct json_object *object =
        tokener != NULL ? json_tokener_parse_ex(tokener, text, (int)len) : NULL;
    struct json_object *items = get(object, "items"), *token;
    int err = 0;

    if (!json_object_is_type(items, json_type_array))
        err = sl_fail(-EBADMSG, "Kubernetes: its list of endpoints is none");
    for (size_t i = 0; i < length(items) && err == 0; i++)
        err = take_slice(list, json_object_array_get_idx(items, i), port);
    token = get(get(object, "metadata"), "continue");
    snprintf(next, cap, "%s",
             json_object_is_type(token, json_type_string) ? json_object_get_string(token) : "");
    json_object_put(object);
    if (tokener != NULL)
        json_tokener_free(tokener);
    return err;
}

/* ---- DNS ---- */

static int bad_answer(void)
{
    return sl_fail(-EBADMSG, "DNS: the answer is damaged");
}

/* RFC 1035, section 4: a header of 12 bytes, questions, answers; RFC 2782: SRV is number 33. */
int sl_members_srv(struct sl_members_list *list, const unsigned char *answer, size_t len)
{
    const unsigned char *at = answer + 12, *end = answer + len;
    unsigned questions, answers;

    if (len < 12)
        return bad_answer();
    questions = (unsigned)answer[4] << 8 | answer[5];
    answers = (unsigned)answer[6] << 8 | answer[7];
    for (; questions > 0; questions--) {
        int name = dn_skipname(at, end);

        if (name < 0 || end - at < name + 4)
            return bad_answer();
        at += name + 4;
    }
    for (; answers > 0; answers--) {
        int name = dn_skipname(at, end), err;
        unsigned type, bytes;
        char host[NS_MAXDNAME];

        if (name < 0 || end - at < name + 10)
            return bad_answer();
        at += name;
        type = (unsigned)at[0] << 8 | at[1];
        bytes = (unsigned)at[8] << 8 | at[9];
        at += 10;
        if ((size_t)(end - at) < bytes)
            return bad_answer();
        if (type == 33 && bytes > 6) {
            uint16_t port = (uint16_t)(at[4] << 8 | at[5]);

            if (dn_expand(answer, end, at + 6, host, sizeof(host)) < 0)
                return bad_answer();
            err =
                port != 0 && is_host(host, strlen(host)) ? put(list, host, strlen(host), port) : 0;
            if (err < 0)
                return err;
        }
        at += bytes;
    }
    return 0;
}
