"""Implementation families of quantised and sparse products: what each adds to the 16-bit product of the same device."""

from functools import lru_cache
from typing import Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, field_validator

from simulator.errors import RoofcastError, did_you_mean
from simulator.specs.base import Spec, read_yaml, validate
from simulator.specs.profiles import profile_root


class FormatKernelSpec(Spec):
    """One family of kernels, relative to the 16-bit kernel of the same device and library.

    formats : names of the formats it multiplies
    memory_share, compute_share : of the bandwidth and the matrix rate that the 16-bit kernel reaches
    launch_s : on top of its fixed time [s]
    dequantise_ops : instructions of one lane per weight that a tile reads (0: the matrix units read the weights as
        they are stored)
    fused_rows : most tokens that the fused kernel takes; above it the weights are written out in 16 bit first.
        Absent: any number
    paper_of : schemes whose own paper was measured with it
    fitted_on, scored_on : rows behind the parameters and rows that they were tested on, with the mean error there
    """

    name: str
    formats: tuple[str, ...] = Field(min_length=1)
    paper_of: tuple[str, ...] = ()
    memory_share: PositiveFloat = 1.0
    compute_share: PositiveFloat = 1.0
    launch_s: NonNegativeFloat = 0.0
    dequantise_ops: NonNegativeFloat = 0.0
    fused_rows: PositiveInt | None = None
    log_sigma: PositiveFloat
    known_as: Literal["fitted", "assumed"]
    source: str
    fitted_on: str = ""
    scored_on: str = ""


class FormatKernelTable(Spec):
    """All families, and which one each kernel library runs by default: library -> format -> family."""

    date: str
    families: tuple[FormatKernelSpec, ...] = Field(min_length=1)
    defaults: dict[str, dict[str, str]]

    @field_validator("families")
    @classmethod
    def _names_once(cls, families: tuple[FormatKernelSpec, ...]) -> tuple[FormatKernelSpec, ...]:
        names = [family.name for family in families]
        if len(names) != len(set(names)):
            raise ValueError("a family stands twice")
        return families

    def family(self, name: str) -> FormatKernelSpec:
        """The family of that name; an unknown one is refused."""
        for family in self.families:
            if family.name == name:
                return family
        names = [family.name for family in self.families]
        raise RoofcastError(
            f"unknown kernel family {name!r}",
            field="precision.kernel",
            code="unknown_kernel",
            hint=did_you_mean(name, names),
        )

    def default(self, *, library: str, fmt: str) -> FormatKernelSpec | None:
        """The family that a kernel library runs for a format, or None where none is listed."""
        for scope in (library, "any"):
            name = self.defaults.get(scope, {}).get(fmt)
            if name is not None:
                return self.family(name)
        return None

    def families_for(self, fmt: str) -> tuple[str, ...]:
        """Names of the families that multiply a format."""
        return tuple(family.name for family in self.families if fmt in family.formats)

    def of_paper(self, scheme: str) -> str | None:
        """The family that the paper of a scheme was measured with; None where none is known."""
        return next((family.name for family in self.families if scheme in family.paper_of), None)


@lru_cache(maxsize=1)
def load_format_kernels() -> FormatKernelTable:
    """The table shipped with the package (hardware_profiles/calibration/format_kernels.yaml)."""
    path = profile_root("hardware_profiles") / "calibration" / "format_kernels.yaml"
    return validate(FormatKernelTable, read_yaml(path), where=str(path), profile=True)
