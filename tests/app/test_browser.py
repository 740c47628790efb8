"""The dashboard in a real browser: change, share, download, upload; no error in the console, none for axe."""

from __future__ import annotations

import io
import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest

from app.views.plan_details import VIEWS
from tests.app.clients import Client
from tests.app.served import chromium_path, watched
from tests.app.tiny_model import TINY_CONFIG

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(chromium_path() is None, reason="needs the system package chromium"),
]
PATHS = ("plan", "what-if", "roofline", "serving", "sweep", "compare", "validation", "learn", "profiles")
_SMALL = {"model": "llama-2-7b", "isl": "700"}
SHARED = (
    ("plan", {**_SMALL, "preset": "Code", "rps": "77", "ttft": "1.5", "gpus": "h100-sxm-80gb", "load": "0.7"}),
    ("what-if", {**_SMALL, "batch": "17", "gpu": "h200-sxm-141gb", "tp": "2", "kv": "fp8", "speculation": "eagle"}),
    (
        "roofline",
        {"model": "llama-2-7b", "context": "700", "tp": "2", "weights": "fp8", "operator": "down_proj (prefill)"},
    ),
    ("serving", {**_SMALL, "rate": "2.5", "tp": "2", "osl_cv": "0.6", "metric": "End to end"}),
    ("compare", {"columns": "2", "isl": "700", "gpu": "l40s", "weights_b": "fp8", "kv_b": "fp8"}),
    ("validation", {"source": "argonne", "kind": "Throughput", "details": "Kernels", "kernels_of": "a100-sxm-80gb"}),
    ("profiles", {"browse": "Models", "model": "mixtral-8x7b"}),
)
# What every widget shows, in the order of the page.
_STATE = """() => [...document.querySelectorAll('.stApp :is(input:not([type=file]), [role=radio])')].map(
  item => item.getAttribute('aria-checked') ?? (item.type === 'checkbox' ? item.checked : item.value))"""
_GIVEN = """wanted => { const box = document.querySelector('input[aria-label="Prompt tokens"]');
  return wanted === null || box?.value === wanted }"""
# Whether the box of prompt tokens ever showed, legibly, something else than what the address says.
_WATCH_BOXES = """window.flashed = false; const asked = new URLSearchParams(location.search).get('isl');
const look = () => { const box = document.querySelector('input[aria-label="Prompt tokens"]');
  if (asked && box && box.value !== asked && !getComputedStyle(box).webkitTextFillColor.endsWith(', 0)'))
    window.flashed = true;
  requestAnimationFrame(look) }; requestAnimationFrame(look)"""


