"""What an engine does on some devices and hosts alone."""

from pydantic import PositiveFloat, PositiveInt

from simulator.specs.base import Spec
from simulator.specs.engine.fits import Overhead
from simulator.specs.hardware.accelerator import AcceleratorSpec


class SparseDecode(Spec):
    """Small kernels around the choice of keys in a layer of sparse latent attention, alike on all of ``architectures``.

    layer_s : of a decode step, sequence_s : of each of its sequences [s]
    """

    architectures: tuple[str, ...]
    layer_s: Overhead
    sequence_s: Overhead


class HostProducts(Spec):
    """Products of few rows whose weights are in the host's memory run on its processor.

    rows_below : more have the weights copied to the device; memory_bytes_per_s : of one socket, by the kind of link
        that its generation brings; a link that is not named shares the device's memory [bytes/s]
    """

    rows_below: PositiveInt
    memory_bytes_per_s: dict[str, PositiveFloat]

    def reads_bytes_per_s(self, hardware: AcceleratorSpec) -> float:
        """The rate at which the host of ``hardware`` reads weights [bytes/s]."""
        return self.memory_bytes_per_s.get(hardware.host_link.kind.split("-x")[0], hardware.memory_bytes_per_s)
