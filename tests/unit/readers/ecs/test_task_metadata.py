"""The dialects of /task: endpoint v4 on Fargate and EC2, endpoint v3; the container that is the
batch; the timeout.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from profiler.readers import Unavailable
from profiler.readers.ecs.endpoint_client import HttpEndpoint
from profiler.readers.ecs.task_metadata import (
    ContainerMetadata,
    TaskMetadata,
    decode_container,
    decode_tags,
    decode_task,
    select_batch,
)
from profiler.readers.keep_alive_http import Response
from tests.cases import each_case
from tests.fakes import FakeClock
from tests.values import mutated

MIB = 1024 * 1024
ARN = "arn:aws:ecs:us-east-1:111122223333:task/jobs/bae32def0ab64f06818e8862e58f8d6d"
BATCH: dict[str, Any] = {
    "DockerId": "bae32def0ab64f06818e8862e58f8d6d-4159844948",
    "Name": "batch",
    "Image": "example/etl:7",
    "ImageID": "sha256:d180",
    "DesiredStatus": "RUNNING",
    "KnownStatus": "STOPPED",
    "ExitCode": 3,
    "Limits": {"CPU": 2},
    "StartedAt": "2026-03-01T10:00:00.5Z",
    "FinishedAt": "2026-03-01T10:01:00.25Z",
    "Type": "NORMAL",
    "LogDriver": "awslogs",
    "LogOptions": {"awslogs-group": "/ecs/jobs", "awslogs-stream": "ecs/batch/bae3"},
    "ContainerARN": "arn:aws:ecs:us-east-1:111122223333:container/jobs/bae3/a9b9",
    "Networks": [{"NetworkMode": "awsvpc", "IPv4Addresses": ["10.0.117.145"]}],
}
FARGATE_V4 = {
    "Cluster": "arn:aws:ecs:us-east-1:111122223333:cluster/jobs",
    "TaskARN": ARN,
    "Family": "nightly-etl",
    "Revision": "9",
    "DesiredStatus": "RUNNING",
    "KnownStatus": "RUNNING",
    "Limits": {"CPU": 0.25, "Memory": 512},
    "PullStartedAt": "2026-03-01T09:59:40Z",
    "AvailabilityZone": "us-east-1a",
    "LaunchType": "FARGATE",
    "Containers": [BATCH],
    "EphemeralStorageMetrics": {"Utilized": 427, "Reserved": 20496},
}
PAUSE_V3 = {
    "DockerId": "731a",
    "Name": "~internal~ecs~pause",
    "KnownStatus": "RESOURCES_PROVISIONED",
    "Limits": {"CPU": 0, "Memory": 0},
    "Type": "CNI_PAUSE",
}


def task(document: object) -> TaskMetadata:
    decoded = decode_task(json.dumps(document).encode())
    assert isinstance(decoded, TaskMetadata)
    return decoded


def test_reads_fargate_v4() -> None:
    decoded = task(FARGATE_V4)
    assert decoded.arn == ARN
    assert decoded.family == "nightly-etl"
    assert decoded.revision == "9"
    assert decoded.launch_type == "FARGATE"
    assert decoded.vcpu_limit == 0.25
    assert decoded.memory_limit_bytes == 512 * MIB
    assert decoded.ephemeral_storage_used_mib == 427
    assert decoded.ephemeral_storage_size_mib == 20496
    assert not decoded.is_stop_requested
    assert decoded.containers == (
        ContainerMetadata(
            name="batch",
            docker_id="bae32def0ab64f06818e8862e58f8d6d-4159844948",
            arn="arn:aws:ecs:us-east-1:111122223333:container/jobs/bae3/a9b9",
            image="example/etl:7",
            image_digest="sha256:d180",
            type="NORMAL",
            known_status="STOPPED",
            desired_status="RUNNING",
            exit_code=3,
            started_ns=1772359200500000000,
            finished_ns=1772359260250000000,
            log_driver="awslogs",
            log_options=BATCH["LogOptions"],
            network_mode="awsvpc",
        ),
    )
    assert decoded.containers[0].is_stopped
    own = decode_container(
        json.dumps({**BATCH, "Name": "task-monitor", "RestartCount": 2}).encode()
    )
    assert isinstance(own, ContainerMetadata)
    assert own.name == "task-monitor"
    assert own.restart_count == 2


def test_reads_v3_without_the_fields_of_v4() -> None:
    absent = {
        "LaunchType",
        "EphemeralStorageMetrics",
        "Limits",
        "LogDriver",
        "LogOptions",
        "ContainerARN",
    }
    v3, batch = (
        {key: value for key, value in one.items() if key not in absent}
        for one in (FARGATE_V4, BATCH)
    )
    decoded = task({**v3, "Containers": [PAUSE_V3, batch]})
    assert decoded.launch_type is None
    assert decoded.vcpu_limit is None
    assert decoded.memory_limit_bytes is None
    pause, container = decoded.containers
    assert pause.type == "CNI_PAUSE"
    assert pause.vcpu_share is None
    assert pause.memory_limit_bytes is None
    assert container.log_driver is None
    assert container.log_options == {}
    assert container.arn is None


def test_a_share_or_limit_of_a_container_that_is_not_set_is_absent() -> None:
    unset: list[object] = [{"CPU": 2, "Memory": 2**40}]  # more than any machine has
    unset += [{"CPU": 0, "Memory": 0}, {"CPU": "512", "Memory": None}, {}]
    for limits, vcpu, memory_bytes in (
        ({"CPU": 512, "Memory": 1024}, 0.5, 1024 * MIB),
        *((one, None, None) for one in unset),
    ):
        (container,) = task({**FARGATE_V4, "Containers": [{**BATCH, "Limits": limits}]}).containers
        assert container.vcpu_share == vcpu
        assert container.memory_limit_bytes == memory_bytes


def test_a_malformed_response_has_the_position_in_its_reason() -> None:
    for decoded, what in (
        (decode_task(b'{"Family": }'), "/task"),
        (decode_container(b'{"Family": }'), "the endpoint"),
    ):
        assert isinstance(decoded, Unavailable)
        assert decoded.reason.startswith(what)
        assert decoded.reason.endswith(": JSON is malformed: invalid character (byte 11)")
    other = decode_task(b'{"Containers": null}')
    assert isinstance(other, Unavailable)
    assert other.reason.endswith(": it has no list of containers")


@each_case("decode", [decode_task, decode_container, decode_tags])
@each_case(
    "body",
    [b"", b"{", b"null", b"[1]", b'{"TaskTags": "x"}', b'{"a":"\xff"}', b'{"a":' + b"[" * 100_000],
)
def test_an_invalid_response_gives_a_reason(decode: Callable[[bytes], object], body: bytes) -> None:
    assert isinstance(decode(body), Unavailable)


mutated_task = mutated({**FARGATE_V4, "Containers": [PAUSE_V3, BATCH]})


@given(mutated_task)
def test_any_mutated_document_gives_a_task_or_a_reason(document: object) -> None:
    decoded = decode_task(json.dumps(document).encode())
    assert isinstance(decoded, TaskMetadata | Unavailable)
    for container in decoded.containers if isinstance(decoded, TaskMetadata) else ():
        assert container.name
        assert container.memory_limit_bytes is None or container.memory_limit_bytes >= 0
        assert container.vcpu_share is None or container.vcpu_share > 0


REFUSED = {
    "ErrorField": "TaskTags",
    "ErrorCode": "AccessDeniedException",
    "ErrorMessage": "User: arn:aws:sts::111122223333:assumed-role/instance/i-0 is not authorized to perform: "
    "ecs:ListTagsForResource on resource: " + ARN,
    "StatusCode": 400,
}


def tags(**members: object) -> object:
    return decode_tags(json.dumps({**FARGATE_V4, **members}).encode())


def test_the_tags_are_the_tasks_own() -> None:
    found = {"team": "data", "empty": "", "aws:ecs:clusterName": "jobs"}
    assert tags(TaskTags=found, ContainerInstanceTags={"host": "x"}) == found
    assert tags() == {}
    assert tags(TaskTags={}) == {}
    assert tags(TaskTags={"a": 1, "": "x", "b": None, "c": "d"}) == {"c": "d"}


def test_the_reason_of_an_error_names_the_missing_permission_and_quotes_no_message() -> None:
    found = tags(Errors=[{**REFUSED, "ErrorField": "ContainerInstanceTags"}, REFUSED])
    assert isinstance(found, Unavailable)
    assert "(AccessDeniedException); allow ecs:ListTagsForResource on the task" in found.reason
    assert "111122223333" not in found.reason
    throttled: dict[str, object] = {"ErrorField": "TaskTags", "ErrorCode": "ThrottlingException"}
    for error, stated in (
        (throttled, "ThrottlingException"),
        ({}, "no error code"),
        ({"ErrorCode": 5}, "no error code"),
    ):
        assert tags(Errors=[error]) == Unavailable(f"ECS did not return them ({stated})")


OWN = ContainerMetadata(name="watcher", docker_id="own")
JOB = ContainerMetadata(name="batch", docker_id="b", type="NORMAL")
OTHER = ContainerMetadata(name="proxy", docker_id="p", type="NORMAL")
PAUSE = ContainerMetadata(name="~internal~ecs~pause", docker_id="x", type="CNI_PAUSE")


def listing(*containers: ContainerMetadata) -> TaskMetadata:
    return TaskMetadata(containers=containers)


def test_the_batch_is_the_wanted_container_or_the_only_other_one() -> None:
    cases: tuple[
        tuple[Any, str | None, ContainerMetadata | None, tuple[str, ...], list[str] | None], ...
    ] = (
        ((PAUSE, OWN, JOB), None, OWN, ("batch",), None),
        ((replace(PAUSE, type=None), OWN, JOB), None, OWN, ("batch",), None),
        (
            (JOB, OTHER, OWN),
            None,
            OWN,
            ("batch", "proxy"),
            ["batch, proxy", "TASK_PROFILER_CONTAINER"],
        ),
        ((JOB, OTHER, OWN), "proxy", OWN, ("proxy",), None),
        ((JOB, OWN), "bach", OWN, ("bach",), ["'bach'", "batch, watcher"]),
        ((PAUSE, OWN), None, OWN, (), []),
        (
            (replace(JOB, name="anything", type="MANAGED_DAEMON"), JOB, OWN),
            None,
            OWN,
            ("batch",),
            None,
        ),
        # The monitor goes by its id, then by its name, and by its usual name if it cannot find
        # itself.
        ((replace(JOB, name="watcher"), OWN), None, OWN, ("watcher",), None),
        ((JOB, replace(OWN, docker_id=None)), None, OWN, ("batch",), None),
        ((JOB, replace(OWN, name="task-monitor")), None, None, ("batch",), None),
    )
    for containers, requested, own, names, said in cases:
        choice = select_batch(listing(*containers), requested=requested, own=own)
        assert choice.names == names
        assert (not choice.problem) == (said is None)
        assert all(text in choice.problem for text in said or ())


def test_a_firelens_router_is_no_candidate_where_firelens_is_used() -> None:
    router = ContainerMetadata(name="log_router", docker_id="r", image="any")
    batch = ContainerMetadata(name="batch", docker_id="b", log_driver="awsfirelens")
    assert select_batch(listing(router, batch, OWN), requested=None, own=OWN).names == ("batch",)
    awslogs = replace(batch, log_driver="awslogs")
    assert select_batch(listing(router, awslogs, OWN), requested=None, own=OWN).problem
    without_driver = replace(batch, log_driver=None)  # by version 3 of the endpoint
    assert select_batch(listing(router, without_driver, OWN), requested=None, own=OWN).names == (
        "batch",
    )
    assert select_batch(listing(router, OWN), requested=None, own=OWN).names == (router.name,)


@given(
    mutated_task,
    st.none() | st.dictionaries(st.text(), st.none() | st.text() | st.integers()) | st.text(),
)
def test_any_mutated_document_gives_tags_or_a_reason(document: object, found: object) -> None:
    if isinstance(document, dict):
        document = {**document, "TaskTags": found, "Errors": [REFUSED, document]}
    decoded = decode_tags(json.dumps(document).encode())
    assert isinstance(decoded, dict | Unavailable)
    if isinstance(decoded, dict):
        assert all(name and isinstance(value, str) for name, value in decoded.items())


def test_the_timeout_doubles_after_two_timeouts_in_a_row_and_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    endpoint, given = HttpEndpoint("http://host", 1.0, FakeClock()), list[float]()

    def fetch(_connection: object, path: str, timeout_seconds: float) -> Response:
        given.append(timeout_seconds)
        if path == "slow":
            raise TimeoutError
        return Response(200, b"")

    monkeypatch.setattr(endpoint, "_fetch", fetch)
    for path in ("slow", "fast", "slow", "slow", "fast", *["slow"] * 6):
        endpoint.get_body(path)
    assert given == pytest.approx([0.9] * 4 + [1.8] * 3 + [3.6] * 2 + [5] * 2)
    assert HttpEndpoint("http://host", 60, FakeClock())._timeout_seconds == 5
