"""Collects the reports of neuron-monitor on Neuron devices."""

from profiler.aggregation.task_record import RecordPart
from profiler.aggregation.time_series import DeviceReadings
from profiler.collectors.collector import failure_warnings
from profiler.collectors.neuron.neuron_monitor_reports import NeuronReport
from profiler.collectors.neuron.neuron_monitor_supervisor import NeuronMonitorSource
from profiler.collectors.neuron.neuron_usage import LiveNeuron, NeuronUsage
from profiler.core.log import Log
from profiler.core.threads import ThreadFailure
from profiler.record.record_model import Record

# After this many reports without a device, the devices count as missing; the first reports may lack parts.
_REPORTS_BEFORE_ABSENT = 5
_REQUIREMENTS = (
    "the monitor needs an image with neuron-monitor, the batch's /dev/neuron* in linuxParameters.devices, "
    "IPC_LOCK, and root."
)


class NeuronCollector:
    """Aggregates the reports of neuron-monitor (``source``, if it is installed), and warns of missing devices."""

    name = "neuron-monitor"

    def __init__(self, source: NeuronMonitorSource | None, period_seconds: int, log: Log, *, is_required: bool) -> None:
        self._usage = NeuronUsage(period_seconds)
        self._source = source
        self._log = log
        self._is_required = is_required
        self._reports = 0
        self.startup_error: str | None = None

    @property
    def has_data(self) -> bool:
        """Whether a device, or a process on one, was ever reported."""
        return self._usage.has_devices

    @property
    def child_pid(self) -> int | None:
        return None if self._source is None else self._source.pid

    @property
    def _failure(self) -> ThreadFailure | None:
        """The error of our own or, if there were values, the end of neuron-monitor, which ended them."""
        if self._source is None:
            return None
        return self._source.failure or (self._source.outage if self.has_data else None)

    def start(self) -> None:
        if self._source is None:
            self._report_missing("neuron-monitor is not installed")
        else:
            self._source.start(self._on_report)

    def final_reading(self, max_seconds: float) -> None:  # noqa: ARG002  a report cannot be requested
        """Check whether any device was reported."""
        self._check_presence("no Neuron device was seen")

    def stop(self, max_seconds: float) -> None:
        if self._source is not None:
            self._source.stop(max_seconds)

    def part(self, record: Record, batch: str) -> RecordPart:  # noqa: ARG002  all devices are every batch's
        """Return ``neuron``, or a warning about required devices. Checkpoints after the reports' end have none."""
        stopped = failure_warnings(self._failure, "Neuron values")
        if stopped and record.status == "running":
            return RecordPart(warnings=stopped)
        neuron = self._usage.record(0 if self._source is None else self._source.restarts)
        warnings = () if self.startup_error is None or self.has_data else (self.startup_error,)
        return RecordPart(
            values={} if neuron is None else {"neuron": neuron},
            source=self.name if self.has_data and not stopped else None,
            warnings=(*warnings, *stopped),
        )

    def latest(self) -> LiveNeuron | None:
        """Return the devices at the last report; None before the first, and after the end of the reports."""
        return self._usage.latest() if self._failure is None else None

    def take_readings(self, batch: str, into: DeviceReadings) -> None:
        self._usage.take_readings(batch, into)

    def idle_ns(self, batch: str, start_ns: int, end_ns: int) -> int:  # noqa: ARG002  not a GPU
        return 0

    def _on_report(self, report: NeuronReport) -> None:
        self._usage.add(report)
        self._reports += 1
        if self._reports == _REPORTS_BEFORE_ABSENT:
            self._check_presence("neuron-monitor sees no device")

    def _check_presence(self, reason: str) -> None:
        if self.has_data:
            self.startup_error = None
        else:
            self._report_missing(reason)

    def _report_missing(self, reason: str) -> None:
        if self._is_required and self.startup_error is None:
            self.startup_error = f"TASK_PROFILER_NEURON=on, but nothing can be measured ({reason}): {_REQUIREMENTS}"
            self._log.warning(self.startup_error)
