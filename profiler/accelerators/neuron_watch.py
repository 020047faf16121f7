"""Watches Neuron devices through neuron-monitor, which is run beside the main loop."""

from collections.abc import Callable
from typing import Protocol

from msgspec.structs import replace

from profiler.accelerators.neuron_usage import NeuronReadings, NeuronUsage
from profiler.logs import Log
from profiler.record import Record
from profiler.sources.neuron.reports import NeuronReport
from profiler.sources.task_metadata import ContainerMetadata

# So many reports without a device or a process on one, and there is none: the first may lack parts.
_REPORTS_TO_TELL = 5
_WHAT_IT_NEEDS = (
    "the monitor needs an image with neuron-monitor, the batch's /dev/neuron* in linuxParameters.devices, "
    "IPC_LOCK, and root."
)


class NeuronSource(Protocol):
    """Runs neuron-monitor and hands its reports to a listener."""

    @property
    def name(self) -> str:
        """The source's name in ``sampling.sources``."""
        ...

    @property
    def restarts(self) -> int:
        """How often neuron-monitor was started again."""
        ...

    @property
    def pid(self) -> int | None:
        """neuron-monitor while it runs."""
        ...

    def start(self) -> None:
        """Begin; returns at once."""
        ...

    def stop(self, at_most_seconds: float) -> None:
        """End neuron-monitor."""
        ...


class NeuronWatch:
    """``make_source`` gets the listener; None: there is no neuron-monitor.

    ``asked_for``: devices are expected, so their absence is worth a warning.
    """

    name = "neuron-monitor"

    def __init__(
        self,
        make_source: Callable[[Callable[[NeuronReport], None]], NeuronSource] | None,
        period_seconds: int,
        log: Log,
        *,
        asked_for: bool,
    ) -> None:
        self._usage = NeuronUsage(period_seconds)
        self._source = None if make_source is None else make_source(self._heard)
        self._log = log
        self._asked_for = asked_for
        self._reports = 0
        self.complaint: str | None = None

    @property
    def has_read(self) -> bool:
        """Whether there was a device, or a process on one."""
        return self._usage.seen

    @property
    def helper_pid(self) -> int | None:
        """neuron-monitor while it runs."""
        return None if self._source is None else self._source.pid

    def start(self) -> None:
        """Start neuron-monitor in the source's thread."""
        if self._source is None:
            self._miss("there is no neuron-monitor")
        else:
            self._source.start()

    def batch_seen(self, container: ContainerMetadata) -> None:
        """Nothing more can be found out."""

    def settle(self, at_most_seconds: float) -> None:  # noqa: ARG002  a report cannot be had before its time
        """See whether anything was there at all."""
        self._look_for_absence("no Neuron device was seen")

    def stop(self, at_most_seconds: float) -> None:
        """End neuron-monitor."""
        if self._source is not None:
            self._source.stop(at_most_seconds)

    def onto(self, record: Record) -> Record:
        """The record with ``neuron``, if there is anything to tell."""
        neuron = self._usage.record(0 if self._source is None else self._source.restarts)
        return record if neuron is None else replace(record, neuron=neuron)

    def latest(self) -> NeuronReadings | None:
        """The devices at the last report."""
        return self._usage.latest()

    def warnings(self) -> tuple[str, ...]:
        """Why nothing was measured although it was asked for."""
        return () if self.complaint is None or self.has_read else (self.complaint,)

    def _heard(self, report: NeuronReport) -> None:
        self._usage.add(report)
        self._reports += 1
        if self._reports == _REPORTS_TO_TELL:
            self._look_for_absence("neuron-monitor sees no device")

    def _look_for_absence(self, reason: str) -> None:
        if self.has_read:
            self.complaint = None
        else:
            self._miss(reason)

    def _miss(self, reason: str) -> None:
        if self._asked_for and self.complaint is None:
            self.complaint = f"TASK_PROFILER_NEURON=on, but nothing can be measured ({reason}): {_WHAT_IT_NEEDS}"
            self._log.warning(self.complaint)
