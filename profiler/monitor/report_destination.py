"""Which log stream a batch's report goes to, and which one its records name."""

from msgspec import Struct

from profiler.core.ecs_terms import AWSLOGS, MONITOR_NAME, AwslogsTarget, arn_region, awslogs_target
from profiler.readers.ecs.task_metadata import ContainerMetadata, TaskMetadata
from profiler.settings import TaskSettings
from profiler.sinks import DeliveryFailure, LogTarget


class OwnStream(Struct, frozen=True, kw_only=True):
    """The monitor's own log stream, to which its log driver writes the monitor's output.

    None: another driver.
    """

    group: str | None
    stream: str | None


ReportDestination = LogTarget | OwnStream | DeliveryFailure


class BatchStreams(Struct, frozen=True, kw_only=True):
    """The destination of a batch's report, and the log stream that its records name, if known.

    ``log_region`` is None in the Region of the task.
    """

    report: ReportDestination
    log_group: str | None = None
    log_stream: str | None = None
    log_region: str | None = None


def batch_streams(
    container: ContainerMetadata,
    task: TaskMetadata,
    settings: TaskSettings,
    own: ContainerMetadata | None,
) -> BatchStreams:
    """The log streams of a batch.

    ``own`` is the monitor's container; if unknown, the one of the usual name.
    """
    target = log_target(container, task, settings, own)
    report = target
    if settings.report_stream == "monitor":
        report = _own_stream(task, own)
    if isinstance(target, DeliveryFailure):
        return BatchStreams(report=report)
    region = None
    if isinstance(target, LogTarget) and target.region != arn_region(task.arn):
        region = target.region
    return BatchStreams(
        report=report, log_group=target.group, log_stream=target.stream, log_region=region
    )


def log_target(
    container: ContainerMetadata,
    task: TaskMetadata,
    settings: TaskSettings,
    own: ContainerMetadata | None,
) -> ReportDestination:
    """The log stream in the record: from the settings, else from the container's awslogs
    options.

    It is the monitor's own stream if TASK_PROFILER_LOG_GROUP is the monitor's log group and not the
    batch's. A report that goes into the monitor's own stream by TASK_PROFILER_REPORT_STREAM names
    the batch's.
    """
    derived = _awslogs_target(container, task)
    group = settings.log_group
    stream = settings.log_stream
    if settings.report_stream == "monitor" and (stream is None or derived.group is not None):
        group = None  # the settings are the report's destination
        stream = None
    if group is not None and stream is None and group != derived.group:
        printed = _own_stream(task, own)
        if printed.group == group and printed.stream is not None:
            return printed
    region = None if group else derived.region
    group = group or derived.group
    stream = stream or derived.stream
    if group is None or stream is None:
        if derived.group is not None:
            return DeliveryFailure(
                f"Container {container.name} has no awslogs-stream-prefix, so its log stream is "
                "unknown: set it in its log configuration and the monitor's."
            )
        driver = container.log_driver or "a log driver that the metadata endpoint does not show"
        return DeliveryFailure(
            f"Container {container.name} logs through {driver}, so its log stream is unknown: "
            "set TASK_PROFILER_LOG_GROUP and TASK_PROFILER_LOG_STREAM."
        )
    return LogTarget(
        group=group, stream=stream, region=region or settings.aws_region or arn_region(task.arn)
    )


def _own_stream(task: TaskMetadata, own: ContainerMetadata | None) -> OwnStream:
    """The destination of the monitor's output, by its log driver."""
    target = _awslogs_target(own or task.container_or_name_only(MONITOR_NAME), task)
    return OwnStream(group=target.group, stream=target.stream)


def _awslogs_target(container: ContainerMetadata, task: TaskMetadata) -> AwslogsTarget:
    options = container.log_options if container.log_driver == AWSLOGS else {}
    return awslogs_target(options, container.name, task.arn, container.docker_id)
