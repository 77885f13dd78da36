"""Rule files in few words."""

from __future__ import annotations

HEADER = '<domain: "my", opset_import: ["" : 17, "my" : 1, "require" : 1]>'
GOOD = f"""# Relu of a Sigmoid.
{HEADER}
SigmoidRelu (x) => (y)
{{
  s = Sigmoid (x)
  ["sole reader"] = require.sole_reader (s)
  y = Relu (s)
}}
"""


def rule(body: str, signature: str = "Op (x) => (y)", header: str = HEADER) -> str:
    """A file whose rule is named in line 2 and whose body begins in line 4."""
    return f"{header}\n{signature}\n{{\n{body}\n}}\n"
