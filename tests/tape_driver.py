"""The driver of tapes: the real binding answers as the driver did then, at the time of any clock."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Final, Literal

from msgspec import Struct

from profiler.core.clock import Clock
from tests.fake_nvml import FakeGpu, FakeNvml
from tests.nvml_tape import Tape, TapeRow

UUID = "GPU-11111111-2222-3333-4444-555555555555"
# What the driver lists: processes by ids of the own namespace, none (those of another namespace),
# ids of the host, or no memory (driver 560 in a container).
Pids = Literal["own", "hidden", "host", "no memory"]
HOST_PIDS = 3_000_000
# The ids of the processes of two tapes differ by this.
_PIDS_OF_TAPE = 100_000
# The newest sample is 60 ms old, and 14 s are kept.
_SAMPLE_AGE = 0.06
_SAMPLES_KEPT = 14.0
_SAMPLE_STEP = 0.2
_FULL = 100
_ROUNDING = 1e-6


class OtherProgram(Struct, frozen=True, kw_only=True):
    """A program beside that of the main tape, which begins ``after`` seconds (of the run).

    ``place``: on which GPU of the machine; the main tape's has the place 0. ``is_own``: it is of
    the run. ``is_listed``: the driver lists its processes, which it does not for those of another
    container.
    """

    tape: str
    place: int
    after: float = 0.0
    is_own: bool = True
    is_listed: bool = True


class _Layer:
    """A tape on a GPU; ``position`` is its second when the clock is at 0."""

    def __init__(self, tape: Tape, position: float, pids_from: int, *, is_listed: bool) -> None:
        self.tape = tape
        self.position = position
        self.pids_from = pids_from
        self.is_listed = is_listed


class PlayedGpu:
    """A GPU on which programs of tapes run, if any; GPM's values are the first one's."""

    def __init__(self, uuid: str, clock: Clock, pids: Pids, *, has_samples: bool) -> None:
        self._clock = clock
        self._pids: Pids = pids
        self._has_samples = has_samples
        self.layers: list[_Layer] = []
        # Of a desktop, whose processes the driver does not list (WSL 2).
        self.unlisted_bytes = 0
        # When the wall clock was set, and by how many seconds.
        self.wall_clock_set: list[tuple[float, float]] = []
        self.gpu = FakeGpu(uuid, reserved_bytes=0)
        self.gpu.link_generation = 5
        self.gpu.link_width = 16

    def answer(self, function: str) -> None:
        """Prepare the answer to a call as of this moment."""
        now = self._clock.monotonic_ns() / 1e9
        if function == "nvmlGpmSampleGet":
            self._sum_gpm(now)
        elif function == "nvmlDeviceGetSamples":
            self._keep_samples(now)
        elif "RunningProcesses" in function:
            self._list(now)
        elif function == "nvmlDeviceGetTotalEnergyConsumption":
            self.gpu.energy_millijoules = sum(
                layer.tape.millijoules(now + layer.position) for layer in self.layers
            )
        else:
            self._set_row(now)

    def fall_until_now(self) -> None:
        """Report the errors of the tapes until now, each once."""
        now = self._clock.monotonic_ns() / 1e9
        for layer in self.layers:
            while layer.tape.xids and layer.tape.xids[0][0] <= now + layer.position:
                self.gpu.fall_with(layer.tape.xids.pop(0)[1])

    def _rows(self, now: float) -> list[TapeRow]:
        return [layer.tape.at(now + layer.position) for layer in self.layers]

    def _set_row(self, now: float) -> None:
        rows = self._rows(now) or [TapeRow(clock_mhz=345, power_milliwatts=70_000)]
        for name in ("used_bytes", "power_milliwatts"):
            setattr(self.gpu, name, sum(getattr(row, name) for row in rows))
        self.gpu.used_bytes += self.unlisted_bytes
        for name in ("utilization_percent", "celsius", "clock_mhz", "reasons"):
            setattr(self.gpu, name, max(getattr(row, name) for row in rows))

    def _sum_gpm(self, now: float) -> None:
        if self.layers:
            at = now + self.layers[0].position
            self.gpu.sum_gpm(at + 1000, self.layers[0].tape.gpm_sums(at))

    def _samples(self, now: float) -> Iterator[tuple[float, int]]:
        """The driver's samples by the clock's second: the work of all programs."""
        main = self.layers[0] if self.layers else None
        stamps = [] if main is None else [stamp - main.position for stamp, _ in main.tape.samples]
        step = round(_SAMPLES_KEPT / _SAMPLE_STEP)
        first = stamps[0] if stamps else round(now / _SAMPLE_STEP) * _SAMPLE_STEP
        last = stamps[-1] if stamps else first
        # Before and after the tape nothing works there.
        stamps = [
            *(first - number * _SAMPLE_STEP for number in range(step, 0, -1)),
            *stamps,
            *(last + number * _SAMPLE_STEP for number in range(1, step)),
        ]
        for at in stamps:
            yield at, min(sum(_percent_at(layer, at) for layer in self.layers), _FULL)

    def _keep_samples(self, now: float) -> None:
        if not self._has_samples:
            return
        self.gpu.keep_samples(
            *(
                (self._stamp_us(at, now), percent)
                for at, percent in self._samples(now)
                if now - _SAMPLES_KEPT <= at <= now - _SAMPLE_AGE
            )
        )

    def _stamp_us(self, at: float, now: float) -> int:
        """The wall clock at a second of the clock, in microseconds."""
        set_after = sum(by for when, by in self.wall_clock_set if at < when <= now)
        return round((at - set_after) * 1e6 + (self._clock.wall_ns() / 1e9 - now) * 1e6)

    def _list(self, now: float) -> None:
        if self._pids == "hidden":
            self.gpu.list_processes()
            return
        ahead = HOST_PIDS if self._pids == "host" else 0
        self.gpu.list_processes(
            *(
                (layer.pids_from + pid + ahead, None if self._pids == "no memory" else size)
                for layer in self.layers
                if layer.is_listed
                for pid, size in layer.tape.at(now + layer.position).processes
            )
        )


def _percent_at(layer: _Layer, at: float) -> int:
    """The driver's sample of a tape that covers a second of the clock."""
    position = at + layer.position - _ROUNDING
    samples = layer.tape.samples
    place = bisect_left(samples, position, key=itemgetter(0))
    if not place and samples and position < samples[0][0] - _SAMPLE_STEP:
        return 0
    return samples[place][1] if place < len(samples) else 0


