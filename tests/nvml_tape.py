"""What the driver of an H100 showed while a known program ran, 20 times a second, and its truth.

A tape (``data/nvml_tapes/NAME.tape``) was recorded on one H100 80GB HBM3 with driver 580.159. A line
is a second, and what changed then: ``used`` bytes, ``util``, ``mw``, ``c``, ``mhz`` of the
multiprocessors, ``why`` (event reasons), ``procs`` (pid:bytes), ``mj``; new are ``sample``
(second:percent, the driver's own) and ``gpm`` (a span of seconds, then GPM's metrics 1, 2, 3, 5, 10,
20, 21, 60, 61 over it). ``started`` has the program's pid, ``ended`` its exit code.
"""

from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

TAPES = Path(__file__).parent / "data" / "nvml_tapes"
_GPM_NUMBERS = (1, 2, 3, 5, 10, 20, 21, 60, 61)
_FIRST_RATE = 20
_ANY_KERNEL = 1
_MIB = 1024 * 1024


class TapeRow(Struct, frozen=True, kw_only=True):
    """The driver's answers from this second of the tape on."""

    seconds: float = 0.0
    used_bytes: int = 0
    utilization_percent: int = 0
    power_milliwatts: int = 0
    celsius: int = 0
    clock_mhz: int = 0
    reasons: int = 0
    processes: tuple[tuple[int, int], ...] = ()


_FIELDS = {
    "used": "used_bytes",
    "util": "utilization_percent",
    "mw": "power_milliwatts",
    "c": "celsius",
    "mhz": "clock_mhz",
    "why": "reasons",
}


class GpmSpan(Struct, frozen=True, kw_only=True):
    """GPM's metrics over a time, by NVML's number, and the clock in it."""

    start: float
    end: float
    clock_mhz: int
    metrics: dict[int, float]


class Tape:
    """A tape by its name; all times are seconds of the tape."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rows: list[TapeRow] = []
        self.samples: list[tuple[float, int]] = []
        self.xids: list[tuple[float, int]] = []
        self.energy: list[tuple[float, int]] = []
        self.spans: list[GpmSpan] = []
        self.started = self.ended = 0.0
        self.pid = self.exit_code = 0
        # What the program itself says of its copies.
        self.copied_seconds = self.copied_gigabytes_per_second = 0.0
        lines = (TAPES / f"{name}.tape").read_text().splitlines()
        self.gpu_name = lines[0].removeprefix("gpu ")
        self.total_bytes = int(lines[1].removeprefix("total "))
        for line in lines[2:]:
            self._add(line.split())
        self._times = [row.seconds for row in self.rows]

    def _add(self, words: list[str]) -> None:
        if words[0] == "copied":
            self.copied_seconds = float(words[1])
            self.copied_gigabytes_per_second = float(words[4])
            return
        seconds = float(words[0])
        row = replace(self.rows[-1] if self.rows else TapeRow(), seconds=seconds)
        for key, value in zip(words[1::2], words[2::2], strict=True):
            if key in _FIELDS:
                row = replace(row, **{_FIELDS[key]: int(value)})
            elif key == "procs":
                row = replace(row, processes=tuple(_processes(value)))
            else:
                self._add_event(seconds, row, key, value)
        self.rows.append(row)

    def _add_event(self, seconds: float, row: TapeRow, key: str, value: str) -> None:
        if key == "started":
            self.started = seconds
            self.pid = int(value)
        elif key == "ended":
            self.ended = seconds
            self.exit_code = int(value)
        elif key == "mj":
            self.energy.append((seconds, int(value)))
        elif key == "xid":
            self.xids.append((seconds, int(value)))
        elif key == "sample":
            at, _, percent = value.partition(":")
            self.samples.append((float(at), int(percent)))
        elif key == "gpm":
            length, *metrics = map(float, value.split(","))
            self.spans.append(
                GpmSpan(
                    start=seconds - length,
                    end=seconds,
                    clock_mhz=row.clock_mhz,
                    metrics=dict(zip(_GPM_NUMBERS, metrics, strict=True)),
                )
            )

    @property
    def seconds(self) -> float:
        """The duration of the program."""
        return self.ended - self.started

    def at(self, position: float) -> TapeRow:
        """The answers at a moment; before the tape its first, after it its last."""
        return self.rows[max(bisect_right(self._times, position) - 1, 0)]

    def millijoules(self, position: float) -> int:
        before = self.energy[0]
        for following in self.energy:
            if following[0] > position:
                length = max(following[0] - before[0], 0.001)
                share = max(position - before[0], 0.0) / length
                return round(before[1] + (following[1] - before[1]) * share)
            before = following
        return before[1]

    def gpm_sums(self, position: float) -> dict[int, tuple[float, float]]:
        """The integral of each metric up to a moment, and its weight. Percentages are shares of
        the clock's cycles.
        """
        sums = dict.fromkeys(_GPM_NUMBERS, (0.0, 0.0))
        for span in self.spans:
            length = min(span.end, position) - span.start
            if length <= 0:
                continue
            for number, value in span.metrics.items():
                weight = length if number >= _FIRST_RATE else length * span.clock_mhz
                total, weights = sums[number]
                sums[number] = (total + value * weight, weights + weight)
        return sums

    # The truth

    @property
    def other_pids(self) -> frozenset[int]:
        """The processes that were there before the program."""
        before = [row for row in self.rows if row.seconds < self.started]
        return frozenset(pid for row in before for pid, _ in row.processes)

    @property
    def kernel_seconds(self) -> float:
        """The time in which a kernel ran, by GPM's spans of 0.2 s."""
        total = 0.0
        for span in self.spans:
            length = min(span.end, self.ended) - max(span.start, self.started)
            total += max(length, 0.0) * span.metrics[_ANY_KERNEL] / 100
        return total

    @property
    def kernel_limits(self) -> tuple[float, float]:
        """From when to when kernels ran for more than 2 % of a span, after the program's start."""
        used = [span for span in self.spans if span.metrics[_ANY_KERNEL] > 2]
        return used[0].start - self.started, used[-1].end - self.started

    @property
    def peak_mb(self) -> float:
        return max(row.used_bytes for row in self._of_program()) / _MIB

    @property
    def own_peak_mb(self) -> float:
        """The most that the program's own processes held."""
        others = self.other_pids
        held = (
            sum(size for pid, size in row.processes if pid not in others)
            for row in self._of_program()
        )
        return max(held) / _MIB

    def _of_program(self) -> Iterator[TapeRow]:
        return (row for row in self.rows if self.started <= row.seconds <= self.ended)


def _processes(text: str) -> Iterator[tuple[int, int]]:
    for entry in text.removeprefix("-").split(","):
        if entry:
            pid, _, size = entry.partition(":")
            yield int(pid), int(size)
