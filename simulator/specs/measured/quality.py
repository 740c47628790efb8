"""Published quality of compressed models: a table that is looked up and never interpolated."""

from __future__ import annotations

from functools import lru_cache
from operator import attrgetter

from pydantic import PositiveFloat, PositiveInt

from simulator.specs.base import Spec
from simulator.specs.documents import read_yaml, validate
from simulator.specs.profiles import profile_root

DENSE = "dense"


class QualityRow(Spec):
    """One published figure: ``value`` of ``metric`` for ``model`` under ``method`` (dense: uncompressed).

    source : key of REFERENCES.md; recalled : written from memory of the source and not checked against it
    """

    source: str
    model: str
    metric: str
    method: str
    weight_bits: PositiveInt | None = None
    activation_bits: PositiveInt | None = None
    group_size: PositiveInt | None = None
    sparsity: str | None = None
    value: PositiveFloat
    recalled: bool = False
    note: str = ""


class PreparationRow(Spec):
    """What preparing a model with a method takes."""

    method: str
    kind: str
    cost: str
    data: str
    source: str = ""


class QualityTable(Spec):
    """All published rows, and what each method costs to prepare."""

    date: str
    rows: tuple[QualityRow, ...]
    preparation: tuple[PreparationRow, ...]

    def dense(self, row: QualityRow) -> QualityRow:
        """The uncompressed model's row of the same source and metric."""
        return next(
            other
            for other in self.rows
            if (other.source, other.model, other.metric, other.method) == (row.source, row.model, row.metric, DENSE)
        )

    def as_fast(self, row: QualityRow) -> tuple[QualityRow, ...]:
        """Other methods that leave the same model in the same format, by the same source and metric."""
        format_of = attrgetter("source", "model", "metric", "weight_bits", "activation_bits", "group_size", "sparsity")
        same = (other for other in self.rows if other.method != row.method and format_of(other) == format_of(row))
        return tuple({other.method: other for other in same}.values())


@lru_cache(maxsize=1)
def load_quality_table() -> QualityTable:
    """The table shipped with the package (model_profiles/quality/published.yaml)."""
    path = profile_root("model_profiles") / "quality" / "published.yaml"
    return validate(QualityTable, read_yaml(path), where=str(path))
