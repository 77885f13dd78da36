"""What `ngine_ref` can run, as a target description: written from the registry, so that it cannot drift.

python -m ngine_ref.target > rules/targets/ngine_ref.toml
"""

from __future__ import annotations

import sys

from ngine_ref import ops as ops
from ngine_ref.registry import FUSED_DOMAIN, operators

_HEADER = """\
# The operators that ngine_ref has kernels of its own for, with nothing about them limited: it follows ONNX. Made by
#     python -m ngine_ref.target > rules/targets/ngine_ref.toml

name = "ngine_ref"
description = "The reference executor: ONNX as it is written, in NumPy."
"""


def describe() -> str:
    """The target description of this version of ngine_ref, as TOML."""
    names = sorted({name for domain, name in operators() if domain in ("", FUSED_DOMAIN)})
    return _HEADER + "".join(f"\n[operators.{name}]\n" for name in names)


if __name__ == "__main__":
    sys.stdout.write(describe())