class TapeDriver:
    """The driver of a tape, whose second is ``position`` when the clock is at 0.

    ``list_seconds`` is how long a list of processes takes. ``gpus`` is how many the machine has,
    ``others`` are the programs beside the tape's. With ``is_divided``, the GPUs are the parts of
    one. The driver is older than the ``missing`` functions.
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
        gpus: int = 1,
        others: Sequence[OtherProgram] = (),
        missing: Sequence[str] = (),
        is_divided: bool = False,
    ) -> None:
        self._clock = clock
        self._list_seconds = list_seconds
        self.gpus = [
            PlayedGpu(uuid_of(place), clock, pids, has_samples=has_samples) for place in range(gpus)
        ]
        self.own_pids = set(_own_pids(tape, 0))
        tape.xids = [xid for xid in tape.xids if xid[0] >= position]
        self.gpus[0].layers.append(_Layer(tape, position, 0, is_listed=True))
        for number, other in enumerate(others, start=1):
            played = Tape(other.tape)
            begin = position - tape.started + played.started - other.after
            pids_from = number * _PIDS_OF_TAPE
            layer = _Layer(played, begin, pids_from, is_listed=other.is_listed)
            self.gpus[other.place].layers.append(layer)
            if other.is_own:
                self.own_pids.update(_own_pids(played, pids_from))
        for played_gpu in self.gpus:
            played_gpu.gpu.total_bytes = tape.total_bytes
            played_gpu.gpu.name_bytes = tape.gpu_name.encode()
            played_gpu.gpu.has_gpm = has_gpm
        self.gpu = self.gpus[0].gpu
        visible = [played_gpu.gpu for played_gpu in self.gpus]
        if is_divided:
            self.whole = FakeGpu("GPU-0")
            self.whole.divide(*visible)
            for number, part in enumerate(visible, start=1):
                part.uuid_bytes = f"MIG-{number}".encode()
                part.instance = number
            visible = [self.whole]
        self.nvml = FakeNvml(*visible, missing=missing)
        self.nvml.on_call(self._move)

    def _move(self, function: str) -> None:
        """Answer the call as the driver did at this moment."""
        if function == _COMPUTE_LIST:
            self._clock.sleep(self._list_seconds / 2)  # the binding calls it twice
        for played_gpu in self.gpus:
            if function == "nvmlEventSetWait_v2":
                played_gpu.fall_until_now()
            else:
                played_gpu.answer(function)


_COMPUTE_LIST: Final = "nvmlDeviceGetComputeRunningProcesses"


def uuid_of(place: int) -> str:
    """The UUID of the GPU at a place."""
    return UUID if not place else f"GPU-{place}0000000{UUID[12:]}"


def _own_pids(tape: Tape, pids_from: int) -> Iterator[int]:
    """The ids of the processes of a tape's program."""
    for row in tape.rows:
        for pid, _ in row.processes:
            if pid not in tape.other_pids:
                yield pids_from + pid
