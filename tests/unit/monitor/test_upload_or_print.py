from typing import Any

import pytest
from msgspec.structs import replace

from profiler.monitor.report_destination import OwnStream, batch_streams, log_target
from profiler.monitor.upload_or_print import ReportDelivery
from profiler.readers.ecs.task_metadata import ContainerMetadata, TaskMetadata
from profiler.record.activity_model import ProcessSeries
from profiler.record.bounded_json_line import encode_line
from profiler.record.record_model import Container, Record, Report, Series, decode
from profiler.sinks import DeliveryFailure, LogTarget
from tests.cases import each_case
from tests.fakes import FakeCalls, FakeLog, FakeLogsSink, FakeStdout, task_settings

TARGET = LogTarget(group="/ecs/jobs", stream="ecs/batch/1", region="eu-west-1")
TASK = TaskMetadata(arn="arn:aws:ecs:us-east-1:111122223333:task/jobs/0123")
AWSLOGS = {
    "awslogs-group": "/ecs/jobs",
    "awslogs-region": "eu-west-1",
    "awslogs-stream": "ecs/batch/0123",
}
SETTINGS = task_settings(aws_region="us-west-2")


class Parts:
    def __init__(self, streams: FakeLogsSink | None = None, *, slow: bool = False) -> None:
        self.streams, self.output, self.log = streams or FakeLogsSink(), FakeStdout(), FakeLog()
        self.budget = FakeCalls(last_seconds=1000 if slow else 0)
        self.delivery = ReportDelivery(self.streams, self.output, self.log, self.budget)


@pytest.mark.parametrize("stacks", [None, b"stacks"])
def test_a_line_that_arrives_is_not_printed_and_comes_after_the_stacks(
    stacks: bytes | None,
) -> None:
    parts = Parts()
    parts.delivery.start_delivery(b"line", TARGET, 24, stacks)
    parts.delivery.finish_uploads()
    assert parts.streams.lines == [
        *([] if stacks is None else [(TARGET, stacks)]),
        (TARGET, b"line"),
    ]
    assert parts.output.lines == []
    assert parts.log.lines == []
    assert parts.budget.seconds == [24]


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (
            Parts(FakeLogsSink(failure=DeliveryFailure("The task role may not write."))),
            "may not write",
        ),
        (Parts(FakeLogsSink(error=RuntimeError("SDK bug"))), "RuntimeError: SDK bug"),
        (
            Parts(slow=True),
            "did not accept the line within 24 s, the rest of the stop budget: it throttles.",
        ),
    ],
)
def test_a_line_that_is_not_delivered_is_printed_with_one_error(parts: Parts, said: str) -> None:
    """A line that is not delivered is printed with one error that gives the reason."""
    parts.delivery.start_delivery(b"line", TARGET, 24, b"stacks")
    parts.delivery.finish_uploads()
    assert parts.output.lines == [b"line"]
    (error,) = parts.log.events("error")
    assert said in error


def test_a_put_that_fails_later_is_printed_when_it_has_failed() -> None:
    parts = Parts(FakeLogsSink(failure=DeliveryFailure("The task role may not write.")))
    parts.budget.last_seconds = 3
    parts.delivery.start_delivery(b"line", TARGET, 24)
    parts.delivery.print_failed()
    assert parts.output.lines == []
    assert parts.log.lines == []
    parts.budget.clock.advance(3)
    parts.delivery.print_failed()
    assert parts.output.lines == [b"line"]
    parts.delivery.finish_uploads()
    assert len(parts.log.events("error")) == 1


@pytest.mark.parametrize(
    ("target", "seconds", "said"),
    [
        (TARGET, 0, "No time was left in the stop budget (TASK_PROFILER_STOP_SECONDS)"),
        (DeliveryFailure("Set the log group."), 24, "Set the log group."),
    ],
)
def test_without_time_or_a_stream_the_line_is_printed_without_a_call(
    target: LogTarget | DeliveryFailure, seconds: float, said: str
) -> None:
    parts = Parts()
    parts.delivery.start_delivery(b"line", target, seconds, b"stacks")
    assert parts.output.lines == [b"line"]
    assert parts.budget.seconds == []
    (error,) = parts.log.events("error")
    assert said in error


