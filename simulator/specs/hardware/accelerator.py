"""Accelerators, their links and the servers they are sold in: datasheet facts only, never fits."""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from math import log
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, PositiveFloat, PositiveInt

from simulator.errors import ProfileError, plain_word, said_of
from simulator.specs.base import CalendarDate, Source, Spec
from simulator.specs.model.precision import Dtype
from simulator.specs.profiles import (
    find_profile,
    list_profiles,
    load_file,
    load_spec,
    profile_directories,
    profile_files,
    profile_index,
    profile_root,
)
from simulator.units import GIB, GIGA

INLINE_ECC_SHARE = 1 / 16
"""Check bits of GDDR6: 3 of 48 GiB (software sees 44.5 to 45 GiB of an L40S or A40, 47.4 of the same board without)."""
ECC_VISIBLE_SHARE = 0.95
DESKTOP = "desktop"
CONSUMER_CARD = "consumer-card"
"""Form factor of computers with the accelerator inside, which no rack holds."""
GPU_LANES = 128
"""FP32 lanes of an SM since Ampere's consumer parts and Hopper, and of a CDNA 3 compute unit with dual issue."""


RATE_FACTS = ("peak_flops_per_s", "memory_bytes_per_s", "l2_bytes")


class LinkSpec(Spec):
    """One kind of connection. Bandwidth is per device and per direction [bytes/s]."""

    kind: str
    bytes_per_s_per_direction: PositiveFloat
    domain_size: PositiveInt = Field(default=1, description="devices that reach each other over this link")
    mesh: bool = Field(default=False, description="each pair has a link of its own, and no switch joins their rates")

    def reached_bytes_per_s(self, participants: int) -> float:
        """Rate of one device among ``participants`` of a domain: on a mesh, of its links to those alone."""
        if not self.mesh or participants >= self.domain_size:
            return self.bytes_per_s_per_direction
        return self.bytes_per_s_per_direction * (participants - 1) / (self.domain_size - 1)


def _with_fp32(rates: dict[Dtype, float]) -> dict[Dtype, float]:
    """Rates by format. Raises ValueError: without the one that work outside the matrix units is counted by."""
    if Dtype.FP32 not in rates:
        raise ValueError("no fp32: work outside the matrix units is counted by it")
    return rates


