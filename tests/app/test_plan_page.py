"""The details below a plan: each is what the command line on the page prints, and none of them moves the fleet."""

from __future__ import annotations

import json
from functools import partial
from urllib.parse import parse_qs

import pytest

from simulator.reports.content.quantities import percent_text, range_text, rate_text, seconds_text
from tests.app.pages import bar, captions, headline, metrics, opened, printed, tables

SMALL = {"gpus": "h100-sxm-80gb", "rps": "50"}


def test_growth_equals_the_command_line() -> None:
    page = opened("plan", {**SMALL, "view": "Growth", "growth": "0.1", "horizon": "12", "lead": "90"})
    (document,) = printed(page)
    steps = document["growth"]["steps"]
    table = tables(page)[1]
    assert list(table["After"]) == [str(step["devices_after"]) for step in steps]
    assert list(table["Order by"]) == [step["order_by"] for step in steps]
    assert len(document["growth"]["months"]) == 13
    assert document["growth"]["lead_time_days"] == 90
    assert any("90 days" in item.value for item in page.caption)


def test_no_growth_is_said_and_draws_nothing() -> None:
    page = opened("plan", {**SMALL, "view": "Growth", "growth": "0"})
    assert not page.exception
    assert any("Set a growth" in item.value for item in page.caption)
    assert len(page.get("plotly_chart")) == 2
    (document,) = printed(page)
    assert document["growth"] is None


def test_resilience_equals_the_command_line() -> None:
    page = opened("plan", {**SMALL, "view": "Resilience", "target": "99.9 %"})
    (document,) = printed(page)
    found, table = document["resilience"], tables(page)[0]
    assert list(table["Lost"]) == [case["name"] for case in found["cases"]]
    assert list(table["Replicas left"]) == [str(case["replicas_left"]) for case in found["cases"]]
    assert list(table["Objectives"] == "held") == [case["holds"] for case in found["cases"]]
    spares = found["availability"]["spares"]
    assert any(f"{spares} spare" in answer for answer in tables(page)[1]["Answer"])


def test_rejections_come_with_their_reason() -> None:
    page = opened("plan", {"model": "llama-3.1-405b", "rps": "5", "view": "Rejected"})
    (document,) = printed(page)
    table = tables(page)[0]
    reasons = {(item["hardware"], item["message"]) for item in document["rejected"]}
    assert len(table)
    for hardware, reason in zip(table["accelerator"], table["why not"], strict=True):
        assert (hardware, reason) in reasons


def test_renting_equals_the_command_line() -> None:
    page = opened("plan", {**SMALL, "view": "Rent or own"})
    (document,) = printed(page)
    (share,) = document["rental"]["shares"]
    assert share["devices"] == document["plan"]["devices"]
    said = [item.value for item in page.markdown]
    assert any("nothing to mix by the hour" in text for text in said), "the page asks for a flat load"
    assert any(text.startswith("Owning pays below") for text in said)


@pytest.mark.parametrize("view", ["Growth", "Resilience", "Risk", "Rent or own", "Launch", "Assumptions"])
def test_no_detail_moves_the_fleet(view: str) -> None:
    plain, looked_at = (opened("plan", {**SMALL, **more}) for more in ({}, {"view": view}))
    assert not looked_at.exception
    assert headline(looked_at) == headline(plain)
    assert metrics(looked_at) == metrics(plain)


def test_growth_and_availability_leave_the_fleet_of_today_alone() -> None:
    plain = opened("plan", SMALL)
    outlook = opened("plan", {**SMALL, "growth": "0.3", "target": "99.99 %"})
    assert metrics(outlook) == metrics(plain)