def test_when_even_the_output_is_gone_that_is_logged() -> None:
    parts = Parts()
    for failure in ("is full", "is full", None, None):
        parts.output.failure = failure
        parts.delivery.write_line(b"line")
    assert parts.log.events("error") == ["Lines of the monitor are lost: Standard output is full."]
    assert parts.log.events("info") == ["Standard output takes lines again."]


def container(
    options: dict[str, str] | None = None, driver: str | None = "awslogs"
) -> ContainerMetadata:
    return ContainerMetadata(
        name="batch", log_driver=driver, log_options={} if options is None else options
    )


OWN_LOG = {
    "awslogs-group": "/ecs/own",
    "awslogs-region": "eu-west-1",
    "awslogs-stream": "ecs/task-monitor/0123",
}
PREFIX_ALONE = {"awslogs-group": "/ecs/jobs", "awslogs-stream-prefix": "ecs"}
NO_STREAM = {"awslogs-group": "/ecs/jobs", "awslogs-region": "eu-west-1"}
DOCKER_ID = "0123456789abcdef" * 4
BATCHS = LogTarget(group="/ecs/jobs", stream="ecs/batch/0123", region="eu-west-1")
CHOSEN = LogTarget(group="/mine", stream="s", region="us-west-2")
OWN = OwnStream(group="/ecs/own", stream="ecs/task-monitor/0123")
UNKNOWN = "set TASK_PROFILER_LOG_GROUP and TASK_PROFILER_LOG_STREAM."
PREFIX_IS_MISSING = (
    "so its log stream is unknown: set it in its log configuration and the monitor's."
)


def with_monitor(driver: str = "awslogs", **options: str) -> TaskMetadata:
    monitor = ContainerMetadata(
        name="task-monitor", log_driver=driver, log_options={**OWN_LOG, **options}
    )
    return TaskMetadata(arn=TASK.arn, containers=(container(), monitor))


@each_case(
    ("batch", "given", "target"),
    [
        (container(AWSLOGS), {}, BATCHS),
        (container(AWSLOGS), {"log_group": "/mine", "log_stream": "s"}, CHOSEN),
        # As the agent does.
        (container(PREFIX_ALONE), {}, replace(BATCHS, region="us-west-2")),
        # The Region of the task.
        (
            container(),
            {"log_group": "/mine", "log_stream": "s", "aws_region": None},
            replace(CHOSEN, region="us-east-1"),
        ),
        (container(driver=None), {}, UNKNOWN),
        (container(AWSLOGS, "awsfirelens"), {}, UNKNOWN),
        (container(), {}, UNKNOWN),
        # EC2 accepts it: Docker then names the stream after the container's id.
        (container(NO_STREAM), {}, PREFIX_IS_MISSING),
        (
            replace(container(NO_STREAM), docker_id=DOCKER_ID),
            {},
            replace(BATCHS, stream=DOCKER_ID),
        ),
        (replace(container(AWSLOGS), docker_id=DOCKER_ID), {}, BATCHS),
        (replace(container(), docker_id=DOCKER_ID), {}, UNKNOWN),
        # The id on Fargate, which requires a prefix.
        (
            replace(container(NO_STREAM), docker_id=f"{DOCKER_ID[:32]}-1234567890"),
            {},
            PREFIX_IS_MISSING,
        ),
        # The monitor's own stream is only for its own group without a stream in the settings.
        (container(driver=None), {"log_group": "/ecs/own"}, OWN),
        (container(AWSLOGS), {"log_group": "/ecs/own"}, OWN),
        (
            container(AWSLOGS),
            {"log_group": "/ecs/other"},
            replace(BATCHS, group="/ecs/other", region="us-west-2"),
        ),
        (
            container(AWSLOGS),
            {"log_group": "/ecs/own", "log_stream": "s"},
            replace(CHOSEN, group="/ecs/own"),
        ),
        (container(AWSLOGS), {"log_group": "/ecs/jobs"}, replace(BATCHS, region="us-west-2")),
        # A printed report names the batch's stream.
        (container(AWSLOGS), {"report_stream": "monitor"}, BATCHS),
        (container(AWSLOGS), {"report_stream": "monitor", "log_group": "/ecs/own"}, BATCHS),
        (
            container(AWSLOGS),
            {"report_stream": "monitor", "log_group": "/ecs/own", "log_stream": "s"},
            BATCHS,
        ),
        (
            container(driver=None),
            {"report_stream": "monitor", "log_group": "/mine", "log_stream": "s"},
            CHOSEN,
        ),
    ],
)
def test_the_stream_comes_from_the_settings_else_from_the_containers_awslogs_options(
    batch: ContainerMetadata, given: dict[str, Any], target: LogTarget | OwnStream | str
) -> None:
    found = log_target(batch, with_monitor(), replace(SETTINGS, **given), None)
    assert found == target or (
        isinstance(found, DeliveryFailure) and found.reason.endswith(str(target))
    )


