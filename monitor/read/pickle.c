/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stack machine of a pickle, without the opcodes that act. Memory is taken as bytes come: what
 * a length claims is read in pieces, a memo grows by one at a time, and a value that is fetched
 * from the memo is the same value again.
 */
#include "monitor/read/pickle.h"
#include "core/err.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_MAX 4096 /* of protocol 0's numbers and texts */

struct pickle {
    struct sl_read_in *in;
    struct sl_values *values;
    uint64_t before; /* bytes of the file before the buffer */
    size_t at, len;
    uint32_t *stack, *memo;
    size_t stack_len, stack_cap, memo_len, memo_cap;
    size_t mark; /* where the top mark is, plus 1; 0: none */
    int err;
    bool is_done;
    unsigned char buffer[64 << 10];
};

/* The first error stays. Returns 0, so that whoever wants a value can return it. */
static int refuse(struct pickle *pickle, const char *what)
{
    if (pickle->err == 0)
        pickle->err = sl_fail(-EBADMSG, "%s, byte %llu: %s", pickle->in->name,
                              (unsigned long long)(pickle->before + pickle->at), what);
    return 0;
}

static void no_memory(struct pickle *pickle)
{
    if (pickle->err == 0)
        pickle->err =
            sl_fail(-ENOMEM, "%s holds too many values for the memory there is", pickle->in->name);
}

/* ---- bytes ---- */

static bool fill(struct pickle *pickle)
{
    long got;

    if (pickle->err != 0 || pickle->at < pickle->len)
        return pickle->err == 0;
    pickle->before += pickle->len;
    pickle->at = pickle->len = 0;
    got = pickle->in->more(pickle->in, pickle->buffer, sizeof(pickle->buffer));
    if (got < 0)
        pickle->err = (int)got;
    else if (got == 0)
        refuse(pickle, "the file ends too early");
    pickle->len = got > 0 ? (size_t)got : 0;
    return got > 0;
}

static int take(struct pickle *pickle)
{
    return fill(pickle) ? pickle->buffer[pickle->at++] : 0;
}

/* Little-endian, at most 8 bytes. */
static uint64_t take_number(struct pickle *pickle, unsigned bytes)
{
    uint64_t number = 0;

    for (unsigned i = 0; i < bytes; i++)
        number |= (uint64_t)take(pickle) << (8 * i);
    return number;
}

/* A line, without its end. */
static size_t take_line(struct pickle *pickle, char line[LINE_MAX])
{
    size_t len = 0;
    int c;

    while ((c = take(pickle)) != '\n' && pickle->err == 0) {
        if (len + 1 == LINE_MAX)
            return (size_t)refuse(pickle, "a line is too long");
        line[len++] = (char)c;
    }
    line[len] = '\0';
    return len;
}

/* ---- the stack ---- */

static bool grow(struct pickle *pickle, uint32_t **list, size_t *cap, size_t len)
{
    size_t next = *cap == 0 ? 256 : *cap * 2;
    uint32_t *more;

    if (len < *cap)
        return true;
    more = len < SL_VALUES_MAX ? reallocarray(*list, next, sizeof(*more)) : NULL;
    if (more == NULL) {
        no_memory(pickle);
        return false;
    }
    *list = more;
    *cap = next;
    return true;
}

/* A mark holds where the one before it is. */
static void push(struct pickle *pickle, uint32_t value)
{
    if (pickle->err == 0 && grow(pickle, &pickle->stack, &pickle->stack_cap, pickle->stack_len))
        pickle->stack[pickle->stack_len++] = value;
}

static void push_new(struct pickle *pickle, struct sl_value value)
{
    uint32_t at = pickle->err == 0 ? sl_value_add(pickle->values, value) : SL_VALUE_NONE;

    if (at == SL_VALUE_NONE)
        no_memory(pickle);
    else
        push(pickle, at);
}

static void push_int(struct pickle *pickle, int64_t number)
{
    push_new(pickle, (struct sl_value){.type = SL_VALUE_INT, .number = number});
}

static void push_mark(struct pickle *pickle)
{
    push(pickle, (uint32_t)pickle->mark);
    if (pickle->err == 0)
        pickle->mark = pickle->stack_len;
}

/* How many values are above the top mark; -1: there is none. The mark goes, the values stay above
 * where it was: at stack[*from]. */
static bool take_mark(struct pickle *pickle, size_t *from)
{
    if (pickle->mark == 0) {
        refuse(pickle, "there is no mark");
        return false;
    }
    *from = pickle->mark;
    pickle->mark = pickle->stack[*from - 1];
    return true;
}