@pytest.fixture(scope="module", params=["light", "dark"])
def themed(browser: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    """A visitor whose system is light or dark."""
    context = browser.new_context(viewport={"width": 1440, "height": 900}, color_scheme=request.param)
    yield context
    context.close()


def visit(page: Any, url: str) -> str:
    """Open an address; the headline once it stands."""
    page.goto(url)
    page.wait_for_selector("h2", timeout=60_000)
    idle(page)
    return headline(page)


def headline(page: Any) -> str:
    return with_spaces(str(page.locator("[data-testid=stMain] h2").first.inner_text()))


def with_spaces(text: str | None) -> str:
    """A text whose units may part from their numbers, as they may not on a page."""
    return (text or "").replace("\N{NO-BREAK SPACE}", " ")


def idle(page: Any) -> None:
    """Wait until the server has answered everything and every chart is drawn."""
    page.wait_for_timeout(150)
    page.wait_for_function("() => !document.querySelector('[data-testid=stStatusWidget]')", timeout=60_000)
    page.wait_for_function("() => !document.querySelector('[data-testid=stSkeleton]')", timeout=60_000)
    page.wait_for_function(
        "() => [...document.querySelectorAll('[data-testid=stPlotlyChart]')].every(c => c.querySelector('.main-svg'))",
        timeout=60_000,
    )
    page.wait_for_timeout(150)


def metric(page: Any, label: str) -> str:
    card = page.locator("[data-testid=stMetric]").filter(has_text=label).first
    return str(card.locator("[data-testid=stMetricValue]").inner_text())


def wait_for_metric(page: Any, label: str, text: str) -> None:
    card = page.locator("[data-testid=stMetric]").filter(has_text=label).first
    card.locator("[data-testid=stMetricValue]").filter(has_text=text).wait_for(timeout=60_000)


@pytest.mark.parametrize("path", PATHS)
def test_page_opens_and_axe_finds_no_serious_problem(themed: Any, address: str, path: str) -> None:
    from axe_playwright_python.sync_playwright import Axe

    with watched(themed.new_page()) as page:
        assert visit(page, f"{address}/{path}")
        assert page.locator("[data-testid=stException]").count() == 0
        assert page.locator(".js-plotly-plot").count() <= 3
        found = Axe().run(page).response["violations"]
    serious = [
        f"{item['id']}: {node['target']} {node['html'][:200]}"
        for item in found
        if item["impact"] in ("serious", "critical")
        for node in item["nodes"]
    ]
    assert not serious, "\n".join(serious)


def test_nothing_is_wider_than_a_phone(browser: Any, address: str) -> None:
    context = browser.new_context(viewport={"width": 400, "height": 860})
    with watched(context.new_page()) as page:
        for path in PATHS:
            visit(page, f"{address}/{path}")
            beyond = page.locator("[data-testid=stMain]").evaluate("main => main.scrollWidth - main.clientWidth")
            assert beyond == 0, path
    context.close()


@pytest.mark.parametrize(("width", "columns"), [(1280, 3), (1440, 3), (1700, 6)])
def test_six_figures_never_stand_five_and_one(browser: Any, address: str, width: int, columns: int) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900})
    visit(page, f"{address}/what-if")
    shown = page.locator(".st-key-six_figures [data-testid=stGrid]").first
    assert len(shown.evaluate("grid => getComputedStyle(grid).gridTemplateColumns").split()) == columns
    page.close()


def test_moving_a_slider_changes_the_number_and_the_address_keeps_it(page: Any, address: str) -> None:
    visit(page, f"{address}/what-if?model=llama-3.1-8b&tp=1")
    before = metric(page, "TPOT")
    page.get_by_role("slider", name="Batch").focus()
    for _ in range(40):
        page.keyboard.press("ArrowRight")
    page.wait_for_url(re.compile(r"batch=72\b"), timeout=60_000)
    with watched(page.context.new_page()) as other:
        visit(other, page.url)
        shared = metric(other, "TPOT")
    assert shared != before
    wait_for_metric(page, "TPOT", shared)


def test_a_plan_changes_with_its_widgets_and_survives_a_reload(page: Any, address: str) -> None:
    before = visit(page, f"{address}/?gpus=h100-sxm-80gb&rps=50")
    assert page.url.startswith(f"{address}/plan?")
    assert page.locator("[data-testid=stTopNavLink][aria-current=page]").inner_text().endswith("Plan")
    rate = page.get_by_role("spinbutton", name="Requests per second at peak")
    rate.fill("500")
    rate.press("Enter")
    changed = "old => document.querySelector('h2').innerText.replaceAll('\\u00a0', ' ') !== old"
    page.wait_for_function(changed, arg=before, timeout=60_000)
    page.get_by_role("radio", name="Growth").click()
    page.get_by_text("Lead time 180 days").first.wait_for(timeout=60_000)
    page.get_by_text("Growth and failures").click()
    page.get_by_role("slider", name="Growth of demand a month").focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_url(re.compile(r"growth=0\.06"), timeout=60_000)
    page.get_by_text("base +6 % a month").wait_for(timeout=60_000)
    changed = headline(page)
    page.reload()
    page.get_by_text("base +6 % a month").wait_for(timeout=60_000)
    idle(page)
    assert headline(page) == changed != before
    page.wait_for_function("box => box.value === '500'", arg=rate.element_handle(), timeout=60_000)


