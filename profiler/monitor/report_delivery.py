"""Delivers the report to the batch's log stream or, if that fails, to the monitor's own output.

A report is not lost if delivery fails: the same line is in the monitor's own log stream, with one error that names the
cause.
"""

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from profiler.core.ecs_terms import AWSLOGS, MONITOR_NAME, AwslogsTarget, arn_part, awslogs_target
from profiler.core.log import Log
from profiler.readers.ecs.task_metadata import ContainerMetadata, TaskMetadata
from profiler.settings import MonitorSettings
from profiler.sinks import DeliveryFailure, LineSink
from profiler.sinks.cloudwatch_logs import LogTarget, not_accepted

_ARRIVED = "arrived"
PutResult = DeliveryFailure | str


class OwnStream(LogTarget, frozen=True, kw_only=True):
    """The monitor's own log stream: its log driver writes there what the monitor prints."""


class StreamSink(Protocol):
    """Puts a line into a log stream."""

    @property
    def last_cause(self) -> str:
        """Why the last attempt failed, as part of a sentence."""
        ...

    def put(self, line: bytes, target: LogTarget, seconds: float) -> DeliveryFailure | None:
        """Put the line within about ``seconds``; returns the failure, or None on success."""
        ...


class Call(Protocol):
    """A call in another thread, whose result counts until its deadline."""

    @property
    def is_over(self) -> bool:
        """Whether the call has returned, or the deadline has passed."""
        ...

    def result(self) -> PutResult | None:
        """Wait until the deadline; returns the call's result, None if there is none by then."""
        ...


class _Put(Struct, frozen=True):
    line: bytes
    seconds: float
    call: Call


class Delivery:
    """Delivers the lines of the monitor. Puts run in threads: the sampling goes on, as other batches may still run.

    Args:
        streams: Puts lines into CloudWatch Logs.
        own_output: The monitor's standard output.
        log: Gets the errors.
        start_call: Starts a call whose result counts for some seconds: (seconds, function) -> the call.
    """

    def __init__(
        self,
        streams: StreamSink,
        own_output: LineSink,
        log: Log,
        start_call: Callable[[float, Callable[[], PutResult]], Call],
    ) -> None:
        self._streams = streams
        self._own_output = own_output
        self._log = log
        self._can_print = True
        self._start_call = start_call
        self._puts: list[_Put] = []

    def deliver(self, line: bytes, target: LogTarget | DeliveryFailure, seconds: float) -> None:
        """Start to put the line into its log stream within ``seconds``; print it if that cannot be done."""
        if isinstance(target, OwnStream):
            self._print_report(line)
        elif isinstance(target, DeliveryFailure):
            self._print_instead(line, target)
        elif seconds <= 0:
            reason = "No time was left in the stop budget (TASK_PROFILER_STOP_SECONDS) for CloudWatch Logs."
            self._print_instead(line, DeliveryFailure(reason))
        else:
            self._puts.append(_Put(line, seconds, self._start_call(seconds, lambda: self._put(line, target, seconds))))

    def print_failed(self) -> None:
        """Print the lines whose put has failed by now, without waiting."""
        for put in tuple(self._puts):
            if put.call.is_over:
                self._puts.remove(put)
                self._conclude(put)

    def finish(self) -> None:
        """Wait for all puts, and print the lines of those that failed."""
        while self._puts:
            self._conclude(self._puts.pop(0))

    def _conclude(self, put: _Put) -> None:
        result = put.call.result()
        if result is None:
            result = not_accepted(put.seconds, self._streams.last_cause)
        if isinstance(result, DeliveryFailure):
            self._print_instead(put.line, result)

    def _print_instead(self, line: bytes, failure: DeliveryFailure) -> None:
        self._log.error(f"The report goes to the monitor's own output: {failure.reason}")
        self._print_report(line)

    def _print_report(self, line: bytes) -> None:
        failure = self._own_output.keep(line)
        if failure is not None:
            self._log.error(f"The report is not printed: {failure.reason}")

    def print(self, line: bytes) -> None:
        """Write a line to the monitor's own output. The log shows when that fails, and when it succeeds again."""
        failure = self._own_output.write(line)
        if failure is not None and self._can_print:
            self._log.error(f"Lines of the monitor are lost: {failure.reason}")
        elif failure is None and not self._can_print:
            self._log.info("Standard output takes lines again.")
        self._can_print = failure is None

    def _put(self, line: bytes, target: LogTarget, seconds: float) -> PutResult:
        try:
            return self._streams.put(line, target, seconds) or _ARRIVED
        except Exception as error:  # noqa: BLE001  the line is printed after any error of the SDK
            return DeliveryFailure(f"The put to CloudWatch Logs failed ({type(error).__name__}: {error}).")


def log_target(
    container: ContainerMetadata, task: TaskMetadata, settings: MonitorSettings, own: ContainerMetadata | None
) -> LogTarget | DeliveryFailure:
    """The destination of the report: from the settings, else the stream of the container's awslogs options.

    It is the monitor's own stream if TASK_PROFILER_LOG_GROUP is the monitor's log group and not the batch's. ``own`` is
    the monitor's container, whatever its name; if it is unknown, the one of the usual name.
    """
    derived = _awslogs_target(container, task)
    if settings.log_group is not None and settings.log_stream is None and settings.log_group != derived.group:
        monitor = own or task.container(MONITOR_NAME)
        printed = AwslogsTarget() if monitor is None else _awslogs_target(monitor, task)
        if printed.group == settings.log_group and printed.stream is not None:
            return OwnStream(group=printed.group, stream=printed.stream, region=printed.region)
    group = settings.log_group or derived.group
    stream = settings.log_stream or derived.stream
    if group is None or stream is None:
        driver = container.log_driver or "a log driver that the metadata endpoint does not show"
        return DeliveryFailure(
            f"Container {container.name} logs through {driver}, so its log stream is unknown: "
            "set TASK_PROFILER_LOG_GROUP and TASK_PROFILER_LOG_STREAM."
        )
    region = None if settings.log_group else derived.region
    return LogTarget(group=group, stream=stream, region=region or settings.aws_region or arn_part(task.arn, 3))


def _awslogs_target(container: ContainerMetadata, task: TaskMetadata) -> AwslogsTarget:
    options = container.log_options if container.log_driver == AWSLOGS else {}
    return awslogs_target(options, container.name, task.arn)
