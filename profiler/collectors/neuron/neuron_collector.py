"""Collects the reports of neuron-monitor on Neuron devices."""

from collections.abc import Callable
from typing import Protocol

from msgspec.structs import replace

from profiler.aggregation.time_series import DeviceReadings
from profiler.collectors.collector import ThreadFailure, with_source
from profiler.collectors.neuron.neuron_monitor_reports import NeuronReport
from profiler.collectors.neuron.neuron_usage import NeuronReadings, NeuronUsage
from profiler.core.log import Log
from profiler.record.model import Record

# After this many reports without a device there is none; the first reports may lack parts.
_REPORTS_BEFORE_ABSENT = 5
_REQUIREMENTS = (
    "the monitor needs an image with neuron-monitor, the batch's /dev/neuron* in linuxParameters.devices, "
    "IPC_LOCK, and root."
)


class NeuronSource(Protocol):
    """Runs neuron-monitor and passes its reports to a listener."""

    @property
    def name(self) -> str:
        """The source's name in ``sampling.sources``."""
        ...

    @property
    def restarts(self) -> int:
        """Starts of neuron-monitor after the first."""
        ...

    @property
    def pid(self) -> int | None:
        """The process id of neuron-monitor while it runs."""
        ...

    @property
    def failure(self) -> ThreadFailure | None:
        """The error that ended the source's thread."""
        ...

    def start(self) -> None:
        """Start neuron-monitor; returns at once."""
        ...

    def stop(self, max_seconds: float) -> None:
        """End neuron-monitor."""
        ...


class NeuronCollector:
    """Aggregates the reports of neuron-monitor.

    Args:
        make_source: Makes the source from the listener of its reports; None if neuron-monitor is not installed.
        period_seconds: The configured reporting period.
        log: Gets the warning about missing devices.
        is_required: Devices are expected (setting ``on``): warn if there are none.
    """

    name = "neuron-monitor"

    def __init__(
        self,
        make_source: Callable[[Callable[[NeuronReport], None]], NeuronSource] | None,
        period_seconds: int,
        log: Log,
        *,
        is_required: bool,
    ) -> None:
        self._usage = NeuronUsage(period_seconds)
        self._source = None if make_source is None else make_source(self._on_report)
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
        """The process id of neuron-monitor while it runs."""
        return None if self._source is None else self._source.pid

    @property
    def _failure(self) -> ThreadFailure | None:
        return None if self._source is None else self._source.failure

    def start(self) -> None:
        """Start neuron-monitor in the source's thread."""
        if self._source is None:
            self._report_missing("there is no neuron-monitor")
        else:
            self._source.start()

    def final_reading(self, max_seconds: float) -> None:  # noqa: ARG002  a report cannot be requested
        """Check whether any device was reported."""
        self._check_presence("no Neuron device was seen")

    def stop(self, max_seconds: float) -> None:
        """End neuron-monitor."""
        if self._source is not None:
            self._source.stop(max_seconds)

    def add_to_record(self, record: Record) -> Record:
        """Return the record with ``neuron`` if devices were reported, and with a warning if required ones were not.

        After an error has ended the reports, checkpoints have no ``neuron``.
        """
        failure = self._failure
        stopped = () if failure is None else (failure.sentence("Neuron values"),)
        if stopped and record.status == "running":
            return with_source(record, None, stopped)
        neuron = self._usage.record(0 if self._source is None else self._source.restarts)
        if neuron is not None:
            record = replace(record, neuron=neuron)
        warnings = () if self.startup_error is None or self.has_data else (self.startup_error,)
        return with_source(record, self.name if self.has_data else None, (*warnings, *stopped))

    def latest(self) -> NeuronReadings | None:
        """Return the devices at the last report; None before the first, and after an error has ended the reports."""
        return self._usage.latest() if self._failure is None else None

    def take_readings(self, into: DeviceReadings) -> None:
        """Add the cores' utilization since the last call."""
        self._usage.take_readings(into)

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