@pytest.mark.parametrize(("path", "query"), SHARED)
def test_a_shared_address_shows_its_state_and_so_does_a_reload(
    page: Any, address: str, path: str, query: dict[str, str]
) -> None:
    page.add_init_script(_WATCH_BOXES)
    before = visit(page, f"{address}/{path}?{urlencode(query)}")
    page.wait_for_function(_GIVEN, arg=query.get("isl"), timeout=60_000)
    url, state = page.url, page.evaluate(_STATE)
    assert {key: value for key, value in parse_qsl(urlsplit(url).query) if key in query} == query
    page.reload()
    page.wait_for_selector("h2", timeout=60_000)
    idle(page)
    page.wait_for_function(_GIVEN, arg=query.get("isl"), timeout=60_000)
    assert (page.url, headline(page), page.evaluate(_STATE)) == (url, before, state)
    assert not page.evaluate("window.flashed"), "a box showed another number than the address"


def test_a_number_out_of_range_greys_the_answer_and_offers_the_nearest(page: Any, address: str) -> None:
    visit(page, f"{address}/what-if?model=llama-3.1-8b&isl=700")
    tokens = page.get_by_role("spinbutton", name="Prompt tokens")
    tokens.fill("99999999")
    tokens.press("Enter")
    page.get_by_text("99,999,999 is not possible: 1 to 1,048,576").wait_for(timeout=60_000)
    opacity = "() => Number(getComputedStyle(document.querySelector('.st-key-answered')).opacity)"
    page.wait_for_function(f"{opacity} < 1", timeout=60_000)
    page.get_by_role("button", name="Use 1,048,576").click()
    page.wait_for_url(re.compile(r"isl=1048576\b"), timeout=60_000)
    page.wait_for_function(f"{opacity} === 1", timeout=60_000)


def test_a_model_is_typed_by_any_of_its_names(page: Any, address: str) -> None:
    visit(page, f"{address}/what-if?tp=4")
    box = page.get_by_role("combobox", name="Model")
    for typed, meant in (("meta-llama/Llama-3.1-70B-Instruct", "llama-3.1-70b"), ("qwen3-32", "qwen3-32b")):
        box.click()
        page.keyboard.type(typed)
        page.keyboard.press("Enter")
        page.wait_for_url(re.compile(rf"model={meant}\b"), timeout=60_000)
        page.locator("h2").filter(has_text=f"{meant} on").wait_for(timeout=60_000)
    box.click()
    page.keyboard.type("qwen3-32x")
    page.keyboard.press("Enter")
    page.get_by_text("is not known for Model. Did you mean qwen3-32b").wait_for(timeout=60_000)
    assert headline(page).startswith("qwen3-32b on")


def test_a_client_without_a_browser_is_answered_as_a_browser_is(page: Any, address: str) -> None:
    with Client(address, "what-if", {"model": "llama-2-7b", "batch": "17"}) as client:
        assert with_spaces(client.headline) == f"## {visit(page, f'{address}/what-if?model=llama-2-7b&batch=17')}"
        assert client.number("Batch") == 17
        assert client.change_s("Batch", 19) > 0
        assert with_spaces(client.headline) == f"## {visit(page, f'{address}/what-if?model=llama-2-7b&batch=19')}"


def test_a_chart_is_saved_with_its_question(page: Any, address: str) -> None:
    visit(page, f"{address}/what-if?model=llama-3.1-8b&isl=700")
    page.get_by_test_id("stPopoverButton").filter(has_text="Save").first.click()
    with page.expect_download(timeout=60_000) as saved:
        page.get_by_role("button", name="SVG", exact=True).first.click()
    drawn = Path(saved.value.path()).read_text("utf-8")
    assert "llama-3.1-8b" in drawn
    assert "700 → 211 tokens" in drawn


