"""Task definitions in Amazon ECS, played by moto: the files register, and ``taskdef add-monitor --family``."""

from collections.abc import Iterator

import pytest

import profiler
from tests.aws import FakeAws, fake_aws, push_image
from tests.aws_proxy import AwsProxy
from tests.command_line import run_here
from tests.sidecars import awslogs

BATCH = {"name": "batch", "image": "etl:26", "memory": 1024, "logConfiguration": awslogs("/ecs/nightly")}
TAGS = [{"key": "team", "value": "data"}]


@pytest.fixture(scope="module")
def aws() -> Iterator[FakeAws]:
    with fake_aws() as played:
        yield played


def test_without_register_the_plan_is_printed_and_nothing_changes(aws: FakeAws) -> None:
    ecs = aws.client("ecs")
    ecs.register_task_definition(family="printed", containerDefinitions=[BATCH], tags=TAGS)
    done = run_here(aws.environment(), "taskdef", "add-monitor", "--family", "printed")
    assert done.returncode == 0, done.stderr
    assert "add monitor" in done.stdout
    assert "taskRoleArn" in done.stdout
    missing = f"ECR has no image task-profiler:{profiler.__version__}, without which the tasks do not start"
    assert missing in done.stderr
    refused = run_here(aws.environment(), "taskdef", "add-monitor", "--family", "printed", "--register")
    assert refused.returncode == 1
    assert missing in refused.stderr
    assert ecs.describe_task_definition(taskDefinition="printed")["taskDefinition"]["revision"] == 1
    push_image(aws)
    run_here(aws.environment(), "taskdef", "add-monitor", "--family", "printed", "--register")
    definition = ecs.describe_task_definition(taskDefinition="printed:2")["taskDefinition"]
    image = definition["containerDefinitions"][1]["image"]
    assert image == f"123456789012.dkr.ecr.us-east-1.amazonaws.com/task-profiler:{profiler.__version__}"


def test_fields_that_boto3_does_not_know_are_never_lost_by_registering(aws: FakeAws) -> None:
    ecs = aws.client("ecs")
    ecs.register_task_definition(family="newer", containerDefinitions=[BATCH])
    definition = ecs.describe_task_definition(taskDefinition="newer")["taskDefinition"]
    definition["containerDefinitions"] = [{**BATCH, "fromTheFuture": {"a": 1}}]
    described = {"taskDefinition": {name: value for name, value in definition.items() if name != "registeredAt"}}
    proxy = AwsProxy(aws.url, answers={"DescribeTaskDefinition": described})
    environment = aws.environment() | {"AWS_ENDPOINT_URL": proxy.url}
    refused = run_here(environment, "taskdef", "add-monitor", "--family", "newer", "--image", "own:1", "--register")
    proxy.close()
    assert refused.returncode == 1
    assert "fromTheFuture" in refused.stderr
    assert "upgrade boto3" in refused.stderr
    assert "1 failed" in refused.stderr
