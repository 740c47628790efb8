"""How many keys each layer sees, from the fields that say so."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.specs.huggingface.fields import Fields

SLIDING = "sliding_attention"
FULL = "full_attention"


Windows = tuple[int | None, ...]
"""The number of keys that each layer sees, None for all of them."""


def windows_of_types(fields: Fields, *, window: int | None, default: Sequence[str]) -> Windows:
    """Window of every layer from ``layer_types``, or from ``default`` where the configuration does not list them."""
    types = fields.words("layer_types", length=len(default), allowed=(SLIDING, FULL)) or tuple(default)
    if window is None and SLIDING in types:
        raise fields.refusal("sliding_window", "is missing while layer_types names sliding_attention layers")
    return tuple(window if kind == SLIDING else None for kind in types)


def periodic_windows(fields: Fields, *, period: int, window: int | None) -> Windows:
    """Window of every layer where, unless ``layer_types`` lists them, each ``period``-th one sees everything."""
    return windows_of_types(fields, window=window, default=every_nth_full(fields.depth("num_hidden_layers"), period))


def patterned_windows(fields: Fields, *, period: int, window: int | None) -> Windows:
    """`periodic_windows` with the defaults of ``sliding_window_pattern`` and ``sliding_window``."""
    given = fields.size(fields.either("sliding_window_pattern", "_sliding_window_pattern"), default=period)
    return periodic_windows(fields, period=given, window=fields.size("sliding_window", default=window))


def qwen_windows(fields: Fields) -> Windows:
    """Qwen: the window holds from layer ``max_window_layers`` on, and only where ``use_sliding_window`` is set."""
    depth = fields.depth("num_hidden_layers")
    used = fields.flag("use_sliding_window", default=False)
    given = fields.optional_count("sliding_window") or None
    first = fields.optional_count("max_window_layers")
    if not used:
        fields.costless("layer_types")
        return (None,) * depth
    if given is None or (first is None and not fields.has("layer_types")):
        missing = "sliding_window" if given is None else "max_window_layers"
        raise fields.refusal(missing, "is missing while use_sliding_window is true")
    default = tuple(SLIDING if index >= (first or 0) else FULL for index in range(depth))
    return windows_of_types(fields, window=given, default=default)


def listed_windows(fields: Fields) -> Windows:
    """A window on every layer where ``sliding_window`` is given, unless ``layer_types`` says otherwise."""
    window = fields.optional_size("sliding_window")
    default = (SLIDING if window else FULL,) * fields.depth("num_hidden_layers")
    return windows_of_types(fields, window=window, default=default)


_PATTERN = {"L": SLIDING, "G": FULL}


def exaone_windows(fields: Fields) -> Windows:
    """Window of every layer: ``sliding_window_pattern`` is LLLG or the distance of full layers."""
    depth = fields.depth("num_hidden_layers")
    window = fields.optional_size("sliding_window")
    pattern = fields.raw("sliding_window_pattern")
    default: tuple[str, ...] = (FULL,) * depth
    if window is not None and isinstance(pattern, str) and pattern and set(pattern) <= set(_PATTERN):
        default = tuple(_PATTERN[pattern[index % len(pattern)]] for index in range(depth))
    elif window is not None and isinstance(pattern, int) and pattern > 0:
        default = every_nth_full(depth, pattern)
    return windows_of_types(fields, window=window, default=default)


def every_nth_full(depth: int, period: int) -> tuple[str, ...]:
    """Layer types where each ``period``-th layer sees everything and the others slide."""
    return tuple(FULL if (index + 1) % period == 0 else SLIDING for index in range(depth))


def windows_of_kind(fields: Fields, kind: str, *, period: int, window: int | None) -> Windows | None:
    """Window of every layer as a kind of family gives it (`DecoderLayout`), whose default ``window`` is."""
    match kind:
        case "each":
            return (fields.optional_size("sliding_window"),) * fields.depth("num_hidden_layers")
        case "listed":
            return listed_windows(fields)
        case "periodic":
            window = fields.size("sliding_window", default=window)
            return periodic_windows(fields, period=period, window=window)
        case "leading":
            window, depth = fields.size("sliding_window", default=window), fields.depth("num_hidden_layers")
            default = tuple(SLIDING if index % period else FULL for index in range(depth))
            return windows_of_types(fields, window=window, default=default)
        case "patterned":
            return patterned_windows(fields, period=period, window=window)
        case "qwen":
            return qwen_windows(fields)
        case "exaone":
            return exaone_windows(fields)
        case "full":
            fields.words("layer_types", length=fields.depth("num_hidden_layers"), allowed=(FULL,))
    return None
