"""What the Neuron devices did so far: neuron-monitor's reports in, aggregates of constant size out."""

import threading
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from profiler.figures import MIB, mebibytes
from profiler.known import max_known, sum_known
from profiler.record import Neuron, NeuronCore, NeuronExecutions, NeuronLatency
from profiler.series import MonotonicCounter, TimeWeightedStatistics
from profiler.sources.neuron.reports import Latency, NeuronReport, RuntimeReport
from profiler.times import NS_PER_SECOND

# The first report covers some milliseconds: one core seemed 89 % busy over 62 ms of them.
_MIN_PERIOD_FRACTION = 0.5
_LATENCY_DIGITS = 9


class NeuronReadings(Struct, frozen=True, kw_only=True):
    """The devices at the last of so many reports; executions and memory errors since the first.

    What no process uses has neither utilization nor memory. ``memory_bytes_by_category`` is that of all
    devices, as far as the reports break it down; none where a process could not be read.
    """

    reports: int
    utilization_percent: Mapping[int, float] = {}
    core_memory_bytes: Mapping[int, int] = {}
    device_memory_bytes: int | None = None
    device_memory_size_bytes: int | None = None
    memory_bytes_by_category: Mapping[str, int] = {}
    completed: int | None = None
    failed: int | None = None
    latency: Latency = Latency()
    ecc_uncorrected: int | None = None


class _CoreStatistics:
    """One core, by the time that a process used the devices."""

    __slots__ = ("memory_bytes", "utilization_percent")

    def __init__(self) -> None:
        self.utilization_percent = TimeWeightedStatistics()
        self.memory_bytes = TimeWeightedStatistics()


