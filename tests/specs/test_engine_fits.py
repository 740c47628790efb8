"""An engine is two files: what its documentation says, and what was fitted; no module knows it by name."""

from __future__ import annotations

import ast
import shutil
from math import hypot
from pathlib import Path

import numpy as np

from simulator.specs.base import read_yaml, validate
from simulator.specs.engine.engine import load_engine
from simulator.specs.engine.fits import (
    BEYOND_FITTED,
    LONGEST_FITTED_PROMPT_TOKENS,
    PROMPT_TOKEN_SPREAD,
    EngineFits,
    EngineSpread,
    host_tokens,
)
from simulator.specs.profiles import list_profiles, profile_root
from validation.fit.files import write_engine_fits

FACTS = profile_root("hardware_profiles") / "engines"
FITS = profile_root("hardware_profiles") / "calibration" / "engines"


def test_every_engine_has_facts_and_dated_fits_apart() -> None:
    names = list_profiles("engines")
    assert names == list_profiles("calibration/engines")
    for name in names:
        facts, fits = read_yaml(FACTS / f"{name}.yaml"), read_yaml(FITS / f"{name}.yaml")
        assert not {"overheads", "spread"} & facts.keys()
        spec = validate(EngineFits, fits, where=name)
        engine = load_engine(name)
        assert (spec.engine, len(spec.date)) == (name, 10)
        assert (engine.overheads, engine.spread) == (spec.overheads, spec.spread)
        assert engine.sources.keys() == facts["sources"].keys() | spec.sources.keys()
        assert engine.releases.keys() == spec.releases.keys()


def test_fitted_numbers_are_written_and_the_others_stay(tmp_path: Path) -> None:
    shutil.copy(FITS / "vllm.yaml", tmp_path)
    before = validate(EngineFits, read_yaml(tmp_path / "vllm.yaml"), where="")
    path = write_engine_fits("vllm", overheads={"step_s": 1.23456e-4}, spread={"ttft": 0.0714}, directory=tmp_path)
    after = validate(EngineFits, read_yaml(path), where="")
    assert after.overheads == before.overheads.model_copy(update={"step_s": 1.235e-4})
    assert after.spread == before.spread.model_copy(update={"ttft": 0.071})
    assert after.releases == before.releases
    earlier = validate(
        EngineFits,
        read_yaml(write_engine_fits("vllm", release="0.6", overheads={"step_s": 2e-4}, directory=tmp_path)),
        where="",
    )
    assert earlier.overheads == after.overheads
    assert earlier.releases["0.6"].overheads.step_s == 2e-4
    path = write_engine_fits("vllm", vendor="amd", spread={"pools": 0.3}, directory=tmp_path)
    of_vendor = validate(EngineFits, read_yaml(path), where="")
    assert of_vendor.spread == earlier.spread
    assert of_vendor.vendors["amd"].spread == earlier.vendors["amd"].spread.model_copy(update={"pools": 0.3})
    assert of_vendor.vendors["amd"].overheads == earlier.vendors["amd"].overheads


def test_first_tokens_of_prompts_longer_than_any_fitted_are_known_less_well() -> None:
    spread = load_engine("vllm").spread
    host_s, step_s = 1e-5, 2e-5
    found = [
        spread.of_prompts(
            tokens, prompt_token_s=host_s, ttft_s=float(host_s * host_tokens(tokens) + step_s * tokens)
        ).ttft
        for tokens in (100, LONGEST_FITTED_PROMPT_TOKENS, 1100, 8000, 100_000)
    ]
    assert found[:2] == [spread.ttft] * 2
    assert found[1:] == sorted(set(found))
    beyond_s = BEYOND_FITTED * host_s
    assert found[-1] < hypot(spread.ttft, PROMPT_TOKEN_SPREAD * beyond_s / (beyond_s + step_s))
    assert spread.of_prompts(8000, prompt_token_s=0.0, ttft_s=0.1) == spread


def test_a_token_beyond_the_fitted_lengths_takes_half_of_a_hosts_time_and_every_one_takes_some() -> None:
    lengths = np.arange(1, 5000)
    counted = host_tokens(lengths)
    assert (counted[:LONGEST_FITTED_PROMPT_TOKENS] == lengths[:LONGEST_FITTED_PROMPT_TOKENS]).all()
    assert set(np.diff(counted)) == {1.0, BEYOND_FITTED}
    assert host_tokens(LONGEST_FITTED_PROMPT_TOKENS + 100) == LONGEST_FITTED_PROMPT_TOKENS + 100 * BEYOND_FITTED


# Kernel libraries have the names of the engines that ship them; launch files are written in each engine's own words.
NAMING = (
    "simulator/kernels/",
    "simulator/specs/engine/engine.py",
    "simulator/specs/engine/releases.py",
    "simulator/reports/",
    "simulator/cli/",
    "simulator/api/",
    "simulator/published/",
)


def test_no_module_knows_an_engine_by_its_name() -> None:
    names = set(list_profiles("engines"))
    root = Path(__file__).resolve().parents[2]
    for path in sorted((root / "simulator").rglob("*.py")):
        where = path.relative_to(root).as_posix()
        if not where.startswith(NAMING):
            text = path.read_text(encoding="utf-8")
            # A file is taken apart where it says such a name, be it in a sentence.
            tree = ast.parse(text if any(name in text for name in names) else "")
            found = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)} & names
            assert not found, f"{where} names {found}"


def test_a_loop_is_as_wide_as_its_class_on_its_architecture_else_its_class_else_the_widest() -> None:
    spread = EngineSpread(
        ttft=0.0, tpot=0.01, e2e=0.01, loops=0.3, loops_of={"dense": 0.1, "dense on blackwell": 0.2}, pools=0.4
    )

    def width(model_class: str, architecture: str, *, pools: bool = False) -> float:
        return spread.of_loop(model_class, architecture=architecture, pools=pools).tpot

    assert [width("dense", name) for name in ("blackwell", "blackwell-ultra", "ada")] == [0.2, 0.2, 0.1]
    assert (width("MoE", "blackwell"), width("dense", "blackwell", pools=True)) == (0.3, 0.4)
