"""The quality table: sourced rows, exact joins, and unknown that stays unknown."""

from __future__ import annotations

import pytest

from simulator.operators.formats.tensor_formats import precision_plan
from simulator.reports.words.fields import note_text
from simulator.specs.model.checkpoints import DENSE, load_quality_table
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
    assert found.evidence[0].model == "opt-175b"
    assert "llama-3.1-8b" not in {row.model for row in found.evidence}
    assert note_text(found.note).startswith("unknown for this model")


def test_nothing_published_says_so() -> None:
    found = quality("llama-3.1-8b", PrecisionSpec(weights=Dtype.INT4))
    assert found.rows == found.evidence == ()
    assert note_text(found.note) == "quality unknown: nothing published in the table"


def test_sparse_and_quantised_is_not_the_sum_of_both() -> None:
    techniques = TechniquesSpec.model_validate({"sparsity": {"pattern": "2:4", "method": "wanda"}})
    assert not quality("llama-7b", PrecisionSpec(weights=Dtype.INT8), techniques).known


def test_methods_of_equal_speed_stand_beside_each_other() -> None:
    techniques = TechniquesSpec.model_validate({"sparsity": {"pattern": "2:4", "method": "wanda"}})
    found = quality("llama-7b", PrecisionSpec(weights=Dtype.FP16), techniques)
    assert "as fast: magnitude 42.13, sparsegpt 11" in note_text(found.note)
    assert {row.method for row in found.table.as_fast(found.rows[0])} == {"magnitude", "sparsegpt"}


def test_awq_is_of_groups_of_128_where_nothing_is_said() -> None:
    loss = quality("llama-2-7b", PrecisionSpec(scheme="awq")).loss
    assert loss == quality("llama-2-7b", PrecisionSpec(scheme="awq-g128")).loss == pytest.approx(5.60 / 5.47 - 1)


def test_the_table_keeps_the_laws_of_compression() -> None:
    """No compression of a finished model is better than it by more than noise; fewer bits are never better."""
    table = load_quality_table()
    worth = {"perplexity": 1.0, "average": -1.0, "pro": -1.0}
    found: dict[tuple[object, ...], dict[int, float]] = {}
    for row in table.rows:
        # A distilled student is a model of its own, better than the same one tuned alone.
        if row.method == DENSE or (row.weight_bits is None and row.sparsity is None):
            continue
        sign = worth[row.metric.rsplit("_", 1)[-1]]
        assert sign * (row.value - table.dense(row).value) > -0.02 * row.value, row
        if row.sparsity is None and row.weight_bits is not None:
            key = (row.source, row.model, row.metric, row.method, row.group_size)
            found.setdefault(key, {})[row.weight_bits] = sign * row.value
    assert any(len(values) > 1 for values in found.values())
    for values in found.values():
        assert [values[bits] for bits in sorted(values)] == sorted(values.values(), reverse=True)
