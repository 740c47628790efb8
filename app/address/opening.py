"""Doors from a deployment to the pages that ask about one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from app.fields import inputs, question
from app.fields.uploaded import session_profiles
from simulator.planner.replica_setup import PoolsSetup, ReplicaSetup, pools_setup
from simulator.specs.engine.engine import DEFAULT_ENGINE
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.measured.validation_rows import RunFacts
from simulator.specs.model.loading import load_model
from simulator.specs.question.techniques import TechniquesSpec

PAGES = "_pages"
"""Where a session keeps its pages."""
ASKING = ("What-if", "Serving", "Roofline", "Compare")
"""Pages that ask about one deployment."""
_TECHNICAL = ("What-if", "Compare")
"""Those of them that ask with techniques."""
_LOADED, _SERVED = ("What-if", "Roofline", "Compare"), ("Serving",)
"""Those that ask about one pool of two, and the one that takes both."""


def register(pages: Mapping[str, Any]) -> None:
    """Remember the pages by their title."""
    st.session_state[PAGES] = dict(pages)


def pages() -> Mapping[str, Any]:
    """The pages by their title."""
    found: Mapping[str, Any] = st.session_state[PAGES]
    return found


def widget_values(setup: ReplicaSetup) -> dict[str, Any]:
    """A deployment by the keys of the widgets that say it."""
    degrees, formats = setup.parallelism, setup.precision
    return {
        "gpu": setup.hardware,
        "cap": setup.power_cap_w,
        "tp": degrees.tp_size,
        "pp": degrees.pp_size,
        "dp": degrees.dp_size,
        "ep": degrees.ep_size,
        "cp": degrees.cp_size,
        "weights": formats.scheme or (formats.weights.value if formats.weights else inputs.NATIVE),
        "kv": formats.kv_cache.value if formats.kv_cache else inputs.NATIVE,
        "engine": setup.engine.name,
        "seqs": setup.engine.max_num_seqs,
        "step_tokens": setup.engine.max_num_batched_tokens,
        "batch": None if setup.sequences is None else min(setup.sequences, inputs.LARGEST_BATCH),
        "rate": None if setup.rate_per_s is None else float(f"{setup.rate_per_s:.6g}"),
        "replicas": setup.replicas,
        "pool": setup.role or None,
    }


def pools_values(pools: PoolsSetup) -> dict[str, Any]:
    """Two pools by the keys of the widgets that say them: the decode pool is the deployment."""
    ahead = widget_values(pools.prefill)
    return {
        **widget_values(pools.decode),
        **{f"prefill_{key}": ahead[key] for key in ("tp", "pp", "dp", "ep", "cp", "step_tokens")},
        "prefill_gpu": None if pools.prefill.hardware == pools.decode.hardware else pools.prefill.hardware,
        "prefill_replicas": pools.prefill_replicas,
        "decode_replicas": pools.decode_replicas,
        "link": pools.decode.link,
        "rate": float(f"{pools.rate_per_s:.6g}"),
    }


def fleet_values(setups: Sequence[ReplicaSetup]) -> dict[str, Any]:
    """A fleet by the keys of the widgets that say it: one kind of replica, or both pools."""
    return widget_values(setups[0]) if len(setups) == 1 else pools_values(pools_setup(setups[0], setups[-1]))


def address_of(values: Mapping[str, Any]) -> dict[str, str]:
    """The whole question with a deployment, as parameters of an address."""
    asked = {key: value for key, value in question.kept().items() if key not in {*values, *question.OF_DEPLOYMENT}}
    return {key: str(value) for key, value in {**asked, **values}.items() if value is not None}


def links(label: str, titles: Sequence[str], address: Mapping[str, str]) -> None:
    """Links to pages at an address."""
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        st.markdown(f"**{label}**")
        for title in titles:
            page = pages()[title]
            st.page_link(page, label=title, icon=page.icon, query_params=dict(address))


def also(label: str, titles: Sequence[str], values: Mapping[str, Any]) -> None:
    """Links that ask the whole question with some values in place of its own."""
    links(label, titles, {key: str(value) for key, value in {**question.kept(), **values}.items()})


def guess_values(techniques: TechniquesSpec) -> dict[str, Any]:
    """Speculation by the keys of the widgets that say it, on the pages that have them."""
    guess = techniques.speculation
    if guess is None:
        return {}
    # One probability has a widget; those of each place have none.
    acceptance = None if isinstance(guess.acceptance, tuple) else guess.acceptance
    return {"speculation": guess.method, "k": guess.k, "acceptance": acceptance, "draft": guess.draft_model}


def open_in(values: Mapping[str, Any], techniques: Mapping[str, Any], *, but: str, here: str = "") -> None:
    """Links that open a deployment; apart those to pages that cannot ask with its techniques, which ``but`` says.

    here : the page that they stand on
    """
    titles = [title for title in ASKING if title != here]
    if not techniques:
        links("Open in", titles, address_of(values))
        return
    links("Open in", [title for title in titles if title in _TECHNICAL], address_of({**values, **techniques}))
    links(but, [title for title in titles if title not in _TECHNICAL], address_of(values))


def doors(setups: Sequence[ReplicaSetup]) -> None:
    """Links that open a fleet, and each kind of its replicas, on the pages that ask about one."""
    if len(setups) == 1:
        values, guesses = widget_values(setups[0]), guess_values(setups[0].techniques)
        open_in(values, guesses, but="Without speculation")
        return
    links("Both pools", _SERVED, address_of(fleet_values(setups)))
    for setup in setups:
        links(setup.role.capitalize(), _LOADED, address_of(widget_values(setup)))


_DEGREES = ("tp", "pp", "ep", "dp", "cp")
"""Keys of the widgets in the order of a run's degrees."""


