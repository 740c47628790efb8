"""Which files a planned replica serves: the model's own, a published quantized one, or one that is made first."""

from __future__ import annotations

import json
import shlex
from typing import Literal

from simulator.phases.deployment import Deployment
from simulator.phases.memory import MemoryPlan
from simulator.records import dataclass
from simulator.specs.engine.launch import LaunchSpec
from simulator.specs.model.checkpoints import published_checkpoint
from simulator.specs.model.precision import BITS, Dtype

_NATIVE = frozenset({Dtype.BF16, Dtype.FP16, Dtype.FP32, Dtype.TF32})
# Presets of llm-compressor and formats of ModelOpt's hf_ptq.py, by the format of the weights.
_COMPRESSED = {Dtype.FP8: "FP8_DYNAMIC", Dtype.FP4: "NVFP4", Dtype.INT4: "W4A16", Dtype.INT8: "W8A8"}
_MODELOPT = {Dtype.FP8: "fp8", Dtype.FP4: "nvfp4", Dtype.INT4: "int4_awq", Dtype.INT8: "int8_sq"}
_GGUF = {Dtype.FP8: "Q8_0", Dtype.INT8: "Q8_0", Dtype.INT4: "Q4_K_M", Dtype.FP4: "MXFP4_MOE"}

Origin = Literal["own", "published", "quantized_at_load", "made"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What is served.

    path : a Hub id or a folder; base : the model that it is made of
    quantization : the engine's name of a format that it makes while loading, else empty
    script : commands that make it, empty where it is there already
    source : of a published one, as the list of published checkpoints names it
    """

    origin: Origin
    path: str
    base: str
    quantization: str = ""
    script: str = ""
    source: str = ""


def _is_own(deployment: Deployment) -> bool:
    """Whether the model's own checkpoint has the planned weights."""
    own = deployment.model.quantization
    planned = deployment.plan.weights
    return planned in _NATIVE if own is None else own.weights is planned


def _fits_unquantized(deployment: Deployment, memory: MemoryPlan) -> bool:
    """Whether the 16-bit weights fit a device, where engines put them before they narrow them."""
    wide_bytes = memory.weights_bytes * BITS[Dtype.BF16] / BITS[deployment.plan.weights]
    return wide_bytes + memory.reserve_bytes <= deployment.hardware.memory_visible_bytes


def served_checkpoint(
    deployment: Deployment, *, model_id: str, scheme: str | None, memory: MemoryPlan, launch: LaunchSpec
) -> Checkpoint:
    """The model's own checkpoint where its weights are the planned ones; else a published one that the engine loads;
    else the format that the engine makes while loading, where the 16-bit weights fit; else commands that make one."""
    weights = deployment.plan.weights
    if launch.checkpoints == ("gguf",):
        return _gguf(model_id, weights=weights)
    if scheme is None and _is_own(deployment):
        return Checkpoint(origin="own", path=model_id, base=model_id)
    known = published_checkpoint(
        model_id, weights=weights, activations=deployment.plan.activations, scheme=scheme, kinds=launch.checkpoints
    )
    if known is not None:
        return Checkpoint(origin="published", path=known.id, base=model_id, source=known.source)
    at_load = launch.quantizes.get(scheme or weights.value)
    if at_load and _fits_unquantized(deployment, memory):
        return Checkpoint(origin="quantized_at_load", path=model_id, base=model_id, quantization=at_load)
    return _made(deployment, model_id=model_id, launch=launch)


def _folder(model_id: str, weights: Dtype) -> str:
    return f"{model_id.rsplit('/', 1)[-1]}-{weights.value.upper()}"


def _made(deployment: Deployment, *, model_id: str, launch: LaunchSpec) -> Checkpoint:
    """A folder, and the commands that fill it by the tool whose files the engine loads."""
    weights = deployment.plan.weights
    folder = _folder(model_id, weights)
    if "compressed-tensors" in launch.checkpoints:
        script = _compressor_script(model_id, folder=folder, weights=weights)
    else:
        cached = "fp8" if deployment.plan.kv_dtype is Dtype.FP8 else "none"
        script = (
            "# NVIDIA ModelOpt, examples/llm_ptq of its repository; needs accelerators that hold the 16-bit weights.\n"
            f"python hf_ptq.py --pyt_ckpt_path {shlex.quote(model_id)} \\\n"
            f"  --qformat {_MODELOPT.get(weights, weights.value)} --kv_cache_qformat {cached} \\\n"
            f"  --export_fmt hf --export_path {shlex.quote(folder)}\n"
        )
    return Checkpoint(origin="made", path=f"./{folder}", base=model_id, script=script)


def _compressor_script(model_id: str, *, folder: str, weights: Dtype) -> str:
    base, made = json.dumps(model_id), json.dumps(folder)
    preset = _COMPRESSED.get(weights, weights.value)
    # Formats with scales of their own for activations or groups are calibrated on text; FP8 with dynamic scales is not.
    calibrated = weights is not Dtype.FP8
    data = ', dataset="ultrachat_200k", splits="train_sft[:512]", num_calibration_samples=512' if calibrated else ""
    return (
        "# llm-compressor writes compressed-tensors; it needs host memory for the 16-bit weights.\n"
        "python - <<'PYTHON'\n"
        "from llmcompressor import oneshot\n"
        "from llmcompressor.modifiers.quantization import QuantizationModifier\n"
        "from transformers import AutoModelForCausalLM, AutoTokenizer\n"
        "\n"
        f'model = AutoModelForCausalLM.from_pretrained({base}, torch_dtype="auto")\n'
        f'recipe = QuantizationModifier(targets="Linear", scheme="{preset}", ignore=["lm_head", "re:.*router", '
        '"re:.*mlp.gate$"])\n'
        f"oneshot(model=model, recipe=recipe{data})\n"
        f"model.save_pretrained({made}, save_compressed=True)\n"
        f"AutoTokenizer.from_pretrained({base}).save_pretrained({made})\n"
        "PYTHON\n"
    )


def _gguf(model_id: str, *, weights: Dtype) -> Checkpoint:
    """llama.cpp reads its own files: converted, and quantized where the plan says so."""
    name = model_id.rsplit("/", 1)[-1]
    wide, folder = f"{name}-BF16.gguf", shlex.quote(name)
    lines = [
        "# Scripts of llama.cpp's repository.",
        f"hf download {shlex.quote(model_id)} --local-dir {folder}",
        f"python convert_hf_to_gguf.py {folder} --outtype bf16 --outfile {shlex.quote(wide)}",
    ]
    if weights in _NATIVE:
        path = wide
    else:
        kind = _GGUF.get(weights, weights.value)
        path = f"{name}-{kind}.gguf"
        lines.append(f"llama-quantize {shlex.quote(wide)} {shlex.quote(path)} {kind}")
    return Checkpoint(origin="made", path=f"./{path}", base=model_id, script="\n".join(lines) + "\n")
