"""Power, energy, clock and throttling of an NVIDIA GPU while kernels run, from the driver's own library by ctypes.

The power that the driver reports is a mean over a second on Hopper, so a short window holds the time before it. Where
the energy counter can be read, power is its difference over what is left of a window after the board has warmed up.
"""

from __future__ import annotations

import ctypes
import threading
import time
from dataclasses import dataclass, field

LIBRARY = "libnvidia-ml.so.1"
SM_CLOCK = 1
"""NVML_CLOCK_SM of nvml.h."""
INTERVAL_S = 0.02
DRIVER_TEXT_BYTES = 80
"""NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE."""
MILLIWATTS_PER_WATT = 1000.0
MILLIJOULES_PER_JOULE = 1000.0
SETTLING_S = 2.0
"""At the beginning of a window, left out: the mean that the driver reports, and the board's temperature, still follow
what ran before."""
COUNTED_S = 3.0
"""Of a window after that, at least, for a difference of the energy counter (it ticks about ten times a second)."""
HERTZ_PER_MEGAHERTZ = 1_000_000.0


class Nvml:
    """The calls that are needed; raises OSError where the library or the device is missing."""

    def __init__(self, uuid: str) -> None:
        self._library = ctypes.CDLL(LIBRARY)
        self._check(self._library.nvmlInit_v2())
        self._handle = ctypes.c_void_p()
        name = uuid if uuid.startswith("GPU-") else f"GPU-{uuid}"
        self._check(self._library.nvmlDeviceGetHandleByUUID(name.encode("ascii"), ctypes.byref(self._handle)))

    @staticmethod
    def _check(code: int) -> None:
        if code != 0:
            raise OSError(f"NVML refuses with code {code}")

    def driver(self) -> str:
        """Version of the driver."""
        text = ctypes.create_string_buffer(DRIVER_TEXT_BYTES)
        self._check(self._library.nvmlSystemGetDriverVersion(text, ctypes.c_uint(DRIVER_TEXT_BYTES)))
        return text.value.decode("ascii")

    def power_w(self) -> float:
        """Power of the board [W]."""
        milliwatts = ctypes.c_uint()
        self._check(self._library.nvmlDeviceGetPowerUsage(self._handle, ctypes.byref(milliwatts)))
        return milliwatts.value / MILLIWATTS_PER_WATT

    def power_limit_w(self) -> float:
        """The limit that is enforced [W]."""
        milliwatts = ctypes.c_uint()
        self._check(self._library.nvmlDeviceGetEnforcedPowerLimit(self._handle, ctypes.byref(milliwatts)))
        return milliwatts.value / MILLIWATTS_PER_WATT

    def energy_j(self) -> float:
        """Energy since the driver was loaded [J]."""
        millijoules = ctypes.c_ulonglong()
        self._check(self._library.nvmlDeviceGetTotalEnergyConsumption(self._handle, ctypes.byref(millijoules)))
        return millijoules.value / MILLIJOULES_PER_JOULE

    def throttle(self) -> int:
        """Why the clock is below its highest now, as the bits of nvml.h (nvmlClocksThrottleReason...)."""
        reasons = ctypes.c_ulonglong()
        self._check(self._library.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle, ctypes.byref(reasons)))
        return int(reasons.value)

    def clock_hz(self) -> float:
        """Clock of the compute units [Hz]."""
        megahertz = ctypes.c_uint()
        self._check(self._library.nvmlDeviceGetClockInfo(self._handle, SM_CLOCK, ctypes.byref(megahertz)))
        return megahertz.value * HERTZ_PER_MEGAHERTZ


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a window showed, None where it could not be read or the window was too short to say.

    power_w : mean [W]; clock_hz : mean [Hz]; throttle : all reasons that were given, as the bits of nvml.h
    """

    power_w: float | None = None
    clock_hz: float | None = None
    throttle: int | None = None


@dataclass(frozen=True, slots=True)
class _Sample:
    at_s: float
    power_w: float
    clock_hz: float
    energy_j: float | None
    throttle: int


@dataclass(slots=True)
class Meter:
    """Samples the board in a thread between ``start`` and ``stop``; reads nothing where there is no NVML."""

    nvml: Nvml | None = None
    _samples: list[_Sample] = field(default_factory=list)
    _stopped: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin a window."""
        if self.nvml is None:
            return
        self.stop()
        self._samples.clear()
        self._stopped.clear()
        self._thread = threading.Thread(target=self._sample, args=(self.nvml,), daemon=True)
        self._thread.start()

    def _sample(self, nvml: Nvml) -> None:
        counted = True
        while True:
            try:
                energy_j = nvml.energy_j() if counted else None
            except OSError:
                # Boards before Volta have no counter.
                counted, energy_j = False, None
            try:
                self._samples.append(
                    _Sample(time.perf_counter(), nvml.power_w(), nvml.clock_hz(), energy_j, nvml.throttle())
                )
            except OSError:
                return
            if self._stopped.wait(INTERVAL_S):
                return

    def stop(self) -> Reading:
        """End the window."""
        if self._thread is None:
            return Reading()
        self._stopped.set()
        self._thread.join()
        self._thread = None
        return reading_of(self._samples)


def reading_of(samples: list[_Sample]) -> Reading:
    """Power and clock of a window once it has settled; a clock also of a short one."""
    if not samples:
        return Reading()
    throttle = 0
    for sample in samples:
        throttle |= sample.throttle
    settled = [sample for sample in samples if sample.at_s - samples[0].at_s >= SETTLING_S]
    clocks = [sample.clock_hz for sample in settled or samples[len(samples) // 2 :]]
    return Reading(power_w=_power_w(settled), clock_hz=sum(clocks) / len(clocks), throttle=throttle)


def _power_w(settled: list[_Sample]) -> float | None:
    """From the energy counter where the window is long enough, otherwise the mean of what the driver reports."""
    if not settled:
        return None
    first, last = settled[0], settled[-1]
    elapsed_s = last.at_s - first.at_s
    if first.energy_j is not None and last.energy_j is not None and elapsed_s >= COUNTED_S:
        return (last.energy_j - first.energy_j) / elapsed_s
    return sum(sample.power_w for sample in settled) / len(settled)


def meter_for(uuid: str | None) -> Meter:
    """A meter of the GPU with this UUID; one that reads nothing where NVML does not answer or there is no GPU."""
    if uuid is None:
        return Meter()
    try:
        return Meter(nvml=Nvml(uuid))
    except (OSError, AttributeError):
        return Meter()