class AcceleratorSpec(Spec):
    """Datasheet facts of one accelerator; peaks are dense [FLOP/s], a multiply-add is 2 FLOPs.

    ``peak_flops_per_s`` holds matrix (tensor core, MFMA, MXU) peaks with the accumulation that inference
    uses (FP32 for floating point); ``sparse_peak_flops_per_s`` the 2:4 peaks where the hardware has them;
    ``library_flops_per_s`` what large products of the vendor's library were measured at, where no kernel tables exist.
    ``status`` announced: figures are preliminary. ``host_speed`` is the speed of one thread of the host that it
    usually sits in, that of an H100 server being 1.
    ``sources`` maps a field, or a dotted part of it, to where its number comes from.
    """

    name: str
    aliases: tuple[str, ...] = ()
    vendor: Literal["nvidia", "amd", "intel", "google", "aws", "huawei", "apple", "other"]
    architecture: str
    form_factor: str
    release_date: CalendarDate
    status: Literal["available", "announced"] = "available"
    peak_flops_per_s: dict[Dtype, PositiveFloat]
    sparse_peak_flops_per_s: dict[Dtype, PositiveFloat] = Field(default_factory=dict)
    vector_flops_per_s: Annotated[dict[Dtype, PositiveFloat], AfterValidator(_with_fp32)]
    library_flops_per_s: dict[Dtype, PositiveFloat] = Field(default_factory=dict)
    memory_kind: str
    memory_bytes: PositiveFloat
    memory_visible_bytes: PositiveFloat
    memory_bytes_per_s: PositiveFloat
    l2_bytes: PositiveFloat
    compute_units: PositiveInt
    boost_clock_hz: PositiveFloat
    scale_up: LinkSpec
    host_link: LinkSpec
    tdp_w: PositiveFloat
    idle_w: PositiveFloat
    power_cap_w: PositiveFloat | None = Field(default=None, description="what its owner limits it to, below tdp_w")
    host_speed: PositiveFloat = 1.0
    uncapped_flops_per_s: dict[Dtype, PositiveFloat] = Field(
        default_factory=dict, description="of a capped chip, what its units would multiply; derived, in no profile"
    )
    sources: dict[str, Source]
    notes: tuple[str, ...] = ()

    @property
    def limit_w(self) -> float:
        """The most that it draws [W]."""
        return self.power_cap_w or self.tdp_w

    def arithmetic_at(self, speed: float) -> dict[str, dict[Dtype, float]]:
        """Its arithmetic rates, by field, where it works that many times as fast [FLOP/s]."""
        rates = ("peak_flops_per_s", "sparse_peak_flops_per_s", "vector_flops_per_s", "library_flops_per_s")
        return {name: {dtype: speed * rate for dtype, rate in getattr(self, name).items()} for name in rates}

    @property
    def only_when_named(self) -> str:
        """Why a search over all accelerators leaves this one out ("announced", "desktop", "consumer-card"), or ""."""
        if self.status == "announced":
            return self.status
        return self.form_factor if self.form_factor in (DESKTOP, CONSUMER_CARD) else ""

    @property
    def parallel_units(self) -> int:
        """Units as kernel models count them: where one is wider than a GPU's 128 lanes (a TPU core has 2048), as many
        of that width as go into it. An estimate for devices that are not programmed in blocks of threads."""
        flops_per_s = self.vector_flops_per_s[Dtype.FP32]
        lanes = flops_per_s / (2 * self.boost_clock_hz * self.compute_units)
        return self.compute_units * max(1, int(lanes) // GPU_LANES)

    @property
    def memory_data_share(self) -> float:
        """Share of what the memory moves that is not ECC: GDDR keeps its check bits in line, a sixteenth of it,
        where the bytes that software sees fall short of the nominal ones by about that; HBM has bits of their own."""
        nominal_bytes = self.memory_bytes / GIGA * GIB
        inline = self.memory_kind.startswith("gddr") and self.memory_visible_bytes < ECC_VISIBLE_SHARE * nominal_bytes
        return 1.0 - INLINE_ECC_SHARE if inline else 1.0

    @property
    def facts_date(self) -> str:
        """The newest date among the sources [ISO date]: a calibration older than this is out of date."""
        return max(source.date for source in self.sources.values())

    @property
    def rates_date(self) -> str:
        """The newest date among the sources of what a kernel fit is a share of: peaks, bandwidth and cache."""
        return max((self.sources[name].date for name in RATE_FACTS if name in self.sources), default=self.facts_date)


class ServerSpec(Spec):
    """A server, or a rack sold as one, that holds accelerators.

    scale_up_domain_size : accelerators of it that the scale-up link of each joins
    peer_link : what joins accelerators of different domains inside the server (the host's PCIe where bridges join
        pairs), for groups of up to its domain size; None where one domain takes them all, or nothing is known
    weight_kg, cooling : None where unknown
    """

    name: str
    aliases: tuple[str, ...] = ()
    vendor: str
    accelerator: str
    accelerators_per_server: PositiveInt
    system_power_max_w: PositiveFloat
    system_power_typical_w: PositiveFloat
    rack_units: PositiveFloat
    scale_up_domain_size: PositiveInt
    peer_link: LinkSpec | None = None
    nic: LinkSpec
    nics_per_server: PositiveInt
    host_memory_bytes: PositiveFloat | None = None
    weight_kg: PositiveFloat | None = None
    cooling: Literal["air", "liquid"] | None = None
    sources: dict[str, Source]
    notes: tuple[str, ...] = ()

    def expected_device_w(self, accelerator: AcceleratorSpec) -> float:
        """What each of its accelerators draws when it draws what is expected [W]: as much of the range from idle to TDP
        as that is of its nameplate, and no more than a limit allows."""
        share = self.system_power_typical_w / self.system_power_max_w
        return min(accelerator.limit_w, accelerator.idle_w + share * (accelerator.tdp_w - accelerator.idle_w))

    def expected_w(self, accelerator: AcceleratorSpec) -> float:
        """Its expected power [W], less what a limit takes from each of its accelerators."""
        if accelerator.power_cap_w is None:
            return self.system_power_typical_w
        unlimited = accelerator.model_copy(update={"power_cap_w": None})
        less_w = self.expected_device_w(unlimited) - self.expected_device_w(accelerator)
        return self.system_power_typical_w - self.accelerators_per_server * less_w

    def nameplate_w(self, accelerator: AcceleratorSpec) -> float:
        """Its power at most [W], each of its accelerators at its limit."""
        return self.system_power_max_w - self.accelerators_per_server * (accelerator.tdp_w - accelerator.limit_w)

    @property
    def network(self) -> LinkSpec:
        """One accelerator's share of the NICs."""
        share = min(1.0, self.nics_per_server / self.accelerators_per_server)
        return self.nic.model_copy(update={"bytes_per_s_per_direction": share * self.nic.bytes_per_s_per_direction})


OWN_LABEL = "roofcast/accelerator"
"""Selects nodes of accelerators that no plugin labels; the operator sets it."""


class GatewaySpec(Spec):
    """The endpoint picker of the Gateway API inference extension."""

    picker_image: str
    picker_port: PositiveInt
    picker_config: str


class ClusterSpec(Spec):
    """Names of device plugins by vendor and accelerator, and what a pod asks for.

    volume_bytes_per_s : at which a replica reads its weights, where nothing is known of the volume
    """

    resources: dict[str, str]
    product_labels: dict[str, str]
    products: dict[str, str]
    volume_bytes_per_s: PositiveFloat
    cores_per_accelerator: PositiveInt
    host_memory_gib_per_accelerator: PositiveInt
    shared_memory_gib: PositiveInt
    router_image: str
    gateway: GatewaySpec
    sources: dict[str, Source]

    def resource(self, hardware: AcceleratorSpec) -> str:
        """What a container asks for, and what its nodes are tainted with; a name to replace where none is known."""
        return self.resources.get(hardware.vendor, f"{hardware.vendor}.example/accelerator")

    def node_selector(self, hardware: AcceleratorSpec) -> dict[str, str]:
        """The label of nodes with this accelerator."""
        label, product = self.product_labels.get(hardware.vendor), self.products.get(hardware.name)
        return {label: product} if label and product else {OWN_LABEL: hardware.name}


@lru_cache(maxsize=1)
def cluster() -> ClusterSpec:
    """The built-in facts."""
    return load_file(ClusterSpec, profile_root("hardware_profiles") / "cluster" / "kubernetes.yaml")


LINKS: Mapping[str, str] = {
    "nvswitch": "nvlink",
    "nvlink-switch": "nvlink",
    "infinity-fabric": "xgmi",
    "if": "xgmi",
    "pci": "pcie",
    "pci-express": "pcie",
    "ib": "infiniband",
    "roce": "ethernet",
}
"""Other names of a link between devices."""


_GENERATION = re.compile(r"[- ]?(gen|v)?[- ]?\d[\d.]*g?(-?x\d+)?$|-?x\d+$")


def link_word(text: str) -> str:
    """A link without its generation: ``NVLink4`` and ``nvswitch`` are ``nvlink``, ``PCIe-5.0 x16`` is ``pcie``."""
    word = plain_word(text)
    family = _GENERATION.sub("", word)
    return LINKS.get(word) or LINKS.get(family, family)


def load_hardware(
    name_or_path: str | Path, *, profiles: str | Path | None = None, field: str = "hardware"
) -> AcceleratorSpec:
    """An accelerator by name, alias (``h100``) or path to a YAML file.

    Raises ProfileError: there is none of that name, said of ``field``.
    """
    with said_of({"hardware": field}):
        return load_spec(AcceleratorSpec, name_or_path, kind="hardware", profiles=profiles)


def list_hardware(*, profiles: str | Path | None = None) -> tuple[str, ...]:
    """Names of all accelerators, sorted, without aliases."""
    return list_profiles("hardware", profiles=profiles)


def nearest_hardware(hardware: AcceleratorSpec) -> str:
    """The built-in accelerator that one of somebody's own stands for, else the nearest in memory [bytes/s, bytes] and
    highest peak [FLOP/s], of its vendor where there is one."""

    def apart(name: str) -> tuple[bool, bool, float]:
        other = load_hardware(name)
        pairs = (
            (other.memory_bytes_per_s, hardware.memory_bytes_per_s),
            (other.memory_bytes, hardware.memory_bytes),
            (max(other.peak_flops_per_s.values()), max(hardware.peak_flops_per_s.values())),
        )
        ratios = (theirs / ours for theirs, ours in pairs)
        return name != hardware.name, other.vendor != hardware.vendor, sum(abs(log(ratio)) for ratio in ratios)

    return min(list_hardware(), key=apart)


def unnamed_hardware(*, profiles: str | Path | None = None) -> dict[str, str]:
    """Accelerators that a search leaves out unless they are named, each with ``only_when_named`` as the reason.

    The built-in ones stand in the index, so that a search opens no profile that it does not use; a profile of that name
    in a user's own directory is searched like any other of theirs.
    """
    user = {stem for root in profile_directories("hardware", profiles=profiles)[:-1] for stem in profile_files(root)}
    return {name: reason for name, reason in profile_index("only_when_named").items() if name not in user}


def list_offered_hardware(*, profiles: str | Path | None = None) -> tuple[str, ...]:
    """Names that a search over all accelerators tries."""
    unnamed = unnamed_hardware(profiles=profiles)
    return tuple(name for name in list_hardware(profiles=profiles) if name not in unnamed)


def load_server(name_or_path: str | Path, *, profiles: str | Path | None = None) -> ServerSpec:
    """A server by name, alias or path."""
    return load_spec(ServerSpec, name_or_path, kind="servers", profiles=profiles)


def default_server_for(hardware: str, *, profiles: str | Path | None = None) -> ServerSpec:
    """The server an accelerator is planned in: the user's first one that lists it, else the built-in default."""
    path = find_profile("hardware", hardware, profiles=profiles)
    accelerator = path.stem.lower() if path is not None else plain_word(hardware)
    for server in _user_servers(profiles):
        if plain_word(server.accelerator) == accelerator:
            return server
    name = profile_index("default_servers").get(accelerator)
    if name is None:
        raise ProfileError(
            f"no server holds the accelerator {hardware!r}",
            field="servers",
            hint=f"add one under servers/ of your profile directory with accelerator: {accelerator}",
        )
    return load_server(name, profiles=profiles)


def _user_servers(profiles: str | Path | None) -> Iterator[ServerSpec]:
    for root in profile_directories("servers", profiles=profiles)[:-1]:
        for path in profile_files(root).values():
            yield load_file(ServerSpec, path)
