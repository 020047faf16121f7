"""The report's way: into the batch's log stream, or, if that cannot be, to our own output.

A run is never lost: whatever goes wrong on the way, the same line stands in the monitor's own
log stream and one error says what is missing.
"""

from collections.abc import Callable
from typing import Protocol

from profiler.core.ecs import AWSLOGS, arn_part, awslogs_target
from profiler.core.log import Log
from profiler.settings import MonitorSettings
from profiler.sinks import DeliveryFailure, LineSink
from profiler.sinks.cloudwatch_logs import LogTarget
from profiler.sources.ecs.task_metadata import ContainerMetadata, TaskMetadata

_ARRIVED = "arrived"


class StreamSink(Protocol):
    """Puts a line into a log stream."""

    def put(self, line: bytes, target: LogTarget) -> DeliveryFailure | None:
        """None means that the line arrived."""
        ...


class Delivery:
    """Delivers reports. ``run_with_timeout`` bounds the put: (seconds, call) -> its result, None if it took longer."""

    def __init__(
        self,
        streams: StreamSink,
        own_output: LineSink,
        log: Log,
        run_with_timeout: Callable[[float, Callable[[], DeliveryFailure | str]], DeliveryFailure | str | None],
    ) -> None:
        self._streams = streams
        self._own_output = own_output
        self._log = log
        self._run_with_timeout = run_with_timeout

    def deliver(self, line: bytes, target: LogTarget | DeliveryFailure, seconds: float) -> None:
        """Bring the line to its log stream within so many seconds, else print it."""
        failure = target if isinstance(target, DeliveryFailure) else self._put(line, target, seconds)
        if failure is None:
            return
        self._log.error(f"The report goes to the monitor's own output: {failure.reason}")
        self.print(line)

    def print(self, line: bytes) -> None:
        """Write a line to the monitor's own output; a failure is logged, the batch goes on."""
        failure = self._own_output.write(line)
        if failure is not None:
            self._log.error(f"A line of the monitor is lost: {failure.reason}")

    def _put(self, line: bytes, target: LogTarget, seconds: float) -> DeliveryFailure | None:
        if seconds <= 0:
            return DeliveryFailure(
                "Nothing was left of the stop budget (TASK_PROFILER_STOP_SECONDS) for CloudWatch Logs."
            )
        try:
            result = self._run_with_timeout(seconds, lambda: self._streams.put(line, target) or _ARRIVED)
        except Exception as error:  # noqa: BLE001  whatever breaks in the SDK, the line is printed and the run kept
            return DeliveryFailure(f"The put to CloudWatch Logs broke ({type(error).__name__}: {error}).")
        if result is None:
            return DeliveryFailure(
                f"CloudWatch Logs did not take it within {seconds:.3g} s, the rest of the stop budget: "
                "it throttles, or the task has no route to it."
            )
        return result if isinstance(result, DeliveryFailure) else None


def log_target(
    container: ContainerMetadata, task: TaskMetadata, settings: MonitorSettings
) -> LogTarget | DeliveryFailure:
    """The batch's log stream: from the settings, else from the container's awslogs options."""
    options = container.log_options if container.log_driver == AWSLOGS else {}
    derived = awslogs_target(options, container.name, task.arn)
    group = settings.log_group or derived.group
    stream = settings.log_stream or derived.stream
    if group is None or stream is None:
        driver = container.log_driver or "a log driver that the metadata endpoint does not tell"
        return DeliveryFailure(
            f"Container {container.name} logs through {driver}, so its log stream is not known: "
            "set TASK_PROFILER_LOG_GROUP and TASK_PROFILER_LOG_STREAM."
        )
    region = None if settings.log_group else derived.region
    return LogTarget(group=group, stream=stream, region=region or settings.aws_region or arn_part(task.arn, 3))
