"""Documents of answers add up, and what is printed is what they say.

``simulator.reports.answers.step``, ``.model``, ``.crossover``, ``.structures``, ``.scenario``, ``.profiles`` and
``.validation``; ``simulator.api.models``.
"""

from __future__ import annotations

import json
from functools import cache
from itertools import pairwise
from typing import Any

import pytest

from simulator import simulate
from simulator.api.measurements import scorecard
from simulator.api.models import count, mixers, retrieval
from simulator.api.steps import crossover, step
from simulator.errors import ProfileError, RoofcastError
from simulator.reports.answers.model import ModelAnswer
from simulator.reports.answers.profiles import SECTIONS, names_by_section, names_text, show_profile
from simulator.reports.answers.step import CrossoverAnswer, StepAnswer
from simulator.reports.answers.structures import MixersAnswer, RetrievalAnswer, RetrievalQuestion
from simulator.reports.answers.validation import predicted_words
from simulator.reports.tables.scenario_figures import SCENARIO_COLUMNS, scenario_rows, scenario_text
from simulator.specs.measured.validation_rows import load_validation_table

SMALL = "llama-3.1-8b"
HALF = {"weights": "bf16"}


@cache
def decoded(*, batch: int = 16, tp: int = 1) -> StepAnswer:
    return step(model=SMALL, batch_size=batch, tp_size=tp, precision=HALF)


class TestStep:
    def test_operators_add_up_to_the_step(self) -> None:
        document = decoded().to_dict()
        operators = sum(row["seconds"] for row in document["operators"])
        beside = sum(document["breakdown_s"].get(part, 0.0) for part in ("draft", "host"))
        assert operators + beside == pytest.approx(document["step_s"])
        assert sum(document["breakdown_s"].values()) == pytest.approx(document["step_s"])

    def test_layers_that_see_fewer_keys_have_a_row_of_their_own_and_others_share_one(self) -> None:
        answer = step(model="gpt-oss-20b", batch_size=16)
        counts = {cells[0]: float(cells[1]) for cells in answer.cells()[1] if cells[1] != "-"}
        assert counts["decode_attention"] == counts["decode_attention (128 keys)"] == 12
        assert counts["qkv_proj"] == 24
        assert sum(counts.values()) == sum(row["count"] for row in answer.rows() if row["seconds"])

    def test_energy_adds_up_and_is_power_within_the_limit(self) -> None:
        document = decoded().to_dict()
        energy = document["energy_j"]
        assert sum(energy[part] for part in ("idle", "busy", "compute", "memory")) == pytest.approx(energy["total"])
        assert 0 < energy["total"] / document["step_s"] <= 700

    def test_a_weight_is_multiplied_once_for_each_sequence(self) -> None:
        one, many = ({row["operator"]: row for row in decoded(batch=batch).rows()} for batch in (1, 16))
        # The gate and up projection of 32 layers, 4,096 x 28,672.
        assert one["gate_up_proj"]["count"] * 1.0 == 32
        assert one["gate_up_proj"]["flops"] == 2 * 32 * 4096 * 28_672
        assert many["gate_up_proj"]["flops"] == 16 * one["gate_up_proj"]["flops"]
        assert many["gate_up_proj"]["bytes"] < 1.1 * one["gate_up_proj"]["bytes"]

    def test_products_are_no_faster_than_the_roofline_and_collectives_have_none(self) -> None:
        for row in decoded(tp=2).rows():
            if row["family"] == "gemm":
                assert row["seconds"] >= row["roofline_floor_s"]
            if "reduce" in row["operator"]:
                assert row["roofline_floor_s"] is None

    def test_the_table_lists_operators_by_falling_time_and_the_host_first(self) -> None:
        columns, rows = decoded().cells()
        at = columns.index("µs")
        host, *operators = rows
        assert host[0] == "host"
        seconds = [float(row[at].replace(",", "")) for row in operators]
        assert all(earlier >= later for earlier, later in pairwise(seconds))

    def test_what_does_not_fit_is_said_first(self) -> None:
        large = step(model="llama-3.1-70b", hardware="l4", batch_size=1, precision=HALF)
        assert not large.to_dict()["fits"]
        assert large.to_dict()["shortfall_bytes"] > 140e9 - 24e9
        assert large.to_text().startswith("llama-3.1-70b does not fit l4 at tp 1: a device is ")
        assert "does not fit" not in decoded().to_text()

    def test_a_prompt_has_no_crossover_and_a_decode_step_one(self) -> None:
        found = decoded().to_dict()["crossover"]
        low, high = found["interval"]
        assert low <= found["batch"] <= high
        assert "crossover" not in step(model=SMALL, phase="prefill", precision=HALF).to_dict()

    def test_the_chart_has_a_point_for_operators_under_both_roofs(self) -> None:
        assert decoded().chart().series


