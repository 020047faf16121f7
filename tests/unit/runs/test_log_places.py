"""A line from CloudWatch Logs counts for an act where the family's definition sends it."""

import pytest
from msgspec.structs import replace

from profiler.core.ecs_terms import LogTarget
from profiler.runs.past_runs.log_places import (
    DefinedLogPlaces,
    LogOptions,
    is_where_defined,
    log_options_of,
)
from profiler.runs.past_runs.past_run import PastRun
from profiler.task_definitions.definition_texts import read_definitions
from tests.runs import report

OPTIONS = {"awslogs-group": "/ecs/jobs", "awslogs-stream-prefix": "ecs"}
OTHER = {"awslogs-group": "/ecs/monitors", "awslogs-stream-prefix": "tp"}


def run_in(group: str, stream: str) -> PastRun:
    return PastRun(report=report(), place=LogTarget(group=group, stream=stream))


@pytest.mark.parametrize("stream", ["ecs/batch/task-0", "ecs/task-monitor/task-0"])
def test_a_run_counts_in_the_stream_of_its_batch_and_of_its_monitor(stream: str) -> None:
    options = {"batch": OPTIONS, "task-monitor": OPTIONS}
    assert is_where_defined(run_in("/ecs/jobs", stream), options)


@pytest.mark.parametrize(
    ("group", "stream"),
    [
        ("/ecs/others", "ecs/batch/task-0"),
        ("/ecs/jobs", "other/batch/task-0"),
        ("/ecs/jobs", "ecs/batch/task-1"),
        ("/ecs/jobs", "ecs/sidecar/task-0"),
    ],
)
def test_a_run_elsewhere_does_not_count(group: str, stream: str) -> None:
    options = {"batch": OPTIONS, "task-monitor": OPTIONS, "sidecar": OPTIONS}
    assert not is_where_defined(run_in(group, stream), options)


def test_with_another_driver_of_the_batch_only_the_monitors_stream_counts() -> None:
    options: dict[str, dict[str, str]] = {"task-monitor": OTHER, "batch": {}}
    assert is_where_defined(run_in("/ecs/monitors", "tp/task-monitor/task-0"), options)
    assert not is_where_defined(run_in("/ecs/monitors", "tp/batch/task-0"), options)


def test_a_container_that_the_definition_does_not_have_counts_nowhere() -> None:
    assert not is_where_defined(
        run_in("/ecs/jobs", "ecs/task-monitor/task-0"),
        {"other": OPTIONS, "task-monitor": OPTIONS},
    )


def test_an_instance_monitors_stream_counts_for_batches_with_another_driver() -> None:
    place = LogTarget(group="/ecs/instance", stream="instance/task-monitor/task-9")
    run = PastRun(report=report(), place=place, voucher="instance-monitor")
    assert is_where_defined(run, {"batch": {}})
    assert not is_where_defined(run, {"batch": OPTIONS})
    assert not is_where_defined(run, {"other": {}})


def test_a_run_of_an_older_revision_counts_where_that_one_sends_it() -> None:
    """Its own revision is read only if the newest one sends its lines elsewhere."""
    old = {"batch": OPTIONS}
    read: list[str] = []

    def read_options(name: str) -> LogOptions:
        read.append(name)
        return old if name.endswith(":3") else {"batch": OTHER}

    known = report()
    known = replace(known, record=replace(known.record, revision="3", family="nightly"))
    place = LogTarget(group="/ecs/jobs", stream="ecs/batch/task-0")
    run = PastRun(report=known, place=place)
    assert DefinedLogPlaces(read_options, reads_revisions=True).is_in_its_place(run)
    assert read == ["nightly", "nightly:3"]
    assert not DefinedLogPlaces(read_options).is_in_its_place(run)
    newer = replace(run, report=replace(known, record=replace(known.record, revision="4")))
    assert not DefinedLogPlaces(read_options, reads_revisions=True).is_in_its_place(newer)


def test_a_definition_without_awslogs_confirms_no_stream() -> None:
    assert not is_where_defined(run_in("/ecs/jobs", "ecs/batch/task-0"), {})


