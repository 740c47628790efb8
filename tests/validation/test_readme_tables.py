"""``validation.readme``: the tables that it writes."""

from __future__ import annotations

from simulator.reports.answers.today import COLUMNS
from simulator.specs.measured.scores import kernel_scores
from tests.reports.report_cases import measured_row
from validation.readme import kernel_table, today_markdown


def test_the_readme_table_has_a_column_per_accelerator_and_a_row_per_family_and_format():
    lines = kernel_table("vllm").splitlines()
    rows = kernel_scores("vllm", groups=("gemm",))
    columns = lines[0].count("|") - 2
    assert columns == len({row.hardware for row in rows})
    assert all(line.count("|") == columns + 2 for line in lines)
    gemm = next(line for line in lines if line.startswith("| gemm bf16"))
    h100 = next(row for row in rows if (row.hardware, row.format) == ("h100-sxm-80gb", "bf16"))
    assert h100.mape is not None
    assert f"{100 * h100.mape:.1f} %" in gemm


def test_todays_scores_are_a_table_with_a_line_for_all_and_one_for_each_engine() -> None:
    rows = [measured_row(engine=engine) for engine in ("vllm", "sglang")]
    lines = today_markdown(rows).splitlines()
    assert len(lines) == 2 + 3
    assert all(line.count("|") == len(COLUMNS) + 1 for line in lines)