def test_every_number_of_a_load_has_its_interval() -> None:
    page = opened("serving", {"model": "llama-3.1-8b", "tp": "1", "rate": "5"})
    (document,) = printed(page)
    said = captions(page)
    assert len([text for text in said if "-badge[" in text and "80 %: " in text]) >= len(page.metric) == 6
    assert range_text(document["overall"]["interval"]["ttft_p95_s"], seconds_text) in " ".join(said)
    ends = document["load"]["interval"]
    assert f"80 %: {range_text(ends['saturation_per_s'], partial(rate_text, noun='req'))}" in " ".join(said)
    assert f"80 %: {range_text(ends['kv_utilization'], percent_text)}" in " ".join(said)
    batch = range_text(ends["mean_batch"], "{:.1f}".format)
    assert f"80 %: {batch}" in " ".join(said)
    over_time = opened("serving", {"model": "llama-3.1-8b", "tp": "1", "rate": "5", "inside": "Requests over time"})
    assert f"80 %: mean batch {batch}" in " ".join(captions(over_time))
    shown = metrics(page)
    assert shown["Saturation"] == rate_text(document["load"]["saturation_per_s"], "req")
    assert shown["KV cache in use"] == percent_text(document["overall"]["kv_utilization"])


@pytest.mark.parametrize(("view", "charts"), [("Resilience", 2), ("Risk", 2), ("Rent or own", 2), ("Growth", 1)])
def test_every_chart_of_a_detail_says_how_sure_it_is(view: str, charts: int) -> None:
    page = opened("plan", {**SMALL, "view": view})
    footers = [text for text in captions(page) if text.startswith(":") and "80 %" in text]
    # Two charts and six numbers stand above.
    assert len(footers) == 8 + charts


def test_validation_says_what_each_badge_was_worth() -> None:
    page = opened("validation", {"details": "What is calibrated"})
    known, accelerators = tables(page)
    assert list(known["how it is known"])[:2] == ["calibrated", "extrapolated"]
    assert sum(int(count) for count in known["runs"]) == int(metrics(page)["Measured values"].replace(",", ""))
    assert "tpu-v6e" in list(accelerators["accelerator"])


@pytest.mark.usefixtures("few_accelerators")
def test_a_plan_within_limits_is_solved_backwards() -> None:
    page = opened("plan", {"model": "llama-3.1-8b", "gpus": "l40s", "rps": "5", "max_gpus": "8"})
    assert not page.error
    page.button(key="solve_rps").click().run()
    assert not page.error
    (document,) = printed(page)
    assert document["plan"]["devices"] <= 8
    rate = page.number_input(key="rps").value
    assert rate > 5
    page.number_input(key="rps").set_value(rate * 1.05).run()
    assert "more than the 8 allowed" in page.error[0].value
    page.button(key="solve_rps").click().run()
    assert page.number_input(key="rps").value == rate


@pytest.mark.slow
@pytest.mark.parametrize(("limit", "low"), [("max_gpus", "100"), ("max_cost", "100"), ("max_kw", "50")])
def test_a_limit_that_is_too_tight_is_widened_by_one_click(limit: str, low: str) -> None:
    page = opened("plan", {**SMALL, "model": "llama-3.1-70b", "rps": "1000", limit: low})
    assert page.error
    page.button(key=f"allow_{limit}").click().run()
    assert not page.error
    assert "GPUs" in headline(page)


def test_what_exists_is_used_first_and_nothing_is_solved_without_a_limit() -> None:
    page = opened("plan", {"model": "llama-3.1-8b", "gpus": "l40s", "rps": "5", "owned": "h100-sxm-80gb"})
    assert "0 of them to obtain, for 5.00 requests/s: $0" in headline(page)
    said = bar(page)
    assert "h100-sxm-80gb" in said, "what serves, as the headline has it"
    assert "l40s" not in said
    assert any("A new fleet alone, as if nothing existed" in item.value for item in page.markdown)
    assert metrics(page)["To obtain"] == "0"
    assert metrics(page)["Rent per month"].endswith("$0")
    assert page.button(key="solve_rps")
    plain = opened("plan", SMALL)
    assert "solve_rps" not in [button.key for button in plain.button]


