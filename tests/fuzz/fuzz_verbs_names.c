/* SPDX-License-Identifier: Apache-2.0 */
/* SLUICE_VERBS_DEVICES, against a second reading of its rules; what is excluded is never
 * allowed. */
#include "core/err.h"
#include "tests/fuzz/text.h"
#include "verbs/device.h"

#include <fnmatch.h>
#include <stdio.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* An entry as a pattern of the shell: only a * at the end means anything. */
static bool matches(const char *entry, const char *name)
{
    char pattern[600], all_ports[640];
    size_t len = 0;

    for (size_t i = 0; entry[i] != '\0'; i++) {
        if (strchr("*?[\\", entry[i]) != NULL && !(entry[i] == '*' && entry[i + 1] == '\0'))
            pattern[len++] = '\\';
        pattern[len++] = entry[i];
    }
    pattern[len] = '\0';
    snprintf(all_ports, sizeof(all_ports), "%s:*", pattern);
    return fnmatch(pattern, name, 0) == 0 ||
           (strchr(entry, ':') == NULL && fnmatch(all_ports, name, 0) == 0);
}

static bool allowed(const char *list, const char *name)
{
    char *copy = strdup(list), *rest = copy, *entry;
    bool asked = false, found = false, excluded = false;

    sl_assert(copy != NULL);
    while ((entry = strsep(&rest, ",")) != NULL) {
        if (entry[0] == '^')
            excluded = excluded || (entry[1] != '\0' && matches(entry + 1, name));
        else if (entry[0] != '\0')
            asked = true, found = found || matches(entry, name);
    }
    free(copy);
    return !excluded && (found || !asked);
}

/* Is the device's name alone allowed, then so may be a port of it; and the other way round. */
static void check_device(const char *list, const char *name)
{
    char device[64];

    snprintf(device, sizeof(device), "%.*s", (int)strcspn(name, ":"), name);
    if (sl_verbs_name_allowed(list, name))
        sl_assert(sl_verbs_name_allowed(list, device));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"mlx5_0:1", "mlx5_0:2",      "mlx5_10:1",
                                        "rxe0:1",   "mlx5_bond_0:1", "a:11"};
    char *text;

    if (size > 255 || (text = fuzz_text(data, size)) == NULL)
        return 0;
    for (size_t i = 0; i < SL_ARRAY_LEN(names); i++) {
        sl_assert(sl_verbs_name_allowed(text, names[i]) == allowed(text, names[i]));
        check_device(text, names[i]);
    }
    free(text);
    return 0;
}
