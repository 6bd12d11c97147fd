#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Is docs/env.md what the table in core/config.c prints?
# usage: env_matches.sh PRINT_ENV ENV_MD
echo "1..1"
if "$1" | diff -u "$2" - | sed 's/^/# /' | grep .; then
    echo "not ok 1 - the_page_of_variables_is_the_table # run: $1 > docs/env.md"
    exit 1
fi
echo "ok 1 - the_page_of_variables_is_the_table"
