#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a C file that holds a page as bytes, as serve.h declares it.

usage: embed.py OUT.c PAGE
"""
import sys

with open(sys.argv[2], 'rb') as f:
    page = f.read()
rows = [', '.join(str(b if b < 128 else b - 256) for b in page[i:i + 24]) for i in range(0, len(page), 24)]
with open(sys.argv[1], 'w', encoding='utf-8') as f:
    f.write('/* SPDX-License-Identifier: Apache-2.0 */\n/* Made by monitor/cluster/embed.py. */\n#include "monitor/cluster/serve.h"\n\n')
    f.write('const char sl_cluster_page[] = {\n    ' + ',\n    '.join(rows) + ',\n    0};\n')
    f.write(f'const unsigned long sl_cluster_page_len = {len(page)};\n')
