"""The gap question: contributions add up, every command that is printed asks for the fleet that is shown."""

from __future__ import annotations

import contextlib
import io
import json
import shlex
from dataclasses import replace
from functools import cache
from math import inf

import numpy as np
import pytest

from simulator.cli.plan_capacity import main
from simulator.errors import ExitCode, RoofcastError
from simulator.planner.gap.changes import pinned_spec
from simulator.planner.gap.limits import FleetLimit, beyond, fleet_limits, screened_overrun
from simulator.planner.gap.records import Gap, GapError, GapOption
from simulator.planner.plan import plan_capacity
from simulator.planner.search.candidates import platforms
from simulator.planner.search.question import resolve
from simulator.planner.search.usual_search import usual_search
from simulator.planner.search.wide_search import screen_space
from simulator.reports.content.document import Table
from simulator.reports.formats.text import sections_text
from simulator.reports.sections.gap import gap_sections
from simulator.reports.words.fields import note_text, plan_command, rejection_text
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.question.plan import plan_spec
from simulator.techniques.quality import UNCHANGED

pytestmark = pytest.mark.usefixtures("few_accelerators")
QUESTION: dict[str, object] = {"rps": 200, "model": "llama-3.1-8b", "hardware": ("h100",)}


@cache
def gap(**fields: object) -> Gap:
    with pytest.raises(GapError) as caught:
        plan_capacity(plan_spec({**QUESTION, **fields}))
    assert caught.value.exit_code is ExitCode.INFEASIBLE
    return caught.value.gap


def devices_of(text: str) -> int:
    """GPUs of the plan that a printed command asks for, run as it is printed."""
    words = shlex.split(text)
    assert words[0] == "plan-capacity"
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main([*words[1:], "--json"]) == 0
    devices: int = json.loads(out.getvalue())["plan"]["devices"]
    return devices


CASES = (
    {"max_gpus": 8},
    pytest.param({"max_gpus": 3, "round_to": "device", "spares": 0}, marks=pytest.mark.slow),
    {"max_cost_per_hour": 14.0, "round_to": "device"},
    {"max_power_kw": 11.0},
    {"rps": 20, "latency_p95": "900ms", "max_gpus": 64},
)


@pytest.mark.parametrize("fields", CASES, ids=str)
class TestLaws:
    def test_contributions_add_up_to_the_whole(self, fields: dict[str, object]) -> None:
        found = gap(**fields)
        saved = [step.saved_devices for step in found.steps]
        if found.start_devices is None:
            # What makes it possible saves nothing: there was nothing before.
            assert saved[:1] in ([], [None])
            return
        assert found.start_devices - sum(item or 0 for item in saved) == found.end_devices

    def test_each_fleet_says_what_is_published_of_its_answers(self, fields: dict[str, object]) -> None:
        """The fleet as asked was served in 8 bits and said to answer as published, beside the same loss of the next."""
        found = gap(**fields)
        blocks = [block for part in gap_sections(found, currency="USD") for block in part.blocks]
        rows = [row for block in blocks if isinstance(block, Table) and block.key == "gap" for row in block.rows]
        if rows and found.start_devices is not None:
            assert (rows[0].cells[-1].value == "as published") is ("fp8" not in found.start_label)
            assert rows[0].cells[5].value == found.start_cost_per_hour

    def test_every_command_asks_for_the_fleet_that_is_shown(self, fields: dict[str, object]) -> None:
        found = gap(**fields)
        shown = [(plan_command(step.spec), step.devices) if step.spec else ("", 0) for step in found.steps[-1:]]
        shown += [(plan_command(item.spec), item.devices or 0) for item in found.options[:3] if item.spec]
        assert shown
        for text, devices in shown:
            # A plan searches engine limits too, and may do with fewer.
            assert devices_of(text) <= devices

    def test_limits_are_those_of_the_last_fleet(self, fields: dict[str, object]) -> None:
        found = gap(**fields)
        assert len(found.limits) == sum(name.startswith("max_") for name in fields)
        if found.steps:
            assert tuple(limit.end for limit in found.limits) == found.steps[-1].taken
        assert found.closed is all(limit.end is not None and limit.end <= limit.allowed for limit in found.limits)

    def test_an_option_closes_where_every_limit_holds(self, fields: dict[str, object]) -> None:
        found = gap(**fields)
        for item in found.options:
            holds = all(
                value is not None and value <= limit.allowed
                for value, limit in zip(item.taken, found.limits, strict=True)
            )
            assert item.closes is holds
            assert (item.spec is not None) is (item.devices is not None)

    def test_it_is_said_in_words(self, fields: dict[str, object]) -> None:
        lines = sections_text(gap_sections(gap(**fields), currency="USD"), currency="USD").splitlines()
        assert any(line.startswith("- as asked") for line in lines)
        assert not any("inf" in line.split() or "None" in line for line in lines)