def test_every_view_of_a_plan_opens(page: Any, address: str) -> None:
    visit(page, f"{address}/plan?gpus=h100-sxm-80gb&rps=50")
    for view in VIEWS[1:]:
        page.get_by_role("radio", name=view, exact=True).click()
        page.wait_for_url(re.compile("view=" + view.split()[0]), timeout=60_000)
        # The address changes before the server answers: wait for the work to begin, then for its end.
        page.wait_for_timeout(500)
        idle(page)
        assert page.locator("[data-testid=stException], [data-testid=stAlertContentError]").count() == 0, view


def test_a_fleet_is_simulated_once_its_reader_stays(page: Any, address: str) -> None:
    visit(page, f"{address}/plan?model=llama-3.1-8b&gpus=h100-sxm-80gb&rps=21")
    waiting = page.get_by_text("simulated in a moment")
    box = page.get_by_role("spinbutton", name="Requests per second at peak")
    for rate in (22, 23):
        box.fill(str(rate))
        box.press("Enter")
        page.get_by_text(f"for {rate}.0 requests/s").first.wait_for(timeout=60_000)
        waiting.wait_for(timeout=60_000)
    page.get_by_text(re.compile("^(Simulated with|Sized in steady state, (being|not) simulated)")).wait_for(
        timeout=60_000
    )


def _click_at(page: Any, point: Any) -> None:
    """As a hand does it: the chart wants to be pointed at before."""
    point.scroll_into_view_if_needed()
    box = point.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, steps=5)
    page.wait_for_timeout(300)
    page.mouse.down()
    page.mouse.up()


def test_a_click_on_a_load_opens_it(page: Any, address: str) -> None:
    visit(page, f"{address}/serving?rate=4")
    _click_at(page, page.locator(".st-key-load .scatterlayer .point").nth(4))
    page.wait_for_url(re.compile(r"look_rate="), timeout=60_000)
    rate = dict(parse_qsl(urlsplit(page.url).query))["look_rate"].split()[0]
    idle(page)
    assert f"rate={rate}" in str(page.get_by_role("link", name="What-if").last.get_attribute("href"))


def test_views_are_switched_while_one_is_computed(page: Any, address: str) -> None:
    visit(page, f"{address}/plan?gpus=h100-sxm-80gb&rps=51")
    for view in (*VIEWS[1:], *VIEWS[1:]):
        page.get_by_role("radio", name=view, exact=True).click()
    page.get_by_text("--tensor-parallel-size").first.wait_for(timeout=60_000)
    idle(page)
    assert page.get_by_role("radio", name=VIEWS[-1], exact=True).get_attribute("aria-checked") == "true"


def test_pages_stay_out_of_foreign_frames_and_forward_their_parameters(address: str) -> None:
    request = urllib.request.Request(f"{address}/?rps=7", headers={"accept": "text/html"})
    with urllib.request.urlopen(request, timeout=20) as answer:
        assert answer.url == f"{address}/plan?rps=7"
        assert answer.headers["x-frame-options"] == "SAMEORIGIN"
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_links_between_pages_keep_the_deployment(page: Any, address: str) -> None:
    visit(page, f"{address}/what-if?model=llama-2-7b&tp=1&batch=7")
    page.get_by_test_id("stTopNavLink").filter(has_text="Roofline").click()
    page.wait_for_function("() => document.querySelector('h2')?.innerText.includes('sequences takes')", timeout=60_000)
    assert "7 sequences" in headline(page)
    assert "model=llama-2-7b" in page.url


