# SPDX-License-Identifier: Apache-2.0
"""What the tests of PyTorch on a GPU share."""


def find_torch():
    """PyTorch; None where there is none, or no GPU, which is said as TAP says it."""
    try:
        import torch
    except ImportError as error:
        print(f"1..0 # SKIP there is no PyTorch: {error}")
        return None
    if not torch.cuda.is_available():
        print("1..0 # SKIP PyTorch finds no GPU")
        return None
    return torch
