/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One SLUICE_* variable: a row of a table that lies beside its reader, in core, in a transport's
 * folder or in a tool's. Pure: no environment, no log.
 *
 * A file of rows says with AT(field) which struct its fields are of, as core/config_rows.c does.
 */
#ifndef SL_CORE_CONFIG_ROW_H
#define SL_CORE_CONFIG_ROW_H

#include <stddef.h>
#include <stdint.h>

#define SL_TEXT_MAX 256 /* of a text, its zero too, unless its row has another room */
#define SL_CONFIG_PREFIX "SLUICE_"

/* Values of three-way settings. */
enum sl_switch { SL_AUTO = -1, SL_OFF = 0, SL_ON = 1 };

enum sl_config_type {
    SL_CONFIG_TEXT, /* char[sl_config_row_room()] */
    SL_CONFIG_INT,  /* int64_t, as the next two */
    SL_CONFIG_BYTES,
    SL_CONFIG_SWITCH, /* enum sl_switch */
    SL_CONFIG_CHOICE, /* an enum: 0 is the first of choices, 1 the second */
};

struct sl_config_row {
    const char *name; /* without SLUICE_ */
    size_t offset;    /* of the field, in the table's struct */
    enum sl_config_type type;
    const char *value; /* the default, as one would write it */
    const char *unit;  /* "" when it has none */
    int64_t min, max;  /* of numbers */
    const char *help;  /* a sentence or two */
    /* words between spaces, the only values there are; NULL: any that the type has */
    const char *choices;
    int64_t least; /* of numbers, but for 0 and what is below */
    /* Of texts with a grammar: -EINVAL names the variable and the mistake; pure. NULL: any text
     * will do. */
    int (*check)(const char *value);
    size_t room; /* of texts: bytes of the field; 0: SL_TEXT_MAX */
};

#define SL_ROW_TEXT(name, field, value, help)                                                      \
    {                                                                                              \
        name, AT(field), SL_CONFIG_TEXT, value, "", 0, 0, help                                     \
    }
#define SL_ROW_INT(name, field, value, unit, min, max, help)                                       \
    {                                                                                              \
        name, AT(field), SL_CONFIG_INT, value, unit, min, max, help                                \
    }
#define SL_ROW_BYTES(name, field, value, min, max, help)                                           \
    {                                                                                              \
        name, AT(field), SL_CONFIG_BYTES, value, "bytes", min, max, help                           \
    }
#define SL_ROW_BYTES_OR_0(name, field, value, least, max, help)                                    \
    {                                                                                              \
        name, AT(field), SL_CONFIG_BYTES, value, "bytes", 0, max, help, NULL, least                \
    }
#define SL_ROW_SWITCH(name, field, value, help)                                                    \
    {                                                                                              \
        name, AT(field), SL_CONFIG_SWITCH, value, "", -1, 1, help                                  \
    }
/* A text that must be written by rules. */
#define SL_ROW_CHECKED(name, field, value, check, help)                                            \
    {                                                                                              \
        name, AT(field), SL_CONFIG_TEXT, value, "", 0, 0, help, NULL, 0, check                     \
    }
/* ... and needs a field of that many bytes. */
#define SL_ROW_CHECKED_LONG(name, field, value, room, check, help)                                 \
    {                                                                                              \
        name, AT(field), SL_CONFIG_TEXT, value, "", 0, 0, help, NULL, 0, check, room               \
    }
/* An enum whose values are the places of some words. */
#define SL_ROW_CHOICE(name, field, value, choices, help)                                           \
    {                                                                                              \
        name, AT(field), SL_CONFIG_CHOICE, value, "", 0, 0, help, choices                          \
    }

#define SL_KIB INT64_C(1024)
#define SL_MIB (1024 * SL_KIB)
#define SL_GIB (1024 * SL_MIB)
#define SL_DAY_MS INT64_C(86400000)

/* The bytes of a text's field. */
static inline size_t sl_config_row_room(const struct sl_config_row *row)
{
    return row->room != 0 ? row->room : SL_TEXT_MAX;
}

/* Sets the row's field of the struct at base from text. Words are kept as the row writes them,
 * however they are written in value (TCP for tcp, 0 for off). -EINVAL names variable, value and
 * the choices. */
int sl_config_row_set(const struct sl_config_row *row, void *base, const char *value);

/* Every field of these rows: its default, or its value in envp (as environ). Empty counts as not
 * set. For readers without a struct sl_config; a bad value is -EINVAL. */
int sl_config_rows_read(const struct sl_config_row *rows, size_t count, void *base,
                        char *const *envp);

/* The row's value in envp, or NULL: not set, or empty. */
const char *sl_config_row_env(const struct sl_config_row *row, char *const *envp);

/* Bytes from "64", "64k", "1.5M", "2g" (powers of 1024). -EINVAL, for a negative size, too. */
int sl_parse_bytes(const char *text, int64_t *out);

#endif