/* Are there so many values above the top mark? */
static bool has(struct pickle *pickle, size_t count)
{
    if (pickle->stack_len - pickle->mark < count)
        refuse(pickle, "the stack has too few values");
    return pickle->err == 0;
}

/* ---- texts ---- */

static void push_text(struct pickle *pickle, uint64_t len)
{
    struct sl_value value = {.type = SL_VALUE_TEXT, .text = pickle->values->text_len};
    uint64_t left = len;

    if (len > SL_VALUES_TEXT_MAX) {
        refuse(pickle, "a text is too long");
        return;
    }
    while (left > 0 && fill(pickle)) {
        size_t some = pickle->len - pickle->at;
        char *room;

        some = some < left ? some : (size_t)left;
        room = sl_value_text_room(pickle->values, some);
        if (room == NULL) {
            no_memory(pickle);
            return;
        }
        memcpy(room, pickle->buffer + pickle->at, some);
        pickle->values->text_len += some;
        pickle->at += some;
        left -= some;
    }
    value.count = (uint32_t)len;
    push_new(pickle, value);
}

static void push_line(struct pickle *pickle, bool is_quoted)
{
    char line[LINE_MAX];
    size_t len = take_line(pickle, line);
    uint32_t at;

    if (pickle->err != 0)
        return;
    if (is_quoted && (len < 2 || (line[0] != '\'' && line[0] != '"') || line[len - 1] != line[0])) {
        refuse(pickle, "a text is not between quotation marks");
        return;
    }
    at = sl_value_add_text(pickle->values, line + is_quoted, is_quoted ? len - 2 : len);
    if (at == SL_VALUE_NONE)
        no_memory(pickle);
    else
        push(pickle, at);
}

/* ---- numbers ---- */

/* Of protocol 0: digits, after which there may be an L; I01 and I00 are True and False. */
static void push_int_line(struct pickle *pickle, bool is_long)
{
    char line[LINE_MAX], *end;
    size_t len = take_line(pickle, line);
    int64_t number;

    if (pickle->err != 0)
        return;
    if (!is_long && len == 2 && line[0] == '0' && (line[1] == '0' || line[1] == '1')) {
        push_new(pickle, (struct sl_value){.type = SL_VALUE_BOOL, .number = line[1] == '1'});
        return;
    }
    if (is_long && len > 0 && line[len - 1] == 'L')
        line[--len] = '\0';
    errno = 0;
    number = strtoll(line, &end, 10);
    if (len == 0 || *end != '\0' || errno != 0)
        refuse(pickle, "that is no number of 64 bits");
    else
        push_int(pickle, number);
}

static void push_float_line(struct pickle *pickle)
{
    char line[LINE_MAX], *end;
    size_t len = take_line(pickle, line);
    double real;

    if (pickle->err != 0)
        return;
    real = strtod(line, &end);
    if (len == 0 || *end != '\0')
        refuse(pickle, "that is no number");
    else
        push_new(pickle, (struct sl_value){.type = SL_VALUE_FLOAT, .real = real});
}

static void push_long(struct pickle *pickle, uint64_t bytes)
{
    uint64_t number;

    if (bytes > 8) {
        refuse(pickle, "a number has more than 64 bits");
        return;
    }
    number = take_number(pickle, (unsigned)bytes);
    if (bytes > 0 && bytes < 8 && (number >> (8 * bytes - 1) & 1) != 0)
        number |= UINT64_MAX << (8 * bytes);
    push_int(pickle, (int64_t)number);
}

/* Big-endian, unlike all the others. */
static void push_float(struct pickle *pickle)
{
    uint64_t bits = __builtin_bswap64(take_number(pickle, 8));
    struct sl_value value = {.type = SL_VALUE_FLOAT};

    memcpy(&value.real, &bits, sizeof(bits));
    push_new(pickle, value);
}

/* ---- lists and dictionaries ---- */

/* The values from stack[from] on become members of `to`. */
static void append_all(struct pickle *pickle, uint32_t to, size_t from)
{
    for (size_t i = from; i < pickle->stack_len && pickle->err == 0; i++)
        if (!sl_value_append(pickle->values, to, pickle->stack[i]))
            no_memory(pickle);
}

/* A new list or dictionary of the topmost values, in place of them. */
static void gather(struct pickle *pickle, enum sl_value_type type, size_t from, size_t keep)
{
    uint32_t to = sl_value_add(pickle->values, (struct sl_value){.type = (uint8_t)type});

    if (to == SL_VALUE_NONE) {
        no_memory(pickle);
        return;
    }
    if (type == SL_VALUE_DICT && (pickle->stack_len - from) % 2 != 0) {
        refuse(pickle, "a key has no value");
        return;
    }
    append_all(pickle, to, from);
    pickle->stack_len = keep;
    push(pickle, to);
}

