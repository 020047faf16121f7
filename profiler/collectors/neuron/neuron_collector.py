"""The usage of the Neuron devices by the reports of neuron-monitor, in aggregates of constant
size.
"""

import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import asdict

from profiler.aggregation.record_parts import RecordPart
from profiler.aggregation.statistics import (
    DeviceReadings,
    MonotonicCounter,
    RecentReadingsByBatch,
    TimeWeightedStatistics,
)
from profiler.collectors.impossible_readings import impossible_warning
from profiler.collectors.neuron.neuron_monitor_reports import Latency, NeuronReport, RuntimeReport
from profiler.collectors.neuron.neuron_monitor_supervisor import (
    NO_NEURON_MONITOR,
    NeuronMonitorSource,
    silence_seconds,
)
from profiler.core.log import Log
from profiler.core.optional_math import (
    first_known,
    known_members,
    known_values,
    max_known,
    sum_known,
)
from profiler.core.threads import ThreadFailure, failure_warnings
from profiler.core.timestamps import NS_PER_SECOND
from profiler.record.record_model import (
    NO_NEURON,
    Neuron,
    NeuronCore,
    NeuronExecutions,
    NeuronLatency,
    Record,
)
from profiler.record.units import MIB, bytes_to_mebibytes, format_count

_Key = TypeVar("_Key", int, str)

# The first report covers a few milliseconds only: in one of 62 ms a core was 89 % busy.
_MIN_PERIOD_FRACTION = 0.5
# After this many reports without a device, the devices count as missing; the first reports may lack
# parts.
_REPORTS_BEFORE_ABSENT = 5
_MAX_REASON = 200
_MAX_REASONS = 100
_REQUIREMENTS = (
    "the monitor needs an image with neuron-monitor, the batch's /dev/neuron* in "
    "linuxParameters.devices, IPC_LOCK, and root."
)


