"""What users once met with a traceback, for ever, or silently: each ends in an answer or in one line that says why."""

from __future__ import annotations

import json
from typing import Any

import pytest

from simulator.errors import RoofcastError
from simulator.specs.profiles import profile_root
from tests.fuzz import samples
from tests.fuzz.campaign import find
from tests.fuzz.kinds import KINDS

HUGE = int("9" * 90)
"""As many digits as a number may have; more are no JSON."""
ENDLESS = "re:(\\w*\\.?)*!"
PLAN = "plan-capacity --json --model llama-3.1-8b --hardware h100 --tp 1 --rps 20"
LOAD = {"stages": [{"rate_per_s": 1000, "duration_s": 10}], "isl_tokens": 100, "osl_tokens": 20}


def scenario(**fields: Any) -> str:
    asked = {"model": "llama-3.1-8b", "hardware": "h100", "batch_size": 8, "isl_tokens": 512, "osl_tokens": 16}
    return json.dumps({"id": "a", "kind": "batch", **asked, **fields})


def serve(**fields: Any) -> str:
    return json.dumps({"id": "a", "kind": "serve", "model": "llama-3.1-8b", "hardware": "h100", **fields})


def config(**fields: Any) -> str:
    asked = {"model_type": "llama", "hidden_size": 512, "num_hidden_layers": 2, "num_attention_heads": 8}
    return json.dumps({**asked, "intermediate_size": 1024, "vocab_size": 32000, **fields})


def profile(folder: str, name: str, *more: str, **replaced: str) -> str:
    """A file of the repository with lines added, and values replaced by other text."""
    text = (profile_root("hardware_profiles") / folder / f"{name}.yaml").read_text(encoding="utf-8")
    lines = [
        f"{field}: {replaced[field]}" if (field := line.partition(":")[0]) in replaced else line
        for line in text.splitlines()
    ]
    assert all(f"{field}: {value}" in lines for field, value in replaced.items()), replaced
    return "\n".join((*lines, *more)) + "\n"


def mooncake(**fields: Any) -> str:
    row = {"timestamp": 3000, "input_length": 600, "output_length": 50, "hash_ids": [1, 2]}
    return samples.MOONCAKE + json.dumps({**row, "timestamp": 200_000, **fields}) + "\n"


