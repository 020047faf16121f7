"""Task definitions in Amazon ECS, played by moto: the files register, and ``taskdef add-monitor --family``."""

import json
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

import profiler
from tests.aws import FakeAws, fake_aws, push_image
from tests.command_line import run_here
from tests.http_server import FakeHttpServer

FOLDER = Path(profiler.__file__).parent.parent / "taskdef"
BATCH = {
    "name": "batch",
    "image": "etl:26",
    "memory": 1024,
    "logConfiguration": {
        "logDriver": "awslogs",
        "options": {"awslogs-group": "/ecs/nightly", "awslogs-region": "us-east-1", "awslogs-stream-prefix": "ecs"},
    },
}
TAGS = [{"key": "team", "value": "data"}]


@pytest.fixture(scope="module")
def aws() -> Iterator[FakeAws]:
    with fake_aws() as played:
        yield played


@pytest.fixture(scope="module")
def ecs(aws: FakeAws) -> Any:
    return aws.client("ecs")


def add_monitor(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return run_here(environment, "taskdef", "add-monitor", *words)


@pytest.mark.parametrize(
    "name", ["ec2-gpu.json", "fargate-pid-mode.json", "fargate-scheduled.json", "neuron.json", "wrapper.json"]
)
def test_a_file_registers_as_it_is(ecs: Any, name: str) -> None:
    definition = json.loads((FOLDER / name).read_text())
    registered = ecs.register_task_definition(**definition)["taskDefinition"]
    assert registered["family"] == definition["family"]
    names = [container["name"] for container in registered["containerDefinitions"]]
    assert names == [container["name"] for container in definition["containerDefinitions"]]


def test_a_revision_with_the_monitor_and_its_tags_is_registered_once(aws: FakeAws, ecs: Any) -> None:
    ecs.register_task_definition(family="nightly", containerDefinitions=[BATCH], tags=TAGS, cpu="512", memory="2048")
    words = ["--family", "nightly", "--image", "own:1", "--stacks", "--register"]
    program = [sys.executable, "-m", "profiler", "taskdef", "add-monitor"]
    first = subprocess.run([*program, *words], capture_output=True, text=True, check=False, env=aws.environment())
    assert first.returncode == 0, first.stderr
    assert "registered nightly:2\n" in first.stdout
    described = ecs.describe_task_definition(taskDefinition="nightly:2", include=["TAGS"])
    definition = described["taskDefinition"]
    assert described["tags"] == TAGS
    assert (definition["cpu"], definition["memory"], definition["pidMode"]) == ("512", "2048", "task")
    batch, monitor = definition["containerDefinitions"]
    assert (batch["name"], batch["memory"], monitor["name"], monitor["image"]) == (
        "batch",
        1024,
        "task-monitor",
        "own:1",
    )
    assert (monitor["user"], monitor["linuxParameters"]) == ("0", {"capabilities": {"add": ["SYS_PTRACE"]}})

    second = add_monitor(aws.environment(), *words)
    assert second.returncode == 0, second.stderr
    assert "up to date" in second.stdout
    assert "registered" not in second.stdout
    third = add_monitor(aws.environment(), "--family", "nightly", "--image", "own:2", "--register")
    assert "registered nightly:3\n" in third.stdout


def test_without_register_the_plan_is_printed_and_nothing_changes(aws: FakeAws, ecs: Any) -> None:
    ecs.register_task_definition(family="printed", containerDefinitions=[BATCH], tags=TAGS)
    done = add_monitor(aws.environment(), "--family", "printed")
    assert done.returncode == 0, done.stderr
    assert "add monitor" in done.stdout
    assert "taskRoleArn" in done.stdout
    missing = f"ECR has no image task-profiler:{profiler.__version__}, without which the tasks do not start"
    assert missing in done.stderr
    refused = add_monitor(aws.environment(), "--family", "printed", "--register")
    assert refused.returncode == 1
    assert missing in refused.stderr
    assert ecs.describe_task_definition(taskDefinition="printed")["taskDefinition"]["revision"] == 1
    push_image(aws)
    add_monitor(aws.environment(), "--family", "printed", "--register")
    definition = ecs.describe_task_definition(taskDefinition="printed:2")["taskDefinition"]
    image = definition["containerDefinitions"][1]["image"]
    assert image == f"123456789012.dkr.ecr.us-east-1.amazonaws.com/task-profiler:{profiler.__version__}"


def test_what_ecs_refuses_is_one_sentence(aws: FakeAws) -> None:
    done = add_monitor(aws.environment(), "--family", "missing", "--image", "own:1", "--register")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "No task definition family" in done.stderr


def test_without_a_region_it_is_said(aws: FakeAws, tmp_path: Path) -> None:
    environment = {"AWS_EC2_METADATA_DISABLED": "true", "HOME": str(tmp_path)}
    done = add_monitor(environment, "--family", "nightly", "--image", "own:1")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "region" in done.stderr


class NewerEcs(FakeHttpServer):
    """Describes with a field that no boto3 knows."""

    def answer(self, request: BaseHTTPRequestHandler, body: bytes) -> tuple[int, dict[str, str], bytes]:
        definition = {
            "taskDefinitionArn": "arn:aws:ecs:us-east-1:123456789012:task-definition/newer:4",
            "family": "newer",
            "containerDefinitions": [{**BATCH, "fromTheFuture": {"a": 1}}],
        }
        answers: dict[str, Any] = {
            "ListTaskDefinitionFamilies": {"families": ["newer"]},
            "ListClusters": {"clusterArns": []},
            "ListEventBuses": {"EventBuses": []},
            "DescribeTaskDefinition": {"taskDefinition": definition},
        }
        operation = request.headers.get("X-Amz-Target", "").rpartition(".")[2]
        answer = answers.get(operation, {"Schedules": []})
        return 200, {"Content-Type": "application/x-amz-json-1.1"}, json.dumps(answer).encode()


@pytest.fixture
def newer_ecs(aws: FakeAws) -> Iterator[dict[str, str]]:
    server = NewerEcs()
    yield aws.environment() | {"AWS_ENDPOINT_URL": server.url}
    server.close()


def test_fields_that_boto3_does_not_know_are_never_lost_by_registering(newer_ecs: dict[str, str]) -> None:
    refused = add_monitor(newer_ecs, "--family", "newer", "--image", "own:1", "--register")
    assert refused.returncode == 1
    assert "fromTheFuture" in refused.stderr
    assert "upgrade boto3" in refused.stderr
    assert "1 failed" in refused.stderr