def test_docker_names_the_stream_of_a_definition_without_a_prefix() -> None:
    known = report()
    container_id = "a" * 64
    container = replace(known.record.container, id=container_id)
    known = replace(known, record=replace(known.record, container=container))
    place = LogTarget(group="/ecs/jobs", stream=container_id)
    run = PastRun(report=known, place=place)
    assert is_where_defined(run, {"batch": {"awslogs-group": "/ecs/jobs"}})


def test_a_run_of_a_file_has_no_place_to_check() -> None:
    assert is_where_defined(PastRun(report=report()), {})


def container(name: str, driver: str, **options: object) -> dict[str, object]:
    return {"name": name, "logConfiguration": {"logDriver": driver, "options": options}}


def test_a_definition_names_the_places_of_its_containers_with_awslogs() -> None:
    batch = container("batch", "awsfirelens", Name="s3")
    definition = {"containerDefinitions": [batch, container("task-monitor", "awslogs", **OPTIONS)]}
    assert log_options_of(definition) == {"task-monitor": OPTIONS, "batch": {}}


TEMPLATE = """
Resources:
  Job:
    Type: AWS::ECS::TaskDefinition
    Properties:
      Family: nightly
      ContainerDefinitions:
        - Name: batch
          LogConfiguration:
            LogDriver: awslogs
            Options: {awslogs-group: /ecs/jobs, awslogs-region: !Ref AWS::Region}
"""


@pytest.mark.parametrize(
    ("written", "computed"),
    [
        ("/ecs/jobs", "!Ref Logs"),
        ("/ecs/jobs", "!Sub '/ecs/${AWS::StackName}'"),
        ("/ecs/jobs", "{'Fn::ImportValue': logs}"),
        ("/ecs/jobs", "/ecs/jobs, awslogs-stream-prefix: !Ref Stage"),
        ("awslogs\n", "!If [Logs, awslogs, json-file]\n"),
        ("{awslogs-group: /ecs/jobs, awslogs-region: !Ref AWS::Region}", "!If [Logs, {}, {}]"),
        ("- Name: batch", "- !If [Logs, {Name: a}, {Name: b}]\n        - Name: batch"),
    ],
)
def test_a_template_that_computes_its_places_names_none(written: str, computed: str) -> None:
    assert written in TEMPLATE
    ((definition, _),) = read_definitions(TEMPLATE.replace(written, computed).encode(), "jobs")
    assert log_options_of(definition) is None


def test_a_template_that_names_its_places_is_read_and_its_region_says_nothing() -> None:
    ((definition, _),) = read_definitions(TEMPLATE.encode(), "jobs")
    assert log_options_of(definition) == {"batch": {"awslogs-group": "/ecs/jobs"}}


def test_a_file_without_containers_names_no_place() -> None:
    assert log_options_of({}) is None


def test_a_family_is_read_once_and_runs_without_a_place_not_at_all() -> None:
    reads: list[str] = []

    def read(family: str) -> LogOptions:
        reads.append(family)
        return {"batch": OPTIONS}

    places = DefinedLogPlaces(read)
    assert places.is_in_its_place(PastRun(report=report()))
    assert not reads
    assert places.is_in_its_place(run_in("/ecs/jobs", "ecs/batch/task-0"))
    assert not places.is_in_its_place(run_in("/ecs/others", "ecs/batch/task-0"))
    assert reads == ["nightly"]


def test_where_a_file_computes_its_places_any_place_counts() -> None:
    assert DefinedLogPlaces(lambda _: None).is_in_its_place(
        run_in("/ecs/others", "ecs/batch/task-0")
    )


@pytest.mark.parametrize(
    ("region", "defined", "counts"),
    [
        ("us-east-1", "us-east-1", True),
        ("us-east-1", "eu-west-1", False),
        ("us-gov-west-1", "us-gov-east-1", False),
        ("us-east-1", "${REGION}", True),
        (None, "eu-west-1", True),
    ],
)
def test_a_group_of_the_same_name_in_another_region_does_not_count(
    *, region: str | None, defined: str, counts: bool
) -> None:
    place = LogTarget(group="/ecs/jobs", stream="ecs/batch/task-0", region=region)
    options = {"batch": {**OPTIONS, "awslogs-region": defined}}
    assert is_where_defined(PastRun(report=report(), place=place), options) == counts