class TestModel:
    def test_counts_by_hand(self) -> None:
        found: ModelAnswer = count(SMALL, context_tokens=1000)
        document = found.to_dict()
        # Embedding and head, then per layer q and o, k and v, gate, up and down, and the norms.
        layer = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14_336 + 2 * 4096
        assert document["parameters"] == 2 * 128_256 * 4096 + 32 * layer + 4096
        assert document["active_parameters"] == document["parameters"]
        assert document["kv_bytes_at_context"] == 1000 * document["kv_bytes_per_token"]
        assert "fine_tuning" not in document

    def test_an_encoder_generates_nothing(self) -> None:
        found = count("bert-base")
        assert found.to_dict()["decode_flops_per_token"] is None
        assert "none: an encoder" in found.to_text()
        assert len(found.chart().series[0].y) == 1

    def test_parts_of_fine_tuning_add_up(self) -> None:
        tuning = count(SMALL, fine_tune=("full", "lora:8"), train_batch=2).to_dict()["fine_tuning"]
        for method in tuning["methods"]:
            parts = ("weights", "adapter", "gradient", "optimizer", "activation")
            assert sum(method[f"{part}_bytes"] for part in parts) == pytest.approx(method["total_bytes"])
        full, lora = tuning["methods"]
        assert full["trained_share"] == 1
        assert 0 < lora["trained_share"] < 0.01
        assert tuning["sequences"] == 2
        (half,) = count(SMALL, context_tokens=2048, fine_tune=("full",), train_batch=2).to_dict()["fine_tuning"][
            "methods"
        ]
        assert full["activation_bytes"] == 2 * half["activation_bytes"], "4,096 tokens where none are named"

    def test_a_longer_context_than_the_model_takes_is_noted(self) -> None:
        assert any(
            "the model takes 131,072" in text for text in count(SMALL, context_tokens=200_000).to_dict()["notes"]
        )
        assert count(SMALL, context_tokens=131_072).to_dict()["notes"] == []

    @pytest.mark.parametrize(
        ("name", "given"), [("--optimizer", {"optimizer": "half"}), ("--train-batch", {"train_batch": 2})]
    )
    def test_what_has_no_effect_is_refused_by_name(self, name: str, given: dict[str, Any]) -> None:
        with pytest.raises(RoofcastError) as caught:
            count(SMALL, **given)
        assert caught.value.field == name
        assert caught.value.code == "ignored_option"

    def test_a_method_that_cannot_be_is_refused_with_its_text(self) -> None:
        with pytest.raises(RoofcastError) as caught:
            count(SMALL, fine_tune=("lora:0",))
        assert "lora:0" in str(caught.value)


class TestCrossover:
    @staticmethod
    @cache
    def found() -> CrossoverAnswer:
        return crossover(model=SMALL, formats="bf16,fp8,gptq-g128")

    def test_the_fastest_has_the_smallest_time_of_its_row(self) -> None:
        document = self.found().to_dict()
        for row, fastest in zip(self.found().rows(), document["fastest"], strict=True):
            times = {name: value for name, value in row.items() if name != "batch"}
            assert times[fastest] == min(times.values())

    def test_the_table_marks_the_fastest_once_a_row_and_what_does_not_fit(self) -> None:
        columns, rows = self.found().cells()
        assert columns == ("batch", "bf16", "fp8", "gptq-g128")
        assert all(sum("*" in cell for cell in row) == 1 for row in rows)
        # 53 GB of cache hold 394 sequences of 1,024 tokens.
        assert [int(row[0]) > 394 for row in rows] == [row[1].endswith("-") for row in rows]
        assert any(row[1].endswith("-") for row in rows)

    def test_every_step_says_how_it_is_known(self) -> None:
        alone = step(model=SMALL, phase="decode", batch_size=32, precision=HALF).to_dict()
        row = self.found().to_dict()["formats"][0]
        place = self.found().to_dict()["batches"].index(32)
        assert row["step_s"][place] == pytest.approx(alone["step_s"])
        assert row["interval_s"][place] == pytest.approx(alone["interval"]["step_s"])
        assert row["provenance"][place] == alone["provenance"]
        assert "gptq-g128: assumed, 80 % of measured steps within " in self.found().to_text()

    def test_a_sentence_names_both_sides_of_a_crossing(self) -> None:
        document, text = self.found().to_dict(), self.found().to_text()
        for pair in document["crossovers"]:
            place = f"{pair['later']} from {pair['batch']} on" if pair["batch"] else "at one sequence and at 4,096"
            assert place in text


