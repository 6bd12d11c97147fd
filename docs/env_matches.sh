#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Is docs/env.md what the tables of variables print, and are all variables in it that other pages name?
# usage: env_matches.sh PRINT_ENV ENV_MD all|'without verbs'
echo "1..2"
failed=0
if [ "$3" != all ]; then
    echo "ok 1 - the_page_of_variables_is_the_table # SKIP this build is $3, whose variables the page has"
elif "$1" | diff -u "$2" - | sed 's/^/# /' | grep .; then
    echo "not ok 1 - the_page_of_variables_is_the_table # run: $1 > docs/env.md"
    failed=1
else
    echo "ok 1 - the_page_of_variables_is_the_table"
fi

# A variable that a page speaks of and the table has not would get a warning that there is none. What ends in "_" is
# a family; the headers have names that are no variables.
root=$(dirname "$2")/..
known=$(grep -ohE 'SLUICE_[A-Z0-9_]+' "$2" "$root"/include/sluice/*.h "$root"/include/sluice/*.h.in 2>/dev/null | sort -u)
unknown=$(grep -ohE 'SLUICE_[A-Z0-9_]*[A-Z0-9]\b' "$root"/docs/*.md "$root"/docs/man/*.[17] "$root"/README.md |
    sort -u | grep -vxF "$known")
if [ -n "$unknown" ]; then
    echo "$unknown" | sed 's/^/# not in the table: /'
    echo "not ok 2 - every_variable_that_a_page_names_is_in_the_table"
    failed=1
else
    echo "ok 2 - every_variable_that_a_page_names_is_in_the_table"
fi
exit "$failed"
