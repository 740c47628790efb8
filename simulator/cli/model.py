"""``roofcast model``: what a configuration holds."""

from __future__ import annotations

import json
import sys
from typing import Any

from simulator.cli.fine_tune import FineTuneQuestion, fine_tune_lines, fine_tune_object
from simulator.operators.formats.tensor_formats import precision_plan
from simulator.operators.kv_layout import kv_bytes_per_sequence, kv_bytes_per_token, state_bytes_per_sequence
from simulator.operators.step_shape import decode_step, prefill_step
from simulator.operators.transformer import model_flops, parameter_counts
from simulator.reports.contract import SCHEMA_VERSION
from simulator.specs.documents import validate
from simulator.specs.model.loading import load_model
from simulator.specs.model.precision import PrecisionSpec
from simulator.units import GIGA, TERA, format_si


def model_object(
    config: str,
    *,
    context_tokens: int,
    kv_cache: str | None = None,
    fine_tune: FineTuneQuestion | None = None,
    profiles: str | None = None,
) -> dict[str, Any]:
    """The JSON document of ``roofcast model``; with ``fine_tune`` also the memory of training."""
    model = load_model(config, profiles=profiles)
    plan = precision_plan(model, validate(PrecisionSpec, {"kv_cache": kv_cache}, where=""))
    counts = parameter_counts(model)
    per_token = kv_bytes_per_token(model, plan=plan, tp_size=1)
    state = state_bytes_per_sequence(model, plan=plan, tp_size=1)
    tuned = (
        {"fine_tuning": fine_tune_object(model, question=fine_tune, context_tokens=context_tokens)} if fine_tune else {}
    )
    return {
        "schema_version": SCHEMA_VERSION,
        "name": model.name,
        "model_type": model.model_type,
        "num_hidden_layers": model.num_hidden_layers,
        "hidden_size": model.hidden_size,
        "parameters": counts.total,
        "active_parameters": counts.active,
        "context_tokens": context_tokens,
        "prefill_flops": float(model_flops(model, prefill_step(sequences=1, tokens=context_tokens))[0]),
        "decode_flops_per_token": float(model_flops(model, decode_step(sequences=1, context=context_tokens))[0]),
        "kv_bytes_per_token": per_token,
        "kv_cache_dtype": plan.kv_dtype.value,
        "state_bytes_per_sequence": state,
        "kv_bytes_at_context": float(
            kv_bytes_per_sequence(model, plan=plan, tp_size=1, context_tokens=context_tokens)[0]
        ),
        "assumptions": list(plan.assumptions),
        "notes": list(model.notes),
        **tuned,
    }


def print_model(
    config: str,
    *,
    context_tokens: int,
    kv_cache: str | None,
    fine_tune: FineTuneQuestion | None,
    as_json: bool,
    profiles: str | None,
) -> None:
    """Print the counts as JSON or as lines."""
    document = model_object(
        config, context_tokens=context_tokens, kv_cache=kv_cache, fine_tune=fine_tune, profiles=profiles
    )
    if as_json:
        sys.stdout.write(json.dumps(document, allow_nan=False) + "\n")
        return
    lines = (
        f"{document['name']} ({document['model_type']}): {document['num_hidden_layers']} layers, "
        f"hidden_size {document['hidden_size']}",
        f"parameters          {document['parameters'] / GIGA:.3f} billion, "
        f"{document['active_parameters'] / GIGA:.3f} billion active per token",
        f"prefill             {document['prefill_flops'] / TERA:.4g} TFLOP for {context_tokens} tokens",
        f"decode              {document['decode_flops_per_token'] / GIGA:.4g} GFLOP per token "
        f"at {context_tokens} tokens",
        f"KV cache            {format_si(document['kv_bytes_per_token'], 'B')} per token "
        f"({document['kv_cache_dtype']}), {format_si(document['kv_bytes_at_context'], 'B')} at {context_tokens} tokens",
        *(f"note: {text}" for text in document["notes"]),
        *(f"assumed: {text}" for text in document["assumptions"]),
        *(fine_tune_lines(document["fine_tuning"]) if fine_tune else ()),
    )
    sys.stdout.write("\n".join(lines) + "\n")