class TestStructures:
    def test_queries_and_scores_make_the_whole(self) -> None:
        asked = RetrievalQuestion(
            documents=1e6, candidates=1000, document_tokens=100, query_tokens=32, vector_size=None
        )
        found: RetrievalAnswer = retrieval(model="bert-base", question=asked)
        for row in found.rows():
            assert row["total_query_s"] == pytest.approx(row["query_s"] + row["scoring_s"])
        by_name = {row["interaction"]: row for row in found.rows()}
        # One vector of 768 numbers in 2 bytes a document.
        assert by_name["single_vector"]["index_bytes"] == 1e6 * 768 * 2
        assert "1,000,000 documents of 100 tokens" in found.to_text()
        assert len(found.chart().series[0].y) == len(by_name)

    def test_kinds_of_layers_grow_as_their_names_say(self) -> None:
        found: MixersAnswer = mixers(width=1024, tokens=(1024, 4096))
        flops = {(row["kind"], row["tokens"]): row["prefill_flops"] for row in found.rows()}
        state = {(row["kind"], row["tokens"]): row["state_bytes"] for row in found.rows()}
        assert 4 < flops["attention", 4096] / flops["attention", 1024] < 16
        assert flops["recurrent", 4096] == 4 * flops["recurrent", 1024]
        assert state["attention", 4096] == 4 * state["attention", 1024]
        assert state["recurrent", 4096] == state["recurrent", 1024]
        assert found.to_text().count("\n") >= 2 + len(flops)


class TestScenario:
    def test_every_figure_of_a_table_is_that_of_the_document(self) -> None:
        document = simulate(
            kind="batch", model=SMALL, hardware="h100", isl_tokens=500, osl_tokens=100, batch_size=8
        ).to_dict()
        rows = {label: (value, spread) for label, value, spread in scenario_rows(document)}
        assert len(SCENARIO_COLUMNS) == 3
        assert rows["requests/s"][0] == f"{document['requests_per_s']:.3g}"
        assert "fits" in rows["weights"][0]
        assert " – " in rows["TTFT"][1]
        text = scenario_text(document, setup="a set-up")
        assert text.startswith("batch: a set-up (")
        assert text.count("assumed: ") == len(document["assumptions"])


class TestProfiles:
    def test_names_are_those_of_files_and_each_can_be_shown(self) -> None:
        named = names_by_section(["prices", "engines"], profiles=None)
        assert list(named) == ["prices", "engines"]
        for names in named.values():
            assert names == sorted(names)
            for name in names:
                assert json.loads(show_profile(name, as_json=True, profiles=None))
        assert names_text({"prices": named["prices"]}).startswith(f"prices ({len(named['prices'])})\n  ")

    def test_an_alias_shows_its_profile_and_a_model_its_specification(self) -> None:
        assert json.loads(show_profile("h100", as_json=True, profiles=None))["name"] == "h100-sxm-80gb"
        assert json.loads(show_profile(SMALL, as_json=False, profiles=None))["hidden_size"] == 4096
        assert set(SECTIONS) == {"hardware", "servers", "prices", "engines"}

    def test_an_unknown_name_is_told_the_nearest(self) -> None:
        with pytest.raises(ProfileError, match="no profile is called 'h10'") as caught:
            show_profile("h10", as_json=True, profiles=None)
        assert "did you mean" in (caught.value.hint or "")


class TestScorecard:
    def test_parts_that_were_not_asked_for_are_not_there(self) -> None:
        card = scorecard(hardware="h100", libraries=(), kernels=False, end_to_end=True, profiles=None)
        assert card.kernels is None
        document = card.to_dict()
        assert "kernels" not in document
        stored = [row for row in load_validation_table().rows if row.hardware == "h100-sxm-80gb"]
        assert sum(row["runs"] for row in document["end_to_end"]["scores"]) == len(stored)
        assert all(row["hardware"] == "h100-sxm-80gb" for row in card.rows())

    def test_kernels_of_one_library_alone(self) -> None:
        card = scorecard(hardware="h100", libraries=("vllm",), kernels=True, end_to_end=False, profiles=None)
        assert card.runs is None
        assert card.kernels
        text = card.to_text()
        assert text.startswith("Kernels: mean error on measured shapes that the fit never saw")
        assert "End to end" not in text
        assert len(card.chart().series) == 1

    @pytest.mark.parametrize(
        ("given", "code"),
        [
            ({"libraries": ("torch",), "kernels": False}, "ignored_option"),
            ({"libraries": ("no-such-library",), "kernels": True}, ""),
            ({"hardware": "gaudi2", "libraries": (), "kernels": True}, "not_calibrated"),
            ({"hardware": "gaudi2", "libraries": (), "kernels": False}, "not_measured"),
        ],
        ids=str,
    )
    def test_what_nobody_measured_is_refused(self, given: dict[str, Any], code: str) -> None:
        with pytest.raises(RoofcastError) as caught:
            scorecard(**{"hardware": None, "end_to_end": True, "profiles": None} | given)
        assert not code or caught.value.code == code

    def test_when_rows_were_predicted_and_whether_they_still_hold(self) -> None:
        table = load_validation_table()
        assert predicted_words(table).startswith(f"predicted on {table.date}")
        assert predicted_words(table).endswith("changed since") is not table.is_current