class NeuronUsage:
    """Sums up a run. Reports may come from another thread than the one that asks for the record.

    Every runtime lists all cores of the node, with 0 for those it does not own, so a core's
    utilization is the largest among the runtimes, its memory the sum. Both count for the period that
    the report covers, and only while there is a runtime: a node that nobody uses has none,
    not 0 %. The cores in the record are those that a runtime has listed, the idle ones with their measured
    0: a batch that uses two of its 32 cores shows it.

    Where one of several runtimes could not be read, the zeros of the others are not believed, as a core
    that is 0 for those may be that one's; nor is a sum that lacks a part.

    A period shorter than half the configured one says nothing about utilization. Its memory counts,
    as that is a reading of the moment and weighs as little as the period is short; so do its executions.

    ``has_devices``: there was a device, or a process on one.
    """

    def __init__(self, period_seconds: int) -> None:
        self._period_ns = period_seconds * NS_PER_SECOND
        self._lock = threading.Lock()
        self._cores: dict[int, _CoreStatistics] = {}
        self._device_memory_bytes = TimeWeightedStatistics()
        self._device_memory_size_bytes: int | None = None
        self.has_devices = False
        self._completed: int | None = None
        self._failed: int | None = None
        self._latency = Latency()
        self._ecc: dict[int, MonotonicCounter] = {}
        self._ecc_uncorrected = 0
        self._latest = NeuronReadings(reports=0)

    def add(self, report: NeuronReport) -> None:
        """Take the next report."""
        with self._lock:
            self.has_devices = self.has_devices or bool(
                report.runtimes or report.device_count or report.ecc_uncorrected
            )
            accepted = self._add_utilization(report.runtimes)
            core_bytes, device_bytes = self._add_memory(report.runtimes)
            latency = Latency()
            for runtime in report.runtimes:
                self._completed = sum_known(self._completed, runtime.completed)
                self._failed = sum_known(self._failed, runtime.failed)
                latency = _max_latency(latency, runtime.latency)
            self._latency = _max_latency(self._latency, latency)
            self._add_devices(report)
            self._latest = NeuronReadings(
                reports=self._latest.reports + 1,
                utilization_percent=accepted,
                core_memory_bytes=core_bytes,
                device_memory_bytes=device_bytes,
                memory_bytes_by_category=_by_category(report.runtimes),
                latency=latency,
            )

    def latest(self) -> NeuronReadings | None:
        """The last report, and what was counted up to it; None if neither a device nor a runtime was ever seen."""
        with self._lock:
            if not self.has_devices:
                return None
            return replace(
                self._latest,
                device_memory_size_bytes=self._device_memory_size_bytes,
                completed=self._completed,
                failed=self._failed,
                ecc_uncorrected=self._ecc_uncorrected if self._ecc else None,
            )

    def record(self, restarts: int) -> Neuron | None:
        """The numbers so far; None if neither a device nor a runtime was ever seen."""
        with self._lock:
            if not self.has_devices:
                return None
            executions = NeuronExecutions(completed=self._completed, failed=self._failed)
            latency = NeuronLatency(
                p50_max=_rounded(self._latency.p50_seconds),
                p99_max=_rounded(self._latency.p99_seconds),
                p100_max=_rounded(self._latency.p100_seconds),
            )
            return Neuron(
                cores=tuple(
                    NeuronCore(
                        index=index,
                        utilization_percent=core.utilization_percent.distribution(),
                        memory_used_mb=core.memory_bytes.distribution(per=MIB),
                    )
                    for index, core in sorted(self._cores.items())
                ),
                device_memory_used_mb=self._device_memory_bytes.distribution(per=MIB),
                device_memory_size_mb=mebibytes(self._device_memory_size_bytes),
                executions=executions if executions != NeuronExecutions() else None,
                latency_seconds=latency if latency != NeuronLatency() else None,
                ecc_uncorrected=self._ecc_uncorrected if self._ecc else None,
                restarts=restarts,
            )

    def _core(self, index: int) -> _CoreStatistics:
        if index not in self._cores:
            self._cores[index] = _CoreStatistics()
        return self._cores[index]

    def _add_utilization(self, runtimes: Iterable[RuntimeReport]) -> Mapping[int, float]:
        """What is accepted of this report, by core."""
        highest: dict[int, float] = {}
        weight_ns = 0
        all_known = True
        for runtime in runtimes:
            period_ns = self._covered_ns(runtime.utilization_period_ns)
            if runtime.utilization_percent is None or period_ns < _MIN_PERIOD_FRACTION * self._period_ns:
                all_known = False
                continue
            weight_ns = max(weight_ns, period_ns)
            for index, percent in runtime.utilization_percent.items():
                highest[index] = max(percent, highest.get(index, 0.0))
        accepted = {index: percent for index, percent in highest.items() if percent > 0 or all_known}
        for index, percent in accepted.items():
            self._core(index).utilization_percent.add(percent, weight_ns)
        return accepted

    def _add_memory(self, runtimes: Sequence[RuntimeReport]) -> tuple[Mapping[int, int], int | None]:
        """This report's bytes by core, and on all devices."""
        by_core: dict[int, int] = {}
        weight_ns = 1  # a reading counts, however short its period
        all_known = True
        for runtime in runtimes:
            if not _has_memory(runtime):
                all_known = False
                continue
            weight_ns = max(weight_ns, self._covered_ns(runtime.memory_period_ns))
            for index, used_bytes in runtime.core_memory_bytes.items():
                by_core[index] = by_core.get(index, 0) + used_bytes
        accepted = {index: used_bytes for index, used_bytes in by_core.items() if used_bytes > 0 or all_known}
        for index, used_bytes in accepted.items():
            self._core(index).memory_bytes.add(used_bytes, weight_ns)
        on_devices = [runtime.device_memory_bytes for runtime in runtimes]
        device_bytes = None if None in on_devices else sum_known(*on_devices)
        if device_bytes is not None:
            self._device_memory_bytes.add(device_bytes, weight_ns)
        return accepted, device_bytes

    def _add_devices(self, report: NeuronReport) -> None:
        """Capacity, and memory errors as growth since the first report.

        It is not documented whether the counts are per period or since the driver was loaded. If they
        run on, this is their growth during the run, and what was there before is not the
        batch's. If they are per period, this is at most their sum, and equal to it unless two periods in a
        row have errors: a count below the one before is new in full. In neither case is an error made up.
        """
        if report.device_count and report.device_memory_size_bytes:
            self._device_memory_size_bytes = report.device_count * report.device_memory_size_bytes
        for device, errors in report.ecc_uncorrected.items():
            self._ecc_uncorrected += self._ecc.setdefault(device, MonotonicCounter()).add(errors) or 0

    def _covered_ns(self, period_ns: int | None) -> int:
        """A group that does not say how long it covers was there because its period was over."""
        return self._period_ns if period_ns is None else period_ns


def _has_memory(runtime: RuntimeReport) -> bool:
    """Whether it told its memory; runtime 1.x does not tell it by core."""
    return runtime.device_memory_bytes is not None or bool(runtime.core_memory_bytes)


def _by_category(runtimes: Iterable[RuntimeReport]) -> Mapping[str, int]:
    """The sums over all runtimes; empty where one of them could not be read."""
    categories: dict[str, int] = {}
    for runtime in runtimes:
        if not _has_memory(runtime):
            return {}
        for category, used_bytes in runtime.memory_bytes_by_category.items():
            categories[category] = categories.get(category, 0) + used_bytes
    return categories


def _max_latency(known: Latency, other: Latency | None) -> Latency:
    """The largest of each percentile: percentiles of several periods cannot be merged."""
    if other is None:
        return known
    return Latency(
        p50_seconds=max_known(known.p50_seconds, other.p50_seconds),
        p99_seconds=max_known(known.p99_seconds, other.p99_seconds),
        p100_seconds=max_known(known.p100_seconds, other.p100_seconds),
    )


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, _LATENCY_DIGITS)