static void gather_marked(struct pickle *pickle, enum sl_value_type type)
{
    size_t from;

    if (take_mark(pickle, &from))
        gather(pickle, type, from, from - 1);
}

static void gather_some(struct pickle *pickle, size_t count)
{
    if (has(pickle, count))
        gather(pickle, SL_VALUE_LIST, pickle->stack_len - count, pickle->stack_len - count);
}

/* The values from stack[from] on go into the value at stack[to]. */
static void extend(struct pickle *pickle, enum sl_value_type type, size_t from, size_t to)
{
    if (!sl_value_is(pickle->values, pickle->stack[to], type))
        refuse(pickle, type == SL_VALUE_LIST ? "that is no list" : "that is no dictionary");
    else if (type == SL_VALUE_DICT && (pickle->stack_len - from) % 2 != 0)
        refuse(pickle, "a key has no value");
    else
        append_all(pickle, pickle->stack[to], from);
    pickle->stack_len = to + 1;
}

static void extend_marked(struct pickle *pickle, enum sl_value_type type)
{
    size_t from;

    /* Below the mark there is the list, and it is above the mark before. */
    if (!take_mark(pickle, &from))
        return;
    if (from < 2 || from - 2 < pickle->mark)
        refuse(pickle, "the stack has too few values");
    else
        extend(pickle, type, from, from - 2);
}

static void extend_some(struct pickle *pickle, enum sl_value_type type, size_t count)
{
    if (has(pickle, count + 1))
        extend(pickle, type, pickle->stack_len - count, pickle->stack_len - count - 1);
}

/* ---- the memo ---- */

static void put(struct pickle *pickle, uint64_t at)
{
    if (!has(pickle, 1))
        return;
    if (at > pickle->memo_len) {
        refuse(pickle, "the memo is not filled in turn");
        return;
    }
    if (!grow(pickle, &pickle->memo, &pickle->memo_cap, pickle->memo_len))
        return;
    pickle->memo[at] = pickle->stack[pickle->stack_len - 1];
    if (at == pickle->memo_len)
        pickle->memo_len++;
}

static void get(struct pickle *pickle, uint64_t at)
{
    if (at >= pickle->memo_len)
        refuse(pickle, "the memo has no such value");
    else
        push(pickle, pickle->memo[at]);
}

static uint64_t memo_line(struct pickle *pickle)
{
    char line[LINE_MAX];
    size_t len = take_line(pickle, line);

    if (pickle->err == 0 && (len == 0 || len > 9 || strspn(line, "0123456789") != len))
        refuse(pickle, "that is no place of the memo");
    return pickle->err == 0 ? strtoull(line, NULL, 10) : 0;
}

/* ---- opcodes ---- */

