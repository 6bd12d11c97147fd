/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ibnetdiscover prints: a block a node, a line a port that leads somewhere.
 *
 *     switchguid=0x2c5eab0300b87b40(2c5eab0300b87b40)
 *     Switch 65 "S-2c5eab0300b87b40"  # "leaf 4" enhanced port 0 lid 73 lmc 0
 *     [1]    "H-e09d7303007a4bd8"[1](e09d7303007a4bd8)  # "host mlx5_5" lid 647 4xNDR
 *
 *     Ca 1 "H-e09d7303007a4bd8"  # "host mlx5_5"
 *     [1](e09d7303007a4bd8) "S-2c5eab0300b87b40"[1]  # lid 647 lmc 0 "leaf 4" lid 73 4xNDR
 */
#include "monitor/read/fabric.h"
#include "core/err.h"
#include "monitor/read/lines.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    uint32_t mbps; /* of a lane */
} speeds[] = {{"SDR", 2500},  {"DDR", 5000},  {"QDR", 10000},  {"FDR10", 10000}, {"FDR", 14000},
              {"EDR", 25000}, {"HDR", 50000}, {"NDR", 100000}, {"XDR", 200000}};

static char *skip(char *at)
{
    return at + strspn(at, " \t");
}

/* A number up to max; NULL: there is none. */
static char *read_number(char *at, uint64_t max, uint32_t *number)
{
    size_t len = strspn(at, "0123456789");
    uint64_t value;

    if (!sl_text_number(at, len, &value) || value > max)
        return NULL;
    *number = (uint32_t)value;
    return at + len;
}

/* "[12]". */
static char *read_port(char *at, uint32_t *number)
{
    if (*at != '[')
        return NULL;
    at = read_number(at + 1, SL_FABRIC_PORTS_MAX, number);
    return at != NULL && *at == ']' ? at + 1 : NULL;
}

/* "S-2c5eab0300b87b40" in quotes. */
static char *read_id(char *at, uint8_t *kind, uint64_t *guid)
{
    size_t len;

    if (at[0] != '"' || at[1] == '\0' || at[2] != '-')
        return NULL;
    switch (at[1]) {
    case 'S': *kind = SL_FABRIC_SWITCH; break;
    case 'H': *kind = SL_FABRIC_ADAPTER; break;
    case 'R': *kind = SL_FABRIC_ROUTER; break;
    default: return NULL;
    }
    at += 3;
    len = strspn(at, "0123456789abcdefABCDEF");
    if (len == 0 || len > 16 || at[len] != '"')
        return NULL;
    *guid = strtoull(at, NULL, 16);
    return at + len + 1;
}

/* What is quoted in the comment; it is ended by 0. "" where nothing is. */
static const char *read_name(char *at)
{
    char *begin = strchr(at, '"'), *end;

    if (begin == NULL)
        return "";
    end = strchr(begin + 1, '"');
    if (end == NULL)
        return "";
    *end = '\0';
    return begin + 1;
}

/* "Switch 65 "S-..." # "name" ...". */
static int read_node(struct sl_lines *lines, struct sl_fabric *fabric, char *at, uint8_t kind)
{
    uint32_t ports;
    uint8_t said;
    uint64_t guid;
    int err;

    at = read_number(skip(at), SL_FABRIC_PORTS_MAX, &ports);
    at = at != NULL ? read_id(skip(at), &said, &guid) : NULL;
    if (at == NULL || said != kind)
        return sl_lines_bad(lines, "a node's line has its ports' number and its name in quotes, as "
                                   "in: Switch 65 \"S-2c5eab0300b87b40\"");
    err = sl_fabric_add_node(fabric, (enum sl_fabric_kind)kind, guid, read_name(at), ports);
    return err == -EBADMSG ? sl_lines_bad(lines, "%s", sluice_last_error()) : err;
}

/* The last word, "4xNDR", before words such as "s=4" that old versions add. */
static bool read_speed(char *text, struct sl_fabric_port *port)
{
    char *left;

    for (char *word = strtok_r(text, " \t", &left); word != NULL;
         word = strtok_r(NULL, " \t", &left)) {
        char *at = read_number(word, 255, &port->lanes);

        if (at == NULL || *at != 'x' || port->lanes == 0)
            continue;
        for (unsigned i = 0; i < sizeof(speeds) / sizeof(speeds[0]); i++)
            if (strcmp(at + 1, speeds[i].name) == 0) {
                port->mbps = speeds[i].mbps * port->lanes;
                return true;
            }
    }
    return false;
}

