"""Kernels that many set-ups share: each is priced once per accelerator and looked up by every set-up.

Engine limits change no kernel, pipeline stages repeat the same layers, number formats share everything but their
matrix products, and cache formats everything but attention.

What a screened set-up leaves for its cache, under every engine limit at once and on any accelerator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from functools import cache
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.kernels.library import KernelLibrary
from simulator.operators.work import CollectiveShape, Family, KernelShape, StepShape, Work
from simulator.phases.deployment import Deployment
from simulator.phases.memory import STATES_SHARE, activation_bytes, memory_plan, rest_for_cache
from simulator.phases.step import issuing_s, scheduling_s
from simulator.records import dataclass
from simulator.specs.engine.engine import MemoryRule
from simulator.techniques.applied import device_rows
from simulator.traffic.lengths import Array


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRoom:
    """What a set-up needs beside the KV cache, on any accelerator.

    weights_bytes; beside_bytes [sequences, budgets] : activations and the runtime; states_bytes [sequences, 1] :
    recurrent states of all that may run; per_token_bytes : of one cached token, 0 where nothing is cached
    """

    memory_rule: MemoryRule
    weights_bytes: float
    beside_bytes: Array
    states_bytes: Array
    per_token_bytes: float

    def kv_tokens(self, visible_bytes: float, *, shares: Array, lanes: int) -> Array:
        """Tokens that the cache of one lane holds [sequences, budgets]; below 0 where it does not fit.

        shares : of the memory that the engine takes under each budget [budgets]
        """
        rest = rest_for_cache(
            self.memory_rule, share=shares, visible=visible_bytes, weights=self.weights_bytes, beside=self.beside_bytes
        )
        most = np.maximum(rest, 0.0) * (STATES_SHARE if self.per_token_bytes else 1.0)
        free = rest - np.minimum(self.states_bytes, most)
        if not self.per_token_bytes:
            return np.where(free > 0, np.inf, -1.0)
        return free / self.per_token_bytes / lanes


def cache_room(deployment: Deployment, *, sequences: tuple[int, ...], budgets: tuple[int, ...]) -> CacheRoom:
    """Room for the cache under every engine limit."""
    memory, most = memory_plan(deployment), np.array(sequences)[:, None]
    return CacheRoom(
        memory_rule=deployment.engine.memory_rule,
        weights_bytes=memory.weights_bytes,
        beside_bytes=activation_bytes(deployment, tokens=np.array(budgets), sequences=most) + memory.reserve_bytes,
        states_bytes=most * memory.state_bytes_per_sequence,
        per_token_bytes=memory.kv_bytes_per_token,
    )


_ENDS = (Family.EMBEDDING, Family.LM_HEAD)
_Key = tuple[object, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DistinctRow:
    """An operator row with every case once.

    key, number : of what its price depends on, and its own; cases : which of them each case of the whole step is
    """

    key: int
    number: int
    work: Work
    cases: NDArray[np.intp]


def _arrays(item: object, *, cases: int) -> dict[str, Array]:
    """Fields of a row or shape that hold one number for each case."""
    found = {field.name: getattr(item, field.name) for field in fields(item)}  # type: ignore[arg-type]
    return {name: value for name, value in found.items() if isinstance(value, np.ndarray) and value.shape == (cases,)}


def _beside(shape: KernelShape) -> tuple[Work, ...]:
    return shape.beside if isinstance(shape, CollectiveShape) else ()


def _all_arrays(work: Work, *, cases: int) -> list[Array]:
    """What holds one number for each case in a row, its shape and the rows beside it."""
    found = [*_arrays(work, cases=cases).values(), *_arrays(work.shape, cases=cases).values()]
    return found + [array for row in _beside(work.shape) for array in _all_arrays(row, cases=cases)]


def _in_cases(work: Work, places: NDArray[np.intp], *, cases: int) -> Work:
    of_shape: dict[str, Any] = {name: value[places] for name, value in _arrays(work.shape, cases=cases).items()}
    of_row: dict[str, Any] = {name: value[places] for name, value in _arrays(work, cases=cases).items()}
    if beside := _beside(work.shape):
        of_shape["beside"] = tuple(_in_cases(row, places, cases=cases) for row in beside)
    return replace(work, **of_row, shape=replace(work.shape, **of_shape))


def _distinct(columns: list[Array]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The first case of each kind, and of every case its kind, in the order in which they come."""
    # Cases are few: a dictionary is much faster than sorting them, and of bytes than of numbers.
    together = np.stack(columns, axis=1, dtype=np.float64)
    cases = together.view(f"V{together.strides[0]}").ravel().tolist()
    kinds = dict(zip(dict.fromkeys(cases), range(len(cases)), strict=False))
    first = dict(zip(reversed(cases), reversed(range(len(cases))), strict=True))
    order, back = ([of[case] for case in asked] for of, asked in ((first, kinds), (kinds, cases)))
    return np.array(order, dtype=np.intp), np.array(back, dtype=np.intp)


@cache
def _columns(kind: Any) -> Callable[[object], tuple[object, ...]]:
    return attrgetter(*(field.name for field in fields(kind) if field.name != "shape"))


def _contents(item: Any) -> _Key:
    """Type and fields of a shape, or of a row without its shape; arrays as their bytes."""
    found = _columns(type(item))(item)  # type: ignore[arg-type]
    key = (type(item), *[value.tobytes() if isinstance(value, np.ndarray) else value for value in found])
    if not isinstance(item, CollectiveShape) or not item.beside:
        return key
    plain = replace(item, beside=())
    return (_contents(plain), *[(_contents(row), _contents(row.shape)) for row in item.beside])


