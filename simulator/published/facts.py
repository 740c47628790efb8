"""Facts that no accelerator's profile holds, from ``facts.yaml``, and what follows from the layout of a number."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Literal

from simulator.specs.base import Source, Spec, read_yaml, validate
from simulator.specs.hardware.accelerator import AcceleratorSpec

FILE = Path(__file__).with_name("facts.yaml")


class OnChip(Spec):
    """Memory that the blocks of one compute unit share [bytes], and what it delivers in a clock [bytes]."""

    memory_bytes: float
    bytes_per_clock: float


class Operation(Spec):
    """Energy of one operation on ``bits`` bits [pJ]."""

    name: str
    kind: Literal["arithmetic", "memory"]
    bits: int
    picojoules: float


class FloatLayout(Spec):
    """Bits of a floating-point number; ``reserved`` says which encodings of the largest exponent are no numbers."""

    exponent_bits: int
    mantissa_bits: int
    reserved: Literal["ieee", "nan", "none"]

    @property
    def largest_exponent(self) -> int:
        """Exponent of the largest finite number."""
        bias = (1 << (self.exponent_bits - 1)) - 1
        return (1 << self.exponent_bits) - 1 - bias - (self.reserved == "ieee")

    @property
    def smallest(self) -> float:
        """The smallest normal number."""
        bias = (1 << (self.exponent_bits - 1)) - 1
        return float(_power(1 - bias))

    @property
    def step(self) -> float:
        """Distance from 1 to the next number."""
        return _power(-self.mantissa_bits)


def _power(exponent: int) -> float:
    return float(1 << exponent) if exponent >= 0 else 1.0 / (1 << -exponent)


def largest_value(layout: FloatLayout) -> float:
    """The largest finite number of a floating-point format [-].

    Equation
    --------
    x = 2^e (2 - 2^-m), one step less where all ones is no number

    Parameters
    ----------
    layout : exponent e of the largest numbers and mantissa bits m [-]

    Range of validity
    -----------------
    Formats with a sign, a bias of half the exponents and an implicit leading one. Leaves out subnormal numbers, and
    the scales that block formats put beside them.

    References
    ----------
    [Micikevicius2022]

    Examples
    --------
    >>> largest_value(FloatLayout(exponent_bits=4, mantissa_bits=3, reserved="nan"))
    448.0
    """
    steps = 1 + (layout.reserved == "nan")
    return _power(layout.largest_exponent) * (2.0 - steps * layout.step)


class FieldFacts(Spec):
    """All of ``facts.yaml``."""

    on_chip: dict[str, OnChip]
    operations: tuple[Operation, ...]
    floats: dict[str, FloatLayout]
    sources: dict[str, Source]

    def on_chip_of(self, hardware: AcceleratorSpec) -> OnChip | None:
        """The fact of this accelerator where it differs, else of its architecture; None where nobody says."""
        return self.on_chip.get(hardware.name, self.on_chip.get(hardware.architecture))


@lru_cache(maxsize=1)
def load_facts() -> FieldFacts:
    """The facts."""
    return validate(FieldFacts, read_yaml(FILE), where=str(FILE))
