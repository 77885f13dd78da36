"""What ONNX spells in more than one way, or means otherwise in older files, and the domain of the fused operators."""

from __future__ import annotations

from collections.abc import Collection

from onnx import FunctionProto, ModelProto

FUSED_DOMAIN = "ai.ngine"
STANDARD_DOMAINS = ("", "ai.onnx")
"""Both spellings of the domain of ONNX's own operators."""
DEFAULTS_SINCE_IR = 4
"""From this IR version on, an initializer listed among the graph's inputs is a default; before, it is a constant."""


def standard_name(domain: str) -> str:
    """The domain, ONNX's own under the shorter of its two names."""
    return "" if domain == "ai.onnx" else domain


def normal_domain(domain: str, fused_domains: Collection[str]) -> str:
    """The domain under its usual spelling: `ai.onnx` is the default domain, a fused sub-domain is the fused domain."""
    if domain == "ai.onnx":
        return ""
    return next((fused for fused in fused_domains if domain.startswith(fused + ".")), domain)


def is_fused_domain(domain: str) -> bool:
    """Whether it is the fused operators' domain or one of its sub-domains."""
    return domain == FUSED_DOMAIN or domain.startswith(FUSED_DOMAIN + ".")


def opset_versions(imports: ModelProto | FunctionProto) -> dict[str, int]:
    """The imported operator sets: version by domain, the default domain under ''."""
    return {standard_name(entry.domain): entry.version for entry in imports.opset_import}
