"""Inputs of how unlike each other requests are and what of them is cached, the same on every page of a load."""

from __future__ import annotations

from app.fields import glossary, widgets
from simulator.traffic.workload_presets import WorkloadPreset

_HIGHEST = 5.0


def variation_inputs(preset: WorkloadPreset, *, highest_prefix: float) -> tuple[float, float, float]:
    """Coefficients of variation of prompts and answers, and the share of prompt tokens in the prefix cache."""
    isl_cv, osl_cv = (
        widgets.number(label, key=key, low=0.0, high=_HIGHEST, value=value, step=0.1, help=glossary.VARIATION)
        for label, key, value in (
            ("Variation of prompts", "isl_cv", preset.isl_cv),
            ("Variation of answers", "osl_cv", preset.osl_cv),
        )
    )
    prefix_hit = widgets.number(
        "Prompt tokens in cache",
        key="prefix",
        low=0.0,
        high=highest_prefix,
        value=preset.prefix_hit,
        step=0.05,
        help=glossary.PREFIX,
    )
    return isl_cv, osl_cv, prefix_hit