def test_a_group_that_the_batch_shares_has_no_own_stream() -> None:
    """``own`` is the monitor's container: it may have another name than the usual one."""
    shared, batch = with_monitor(**{"awslogs-group": "/ecs/jobs"}), container(AWSLOGS)
    assert log_target(batch, shared, SETTINGS, None) == BATCHS
    in_shared_group = replace(SETTINGS, log_group="/ecs/jobs")
    assert log_target(batch, shared, in_shared_group, None) == replace(BATCHS, region="us-west-2")
    in_own_group = replace(SETTINGS, log_group="/ecs/own")
    assert isinstance(
        log_target(batch, with_monitor(), in_own_group, ContainerMetadata(name="watcher")),
        LogTarget,
    )


@pytest.mark.parametrize(
    ("driver", "group", "stream"),
    [("awslogs", "/ecs/own", "ecs/task-monitor/0123"), ("awsfirelens", None, None)],
)
def test_the_chosen_own_stream_is_where_the_log_driver_writes(
    driver: str, group: str | None, stream: str | None
) -> None:
    """Whatever the driver is: the report is printed, and CloudWatch Logs is not called."""
    printed = replace(SETTINGS, report_stream="monitor")
    target = batch_streams(container(AWSLOGS), with_monitor(driver), printed, None).report
    assert target == OwnStream(group=group, stream=stream)
    parts = Parts()
    parts.delivery.start_delivery(b"line", target, 24)
    parts.delivery.finish_uploads()
    assert parts.output.lines == [b"line"]
    assert parts.streams.lines == []
    assert parts.budget.seconds == []
    assert parts.log.lines == []


def test_in_the_monitors_own_stream_the_stacks_are_printed_after_all_reports() -> None:
    """A log driver that hangs leaves room for 64 KB: that is for the reports."""
    parts = Parts()
    for line, stacks in ((b"one", b"stacks of one"), (b"two", b"stacks of two")):
        parts.delivery.start_delivery(line, OwnStream(group="/ecs/jobs", stream="s"), 24, stacks)
    assert parts.output.lines == [b"one", b"two"]
    parts.delivery.finish_uploads()
    assert parts.output.lines == [b"one", b"two", b"stacks of one", b"stacks of two"]


def test_a_long_line_is_printed_without_the_commands_over_time() -> None:
    """Log drivers split what is longer than 16 KiB, and a part of a report is none."""
    values = tuple(step + 0.123 for step in range(1000))
    commands = tuple(
        ProcessSeries(command=name, vcpu_used=values, memory_used_mb=values) for name in ("a", "b")
    )
    series = Series(
        started_at="2026-11-20T03:00:00.000Z",
        step_ms=1000,
        vcpu_used=values[:100],
        processes=commands,
    )
    record = Record(task_id="0123", container=Container(name="batch"), series=series)
    report = Report(time="2026-11-20T03:12:00.000Z", type="task.report", record=record)
    line = encode_line(report, {"failed": 0})
    parts = Parts()
    parts.delivery.start_delivery(line, OwnStream(group="/ecs/own", stream="s"), 0)
    (printed,) = parts.output.lines
    assert len(line) > 16 * 1024 > len(printed)
    assert decode(printed).record == replace(
        record, series=replace(series, processes=()), truncated=True
    )
    assert printed.endswith(b'"failed":0}')
