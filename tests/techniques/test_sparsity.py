"""Sparse weights: what they save, what the hardware allows, and no silent nothing."""

from __future__ import annotations

import numpy as np
import pytest

from simulator import deploy, estimate_step, load_hardware, load_model, memory_plan
from simulator.errors import RoofcastError
from simulator.operators.work import decode_step, prefill_step
from simulator.phases.deployment import Deployment
from simulator.reports.words.fields import assumption_texts
from simulator.specs.base import validate
from simulator.specs.model.precision import PrecisionSpec
from simulator.specs.question.techniques import TechniquesSpec


def replica(
    sparsity: object = None, *, model: str = "llama-3.1-8b", hardware: str = "a100-sxm-80gb", **precision: object
) -> Deployment:
    return deploy(
        model=load_model(model),
        hardware=load_hardware(hardware),
        precision=PrecisionSpec.model_validate(precision),
        techniques=validate(TechniquesSpec, {"sparsity": sparsity}, where=""),
    )


def decode_s(made: Deployment) -> np.ndarray:
    return estimate_step(made, decode_step(sequences=[1.0, 16.0, 512.0], context=512.0)).step_s


def weights(made: Deployment) -> float:
    return memory_plan(made).weights_bytes


@pytest.mark.parametrize("hardware", ["a100-sxm-80gb", "h100-sxm-80gb", "mi300x"])
def test_two_of_four_is_faster_everywhere_smaller_by_its_metadata_and_never_twice(hardware: str) -> None:
    dense, sparse = replica(hardware=hardware), replica("2:4", hardware=hardware)
    gain = decode_s(dense) / decode_s(sparse)
    assert np.all(gain > 1)
    assert np.all(gain < 2)
    blocks = 32 * (4096 * (4096 + 2 * 1024) + 4096 * 4096 + 3 * 4096 * 14336)
    assert weights(dense) - weights(sparse) == pytest.approx(blocks * (16 - 9) / 8)
    prompt = prefill_step(sequences=4, tokens=2048)
    assert 1 < float(estimate_step(dense, prompt).step_s[0] / estimate_step(sparse, prompt).step_s[0]) < 2


def test_quantised_and_sparse_together_beat_either() -> None:
    both = decode_s(replica("2:4", scheme="rtn-g64"))
    assert np.all(both[:2] < decode_s(replica(scheme="rtn-g64"))[:2])
    assert np.all(both[:2] < decode_s(replica("2:4"))[:2])
    assert weights(replica("2:4", scheme="rtn-g64")) < weights(replica(scheme="rtn-g64"))


def test_compressed_patterns_save_bytes_and_time_only_while_memory_bound() -> None:
    dense, stored = replica(), replica({"pattern": "unstructured", "fraction": 0.6, "compressed": True})
    ratio = decode_s(stored) / decode_s(dense)
    assert ratio[0] < 0.8
    assert ratio[-1] > 1.0
    assert weights(stored) < weights(dense)
    eight = replica({"pattern": "4:8", "compressed": True})
    assert weights(replica("2:4")) < weights(eight) < weights(dense)


@pytest.mark.parametrize("method", ["magnitude", "wanda", "sparsegpt"])
def test_the_method_never_changes_the_speed(method: str) -> None:
    assert np.array_equal(decode_s(replica({"pattern": "2:4", "method": method})), decode_s(replica("2:4")))


@pytest.mark.parametrize("target", ["heads", "channels", "layers"])
def test_structured_pruning_leaves_a_smaller_model(target: str) -> None:
    half = replica({"pattern": "structured", "fraction": 0.5, "target": target})
    dense = replica()
    assert weights(half) < weights(dense)
    assert np.all(decode_s(half) < decode_s(dense))
    if target == "layers":
        assert half.model.num_hidden_layers == 16
        assert half.model.layer_order[0] == dense.model.layer_order[0]
        assert memory_plan(half).kv_bytes_per_token == memory_plan(dense).kv_bytes_per_token / 2
    if target == "heads":
        assert memory_plan(half).kv_bytes_per_token == memory_plan(dense).kv_bytes_per_token / 2
    if target == "channels":
        assert memory_plan(half).kv_bytes_per_token == memory_plan(dense).kv_bytes_per_token


def test_structured_pruning_reaches_experts() -> None:
    third = {"pattern": "structured", "fraction": 0.25, "target": "channels"}
    assert weights(replica(third, model="mixtral-8x7b")) < 0.8 * weights(replica(model="mixtral-8x7b"))


@pytest.mark.parametrize(
    ("sparsity", "changes", "match"),
    [
        ("4:8", {}, "change nothing on a100"),
        ({"pattern": "unstructured", "fraction": 0.5}, {}, "change nothing on a100"),
        ("4:8", {"hardware": "t4", "weights": "fp16"}, "dense weights only"),
        ("2:4", {"hardware": "v100-sxm-32gb", "weights": "fp16"}, "no 2:4 rate for fp16; it has none"),
        ("2:4", {"scheme": "nf4"}, "no kernel multiplies 2:4 sparse nf4"),
        ("2:4", {"scheme": "awq", "kernel": "marlin"}, "marlin kernels do not multiply 2:4"),
        ({"pattern": "unstructured", "fraction": 0.05, "compressed": True}, {}, "save nothing"),
        ({"pattern": "structured", "fraction": 0.01, "target": "heads"}, {}, "changes nothing"),
    ],
)
def test_what_changes_nothing_or_cannot_be_is_refused(sparsity: object, changes: dict[str, str], match: str) -> None:
    with pytest.raises(RoofcastError, match=match) as refusal:
        replica(sparsity, **changes)
    assert refusal.value.field == "techniques.sparsity"


@pytest.mark.parametrize(
    ("sparsity", "match"),
    [
        ("2to4", "not known"),
        ("4:4", "keeps"),
        ({"pattern": "2:4", "fraction": 0.4}, "contradicts"),
        ({"pattern": "unstructured"}, "needs a fraction"),
        ({"pattern": "structured"}, "needs a fraction"),
        ({"pattern": "2:4", "target": "heads"}, "target"),
        ({"pattern": "structured", "fraction": 0.5, "target": "heads", "compressed": True}, "changes nothing"),
    ],
)
def test_bad_specs_are_refused(sparsity: object, match: str) -> None:
    with pytest.raises(RoofcastError, match=match):
        validate(TechniquesSpec, {"sparsity": sparsity}, where="")


def test_structured_without_a_target_takes_channels_and_says_so() -> None:
    said, default = ({"pattern": "structured", "fraction": 0.25, **more} for more in ({"target": "channels"}, {}))
    assert replica(default).model == replica(said).model
    assert "sparsity.target = channels (default)" in assumption_texts(replica(default).assumptions)