class TestImpossible:
    def test_the_bound_that_is_missed_comes_with_a_factor_and_its_parts(self) -> None:
        found = gap(ttft_p95="2ms", tpot_p95="100ms")
        ttft, tpot = found.bounds
        assert ttft.factor > 1 >= tpot.factor
        assert ttft.idle_s == pytest.approx(ttft.factor * 0.002)
        assert "prompt tokens" in note_text(ttft.made_of)

    def test_the_relaxed_objective_can_be_held(self) -> None:
        first = gap(ttft_p95="2ms", tpot_p95="100ms").options[0]
        assert [item.field for item in first.given] == ["ttft_p95"]
        assert first.spec is not None
        # The plan that it prints also searches engine limits and pools.
        assert devices_of(plan_command(first.spec)) <= first.devices

    def test_memory_that_is_missing_names_what_would_hold_the_model(self) -> None:
        found = gap(model="llama-3.1-70b", hardware=("l4",), tp=1, pp=1, rps=1)
        assert found.start_devices is None
        assert not found.bounds
        serving = [item.name for item in found.options if item.devices is not None]
        assert "other hardware" in serving

    def test_answers_of_one_token_get_single_changes_by_the_usual_search(self) -> None:
        found = gap(osl=1, isl=2000, max_gpus=2, spares=0)
        assert not found.steps
        assert {item.name for item in found.options} >= {"fp8 weights", "other hardware"}


class TestContradictions:
    @pytest.mark.parametrize(
        ("fields", "words"),
        [
            ({"max_racks": 1, "round_to": "device"}, ("`max_racks`", "`round_to` device")),
            ({"max_gpus": 4, "tp": 8}, ("`max_gpus`", "`tp_size` 8", "8 GPUs")),
            ({"max_gpus": 4, "tp": 2, "spares": 2}, ("`max_gpus`", "`tp_size` 2", "`spares` 2", "6 GPUs")),
            ({"max_gpus": 4, "tp": 2, "pp": 4}, ("`pp_size` 4", "8 GPUs")),
        ],
    )
    def test_both_sides_are_named_and_nothing_is_searched(
        self, fields: dict[str, object], words: tuple[str, ...]
    ) -> None:
        with pytest.raises(RoofcastError) as caught:
            plan_capacity(plan_spec({**QUESTION, **fields}))
        assert caught.value.exit_code is ExitCode.USAGE
        assert all(word in str(caught.value) for word in words)


class TestScreen:
    def test_screened_overruns_are_those_of_sized_fleets(self) -> None:
        spec = plan_spec({**QUESTION, "max_gpus": 8, "max_power_kw": 20.0, "max_racks": 1, "max_cost_per_hour": 30.0})
        free = dict.fromkeys(("max_gpus", "max_power_kw", "max_racks", "max_cost_per_hour"))
        question = resolve(spec.model_copy(update=free))
        (platform,) = platforms(spec)
        limits = fleet_limits(replace(question, spec=spec))
        for sized in usual_search(question, (platform,)).sized:
            found = screen_space(question, (platform,))
            table = next(item for item in found.tables if item.parallelism == sized.evaluated.candidate.parallelism)
            capacity = np.full((1, 1, 1), sized.evaluated.replica.capacity_per_s)
            over, cost = screened_overrun((table,), capacity, question=replace(question, spec=spec), limits=limits)
            assert over.item() == pytest.approx(max(limit.share(sized) for limit in limits))
            assert cost.item() == pytest.approx(sized.cost.per_hour)

    def test_nothing_that_serves_is_infinitely_far(self) -> None:
        question = resolve(plan_spec({**QUESTION, "max_gpus": 8}))
        (platform,) = platforms(question.spec)
        tables = screen_space(question, (platform,)).tables[:1]
        over, cost = screened_overrun(tables, np.zeros((1, 1, 1)), question=question, limits=fleet_limits(question))
        assert over.item() == inf
        assert cost.item() == inf

    def test_tables_made_together_are_those_made_one_by_one(self) -> None:
        limits = {"max_num_seqs": 256, "max_num_batched_tokens": 8192}
        fields = {"any_technique": True, "tp": 1, "hardware": ("t4", "h100"), **limits}
        question = resolve(plan_spec({**QUESTION, **fields}))
        together = screen_space(question, platforms(question.spec))
        alone = {
            (item.platform.hardware.name, item.parallelism, item.variant): item
            for platform in platforms(question.spec)
            for item in screen_space(question, (platform,)).tables
        }
        assert len(alone) == len(together.tables)
        for table in together.tables:
            other = alone[table.platform.hardware.name, table.parallelism, table.variant]
            assert table.decode_s == pytest.approx(other.decode_s, rel=1e-12)
            assert table.kv_tokens == pytest.approx(other.kv_tokens, rel=1e-9)