/* "(guid)" of a port may follow its number. */
static char *skip_guid(char *at)
{
    char *end;

    if (*at != '(')
        return at;
    end = strchr(at, ')');
    return end != NULL ? end + 1 : NULL;
}

static int read_link(struct sl_lines *lines, struct sl_fabric *fabric, char *at)
{
    struct sl_fabric_port port = {0};
    char *comment;
    int err;

    at = read_port(at, &port.number);
    at = at != NULL ? skip_guid(at) : NULL;
    if (at != NULL && strncmp(at, "[ext ", 5) == 0) { /* the number outside of a chassis */
        at = strchr(at, ']');
        at = at != NULL ? at + 1 : NULL;
    }
    at = at != NULL ? read_id(skip(at), &port.peer_kind, &port.peer_guid) : NULL;
    at = at != NULL ? read_port(at, &port.peer_number) : NULL;
    comment = at != NULL ? strchr(at, '#') : NULL;
    if (comment == NULL)
        return sl_lines_bad(lines, "a port's line says where it leads, as in: [1] "
                                   "\"S-2c5eab0300b87b40\"[5] # ... 4xNDR");
    /* The speed stands behind the last text in quotes, which may hold anything. */
    at = strrchr(comment, '"');
    if (!read_speed(at != NULL ? at + 1 : comment + 1, &port))
        return sl_lines_bad(lines, "it does not end with the link's width and speed (4xNDR)");
    err = sl_fabric_add_port(fabric, &port);
    return err == -EBADMSG ? sl_lines_bad(lines, "%s", sluice_last_error()) : err;
}

static int read_line(struct sl_lines *lines, struct sl_fabric *fabric)
{
    static const struct {
        const char *word;
        uint8_t kind;
    } nodes[] = {{"Switch", SL_FABRIC_SWITCH}, {"Ca", SL_FABRIC_ADAPTER}, {"Rt", SL_FABRIC_ROUTER}};
    static const char *const known[] = {
        "vendid=", "devid=", "sysimgguid=", "switchguid=", "caguid=", "rtguid="};
    char *at = skip(lines->text);

    if (*at == '\0' || *at == '#')
        return 0;
    if (*at == '[')
        return read_link(lines, fabric, at);
    for (unsigned i = 0; i < sizeof(nodes) / sizeof(nodes[0]); i++) {
        size_t len = strlen(nodes[i].word);

        if (strncmp(at, nodes[i].word, len) == 0 && (at[len] == ' ' || at[len] == '\t'))
            return read_node(lines, fabric, at + len, nodes[i].kind);
    }
    for (unsigned i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strncmp(at, known[i], strlen(known[i])) == 0)
            return 0;
    return sl_lines_bad(lines, "\"%.40s\" is nothing that ibnetdiscover prints", at);
}

int sl_fabric_read(struct sl_fabric *fabric, struct sl_read_in *in)
{
    struct sl_lines lines;
    int err = sl_lines_open(&lines, in);

    while (err == 0) {
        err = sl_lines_next(&lines);
        if (err <= 0)
            break;
        err = read_line(&lines, fabric);
    }
    sl_lines_close(&lines);
    if (err != 0)
        return err;
    err = sl_fabric_seal(fabric);
    return err == -EBADMSG ? sl_fail(err, "%s: %s", in->name, sluice_last_error()) : err;
}

bool sl_fabric_is(const char *head, size_t len)
{
    static const char *const words[] = {"\nswitchguid=", "\ncaguid=", "\nrtguid="};

    for (unsigned i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (sl_read_has(head, len, words[i]))
            return true;
    return false;
}

static int read_with(struct sl_read_in *in, const char *head, size_t len, void *context)
{
    if (!sl_fabric_is(head, len))
        return sl_fail(-EBADMSG, "%s is nothing that ibnetdiscover prints", in->name);
    return sl_fabric_read(context, in);
}

int sl_fabric_read_file(struct sl_fabric *fabric, const char *path)
{
    return sl_read_with(path, read_with, fabric);
}
