#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Prints a block of code of a page: the one whose fence says KIND NAME, as in ```c toy/toy.c.
# usage: extract.sh PAGE 'KIND NAME'
set -eu
awk -v fence="\`\`\`$2" '$0 == fence { inside = 1; found = 1; next } /^```/ { inside = 0 } inside { print }
    END { exit !found }' "$1"
