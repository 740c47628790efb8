"""How a release of an engine is started: image, command and flags, by what a plan says and not by engine in code.

One YAML file an engine under hardware_profiles/engines/launch/. Texts hold ``${name}`` where a setting of the replica
belongs (``reports.handoff.settings`` lists them).
"""

from functools import lru_cache
from typing import Any, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from simulator.specs.base import Source, Spec
from simulator.specs.engine.deployment import Medium
from simulator.specs.model.checkpoints import CheckpointKind
from simulator.specs.profiles import find_profile, load_spec

Condition = Literal[
    "pipeline",
    "one_stage",
    "attention_ranks",
    "one_attention_rank",
    "expert_parallel",
    "context_ranks",
    "two_batches",
    "several_devices",
    "several_servers",
    "fp8_cache",
    "bf16_cache",
    "prefix_caching",
    "no_prefix_caching",
    "chunked_prefill",
    "no_chunked_prefill",
    "quantized_at_load",
    "pools",
    "prefill_pool",
    "decode_pool",
    "amd",
    "blackwell",
    "attention_sinks",
    "mxfp4_experts",
    "host_tier",
    "host_tier_alone",
    "lower_tiers",
    "nvme_tier",
    "remote_tier",
]
"""What a flag depends on: true of a planned replica or not."""


def _one_condition(data: Any) -> Any:
    """A condition alone may stand without its list."""
    if isinstance(data, dict) and isinstance(data.get("when"), str):
        return {**data, "when": (data["when"],)}
    return data


class LaunchItem(Spec):
    """A flag of the command, or an option of the file beside it (``option``: dotted path) with its ``value``. A text
    alone is a flag. It is left out unless everything in ``when`` is true."""

    flag: str = ""
    option: str = ""
    value: str = ""
    when: tuple[Condition, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _short(cls, data: Any) -> Any:
        return _one_condition({"flag": data} if isinstance(data, str) else data)

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if bool(self.flag) == bool(self.option) or bool(self.option) != bool(self.value):
            raise ValueError("either flag, or option with its value")
        return self


class EnvironmentItem(Spec):
    """A variable of the engine's process; ``when`` as of a flag."""

    name: str
    value: str
    when: tuple[Condition, ...] = ()

    _short = model_validator(mode="before")(_one_condition)


class RouterSpec(Spec):
    """What stands in front of replicas: ``package`` is installed by pip where the engine does not bring ``command``.

    flags : in front of replicas that do both, by what their prompts share; pool_flags : of two pools
    url_flags : of replicas that are named by address; selector_flags : by label in a cluster
    prefill_annotations : of pods that compute prompts, where the router reads them
    config_file, config : of a router that reads addresses from a file; nothing else of it is a flag then
    """

    package: str = ""
    command: str
    port: PositiveInt
    flags: tuple[str, ...] = ()
    pool_flags: tuple[str, ...] = ()
    url_flags: dict[Literal["", "prefill", "decode"], str] = Field(default_factory=dict)
    selector_flags: dict[Literal["", "prefill", "decode"], str] = Field(default_factory=dict)
    prefill_annotations: dict[str, str] = Field(default_factory=dict)
    config_file: str = ""
    config: str = ""

    def serves(self, *, pools: bool) -> bool:
        """Whether it stands in front of two pools, or of replicas that do both."""
        return bool(self.config or self.pool_flags) if pools else bool(self.flags)


class LaunchSpec(Spec):
    """How an engine's ``release`` serves a checkpoint.

    title : the engine's own spelling; checked : against what the flags were held
    images : by vendor, or by architecture where a vendor's differ; an accelerator without one needs its own build
    worker_flags : of the servers of a replica beyond the first, in addition; ``join`` is put before the command there
    options_file : name of the file that ``option`` items go into
    speculation : items by method of speculation; none that holds says that the engine has no such method there
    quantizes : number formats of weights that it makes while loading a 16-bit checkpoint, by its own names
    checkpoints : kinds of quantized checkpoints that it loads; tiers : that it has flags for, those below host memory
    behind it alone
    """

    release: str
    title: str
    checked: Literal["parser", "documentation", "memory"]
    command: str
    port: PositiveInt
    health_path: str
    images: dict[str, str]
    environment: tuple[EnvironmentItem, ...] = ()
    flags: tuple[LaunchItem, ...]
    worker_flags: tuple[str, ...] = ()
    join: str = ""
    options_file: str = ""
    speculation: dict[str, tuple[LaunchItem, ...]] = Field(default_factory=dict)
    quantizes: dict[str, str] = Field(default_factory=dict)
    checkpoints: tuple[CheckpointKind, ...] = ()
    tiers: tuple[Medium, ...] = ()
    router: RouterSpec | None = None
    sources: dict[str, Source]


@lru_cache(maxsize=16)
def load_launch(engine: str, *, profiles: str | None = None) -> LaunchSpec | None:
    """How an engine is started; None for one that nobody described."""
    if find_profile("engines/launch", engine, profiles=profiles) is None:
        return None
    return load_spec(LaunchSpec, engine, kind="engines/launch", profiles=profiles)