def test_downloads_open(page: Any, address: str, tmp_path: Path) -> None:
    answer = visit(page, f"{address}/?gpus=h100-sxm-80gb&rps=50")
    page.get_by_test_id("stPopoverButton").filter(has_text="Download").click()
    for label, suffix in (
        *(("PDF", ".pdf"), ("Excel", ".xlsx"), ("HTML", ".html"), ("Markdown", ".md"), ("CSV", ".csv")),
        *(("JSON report", ".json"), ("Plan as JSON", ".json")),
    ):
        with page.expect_download(timeout=60_000) as download:
            page.get_by_role("button", name=label, exact=True).click()
        target = tmp_path / f"file{suffix}"
        download.value.save_as(target)
        devices = answer.split()[0]
        assert devices in _text_of(target.read_bytes(), suffix), label


def _text_of(data: bytes, suffix: str) -> str:
    match suffix:
        case ".pdf":
            from pypdf import PdfReader

            return " ".join(page.extract_text() for page in PdfReader(io.BytesIO(data)).pages)
        case ".xlsx":
            from openpyxl import load_workbook

            book = load_workbook(io.BytesIO(data))
            return " ".join(str(cell) for sheet in book for row in sheet.values for cell in row if cell is not None)
        case ".json":
            return json.dumps(json.loads(data))
    return data.decode()


def test_uploads(page: Any, address: str, tmp_path: Path) -> None:
    visit(page, f"{address}/profiles")
    field = page.locator("input[type=file]")
    field.set_input_files({"name": "config.json", "mimeType": "application/json", "buffer": b'{"model_type": "llama"'})
    page.wait_for_selector("text=not valid JSON", timeout=60_000)
    field.set_input_files({"name": "odd.yaml", "mimeType": "text/yaml", "buffer": b"name: x\nwarp_speed: 9\n"})
    page.wait_for_selector("text=in odd.yaml", timeout=60_000)
    bomb = b"a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n"
    field.set_input_files({"name": "bomb.yaml", "mimeType": "text/yaml", "buffer": bomb})
    page.wait_for_selector("text=an anchor or alias (a) is not taken in an upload", timeout=60_000)
    with (tmp_path / "huge.json").open("wb") as huge:
        huge.truncate(100_000_000)
    field.set_input_files(huge.name)
    said = page.get_by_text("must be 64.0MB or smaller").first
    said.wait_for(timeout=60_000)
    assert said.bounding_box()["height"] > 10, "only screen readers are told"
    named = {"name": "my-tiny.json", "mimeType": "application/json", "buffer": json.dumps(TINY_CONFIG).encode()}
    field.set_input_files(named)
    page.wait_for_selector("text=my-tiny can now be chosen", timeout=60_000)
    page.get_by_test_id("stTopNavLink").filter(has_text="What-if").click()
    page.wait_for_selector("h2:has-text('per token')", timeout=60_000)
    page.get_by_role("combobox", name="Model").click()
    page.keyboard.type("my-tiny")
    page.get_by_role("option", name="my-tiny").click()
    page.wait_for_selector("h2:has-text('my-tiny')", timeout=60_000)


def test_a_click_on_a_point_tells_its_operator_and_the_address_keeps_it(page: Any, address: str) -> None:
    visit(page, f"{address}/roofline?model=llama-3.1-8b&tp=1")
    _click_at(page, page.locator(".js-plotly-plot .scatterlayer .point").first)
    page.wait_for_url(re.compile(r"operator=\w+"), timeout=60_000)
    assert "prefill" in page.url
    assert page.locator("[data-testid=stMain]").get_by_text("m 1,024").count() >= 1


def test_a_waterfall_of_another_metric_and_the_command_line_open(page: Any, address: str) -> None:
    visit(page, f"{address}/what-if?model=llama-3.1-8b&tp=1&weights=fp8")
    page.get_by_role("radio", name="Weights per device", exact=True).click()
    page.wait_for_selector("text=Weights per device: 16.1 GB to", timeout=60_000)
    page.get_by_text("The same numbers on the command line").click()
    page.wait_for_selector("text=roofcast simulate scenario.jsonl", timeout=60_000)
