"""What operator families are called in figures, and which colour each keeps everywhere."""

from __future__ import annotations

FAMILY_NAMES = {
    "gemm": "Matrix products",
    "moe": "Experts",
    "prefill_attention": "Attention (prefill)",
    "decode_attention": "Attention (decode)",
    "recurrent": "Recurrent",
    "elementwise": "Elementwise",
    "embedding": "Embedding",
    "lm_head": "LM head",
    "collective": "Communication",
    "host": "Host",
    "draft": "Drafting",
}
_COLORS = {
    "gemm": 0,
    "moe": 0,
    "prefill_attention": 1,
    "decode_attention": 1,
    "recurrent": 6,
    "elementwise": 2,
    "embedding": 6,
    "lm_head": 5,
    "collective": 3,
    "host": 7,
    "draft": 4,
}


def family_name(family: str) -> str:
    """A family in words."""
    return FAMILY_NAMES.get(family, family.replace("_", " "))


def family_color(family: str) -> int | None:
    """Its index in the palette, the same in every figure."""
    return _COLORS.get(family)
