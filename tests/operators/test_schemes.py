"""Named schemes: published sizes, mixes, codebooks, roles with schemes of their own, refusals."""

from __future__ import annotations

import pytest

from simulator.errors import RoofcastError
from simulator.operators.formats.gguf_formats import BLOCK_BITS
from simulator.operators.formats.schemes import SCHEME_NAMES, scheme_named
from simulator.operators.formats.sparse_formats import bitmap_bits, pattern_bits
from simulator.operators.formats.tensor_formats import model_roles, precision_plan
from simulator.operators.parallelism import kv_bytes_per_token
from simulator.operators.transformer import operator_list, stored_bytes
from simulator.operators.work import Work, decode_step
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.model.precision import Dtype, PrecisionSpec
from tests.for_every import for_every
from tests.operators.operator_models import LLAMA_31_8B


def rows(**precision: object) -> tuple[Work, ...]:
    plan = precision_plan(LLAMA_31_8B, PrecisionSpec.model_validate(precision))
    step = decode_step(sequences=1, context=1)
    return operator_list(LLAMA_31_8B, parallelism=ParallelismSpec(), plan=plan, step=step)


@pytest.mark.parametrize(
    ("scheme", "bits"),
    [("q2-k", 3.1593), ("q3-k-m", 3.9960), ("q4-k-m", 4.8944), ("q5-k-m", 5.7036), ("q6-k", 6.5633), ("q8-0", 8.5008)],
)
def test_gguf_mixes_take_their_published_bits_per_weight(scheme: str, bits: float) -> None:
    """llama.cpp's own table for Llama-3.1-8B (tools/quantize/README.md); its norms are 32-bit, ours 16."""
    listed = rows(scheme=scheme)
    assert stored_bytes(listed) * 8 / sum(row.count * row.parameters for row in listed) == pytest.approx(bits, rel=5e-4)


def test_block_bits_are_bytes_over_weights() -> None:
    assert BLOCK_BITS["q4_k"] == 4.5
    assert BLOCK_BITS["q6_k"] == 6.5625
    assert BLOCK_BITS["q8_0"] == 8.5


def test_codebooks_are_stored_beside_the_codes() -> None:
    """AQLM 1x16: 2 bits a weight and 65,536 vectors of 8 16-bit numbers for each matrix."""
    plain, books = rows(scheme="gptq"), rows(scheme="aqlm-1x16")
    up = next(row for row in books if row.name == "gate_up_proj")
    assert up.stored_bytes == 2 * 14336 * 4096 * 2 / 8 + 65536 * 8 * 2
    assert stored_bytes(books) < stored_bytes(plain)
    assert next(row for row in rows(scheme="aqlm-2x8") if row.name == "gate_up_proj").stored_bytes < up.stored_bytes


def test_kmeans_levels_cost_a_table_per_row() -> None:
    product = scheme_named("kmeans-4bit", plain=Dtype.BF16).format
    assert product.weight_bits == 4 + 16 * 16 / 4096


@for_every(SCHEME_NAMES)
def test_every_listed_scheme_resolves_and_fewer_bits_are_fewer_bytes(name: str) -> None:
    product = precision_plan(LLAMA_31_8B, PrecisionSpec(scheme=name)).format_for("mlp")
    up = next(row for row in rows(scheme=name) if row.name == "gate_up_proj")
    assert up.stored_bytes == 2 * 14336 * 4096 * product.weight_bits / 8 + product.codebook_bytes
    assert scheme_named(name.upper(), plain=Dtype.BF16).weights == scheme_named(name, plain=Dtype.BF16).weights


def test_a_role_may_have_a_scheme_of_its_own() -> None:
    plan = precision_plan(LLAMA_31_8B, PrecisionSpec(scheme="gptq-g128", mixed=(("lm_head", "gptq-8bit"),)))
    assert plan.format_for("lm_head").weight_bits == 8
    assert plan.format_for("mlp").name == "w4a16"
    assert PrecisionSpec.model_validate({"mixed": {"lm_head": "fp8"}}).mixed == (("lm_head", "fp8"),)
    everything = stored_bytes(rows(scheme="gptq-g128", mixed={"lm_head": "gptq-8bit"}))
    assert stored_bytes(rows(scheme="gptq-g128")) - everything == 128256 * 4096


def test_formats_of_roles_can_be_changed_without_touching_the_others() -> None:
    plan = precision_plan(LLAMA_31_8B, PrecisionSpec(scheme="gptq-g128"))
    changed = plan.with_formats(lambda product: plan.plain, roles=frozenset({"attention"}))
    assert changed.format_for("attention") == plan.plain
    assert changed.format_for("mlp") == plan.format_for("mlp")
    assert model_roles(LLAMA_31_8B) == {"attention", "mlp", "lm_head"}


@pytest.mark.parametrize(
    ("precision", "field", "match"),
    [
        ({"scheme": "gptq-g0"}, "precision.scheme", "at least one weight"),
        ({"scheme": "aqlm-9x20"}, "precision.scheme", "codebooks"),
        ({"scheme": "q4-k-x"}, "precision.scheme", "did you mean q4-k-m"),
        ({"scheme": "nf4", "kernel": "marlin"}, "precision.kernel", "bitsandbytes"),
        ({"scheme": "nf4", "kernel": "marlinn"}, "precision.kernel", "did you mean marlin"),
        ({"weights": "bf16", "kernel": "marlin"}, "precision.kernel", "do not multiply bf16"),
        ({"mixed": {"experts": "fp8"}}, "precision.mixed", "no layers of the role"),
        ({"mixed": {"lm_head": "fp9"}}, "precision.scheme", "unknown scheme"),
        ({"scheme": "llm.int8", "weights": "fp8"}, "precision.weights", "int8"),
    ],
)
def test_contradictions_name_both_sides(precision: dict[str, object], field: str, match: str) -> None:
    with pytest.raises(RoofcastError, match=match) as refusal:
        rows(**precision)
    assert refusal.value.field == field


@pytest.mark.parametrize(("dtype", "share"), [("fp8", 0.5), ("int8", 0.5), ("int4", 4.25 / 16)])
def test_narrow_caches_take_their_share(dtype: str, share: float) -> None:
    wide = precision_plan(LLAMA_31_8B, PrecisionSpec())
    narrow = precision_plan(LLAMA_31_8B, PrecisionSpec(kv_cache=Dtype(dtype)))
    ratio = kv_bytes_per_token(LLAMA_31_8B, plan=narrow, tp_size=1) / kv_bytes_per_token(
        LLAMA_31_8B, plan=wide, tp_size=1
    )
    assert ratio == pytest.approx(share)


def test_sparse_metadata_is_what_the_white_paper_says() -> None:
    """2 bits per kept value: 12.5 % of 16-bit, 25 % of 8-bit values; torchao's 4-bit 2:4 model has 3.25 bits."""
    assert pattern_bits(16, kept=2, of=4) == 0.5 * 16 * 1.125
    assert pattern_bits(8, kept=2, of=4) == 0.5 * 8 * 1.25
    assert pattern_bits(4.25, kept=2, of=4) == 3.25
    assert pattern_bits(16, kept=4, of=8) == 0.5 * (16 + 3)
    assert bitmap_bits(16, kept_fraction=0.5) == 9
