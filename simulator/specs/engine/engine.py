"""The serving engine: its limits (what the user sets) and its overheads (what was fitted).

An engine is a YAML file under hardware_profiles/engines/ with what its documentation says, and one of the same name
under hardware_profiles/calibration/engines/ with what was fitted. No code knows an engine by its name.
"""

from dataclasses import replace
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, NonNegativeInt, PositiveFloat, PositiveInt, ValidationInfo, model_validator

from simulator.errors import ProfileError, RoofcastError, did_you_mean, plain_word, shown
from simulator.specs.base import Source, Spec, read_yaml, validate
from simulator.specs.engine import releases as by_release
from simulator.specs.engine.deployment import KvTiers, ParallelismSpec
from simulator.specs.engine.fits import (
    EngineFit,
    EngineFits,
    EngineOverheads,
    EngineSpread,
    HostProducts,
    SparseDecode,
    VendorFit,
)
from simulator.specs.hardware.accelerator import AcceleratorSpec
from simulator.specs.profiles import find_profile, list_profiles, load_spec, profile_root
from simulator.units import KILO

MOST_AT_ONCE = int(KILO * 100)
"""Requests in a batch, or clients: what is simulated takes time and memory with them."""
AtOnce = Annotated[PositiveInt, Field(le=MOST_AT_ONCE)]

SchedulerName = Literal[
    "chunked_mixed", "prefill_first", "prefill_first_mixed", "guaranteed_no_evict", "max_utilization", "static"
]
PROMPTS_APART: SchedulerName = "prefill_first"
"""Of engines that decode nobody in steps with prompts."""
FULL_LENGTH: SchedulerName = "guaranteed_no_evict"
"""Of engines that set room for the whole answer aside."""
QueueOrderName = Literal["arrival", "longest_prefix"]
MemoryRule = Literal["of_total", "static", "of_free"]
Feature = Literal["speculation", "disaggregation"]
VersionReason = Literal["speculation", "disaggregation", "model"]
DEFAULT_ENGINE = "vllm"
"""Runs whatever a question leaves open: of every kind, command and page."""


EngineName = Annotated[str, BeforeValidator(lambda value: plain_word(value) if isinstance(value, str) else value)]
"""A word for an engine, in any usual spelling. As names of accelerators and models it may mean a profile of the user's
directory: ``load_engine``, which knows that directory, refuses a word without a profile."""


# A number, a branch or a commit.
_VERSION = r"^[A-Za-z0-9][A-Za-z0-9.+_/-]{0,79}$"


class EngineSpec(Spec):
    """The contract's ``engine`` object. ``None`` takes the default of the engine's profile.

    ``scheduler`` and ``queue_order`` as in ``EngineProfile``. ``cpu_kv_offload`` keeps evicted KV blocks and preempted
    sequences in host memory, ``cpu_kv_offload_bytes`` of it per replica (by default twice the device's KV cache).
    ``kv_tiers`` keep KV blocks in host memory, on NVMe and in a remote store, each of the size and rate that it says;
    blocks found there are loaded where that is sooner than computing them.
    ``kv_allocation`` "max_length" sets room for max_model_len tokens aside for every request, as engines before
    PagedAttention did, in place of blocks as they fill. ``version_for`` says what ``version`` is the first release of,
    where nobody gave one: a feature, or the model.
    """

    name: EngineName = DEFAULT_ENGINE
    version: Annotated[str, Field(pattern=_VERSION)] | None = None
    max_num_batched_tokens: PositiveInt | None = None
    max_num_seqs: AtOnce | None = None
    max_model_len: PositiveInt | None = None
    gpu_memory_utilization: float | None = Field(default=None, gt=0, le=1)
    block_size_tokens: PositiveInt | None = None
    prefix_caching: bool | None = None
    chunked_prefill: bool | None = None
    cpu_kv_offload: bool | None = None
    cpu_kv_offload_bytes: PositiveFloat | None = None
    kv_tiers: KvTiers = None
    scheduler: SchedulerName | None = None
    queue_order: QueueOrderName | None = None
    kv_allocation: Literal["max_length"] | None = None
    version_for: VersionReason | None = None

    @model_validator(mode="before")
    @classmethod
    def _words(cls, data: Any) -> Any:
        """A word is the name, nulls are absent, a version may be a number."""
        if isinstance(data, str):
            data = {"name": data}
        if not isinstance(data, dict):
            return data
        given = cls.given(data)
        version = given.get("version")
        if isinstance(version, int | float) and not isinstance(version, bool):
            given["version"] = str(version)
        return given


