"""``task-profiler setup batch-instances`` against moto's server: what it prints, and that it changes
nothing in the account.
"""

import json
from collections.abc import Iterator

import pytest

import profiler
from tests.aws_proxy import AwsProxy
from tests.command_line import run_here
from tests.user_data import script_of
from tools.moto_server import FakeAws, fake_aws, push_image

IMAGE = f"123456789012.dkr.ecr.us-east-1.amazonaws.com/task-profiler:{profiler.__version__}"


@pytest.fixture
def aws() -> Iterator[FakeAws]:
    with fake_aws() as aws:
        yield aws


def test_it_prints_the_user_data_with_the_pushed_image(aws: FakeAws) -> None:
    aws.client("ecr").create_repository(repositoryName="task-profiler")
    push_image(aws)
    proxy = AwsProxy(aws.url)
    try:
        environment = {**aws.environment(), "AWS_ENDPOINT_URL": proxy.url}
        done = run_here(environment, "setup", "batch-instances")
        policy = run_here(
            environment, "setup", "batch-instances", "--policy", "--log-group", "/own"
        )
    finally:
        proxy.close()
    assert done.returncode == 0, done.stderr
    assert IMAGE in script_of(done.stdout)
    assert "--env=AWS_REGION=us-east-1" in script_of(done.stdout)
    assert "Nothing was changed" in done.stderr
    assert {operation for operation, _ in proxy.bodies} == {"DescribeRepositories"}
    logs, pull, _ = json.loads(policy.stdout)["Statement"]
    assert logs["Resource"] == ["arn:aws:logs:us-east-1:123456789012:log-group:/own:*"]
    assert pull["Resource"] == ["arn:aws:ecr:us-east-1:123456789012:repository/task-profiler"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "ECR has no repository task-profiler: run task-profiler setup image"),
        (("--image", "x", "--log-group", "/own"), "--log-group is for the policy"),
        (("--image", "x", "--setting", "AWS_REGION=x"), "--setting cannot set AWS_REGION"),
        (("--image", "x", "--setting", "TASK_PROFILER_SCOPE=instance"), "cannot set"),
        (("--image", "x", "--setting", "TASK_PROFILER_FAMILES=x"), "TASK_PROFILER_FAMILIES"),
        (("--image", "x", "--setting", "NAME=a\nb"), "cannot have"),
        (("--image", "x\ny"), r"'x\ny' is not an image"),
    ],
)
def test_a_mistake_is_one_sentence(aws: FakeAws, words: tuple[str, ...], sentence: str) -> None:
    done = run_here(aws.environment(), "setup", "batch-instances", *words)
    assert done.returncode != 0
    assert done.stdout == ""
    assert sentence in " ".join(done.stderr.split())
