"""The driver of a tape: the real binding answers as the driver did then, at the time of any clock."""

from typing import Literal

from profiler.core.clock import Clock
from tests.fake_nvml import FakeGpu, FakeNvml
from tests.nvml_tape import Tape

UUID = "GPU-11111111-2222-3333-4444-555555555555"
# What the driver lists: processes by ids of the own namespace, none (those of another namespace),
# ids of the host, or no memory (driver 560 in a container).
Pids = Literal["own", "hidden", "host", "no memory"]
HOST_PIDS = 3_000_000
# The newest sample is 60 ms old, and 14 s are kept.
_SAMPLE_AGE = 0.06
_SAMPLES_KEPT = 14.0


class TapeDriver:
    """The driver of a tape, whose second is ``position`` when the clock is at 0.

    ``list_seconds`` is how long a list of processes takes.
    """

    def __init__(
        self,
        tape: Tape,
        clock: Clock,
        position: float,
        *,
        has_gpm: bool = True,
        has_samples: bool = True,
        pids: Pids = "own",
        list_seconds: float = 0.0,
    ) -> None:
        self._tape = tape
        self._clock = clock
        self._position = position
        self._has_samples = has_samples
        self._pids: Pids = pids
        self._list_seconds = list_seconds
        self._xids = [xid for xid in tape.xids if xid[0] >= position]
        self.gpu = FakeGpu(UUID, total_bytes=tape.total_bytes, reserved_bytes=0)
        self.gpu.name_bytes = tape.gpu_name.encode()
        self.gpu.has_gpm = has_gpm
        self.gpu.link_generation = 5
        self.gpu.link_width = 16
        self.nvml = FakeNvml(self.gpu)
        self.nvml.on_call(self._move)

    def _move(self, function: str) -> None:
        """Answer the call as the driver did at this moment."""
        at = self._clock.monotonic_ns() / 1e9 + self._position
        if function == "nvmlGpmSampleGet":
            self.gpu.sum_gpm(at + 1000, self._tape.gpm_sums(at))
        elif function == "nvmlDeviceGetSamples":
            self._keep_samples(at)
        elif function.endswith("RunningProcesses"):
            if "Compute" in function and "MPS" not in function:
                self._clock.sleep(self._list_seconds / 2)  # the binding calls it twice
            self._list(at)
        elif function == "nvmlDeviceGetTotalEnergyConsumption":
            self.gpu.energy_millijoules = self._tape.millijoules(at)
        elif function == "nvmlEventSetWait_v2":
            while self._xids and self._xids[0][0] <= at:
                self.gpu.fall_with(self._xids.pop(0)[1])
        else:
            row = self._tape.at(at)
            for name in ("used_bytes", "utilization_percent", "power_milliwatts"):
                setattr(self.gpu, name, getattr(row, name))
            self.gpu.celsius = row.celsius
            self.gpu.clock_mhz = row.clock_mhz
            self.gpu.reasons = row.reasons

    def _keep_samples(self, at: float) -> None:
        if not self._has_samples:
            return
        offset = self._clock.wall_ns() / 1e9 - at
        self.gpu.keep_samples(
            *(
                (round((stamp + offset) * 1e6), percent)
                for stamp, percent in self._tape.samples
                if at - _SAMPLES_KEPT <= stamp <= at - _SAMPLE_AGE
            )
        )

    def _list(self, at: float) -> None:
        if self._pids == "hidden":
            self.gpu.list_processes()
            return
        ahead = HOST_PIDS if self._pids == "host" else 0
        self.gpu.list_processes(
            *(
                (pid + ahead, None if self._pids == "no memory" else size)
                for pid, size in self._tape.at(at).processes
            )
        )