AT_ONCE = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "2024-05-10 00:00:00,5,5\n" * 9
ANSWERED = ""
SEEN: dict[str, tuple[str, Any, str]] = {
    "400 digits": ("scenario", scenario(batch_size=int("9" * 400)), "more than 100 digits"),
    "90 digits": ("scenario", scenario(batch_size=HUGE), "batch_size"),
    "90 digits of memory": ("scenario", scenario(engine={"name": "vllm", "max_model_len": HUGE}), "max_model_len"),
    "90 digits of demand": ("scenario", serve(workload={**LOAD, "osl_tokens": HUGE}), "osl_tokens"),
    "text for an integer": ("scenario", scenario(batch_size=" 8 "), "batch_size"),
    "digits with a line": ("scenario", scenario(isl_tokens="1_000"), "isl_tokens"),
    "true for an integer": ("scenario", scenario(tp_size=True), "tp_size"),
    "an unknown field of null": ("scenario", scenario(frobnicate=None), "frobnicate"),
    "any version": ("scenario", scenario(engine={"name": "vllm", "version": {"a": 1}}), "engine.version"),
    "mfu above one": ("scenario", scenario(techniques={"contextual_sparsity": "attention=0.1,mlp=0.01"}), ANSWERED),
    "seven tokens a step": (
        "scenario",
        serve(
            engine={"name": "vllm", "max_num_batched_tokens": 7},
            techniques={"weight_offload": 0.5, "speculation": "eagle:k=3"},
            workload={**LOAD, "stages": [{"rate_per_s": 2, "duration_s": 10}]},
        ),
        ANSWERED,
    ),
    "a thousand replicas": ("scenario", serve(replicas=1000, workload=LOAD), ANSWERED),
    "a pattern without end": (
        "config",
        config(quantization_config={"quant_method": "fp8", "ignored_layers": [ENDLESS]}),
        ANSWERED,
    ),
    "a pattern that is none": (
        "config",
        config(quantization_config={"quant_method": "fp8", "ignored_layers": ["re:((("]}),
        "unclosed group",
    ),
    "layer types of objects": ("config", config(layer_types=[{"a": 1}] * 2), "layer_types"),
    "a dimension of 1e308": ("config", config(hidden_size=1e308), "hidden_size"),
    "a misspelt field": (
        "config",
        json.dumps({**json.loads(config()), "vision_config": {"deepstack_visual_indexes": [8]}}),
        "vision_config",
    ),
    "escape sequences": ("config", config(model_type="\x1b[31mred"), r"\x1b[31mred"),
    "ownership, an unknown field": ("ownership", profile("ownership", "default", "frobnicate: 1"), "frobnicate"),
    "ownership, a list": ("ownership", "- name: x\n", "mapping"),
    "ownership, a field twice": ("ownership", profile("ownership", "default", "name: default"), "twice"),
    "ownership, tabs": ("ownership", "name: x\n\ta: 1\n", "YAML"),
    "hardware, a number as text": ("hardware", profile("", "l4", tdp_w='"72"'), "tdp_w"),
    "hardware, true for a number": ("hardware", profile("", "l4", tdp_w="true"), "tdp_w"),
    "hardware, 5,000 digits": ("hardware", profile("", "l4", tdp_w="9" * 5000), "more than 2000 characters"),
    "hardware, a release that is no day": ("hardware", profile("", "l4", release_date='"\u00b2"'), "release_date"),
    "a price of lists": ("prices", samples.PRICES.replace("hardware: h100-sxm-80gb", "hardware: [h100]"), "hardware"),
    "all at one moment": ("record", AT_ONCE, "same time"),
    "moments far apart": ("record", mooncake(timestamp=10**17), "apart"),
    "hashes beyond 64 bits": ("record", mooncake(hash_ids=[2**70]), "hash_ids"),
    "a huge length": ("record", mooncake(input_length=HUGE), "input_length"),
    "a wide cell": ("record", samples.AZURE + "2024-05-10 00:01:00," + "9" * 200_000 + ",5\n", "limit"),
    "a nested trace": ("record", "[" * 600 + "]" * 600, "nested"),
    "a long guess": ("plan", f"{PLAN} --speculation eagle:k=1e9".split(), "--speculation"),
    "hardly ever": ("plan", [*PLAN.split()[:-1], "1e-300"], "--rps"),
    "once in thirty years": ("plan", [*PLAN.split()[:-1], "1e-9", "--uncertainty", "--draws", "50"], ANSWERED),
    "nothing is quick enough": ("plan", f"{PLAN} --e2e-p95 0.001 --any-technique".split(), "no "),
    "owned by nobody": ("plan", f"{PLAN} --ownership foo".split(), "unknown ownership profile 'foo'"),
    "pools": ("plan", f"{PLAN} --pools --isl 4000".split(), ANSWERED),
    "a long name": ("plan", [*PLAN.split(), "--profiles", "x" * 300], "--profiles"),
    "a long name of a document": ("command", ["roofcast", "verify", "x" * 300], "x" * 40),
}


SLOW = ("nothing is quick enough", "a thousand replicas")


def _seen(name: str) -> Any:
    return pytest.param(*SEEN[name], marks=[pytest.mark.slow] if name in SLOW else [], id=name)


@pytest.mark.parametrize(("kind", "case", "said"), [_seen(name) for name in SEEN])
def test_what_was_seen_is_answered_or_refused_in_a_line(kind: str, case: Any, said: str) -> None:
    found = find(kind, case, again=True)
    assert found is None, f"{found.place}: {found.detail}"
    if not said:
        assert KINDS[kind].answer(case)
        return
    with pytest.raises(RoofcastError) as refused:
        KINDS[kind].answer(case)
    assert said in str(refused.value)