def named_engine(name: str | None) -> EngineSpec:
    """The engine of that name; without one the default, which an answer then lists among its assumptions."""
    return EngineSpec() if name is None else EngineSpec(name=name)


class EngineRelease(EngineFit):
    """What was different in the versions of an engine before the one that it is filed under."""

    async_scheduling: bool
    side_stream_tokens: NonNegativeInt = 0
    matrix_groups: tuple[PositiveInt, ...] = ()
    recipe: by_release.KernelRecipe = by_release.KernelRecipe()
    cuda_graph_max_sequences: NonNegativeInt | None = None


class EngineProfile(Spec):
    """An engine's default limits (YAML under hardware_profiles/engines/) with its `EngineFits`.

    ``aliases`` are other spellings of its name; ``stands_in_for`` names engines without a profile whose kernels and
    scheduler are nearest to its own. A profile that states its ``overheads`` itself needs no fits.
    ``memory_rule`` says what gpu_memory_utilization is a share of: "of_total" all memory, with weights, activations and
    cache in it (vLLM); "static" weights and cache, activations beside them (SGLang); "of_free" the cache takes that
    share of what weights, activations and runtime leave (TensorRT-LLM).
    ``scheduler`` says what a step is made of and when another sequence is admitted: "chunked_mixed" decodes first and
    prompts in chunks beside them, admitted when their prompt fits, the last admitted thrown out when the cache is full
    (vLLM); "max_utilization" the same under TensorRT-LLM's name; "guaranteed_no_evict" mixed too, but a request starts
    only when its whole answer fits (TensorRT-LLM, TGI); "prefill_first" steps of prompts alone before steps of decodes
    alone, admitted when a share of the running answers would fit too (SGLang); "prefill_first_mixed" the same with
    decodes beside the prompts (SGLang --enable-mixed-chunk); "static" a batch is collected, runs to the end of its
    longest member, and then the next starts. ``queue_order`` "longest_prefix" admits first who finds most of its prompt
    in the prefix cache (SGLang --schedule-policy lpm). ``async_scheduling``: a step is put together while the one
    before runs.
    ``reserves_full_length``: a request starts only when the cache can hold its prompt and all its output.
    ``eager``: every kernel is launched by the host as it comes, neither fused nor captured in a CUDA graph.
    ``cuda_graph_max_sequences``: of the largest captured step; 0: none is, the host launches (fused) kernels itself.
    ``round_graphs``: sequences for which rounds of guesses are captured, above each first number multiples of the
    second (empty: as steps are, by tokens).
    ``runs_published_code``: speculation runs as its authors published it, without a serving engine's own drafting.
    ``side_stream_tokens``: up to that many tokens in a step, shared experts run on a stream beside the routed ones (0:
    never), on accelerators of ``side_stream_vendors`` (empty: of all).
    ``prompt_gather_steps``: steps that attention-data-parallel ranks let prompts wait until every rank has one, so that
    one rank's prompts do not hold up all others at other times (0: a prompt starts at once).
    ``prompt_ranks_drawn``: in a pool that computes prompts for another, a random number of each request says which of
    a replica's attention ranks takes it.
    ``nucleus_sorted_until``: the release since which a nucleus is found without a sort of the vocabulary (None: never).
    ``checkpoint_cache_since``: the release since which keys and values take the format that a checkpoint names for
    them, where nobody names one (None: they never do).
    ``fp8_of_modelopt``: FP8 of a model in 16 bit is, in its recipes, ModelOpt's checkpoint, one scale a tensor, even
    where the model's own publisher stores blocks.
    ``dense_short_prompts``: architectures on which sparse attention multiplies all keys of prompts in which no query
    sees more of them than are chosen (empty: the chosen ones are always gathered).
    ``sparse_decode``: what choosing keys adds to a decode step beyond the kernels that are counted.
    ``host_products``: weights in the host's memory are multiplied there (None: copied to the device in every pass).
    ``format_kernels``: family of kernels of its own that multiply the formats which they take (empty: its library's).
    ``one_pass_batches``: a static batch's prompts run in one pass (False: in passes of max_num_batched_tokens).
    ``packs_block_queries``: architectures on which attention over chosen blocks of keys packs queries into a tile.
    ``matrix_groups``: query heads per KV head whose decode attention has a matrix kernel (empty: all have one).
    ``recipe``: kernels that it runs where its library's tables were measured on others.
    ``releases``: what earlier versions had instead, by the version that ended them, oldest first.
    ``rules``: limits that a release takes on some devices in place of the profile's, by release; the profile's
    ``version`` is among them. A release without rules takes those of the nearest one.
    ``vendors``: the fits on accelerators of other vendors, where runs there were measured.
    ``first_releases``: by vendor, from which release on a feature runs there, where that is later than ``version``.
    ``first_releases_of_models``: types of models by the release that first knew them, where that is later than
    ``version``.
    ``context_parallel``: it can divide the tokens of a prompt over ranks.
    ``runs_on``: vendors of the accelerators that it runs on (empty: all).
    """

    name: str
    aliases: tuple[str, ...] = ()
    stands_in_for: tuple[str, ...] = ()
    version: str
    kernel_library: by_release.KernelLibraryName
    max_num_batched_tokens: PositiveInt
    max_num_seqs: PositiveInt
    gpu_memory_utilization: float = Field(gt=0, le=1)
    block_size_tokens: PositiveInt
    memory_rule: MemoryRule
    reserves_full_length: bool
    scheduler: SchedulerName
    queue_order: QueueOrderName = "arrival"
    async_scheduling: bool
    prefix_caching: bool
    chunked_prefill: bool
    eager: bool
    runs_published_code: bool = False
    cuda_graph_max_sequences: NonNegativeInt
    round_graphs: tuple[tuple[NonNegativeInt, PositiveInt], ...] = ()
    side_stream_tokens: NonNegativeInt = 0
    side_stream_vendors: tuple[str, ...] = ()
    nucleus_sorted_until: str | None = None
    checkpoint_cache_since: str | None = None
    fp8_of_modelopt: bool = False
    dense_short_prompts: tuple[str, ...] = ()
    sparse_decode: SparseDecode | None = None
    host_products: HostProducts | None = None
    format_kernels: str = ""
    one_pass_batches: bool = True
    packs_block_queries: tuple[str, ...] = ()
    matrix_groups: tuple[PositiveInt, ...] = ()
    recipe: by_release.KernelRecipe = by_release.KernelRecipe()
    prompt_gather_steps: NonNegativeInt = 0
    prompt_ranks_drawn: bool = False
    cache_logged_on: tuple[str, ...] = ()
    overheads: EngineOverheads
    spread: EngineSpread
    sources: dict[str, Source]
    whole_runs: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    releases: dict[str, EngineRelease] = Field(default_factory=dict)
    rules: dict[str, tuple[by_release.LimitRule, ...]] = Field(default_factory=dict)
    vendors: dict[str, VendorFit] = Field(default_factory=dict)
    first_releases: dict[str, dict[Feature, str]] = Field(default_factory=dict)
    first_releases_of_models: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    context_parallel: bool = False
    runs_on: tuple[str, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _with_fits(cls, data: Any, info: ValidationInfo) -> Any:
        if not isinstance(data, dict) or "overheads" in data or not isinstance(data.get("name"), str):
            return data
        path = find_profile("calibration/engines", data["name"], profiles=info.context)
        if path is None:
            return data
        fits = read_yaml(path)
        if not path.is_relative_to(profile_root("hardware_profiles")):
            # What is wrong in a file of one's own is told of that file, not of the profile that it belongs to.
            validate(EngineFits, fits, where=str(path), profile=True)
        return _joined(data, fits)

    @model_validator(mode="after")
    def _knows_vector_rate(self) -> Self:
        """Heads without a matrix kernel are priced by the rate of the vector units, which has to be known."""
        ways = [(self.matrix_groups, self.overheads)]
        for vendor in self.vendors.values():
            ways += [(self.matrix_groups, fit.overheads) for fit in (vendor, *vendor.releases.values())]
        ways += [(release.matrix_groups, release.overheads) for release in self.releases.values()]
        if any(groups and not overheads.vector_elements_per_clock for groups, overheads in ways):
            raise ValueError("matrix_groups needs vector_elements_per_clock among the overheads beside it, above 0")
        return self

    def release(self, version: str | None) -> str | None:
        """The version that ended the release which ``version`` belongs to; None for the profile's own."""
        return next((before for before in self.releases if by_release.came_before(version, before)), None)

    def sorts_nucleus(self, version: str | None) -> bool:
        """Whether drawing from a nucleus takes a sort of the vocabulary in ``version`` (None: the profile's own)."""
        return self.nucleus_sorted_until is None or by_release.came_before(
            version or self.version, self.nucleus_sorted_until
        )

    def follows_checkpoint_cache(self, version: str | None) -> bool:
        """Whether ``version`` (None: the profile's own) caches in the format that a checkpoint names."""
        since = self.checkpoint_cache_since
        return since is not None and not by_release.came_before(version or self.version, since)

    def at(self, version: str | None) -> Self:
        """The profile as it was in ``version`` (None: the profile's own)."""
        before = self.release(version)
        if before is None:
            recipe = self.recipe.at(version or self.version)
            return self if recipe == self.recipe else self.model_copy(update={"recipe": recipe})
        release = self.releases[before]
        names = ("overheads", "async_scheduling", "side_stream_tokens", "matrix_groups", "recipe", "spread")
        changed: dict[str, object] = {name: getattr(release, name) for name in names} | {"vendors": {}}
        if release.cuda_graph_max_sequences is not None:
            changed["cuda_graph_max_sequences"] = release.cuda_graph_max_sequences
        return self.model_copy(update=changed)

    def on_vendor(self, vendor: str, *, version: str | None = None) -> Self:
        """The profile on accelerators of ``vendor``, with the fits of ``version`` (None: its own) there, if any."""
        changed: dict[str, object] = {}
        if self.side_stream_vendors and vendor not in self.side_stream_vendors:
            changed["side_stream_tokens"] = 0
        if vendor in self.vendors:
            fit = self.vendors[vendor].at(version or self.version)
            changed |= {"overheads": fit.overheads, "spread": fit.spread, "whole_runs": fit.whole_runs}
        return self.model_copy(update=changed) if changed else self

    def serving(self, model: by_release.ServedModel) -> Self:
        """The profile with what its recipe holds for such a model."""
        recipe = self.recipe.serving(model)
        return self if recipe is self.recipe else self.model_copy(update={"recipe": recipe})

    def on_host(self, host_speed: float) -> Self:
        """The profile on a host of another speed."""
        return self.model_copy(update={"overheads": self.overheads.on_host(host_speed)})

    def check_runs_on(self, hardware: AcceleratorSpec) -> None:
        """Raises RoofcastError where the engine does not run on accelerators of that vendor."""
        if self.runs_on and hardware.vendor not in self.runs_on:
            raise RoofcastError(
                f"{self.name} does not run on {hardware.name}, which is of {hardware.vendor}; "
                f"it runs on accelerators of: {', '.join(self.runs_on)}",
                field="engine",
                code="unsupported_hardware",
                hint="take another engine or another accelerator",
            )

    def limits(
        self, spec: EngineSpec, *, hardware: AcceleratorSpec, parallelism: ParallelismSpec
    ) -> by_release.EngineLimits:
        """Limits of the release that ``spec`` names on a device: those that it gives, the others as the engine does."""
        self.check_runs_on(hardware)
        if parallelism.cp_size > 1 and not self.context_parallel:
            raise RoofcastError(
                f"{parallelism.cp_size} is not possible: {self.name} does not divide prompts; allowed: 1",
                field="cp_size",
                code="unsupported_parallelism",
                hint="leave it at 1, or take an engine whose profile says context_parallel",
            )
        asked = spec.version or self.version
        release = by_release.nearest_release(asked, tuple(self.rules) or (self.version,))
        known = release == asked or by_release.release_number(release) == by_release.release_number(asked) != ()
        source = by_release.LimitSource(engine=self.name, release=release, asked=None if known else asked)
        own = {name: getattr(self, name) for name in by_release.LIMIT_FIELDS}
        found = by_release.ruled(
            by_release.EngineLimits(**own, sources=(source,) * len(by_release.LIMIT_FIELDS)),
            (rule for rule in self.rules.get(release, ()) if rule.holds(hardware, parallelism)),
            given_tokens=spec.max_num_batched_tokens,
            devices=parallelism.tp_size * parallelism.pp_size,
            memory_bytes=hardware.memory_visible_bytes,
        )
        given = ((name, getattr(spec, name, None)) for name in by_release.LIMIT_FIELDS)
        return replace(found, **{name: value for name, value in given if value is not None})

    @model_validator(mode="after")
    def _scheduler_and_memory_agree(self) -> Self:
        if self.reserves_full_length != (self.scheduler == FULL_LENGTH):
            raise ValueError("reserves_full_length belongs to scheduler guaranteed_no_evict, and to it alone")
        unsourced = [release for release in self.rules if f"rules.{release}" not in self.sources]
        if unsourced:
            raise ValueError(f"rules of {', '.join(unsourced)} have no source: sources.rules.{unsourced[0]}")
        if self.rules and self.version not in self.rules:
            raise ValueError(f"rules lack the profile's own version {self.version}; they have {', '.join(self.rules)}")
        early = [
            release for release in self.first_releases_of_models if not by_release.came_before(self.version, release)
        ]
        if early:
            raise ValueError(f"first_releases_of_models: {early[0]} is not later than version {self.version}")
        return self


def _joined(facts: Any, fits: Any) -> Any:
    """A profile's facts with its fits, release by release; what is no mapping stays, to be refused by its field."""
    if not isinstance(facts, dict) or not isinstance(fits, dict):
        return fits if isinstance(facts, dict) else facts
    joined = {name: value for name, value in fits.items() if name not in ("engine", "date")} | facts
    for name, join in (("sources", dict.__or__), ("releases", _joined_releases)):
        own, more = facts.get(name, {}), fits.get(name, {})
        if name in facts or name == "sources":
            joined[name] = join(own, more) if isinstance(own, dict) and isinstance(more, dict) else _joined(own, more)
    return joined


def _joined_releases(facts: dict[str, Any], fits: dict[str, Any]) -> dict[str, Any]:
    return {before: _joined(release, fits.get(before, {})) for before, release in facts.items()}


def load_engine(name: str, *, profiles: str | None = None) -> EngineProfile:
    """An engine's profile by its name or one it stands in for; raises ProfileError where none is."""
    found = find_profile("engines", name, profiles=profiles)
    if found is None:
        hint = did_you_mean(plain_word(name), list_profiles("engines", profiles=profiles))
        raise ProfileError(f"unknown engine {shown(name)}", field="engine", hint=hint)
    return load_spec(EngineProfile, found.stem, kind="engines", profiles=profiles)


def with_feature(spec: EngineSpec, feature: Feature, *, vendor: str, profiles: str | None = None) -> EngineSpec:
    """``spec`` in the first release that has ``feature`` on accelerators of ``vendor``, where it leaves that open."""
    first = load_engine(spec.name, profiles=profiles).first_releases.get(vendor, {}).get(feature)
    return _since(spec, first, reason=feature)


def with_model(spec: EngineSpec, model_type: str, *, profiles: str | None = None) -> EngineSpec:
    """``spec`` in the first release that knows models of ``model_type``, where it leaves the release open."""
    releases = load_engine(spec.name, profiles=profiles).first_releases_of_models
    first = next((release for release, known in releases.items() if model_type in known), None)
    return _since(spec, first, reason="model")


def _since(spec: EngineSpec, release: str | None, *, reason: VersionReason) -> EngineSpec:
    """``spec`` in ``release`` where nobody gave one and no later one is needed anyway."""
    given = spec.version is not None and spec.version_for is None
    if release is None or given or (spec.version is not None and not by_release.came_before(spec.version, release)):
        return spec
    return spec.model_copy(update={"version": release, "version_for": reason})


def engine_limits(
    spec: EngineSpec, *, hardware: AcceleratorSpec, parallelism: ParallelismSpec, profiles: str | None = None
) -> by_release.EngineLimits:
    """Limits that the engine of ``spec`` runs with on a device: what is given there, and its own choice of the rest."""
    profile = load_engine(spec.name, profiles=profiles)
    return profile.limits(spec, hardware=hardware, parallelism=parallelism)