class DistinctRows:
    """Rows of a search, each kept once: formats, techniques and degrees share most of theirs."""

    def __init__(self) -> None:
        self._rows: dict[_Key, DistinctRow] = {}
        self._kinds: dict[_Key, int] = {}

    def of(self, work: Work, *, cases: int) -> DistinctRow:
        """Keep one of the cases in which a row does the same: most operators see only the number of tokens."""
        contents = (_contents(work), _contents(work.shape))
        if contents not in self._rows:
            self._rows[contents] = self._reduced(work, cases=cases)
        return self._rows[contents]

    def _reduced(self, work: Work, *, cases: int) -> DistinctRow:
        first, back = _distinct(_all_arrays(work, cases=cases) or [np.zeros(cases)])
        kept = _in_cases(work, first, cases=cases)
        kind = (np.asarray(kept.flops).tobytes(), np.asarray(kept.bytes).tobytes(), _contents(kept.shape))
        key = self._kinds.setdefault(kind, len(self._kinds))
        return DistinctRow(key=key, number=len(self._rows), work=kept, cases=back)


class RowPrices:
    """Seconds of operator rows on one accelerator, each priced once."""

    def __init__(self, kernels: KernelLibrary) -> None:
        self._kernels = kernels
        self._seconds: dict[int, Array] = {}
        self._spent: dict[int, Array] = {}

    def price(self, rows: Iterable[DistinctRow]) -> None:
        """Price those that are new, in one go."""
        missing = {row.key: row.work for row in rows if row.key not in self._seconds}
        if missing:
            timings = self._kernels.price_all(tuple(missing.values()))
            self._seconds.update({key: timing.seconds for key, timing in zip(missing, timings, strict=True)})

    def forget_sums(self) -> None:
        """Let go of what `total_s` keeps of every row: the set-ups that share them are done."""
        self._spent.clear()

    def total_s(self, rows: tuple[DistinctRow, ...], *, cases: int) -> Array:
        """Time of all executions of all rows, as far as they are expected to run, in every case of a step [s]."""
        new = [row for row in rows if row.number not in self._spent]
        if new:
            self.price(new)
            for row in new:
                once_s = (row.work.executed * self._seconds[row.key])[row.cases]
                self._spent[row.number] = row.work.count * once_s
        total = np.zeros(cases)
        for row in rows:
            total += self._spent[row.number]
        return total


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedRows:
    """Rows of a model on one tensor-parallel degree and format, whatever the accelerator; layers are whole models'.

    send : of one step's residual stream to the next stage
    """

    layers: tuple[DistinctRow, ...]
    ends: tuple[DistinctRow, ...]
    send: tuple[DistinctRow, ...]

    @property
    def all(self) -> tuple[DistinctRow, ...]:
        """Everything that is priced."""
        return self.layers + self.ends + self.send


def shared_rows(deployment: Deployment, known: DistinctRows, *, step: StepShape, depth: int) -> SharedRows:
    """The operator list of a deployment, taken apart into what stages share and what stands at the ends."""
    flat = deployment.parallelism.model_copy(update={"pp_size": 1})
    rows = device_rows(deployment.techniques, parallelism=flat, step=step)
    send: tuple[Work, ...] = ()
    if depth > 1:
        staged = deployment.parallelism.model_copy(update={"pp_size": 2})
        send = device_rows(deployment.techniques, parallelism=staged, step=step)[-1:]
    cases = len(step.new_tokens)
    return SharedRows(
        layers=tuple(known.of(work, cases=cases) for work in rows if work.family not in _ENDS),
        ends=tuple(known.of(work, cases=cases) for work in rows if work.family in _ENDS),
        send=tuple(known.of(work, cases=cases) for work in send),
    )


def lane_seconds(deployment: Deployment, rows: SharedRows, prices: RowPrices, *, step: StepShape) -> Array:
    """Seconds between the steps of one lane, as ``feasibility.lane_step_s``; stages are taken as even [s]."""
    cases = len(step.new_tokens)
    depth = deployment.parallelism.pp_size
    layers, ends, send = (prices.total_s(part, cases=cases) for part in (rows.layers, rows.ends, rows.send))
    host_s = scheduling_s(deployment, step)
    count = deployment.model.num_hidden_layers
    largest_stage = -(-count // depth) / count
    latency_s = layers + ends + (depth - 1) * send + host_s
    interval_s = layers * largest_stage + np.maximum(ends, send) + host_s
    return np.maximum(latency_s, depth * interval_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftPass:
    """A pass of a drafter: its step, and its rows as they are listed and as they are priced."""

    step: StepShape
    works: tuple[Work, ...]
    rows: tuple[DistinctRow, ...]


def draft_pass(draft: Deployment, step: StepShape, known: DistinctRows) -> DraftPass:
    """The rows of one pass of a drafter, which runs in one stage."""
    works = device_rows(draft.techniques, parallelism=draft.parallelism, step=step, fused=not draft.engine.eager)
    rows = tuple(known.of(work, cases=len(step.new_tokens)) for work in works)
    return DraftPass(step=step, works=works, rows=rows)


def draft_pass_s(draft: Deployment, one: DraftPass, prices: RowPrices) -> Array:
    """``estimate_step(draft, one.step).step_s`` from kernels that others share [s]."""
    device_s = prices.total_s(one.rows, cases=len(one.step.new_tokens))
    return device_s + scheduling_s(draft, one.step) + issuing_s(draft, works=one.works, device_s=device_s)