class LiveNeuron(Struct, frozen=True, kw_only=True):
    """The devices at the last report.

    A core that no process uses is in no mapping; counts are since the start.

    ``memory_bytes_by_category`` is empty if a process could not be read.
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


class NeuronUsage:
    """Aggregates the reports of a run.

    The thread of the reports may differ from the thread that reads the record.

    Every runtime lists all cores of the node, with 0 for the cores of others. A core's utilization
    is therefore the maximum over the runtimes, its memory the sum. Both count for the period of the
    report, and only while there is a
    runtime: an unused node has no utilization instead of 0 %. The record lists all cores that a
    runtime has listed.

    If one of several runtimes could not be read, the report has no utilization or memory: a core
    may belong to the unreadable one. A period shorter than half the configured one is ignored for
    utilization only. ``has_devices`` is True if a device, or a process on one, was ever reported.
    ``impossible`` counts the values that cannot be.
    """

    def __init__(self, period_seconds: int) -> None:
        self._period_seconds = period_seconds
        self._lock = threading.Lock()
        # By core, weighted by the time in which a process used the devices.
        self._percent: defaultdict[int, TimeWeightedStatistics] = defaultdict(
            TimeWeightedStatistics
        )
        self._memory_bytes: defaultdict[int, TimeWeightedStatistics] = defaultdict(
            TimeWeightedStatistics
        )
        self._device_memory_bytes = TimeWeightedStatistics()
        self._longest_seconds = silence_seconds(period_seconds)
        self.has_devices = False
        self.impossible = 0  # values
        # The reports that lacked a process's use or memory as it could not be read, and why: the
        # most frequent reasons.
        self._unread_reports = 0
        self.unread_reasons: Counter[str] = Counter()
        self._latency = Latency()
        self._ecc: dict[int, MonotonicCounter] = {}
        self._latest = LiveNeuron(reports=0)
        self._recent_percent = RecentReadingsByBatch()

    def add_report(self, report: NeuronReport) -> None:
        with self._lock:
            self.has_devices |= bool(
                report.runtimes or report.device_count or report.ecc_uncorrected
            )
            accepted = self._add_utilization(report.runtimes)
            for percent in accepted.values():
                self._recent_percent.add_reading(percent)
            # Runtime 1.x reports no memory by core.
            readable = report.runtimes
            if not all(map(_has_memory, readable)):
                readable = ()
            core_bytes, device_bytes = self._add_memory(readable)
            self.impossible += report.impossible
            self._add_unread(report.runtimes)
            last = self._latest
            completed = last.completed
            failed = last.failed
            latency = Latency()
            for runtime in report.runtimes:
                completed = sum_known(completed, runtime.completed)
                failed = sum_known(failed, runtime.failed)
                latency = _max_latency(latency, runtime.latency)
            self._latency = _max_latency(self._latency, latency)
            size_bytes = (report.device_count or 0) * (report.device_memory_size_bytes or 0)
            self._latest = LiveNeuron(
                reports=last.reports + 1,
                utilization_percent=accepted,
                core_memory_bytes=core_bytes,
                device_memory_bytes=device_bytes,
                device_memory_size_bytes=size_bytes or last.device_memory_size_bytes,
                memory_bytes_by_category=_sums_if_all_known(
                    runtime.memory_bytes_by_category for runtime in readable
                ),
                completed=completed,
                failed=failed,
                latency=latency,
                ecc_uncorrected=self._add_errors(report.ecc_uncorrected),
            )

    def _add_unread(self, runtimes: Iterable[RuntimeReport]) -> None:
        reasons = [
            runtime.problem[:_MAX_REASON]
            for runtime in runtimes
            if runtime.problem and not (_has_use(runtime) and _has_memory(runtime))
        ]
        if not reasons:
            return
        self._unread_reports += 1
        self.unread_reasons[reasons[0]] += 1
        if len(self.unread_reasons) > _MAX_REASONS:  # such as those with a process's id
            self.unread_reasons = Counter(dict(self.unread_reasons.most_common(_MAX_REASONS // 2)))

    def unread_warning(self) -> tuple[str, ...]:
        """The sentence about reports that lacked a process, with the most frequent reason."""
        with self._lock:
            if not self._unread_reports:
                return ()
            ((reason, _),) = self.unread_reasons.most_common(1)
            reports = format_count(self._unread_reports, "report")
        warning = (
            f"neuron-monitor could not read a process in {reports}, whose use and memory are left "
            f"out: {reason.rstrip('.')}."
        )
        return (warning,)

    def latest(self) -> LiveNeuron | None:
        """The last report with the counts so far; None if neither a device nor a runtime was
        ever reported.
        """
        with self._lock:
            return self._latest if self.has_devices else None

    def take_readings(self, batch: str, into: DeviceReadings) -> None:
        with self._lock:
            into.neuron_percent.merge(self._recent_percent.take_recent(batch))

    def neuron_so_far(self, restarts: int) -> Neuron:
        """The record's numbers so far; NO_NEURON if neither a device nor a runtime was ever
        reported.
        """
        with self._lock:
            if not self.has_devices:
                return NO_NEURON
            latest = self._latest
            executions = NeuronExecutions(completed=latest.completed, failed=latest.failed)
            maxima: dict[str, float] = {}
            for name, seconds in known_members(asdict(self._latency)).items():
                maxima[name.replace("seconds", "max")] = round(seconds, 9)
            latency = NeuronLatency(**maxima)
            cores = []
            for index in sorted(self._percent.keys() | self._memory_bytes.keys()):
                core = NeuronCore(
                    index=index,
                    utilization_percent=self._percent[index].distribution(),
                    memory_used_mb=self._memory_bytes[index].distribution(per=MIB),
                )
                cores.append(core)
            return Neuron(
                cores=tuple(cores),
                device_memory_used_mb=self._device_memory_bytes.distribution(per=MIB),
                device_memory_size_mb=bytes_to_mebibytes(latest.device_memory_size_bytes),
                executions=executions if executions != NeuronExecutions() else None,
                latency_seconds=latency if latency != NeuronLatency() else None,
                ecc_uncorrected=latest.ecc_uncorrected,
                restarts=restarts,
            )

    def _add_utilization(self, runtimes: Sequence[RuntimeReport]) -> Mapping[int, float]:
        highest: dict[int, float] = {}
        unknown: set[int] = set()
        weight_ns = 0
        for runtime in runtimes:
            period_ns = self._covered_ns(runtime.utilization_period_seconds)
            if (
                runtime.utilization_percent is None
                or period_ns < _MIN_PERIOD_FRACTION * self._covered_ns(None)
            ):
                return {}
            weight_ns = max(weight_ns, period_ns)
            for index, percent in runtime.utilization_percent.items():
                if percent is None:
                    unknown.add(index)
                else:
                    highest[index] = max(percent, highest.get(index, 0.0))
        for index in unknown:  # the core may be the one of this runtime
            highest.pop(index, None)
        for index, percent in highest.items():
            self._percent[index].add_value(percent, weight_ns)
        return highest

    def _add_memory(
        self, runtimes: Sequence[RuntimeReport]
    ) -> tuple[Mapping[int, int], int | None]:
        """Add the memory of a report; returns the bytes by core, and the bytes on all devices."""
        by_core = _sums_if_all_known(runtime.core_memory_bytes for runtime in runtimes)
        weight_ns = 1  # a reading counts even if its period is 0
        for runtime in runtimes:
            weight_ns = max(weight_ns, self._covered_ns(runtime.memory_period_seconds))
        for index, used_bytes in by_core.items():
            self._memory_bytes[index].add_value(used_bytes, weight_ns)
        on_devices = [runtime.device_memory_bytes for runtime in runtimes]
        device_bytes = None
        if None not in on_devices:
            device_bytes = sum_known(*on_devices)
        if device_bytes is not None:
            self._device_memory_bytes.add_value(device_bytes, weight_ns)
        return by_core, device_bytes

    def _add_errors(self, by_device: Mapping[int, int]) -> int | None:
        """The increase since the first report, never overstated: whether counts are per period
        is not documented.
        """
        total = self._latest.ecc_uncorrected
        for device, errors in by_device.items():
            counter = self._ecc.setdefault(device, MonotonicCounter())
            total = (total or 0) + (counter.advance_to(errors) or 0)
        return total

    def _covered_ns(self, seconds: float | None) -> int:
        """The period that a group covers; the configured one if the group does not report it, or
        one in which neuron-monitor would have been restarted: its clock was set meanwhile.
        """
        covered = first_known(seconds, self._period_seconds)
        if covered > self._longest_seconds:
            covered = self._period_seconds
        return round(covered * NS_PER_SECOND)


def _sums_if_all_known(runtimes: Iterable[Mapping[_Key, int | None]]) -> Mapping[_Key, int]:
    """The sums over all runtimes, without those that lack a value of one."""
    totals: Counter[_Key] = Counter()
    unknown: set[_Key] = set()
    for values in runtimes:
        for key, value in values.items():
            if value is None:
                unknown.add(key)
            else:
                totals[key] += value
    return {key: total for key, total in totals.items() if key not in unknown}


def _has_use(runtime: RuntimeReport) -> bool:
    return runtime.utilization_percent is not None


def _has_memory(runtime: RuntimeReport) -> bool:
    return runtime.device_memory_bytes is not None or bool(runtime.core_memory_bytes)


def _max_latency(first: Latency, second: Latency) -> Latency:
    """The maximum of each percentile, because percentiles of several periods cannot be merged."""
    others = asdict(second)
    maxima = {name: max_known(value, others[name]) for name, value in asdict(first).items()}
    return Latency(**maxima)


class NeuronCollector:
    """Aggregates the reports of neuron-monitor (``source``, if it is installed), and warns of
    missing devices.
    """

    name = "neuron-monitor"

    def __init__(
        self,
        source: NeuronMonitorSource | None,
        period_seconds: int,
        log: Log,
        *,
        is_required: bool,
    ) -> None:
        self._usage = NeuronUsage(period_seconds)
        self._source = source or NO_NEURON_MONITOR
        self._log = log
        self._is_required = is_required
        self._reports = 0
        self._problem: str | None = None

    @property
    def has_data(self) -> bool:
        return self._usage.has_devices

    @property
    def startup_error(self) -> str | None:
        return None if self.has_data else self._problem

    @property
    def child_pid(self) -> int | None:
        return self._source.pid

    @property
    def _failure(self) -> ThreadFailure | None:
        """The error of our own or, if there were values, the end of neuron-monitor, which ended
        them.
        """
        return self._source.failure or (self._source.outage if self.has_data else None)

    def start(self) -> None:
        if not self._source.is_installed:
            self._report_missing("neuron-monitor is not installed")
        self._source.start(self._on_report)

    # A report cannot be requested.
    def final_reading(self, max_seconds: float) -> None:  # noqa: ARG002
        self._report_missing("no Neuron device was seen")

    def stop(self, max_seconds: float) -> None:
        self._source.stop(max_seconds)

    # All devices are every batch's.
    def part(self, record: Record, batch: str) -> RecordPart:  # noqa: ARG002
        """Return ``neuron``, or a warning about required devices.

        Checkpoints after the reports' end have none.
        """
        stopped = failure_warnings(self._failure, "Neuron values")
        if stopped and record.status == "running":
            return RecordPart(warnings=stopped)
        return RecordPart(
            values={"neuron": self._usage.neuron_so_far(self._source.restarts)},
            source=self.name if self.has_data and not stopped else None,
            warnings=(
                *known_values((self.startup_error,)),
                *impossible_warning("neuron-monitor", self._usage.impossible),
                *self._usage.unread_warning(),
                *stopped,
            ),
        )

    def latest(self) -> LiveNeuron | None:
        return self._usage.latest() if self._failure is None else None

    def take_readings(self, batch: str, into: DeviceReadings) -> None:
        self._usage.take_readings(batch, into)

    def idle_ns(self, batch: str, start_ns: int, end_ns: int) -> int:  # noqa: ARG002  not a GPU
        return 0

    def known_until_ns(self) -> int | None:
        return None

    def _on_report(self, report: NeuronReport) -> None:
        self._usage.add_report(report)
        self._reports += 1
        if self._reports == _REPORTS_BEFORE_ABSENT:
            self._report_missing("neuron-monitor sees no device")

    def _report_missing(self, reason: str) -> None:
        if self._is_required and not self.has_data and self._problem is None:
            self._problem = (
                f"TASK_PROFILER_NEURON=on, but nothing can be measured ({reason}): {_REQUIREMENTS}"
            )
            self._log.warning(self._problem)
