"""Power and clock of an NVIDIA GPU while kernels run, from the driver's own library by ctypes; nothing elsewhere."""

from __future__ import annotations

import ctypes
import threading
from dataclasses import dataclass, field

LIBRARY = "libnvidia-ml.so.1"
SM_CLOCK = 1
"""NVML_CLOCK_SM of nvml.h."""
INTERVAL_S = 0.02
DRIVER_TEXT_BYTES = 80
"""NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE."""
MILLIWATTS_PER_WATT = 1000.0
HERTZ_PER_MEGAHERTZ = 1_000_000.0


class Nvml:
    """The four calls that are needed; raises OSError where the library or the device is missing."""

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

    def clock_hz(self) -> float:
        """Clock of the compute units [Hz]."""
        megahertz = ctypes.c_uint()
        self._check(self._library.nvmlDeviceGetClockInfo(self._handle, SM_CLOCK, ctypes.byref(megahertz)))
        return megahertz.value * HERTZ_PER_MEGAHERTZ


@dataclass(slots=True)
class Meter:
    """Samples power and clock in a thread between ``start`` and ``stop``; gives None where there is no NVML."""

    nvml: Nvml | None = None
    _power_w: list[float] = field(default_factory=list)
    _clock_hz: list[float] = field(default_factory=list)
    _stopped: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin a window."""
        if self.nvml is None:
            return
        self._power_w.clear()
        self._clock_hz.clear()
        self._stopped.clear()
        self._thread = threading.Thread(target=self._sample, args=(self.nvml,), daemon=True)
        self._thread.start()

    def _sample(self, nvml: Nvml) -> None:
        while True:
            try:
                self._power_w.append(nvml.power_w())
                self._clock_hz.append(nvml.clock_hz())
            except OSError:
                return
            if self._stopped.wait(INTERVAL_S):
                return

    def stop(self) -> tuple[float | None, float | None]:
        """End the window: mean power [W] and clock [Hz] of its second half, where the average has settled."""
        if self._thread is None:
            return None, None
        self._stopped.set()
        self._thread.join()
        self._thread = None
        return _settled(self._power_w), _settled(self._clock_hz)


def _settled(values: list[float]) -> float | None:
    late = values[len(values) // 2 :]
    return sum(late) / len(late) if late else None


def meter_for(uuid: str | None) -> Meter:
    """A meter of the GPU with this UUID; one that reads nothing where NVML does not answer or there is no GPU."""
    if uuid is None:
        return Meter()
    try:
        return Meter(nvml=Nvml(uuid))
    except (OSError, AttributeError):
        return Meter()
