"""Commands that make a checkpoint which nobody published, by the tool whose files the engine loads."""

from __future__ import annotations

import json
import shlex

from simulator.operators.formats.tensor_formats import PrecisionPlan
from simulator.planner.handoff.settings import Checkpoint
from simulator.reports.handoff.texts import script
from simulator.specs.model.precision import Dtype

# Presets of llm-compressor and formats of ModelOpt's hf_ptq.py, by the format of the weights.
_COMPRESSED = {Dtype.FP8: "FP8_DYNAMIC", Dtype.FP4: "NVFP4", Dtype.INT4: "W4A16", Dtype.INT8: "W8A8"}
_MODELOPT = {Dtype.FP8: "fp8", Dtype.FP4: "nvfp4", Dtype.INT4: "int4_awq", Dtype.INT8: "int8_sq"}


def checkpoint_script(made: Checkpoint, plan: PrecisionPlan) -> str:
    """The commands, for a model that is served as ``plan`` says; empty where no tool makes it."""
    weights, path, model = plan.weights, made.path.removeprefix("./"), shlex.quote(made.base)
    match made.tool:
        case "compressed-tensors":
            # Formats with scales of their own for activations or groups are calibrated on text; dynamic FP8 is not.
            text = ', dataset="ultrachat_200k", splits="train_sft[:512]", num_calibration_samples=512'
            data, preset = "" if weights is Dtype.FP8 else text, _COMPRESSED.get(weights, weights.value)
            values = {"base": json.dumps(made.base), "made": json.dumps(path), "preset": preset, "data": data}
            return script("compressed-tensors", values)
        case "modelopt":
            cached = "fp8" if plan.kv_dtype is Dtype.FP8 else "none"
            values = {"model": model, "folder": shlex.quote(path), "cache": cached}
            return script("modelopt", {**values, "format": _MODELOPT.get(weights, weights.value)})
        case "gguf":
            name = made.base.rsplit("/", 1)[-1]
            wide = shlex.quote(f"{name}-BF16.gguf")
            commands = script("gguf", {"model": model, "folder": shlex.quote(name), "wide": wide})
            return commands + (f"llama-quantize {wide} {shlex.quote(path)} {made.kind}\n" if made.kind else "")
    return ""
