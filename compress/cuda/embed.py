#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a C file that holds the compiled kernels as bytes, and the table of them that gpu.h declares.

usage: embed.py OUT.c CODEC.fatbin...
"""
import os
import sys

out, images = sys.argv[1], sys.argv[2:]
names = [os.path.splitext(os.path.basename(i))[0] for i in images]
lines = ['/* SPDX-License-Identifier: Apache-2.0 */', '/* Made by compress/cuda/embed.py. */', '#include "compress/cuda/gpu.h"', '']
for name, image in zip(names, images):
    path = os.path.abspath(image).replace('\\', '\\\\').replace('"', '\\"')
    lines += [
        '__asm__(".pushsection .rodata\\n"',
        '        ".balign 64\\n"',
        f'        ".hidden sl_gpu_image_{name}\\n"',
        f'        ".global sl_gpu_image_{name}\\n"',
        f'        "sl_gpu_image_{name}:\\n"',
        f'        ".incbin \\"{path}\\"\\n"',
        '        ".popsection\\n");',
        f'extern const char sl_gpu_image_{name}[];',
        '',
    ]
lines.append('const struct sl_gpu_image sl_gpu_images[] = {')
lines += [f'    {{"{name}", sl_gpu_image_{name}}},' for name in names]
lines += ['    {0}};']
with open(out, 'w', encoding='utf-8') as f:
    f.write('\n'.join(lines) + '\n')