@pytest.mark.slow
def test_one_accelerator_is_enough_where_it_is_bought_alone_and_a_click_asks_so() -> None:
    asked = {"model": "gpt-oss-20b", "gpus": "l40s", "rps": "1", "spares": "0", "max_gpus": "1"}
    page = opened("plan", asked)
    assert page.error
    (button,) = [item for item in page.button if item.label == "Single devices"]
    button.click().run()
    assert not page.error
    assert page.selectbox(key="round").value == "device"
    assert headline(page).startswith("1 GPU (l40s)")
    (document,) = printed(page)
    assert document["plan"]["devices"] == 1


def test_each_part_of_a_plan_with_stock_opens_as_so_many_replicas_at_its_share_of_the_demand() -> None:
    asked = {"model": "llama-3.1-8b", "gpus": "l40s", "rps": "200", "owned": "h100-sxm-80gb", "stock": "2"}
    page = opened("plan", asked)
    assert not page.exception
    (document,) = printed(page)
    shares = document["stock"]["shares"]
    parts = page.selectbox(key="look").options[: len(shares)]
    assert [("in stock" in name, "to obtain" in name) for name in parts] == [
        (share["from_stock"] > 0, share["bought"] > 0) for share in shares
    ]
    assert sum(share["rate_per_s"] for share in shares) == pytest.approx(document["demand"]["planned_rate_per_s"])
    for name, share in zip(parts, shares, strict=True):
        page.selectbox(key="look").set_value(name).run()
        links = [item.proto for item in page.get("page_link")]
        opens = parse_qs(next(link.query_string for link in links if link.label == "Serving"))
        assert opens["gpu"] == [share["hardware"]]
        assert opens["replicas"] == [str(share["replicas"])]
        assert float(opens["rate"][0]) == pytest.approx(share["rate_per_s"] / share["replicas"], rel=1e-4)
    # Whoever goes on by the navigation asks about the part that carries most.
    most = max(shares, key=lambda share: share["rate_per_s"])
    kept = page.session_state["_kept"]
    assert (kept["gpu"], kept["replicas"]) == (most["hardware"], most["replicas"])


def test_a_fleet_that_was_not_simulated_has_a_button_that_does_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simulator.planner.verification.simulation.LEAST_REQUESTS", 200)
    monkeypatch.setattr("simulator.planner.verification.simulation.MOST_REQUESTS", 200)
    page = opened("plan", {**SMALL, "rps": "9"})
    assert any("not simulated yet" in item for item in captions(page))
    page.button(key="simulate").click().run()
    assert not page.exception
    assert any(item.startswith("Simulated with the spares down") for item in captions(page))
    assert not [item for item in page.button if item.key == "simulate"]
    (document,) = printed(page)
    assert document["verification"] is not None


@pytest.mark.slow
def test_what_is_simulated_and_drawn_where_something_exists_is_what_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simulator.planner.verification.simulation.LEAST_REQUESTS", 200)
    monkeypatch.setattr("simulator.planner.verification.simulation.MOST_REQUESTS", 200)
    asked = {"model": "llama-3.1-8b", "gpus": "l40s", "rps": "200", "owned": "h100-sxm-80gb", "stock": "4"}
    page = opened("plan", {**asked, "verify": "true", "view": "Risk"})
    assert not page.exception
    (document,) = printed(page)
    shares = document["stock"]["shares"]
    said = next(item for item in captions(page) if "Simulated with the spares down" in item)
    assert all(f"{share['hardware']} " in said for share in shares)
    for name in page.selectbox(key="part").options:
        page.selectbox(key="part").set_value(name).run()
        memory = next(json.loads(item.proto.spec) for item in page.get("plotly_chart") if "cached" in item.proto.alt)
        assert memory["data"][0]["x"][0].split("<br>")[0] in name
        assert not any(item.startswith("Next: ") for item in captions(page))