def test_fleets_beyond_a_limit_say_by_how_much() -> None:
    free = plan_capacity(plan_spec({**QUESTION, "hardware": ("h100", "a100")}))
    least = min(free.best.devices, *(item.devices for item in free.alternatives))
    plan = plan_capacity(plan_spec({**QUESTION, "hardware": ("h100", "a100"), "max_gpus": least}))
    refused = [item for item in plan.rejections if item.code == "limit"]
    assert refused
    for item in refused:
        said = rejection_text(item)
        devices = int(said.split()[0])
        assert f"{devices - least:,} above --max-gpus {least}" in said
        assert item.excess == pytest.approx(devices / least - 1)


@pytest.mark.slow
@pytest.mark.parametrize("limit", [{"max_cost_per_hour": 100.0}, {"max_power_kw": 10.0}])
def test_what_a_large_fleet_takes_is_written_out(limit: dict[str, object]) -> None:
    with pytest.raises(GapError, match=r"at least \d{1,3},\d{3}") as caught:
        plan_capacity(plan_spec({**QUESTION, "rps": 100_000, **limit}))
    assert "e+" not in str(caught.value)


def test_an_unknown_share_of_a_limit_is_no_fit() -> None:
    question = resolve(plan_spec(QUESTION))
    (platform,) = platforms(question.spec)
    sized = usual_search(question, (platform,)).sized[:1]
    limit = FleetLimit(kind="cost", field="max_cost_per_hour", unit="USD/h", allowed=1.0, taken=lambda _: None)
    (refusal,) = beyond((limit,), sized)
    assert "unknown" in rejection_text(refusal)
    assert refusal.excess == inf


def test_a_pinned_question_keeps_what_was_asked_and_drops_its_studies() -> None:
    spec = plan_spec({**QUESTION, "uncertainty": True, "draws": 10, "cache_hit": 0.25, "max_gpus": 999})
    question = resolve(spec)
    (platform,) = platforms(spec)
    candidate = usual_search(question, (platform,)).sized[0].evaluated.candidate
    pinned = pinned_spec(question, candidate, texts=(), keeps_limits=False)
    assert (pinned.cache_hit, pinned.max_gpus, pinned.uncertainty, pinned.draws) == (0.25, None, False, None)
    assert pinned.tp_size == (candidate.parallelism.tp_size,)


def test_a_pinned_question_gives_every_degree_of_its_set_up() -> None:
    """One fleet, whatever degrees were searched: those that are not 1 are given."""
    question = resolve(plan_spec({**QUESTION, "cp_size": [1, 2]}))
    (platform,) = platforms(question.spec)
    found = [item.evaluated.candidate for item in usual_search(question, (platform,)).sized]
    assert {item.parallelism.cp_size for item in found} == {1, 2}
    for candidate in found:
        pinned = pinned_spec(question, candidate, texts=(), keeps_limits=False)
        degrees = {name: max(getattr(pinned, name), default=1) for name in ParallelismSpec.model_fields}
        assert ParallelismSpec(**degrees) == candidate.parallelism


@pytest.mark.slow
def test_where_formats_are_searched_a_step_has_the_quality_of_its_fleet() -> None:
    found = gap(any_precision=True, max_gpus=2, round_to="device", spares=0, rps=1000)
    changed = [
        step for step in found.steps if any(word in step.label for word in ("nvfp4", "int8", "fp8", "gptq", "awq"))
    ]
    assert changed
    assert all(step.quality_loss != 0 for step in changed)
    assert found.quality_loss is None


def test_objectives_below_an_idle_replica_are_answered_by_a_fleet_at_work() -> None:
    """The nearest objectives cost twice the least at most; what an idle replica takes needs replicas without end."""
    asked = {"model": "llama-3.1-8b", "rate_per_s": 500.0, "hardware": ["h100"], "spares": 0, "verify": False}
    with pytest.raises(GapError) as refused:
        plan_capacity(plan_spec({**asked, "tpot_p95": "1ms"}))
    later = refused.value.gap.options[0]
    least = plan_capacity(plan_spec({**asked, "ttft_p95": "100s", "tpot_p95": "10s"})).best.devices
    assert later.spec is not None
    assert later.devices is not None
    assert least <= later.devices <= 2 * least + 8
    assert plan_capacity(later.spec).best.devices <= later.devices


def test_a_way_out_of_many_times_the_smallest_is_none() -> None:
    def option(name: str, devices: int) -> GapOption:
        said = {"reason": "", "quality": UNCHANGED, "quality_loss": 0.0}
        return GapOption(name=name, given=(), hardware=name, label="TP8", devices=devices, taken=(), **said)

    found = Gap(
        budget_devices=None, start_hardware="", start_label="", start_devices=None, steps=(), end_devices=None,
        remaining_devices=None, options=(option("b200-sxm", 144), option("h200", 32360), option("h100", 1440)),
    )  # fmt: skip
    assert found.hint.count("TP8") == 2
    assert "32360" not in found.hint