def _sizes(run: RunFacts) -> dict[str, int]:
    """Degrees of parallelism by the keys of the widgets."""
    own, ahead = run.degrees, run.prefill_degrees or ()
    return {
        **dict(zip(_DEGREES, own, strict=True)),
        **dict(zip(map("prefill_{}".format, _DEGREES), ahead, strict=False)),
    }


def _beyond(run: RunFacts) -> list[str]:
    """Degrees that no page asks for: ``DP32``."""
    found = [(key.removeprefix("prefill_"), size) for key, size in _sizes(run).items()]
    return list(dict.fromkeys(f"{name.upper()}{size}" for name, size in found if size not in inputs.SIZES[name]))


def run_values(run: RunFacts) -> dict[str, Any]:
    """A measured run by the keys of the widgets that say it; what no widget says stays as it is asked.

    Raises ProfileError: its model or accelerator is no longer known.
    """
    at_once = run.batch_size or run.concurrency
    return {
        "model": load_model(run.model, profiles=session_profiles()).profile,
        "gpu": load_hardware(run.hardware, profiles=session_profiles()).name,
        **({} if _beyond(run) else _sizes(run)),
        "weights": _offered(run.scheme or run.weights, inputs.WEIGHTS),
        "kv": _offered(run.kv_cache, inputs.KV_DTYPES),
        "engine": run.engine if run.engine in inputs.ENGINES else None,
        "batch": min(at_once, inputs.LARGEST_BATCH) if at_once else None,
        "isl": run.isl_tokens,
        "osl": run.osl_tokens,
        "prefill_replicas": run.prefill_replicas,
        "decode_replicas": run.decode_replicas,
    }


def _offered(name: str | None, names: Sequence[str]) -> str:
    return name if name is not None and name in names else inputs.NATIVE


def run_doors(run: RunFacts) -> None:
    """Links that open what ran, as far as the pages ask for it."""
    values = run_values(run)
    if run.engine not in inputs.ENGINES:
        st.caption(f"The pages do not ask about {run.engine}: they open with {DEFAULT_ENGINE}.")
    if beyond := _beyond(run):
        st.caption(f"The pages do not ask for {' and '.join(beyond)}: they open with other degrees.")
    if run.prefill_replicas is None:
        links("Open in", ASKING, address_of(values))
    else:
        links("Both pools", _SERVED, address_of(values))
