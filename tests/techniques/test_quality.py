"""The quality table: sourced rows, exact joins, and unknown that stays unknown."""

from __future__ import annotations

import pytest

from simulator.operators.formats.tensor_formats import precision_plan
from simulator.specs.measured.quality import DENSE, load_quality_table
from simulator.specs.model.loading import load_model
from simulator.specs.model.precision import Dtype, PrecisionSpec
from simulator.specs.question.techniques import TechniquesSpec
from simulator.techniques.quality import Compression, Quality, compression_of, published_quality


def quality(model: str, precision: PrecisionSpec, techniques: TechniquesSpec | None = None) -> Quality:
    spec = load_model(model)
    plan = precision_plan(spec, precision)
    compression = compression_of(scheme=precision.scheme, plan=plan, techniques=techniques or TechniquesSpec())
    return published_quality(model, compression)


def test_every_compressed_row_has_its_dense_row() -> None:
    table = load_quality_table()
    for row in table.rows:
        assert table.dense(row).method == DENSE


def test_sixteen_bit_is_the_model_itself() -> None:
    found = quality("llama-3.1-8b", PrecisionSpec(weights=Dtype.BF16))
    assert found.is_lossless
    assert found.loss == 0.0


@pytest.mark.parametrize(
    ("model", "method", "pattern", "value"),
    [
        ("llama-7b", "wanda", "2:4", 11.53),
        ("llama-2-70b", "sparsegpt", "2:4", 5.40),
        ("llama-7b", "magnitude", "2:4", 42.13),
    ],
)
def test_published_sparsity_is_found(model: str, method: str, pattern: str, value: float) -> None:
    techniques = TechniquesSpec.model_validate({"sparsity": {"pattern": pattern, "method": method}})
    found = quality(model, PrecisionSpec(weights=Dtype.FP16), techniques)
    assert [row.value for row in found.rows] == [value]
    assert found.loss is not None
    assert found.loss > 0


def test_gptq_of_opt_175b_by_scheme_name() -> None:
    assert [row.value for row in published_quality("opt-175b", Compression(method="gptq", weight_bits=4)).rows] == [
        8.37
    ]
    grouped = Compression(method="gptq", weight_bits=3, group_size=128)
    assert [row.value for row in published_quality("opt-175b", grouped).rows] == [8.45]


def test_another_model_stays_unknown_and_shows_evidence() -> None:
    found = quality("llama-3.1-8b", PrecisionSpec(scheme="gptq"))
    assert not found.known
    assert found.loss is None
    assert [row.model for row in found.evidence] == ["opt-175b"]
    assert found.sentence.startswith("unknown for this model")


def test_nothing_published_says_so() -> None:
    found = quality("llama-3.1-8b", PrecisionSpec(weights=Dtype.FP8))
    assert found.rows == found.evidence == ()
    assert found.sentence == "quality unknown: nothing published in the table"


def test_sparse_and_quantised_is_not_the_sum_of_both() -> None:
    techniques = TechniquesSpec.model_validate({"sparsity": {"pattern": "2:4", "method": "wanda"}})
    assert not quality("llama-7b", PrecisionSpec(weights=Dtype.INT8), techniques).known
