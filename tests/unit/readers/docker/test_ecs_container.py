"""What is kept of Docker's documents, and what is not."""

import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from profiler.core.timestamps import parse_ns
from profiler.readers import Unavailable
from profiler.readers.docker.ecs_container import (
    EcsContainer,
    EcsLabels,
    ListedContainer,
    decode_container,
    decode_list,
)
from tests.cases import each_case
from tests.fake_docker_daemon import RECORDED
from tests.values import mutated

CANARY = "canary"  # the value of the environment variable SECRET in the recorded documents
LABELS = EcsLabels(
    task_arn="arn:aws:ecs:us-east-1:123456789012:task/jobs/0123456789abcdef0123456789abcdef",
    container_name="batch",
    cluster="jobs",
    family="nightly",
    revision="3",
)
RUNNING = EcsContainer(
    docker_id=RECORDED["running"]["Id"],
    labels=LABELS,
    is_running=True,
    image="task-profiler-e2e-base:2",
    image_digest=RECORDED["running"]["Image"],
    started_ns=parse_ns(RECORDED["running"]["State"]["StartedAt"]),
    pid=RECORDED["running"]["State"]["Pid"],
    memory_limit_bytes=64 << 20,
    cgroup_parent="/ecs/0123456789abcdef0123456789abcdef",
    network_mode="none",
    log_driver="json-file",
    metadata_address="http://169.254.170.2/v4/abc",
    gpus=("GPU-fef8089b-4820-abfc-e83e-94318197576e",),
)


def container(document: Any) -> EcsContainer:
    decoded = decode_container(json.dumps(document).encode())
    assert isinstance(decoded, EcsContainer)
    return decoded


def with_config(**config: Any) -> Any:
    return {**RECORDED["running"], "Config": RECORDED["running"]["Config"] | config}


def test_running_and_ended_containers() -> None:
    assert container(RECORDED["running"]) == RUNNING
    state = RECORDED["ended"]["State"]
    ended = replace(
        RUNNING,
        is_running=False,
        pid=None,
        exit_code=137,
        finished_ns=parse_ns(state["FinishedAt"]),
    )
    assert container(RECORDED["ended"]) == ended
    killed = container(RECORDED["out_of_memory"])
    assert killed.oom_killed is True
    assert killed.exit_code == 137
    assert killed.memory_limit_bytes == 20 << 20


def test_a_container_that_never_started_or_was_started_again_has_no_exit_code() -> None:
    never = "0001-01-01T00:00:00Z"
    created = {
        "Status": "created",
        "Running": False,
        "ExitCode": 0,
        "StartedAt": never,
        "FinishedAt": never,
    }
    decoded = container({**RECORDED["running"], "State": created})
    assert decoded.started_ns is None
    assert decoded.finished_ns is None
    assert decoded.exit_code is None
    again = RECORDED["ended"]["State"] | {"Running": True}
    assert container({**RECORDED["ended"], "State": again}).exit_code is None


def test_only_the_stream_of_awslogs_is_kept_of_the_log_options() -> None:
    options = {
        "awslogs-group": "/ecs/jobs",
        "awslogs-stream": "ecs/batch/1",
        "awslogs-region": "us-east-1",
    }
    log_config = {"Type": "awslogs", "Config": options | {"awslogs-credentials-endpoint": "/x"}}
    host = RECORDED["running"]["HostConfig"]
    decoded = container({**RECORDED["running"], "HostConfig": host | {"LogConfig": log_config}})
    assert decoded.log_options == options
    splunk = {"Type": "splunk", "Config": {"splunk-token": CANARY}}
    decoded = container({**RECORDED["running"], "HostConfig": host | {"LogConfig": splunk}})
    assert decoded.log_driver == "splunk"
    assert decoded.log_options == {}


def test_the_variables_of_a_job_are_read_and_no_other_one() -> None:
    job = {"AWS_BATCH_JOB_ID": "4109", "AWS_BATCH_JQ_NAME": "nightly"}
    others = {"AWS_BATCH_TOKEN": CANARY, "AWS_SECRET_ACCESS_KEY": CANARY, "XAWS_BATCH_CE_NAME": "x"}
    variables = [f"{name}={value}" for name, value in (job | others).items()]
    decoded = container(with_config(Env=variables))
    assert decoded.batch == job
    assert CANARY not in repr(decoded)


def test_the_limits_of_a_shared_gpu_are_read_and_no_other_variable() -> None:
    mps = {
        "CUDA_MPS_PIPE_DIRECTORY": "/run/mps-ecs",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=4096M",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25",
    }
    environment = [f"{name}={value}" for name, value in {**mps, "CUDA_TOKEN": CANARY}.items()]
    assert container(with_config(Env=environment)).mps == mps
    assert container(with_config(Env=[f"CUDA_TOKEN={CANARY}"])).mps == {}


def test_the_gpus_of_a_container() -> None:
    gpus = {
        "GPU-1,GPU-2": ("GPU-1", "GPU-2"),
        "0,1": ("0", "1"),
        **dict.fromkeys(("all", "void", ""), ()),
    }
    for variable, expected in {**gpus, f"GPU-1,{CANARY}": ("GPU-1",)}.items():
        environment = ["NVIDIA_VISIBLE_DEVICES=GPU-0", f"NVIDIA_VISIBLE_DEVICES={variable}"]
        assert container(with_config(Env=environment)).gpus == expected


@each_case(
    ("name", "number"),
    [
        *(("", 15), ("SIGTERM", 15), ("term", 15), ("SIGINT", 2), ("9", 9), ("SIGKILL", 9)),
        *(("RTMIN", 34), ("SIGRTMIN+3", 37), ("RTMAX-14", 50), ("0", 15), ("999", 15), ("NO", 15)),
    ],
)
def test_the_stop_signal_is_that_of_the_image(name: str, number: int) -> None:
    """As Docker's API writes it; SIGTERM without a valid one."""
    assert container(with_config(StopSignal=name)).stop_signal == number


def test_only_the_containers_of_the_agent_are_listed_and_described() -> None:
    document = with_config(Labels={"task-arn": LABELS.task_arn, "container-name": "batch"})
    assert isinstance(decode_container(json.dumps(document).encode()), Unavailable)
    others = [{"Id": "a", "Labels": {}}, {"Id": "b", "Labels": None, "State": "running"}, None]
    running = {**RECORDED["list"][0], "Id": "c", "State": "running"}
    listed = decode_list(json.dumps([*RECORDED["list"], *others, running]).encode())
    assert listed == (
        *(
            ListedContainer(docker_id=one["Id"], is_running=False, task_arn=LABELS.task_arn)
            for one in RECORDED["list"]
        ),
        ListedContainer(docker_id="c", is_running=True, task_arn=LABELS.task_arn),
    )


@given(mutated(RECORDED["running"], RECORDED["out_of_memory"]), mutated(RECORDED["list"]))
def test_no_document_raises_and_no_value_of_the_environment_is_kept(
    document: Any, listed: Any
) -> None:
    assert CANARY not in repr(decode_container(json.dumps(document).encode()))
    decode_list(json.dumps(listed).encode())


@given(st.binary(max_size=40), st.integers(0, 4000))
@example(b'\xff"}', 50)
@example(b"[" * 100_000, 0)
def test_what_is_not_json_is_unavailable_and_not_quoted(added: bytes, at: int) -> None:
    body = json.dumps(RECORDED["running"]).encode()
    for decoded in (decode_container(body[:at] + added), decode_list(body[:at] + added)):
        assert isinstance(decoded, Unavailable)
        assert CANARY not in decoded.reason