static void refuse_opcode(struct pickle *pickle, int opcode)
{
    static const struct {
        unsigned char opcode;
        const char *name;
    } known[] = {{'0', "POP"},           {'1', "POP_MARK"},
                 {'2', "DUP"},           {'P', "PERSID"},
                 {'Q', "BINPERSID"},     {'R', "REDUCE"},
                 {'b', "BUILD"},         {'c', "GLOBAL"},
                 {'i', "INST"},          {'o', "OBJ"},
                 {0x81, "NEWOBJ"},       {0x82, "EXT1"},
                 {0x83, "EXT2"},         {0x84, "EXT4"},
                 {0x8f, "EMPTY_SET"},    {0x90, "ADDITEMS"},
                 {0x91, "FROZENSET"},    {0x92, "NEWOBJ_EX"},
                 {0x93, "STACK_GLOBAL"}, {0x96, "BYTEARRAY8"},
                 {0x97, "NEXT_BUFFER"},  {0x98, "READONLY_BUFFER"}};
    char what[96];

    for (unsigned i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (known[i].opcode == opcode) {
            snprintf(what, sizeof(what), "the opcode %s is refused: this is no plain data",
                     known[i].name);
            refuse(pickle, what);
            return;
        }
    snprintf(what, sizeof(what), "0x%02x is no opcode of a pickle", opcode);
    refuse(pickle, what);
}

static bool do_number(struct pickle *pickle, int opcode)
{
    switch (opcode) {
    case 'N': push_new(pickle, (struct sl_value){.type = SL_VALUE_NULL}); break;
    case 0x88: push_new(pickle, (struct sl_value){.type = SL_VALUE_BOOL, .number = 1}); break;
    case 0x89: push_new(pickle, (struct sl_value){.type = SL_VALUE_BOOL}); break;
    case 'I': push_int_line(pickle, false); break;
    case 'L': push_int_line(pickle, true); break;
    case 'J': push_int(pickle, (int32_t)take_number(pickle, 4)); break;
    case 'K': push_int(pickle, (int64_t)take_number(pickle, 1)); break;
    case 'M': push_int(pickle, (int64_t)take_number(pickle, 2)); break;
    case 0x8a: push_long(pickle, take_number(pickle, 1)); break;
    case 0x8b: push_long(pickle, take_number(pickle, 4)); break;
    case 'F': push_float_line(pickle); break;
    case 'G': push_float(pickle); break;
    default: return false;
    }
    return true;
}

static bool do_text(struct pickle *pickle, int opcode)
{
    switch (opcode) {
    case 'S': push_line(pickle, true); break;
    case 'V': push_line(pickle, false); break;
    case 'U': /* SHORT_BINSTRING, SHORT_BINBYTES, SHORT_BINUNICODE */
    case 'C':
    case 0x8c: push_text(pickle, take_number(pickle, 1)); break;
    case 'T': /* BINSTRING, BINBYTES, BINUNICODE */
    case 'B':
    case 'X': push_text(pickle, take_number(pickle, 4)); break;
    case 0x8d: /* BINUNICODE8, BINBYTES8 */
    case 0x8e: push_text(pickle, take_number(pickle, 8)); break;
    default: return false;
    }
    return true;
}

static bool do_container(struct pickle *pickle, int opcode)
{
    switch (opcode) {
    case '(': push_mark(pickle); break;
    case '}': push_new(pickle, (struct sl_value){.type = SL_VALUE_DICT}); break;
    case ']': /* a list, or a tuple */
    case ')': push_new(pickle, (struct sl_value){.type = SL_VALUE_LIST}); break;
    case 'd': gather_marked(pickle, SL_VALUE_DICT); break;
    case 'l': /* a list, or a tuple */
    case 't': gather_marked(pickle, SL_VALUE_LIST); break;
    case 0x85: gather_some(pickle, 1); break;
    case 0x86: gather_some(pickle, 2); break;
    case 0x87: gather_some(pickle, 3); break;
    case 's': extend_some(pickle, SL_VALUE_DICT, 2); break;
    case 'u': extend_marked(pickle, SL_VALUE_DICT); break;
    case 'a': extend_some(pickle, SL_VALUE_LIST, 1); break;
    case 'e': extend_marked(pickle, SL_VALUE_LIST); break;
    default: return false;
    }
    return true;
}

static bool do_memo(struct pickle *pickle, int opcode)
{
    switch (opcode) {
    case 'p': put(pickle, memo_line(pickle)); break;
    case 'q': put(pickle, take_number(pickle, 1)); break;
    case 'r': put(pickle, take_number(pickle, 4)); break;
    case 0x94: put(pickle, pickle->memo_len); break;
    case 'g': get(pickle, memo_line(pickle)); break;
    case 'h': get(pickle, take_number(pickle, 1)); break;
    case 'j': get(pickle, take_number(pickle, 4)); break;
    default: return false;
    }
    return true;
}

static void step(struct pickle *pickle)
{
    int opcode = take(pickle);

    if (pickle->err != 0)
        return;
    if (opcode == 0x80) { /* PROTO */
        if (take(pickle) > 5)
            refuse(pickle, "the protocol is none of 0 to 5");
    } else if (opcode == 0x95) { /* FRAME: how far to read ahead, which is no matter here */
        take_number(pickle, 8);
    } else if (opcode == '.') { /* STOP */
        pickle->is_done = true;
    } else if (!do_number(pickle, opcode) && !do_text(pickle, opcode) &&
               !do_container(pickle, opcode) && !do_memo(pickle, opcode)) {
        refuse_opcode(pickle, opcode);
    }
}

static void finish(struct pickle *pickle, uint32_t *root)
{
    char more;
    long got;

    if (pickle->mark != 0 || pickle->stack_len != 1) {
        refuse(pickle, "it ends with other than one value");
        return;
    }
    got = pickle->at < pickle->len ? 1 : pickle->in->more(pickle->in, &more, 1);
    if (got > 0)
        refuse(pickle, "something follows the end");
    else if (got < 0)
        pickle->err = (int)got;
    *root = pickle->stack[0];
}

int sl_pickle_read(struct sl_read_in *in, struct sl_values *values, uint32_t *root)
{
    struct pickle *pickle = calloc(1, sizeof(*pickle));
    int err;

    if (pickle == NULL)
        return sl_fail(-ENOMEM, "no memory to read %s", in->name);
    pickle->in = in;
    pickle->values = values;
    while (pickle->err == 0 && !pickle->is_done)
        step(pickle);
    if (pickle->err == 0)
        finish(pickle, root);
    err = pickle->err;
    free(pickle->stack);
    free(pickle->memo);
    free(pickle);
    return err;
}
