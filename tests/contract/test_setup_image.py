"""``task-profiler setup image``, and ``setup`` without a subcommand, against moto's server and a
played Docker.
"""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any
from unittest.mock import patch

import pytest

import profiler
from tests.command_line import run_here
from tests.fake_docker import FakeDocker
from tests.sidecars import awslogs
from tools.moto_server import FakeAws, fake_aws, push_image, start_by_schedule

ACCOUNT = "123456789012"
REGISTRY = f"{ACCOUNT}.dkr.ecr.us-east-1.amazonaws.com"
VERSION = profiler.__version__
IMAGE = f"{REGISTRY}/task-profiler:{VERSION}"
ROOT = Path(profiler.__file__).parent.parent

# Parameters by which a stack is known for one of the template.
OF_FORWARDER = {"CodeBucket": "b", "CodeKey": "k", "ElasticsearchUrl": "", "TaskStopped": "true"}


class Account:
    """An empty account, and a Docker on this machine."""

    def __init__(self, aws: FakeAws, docker: FakeDocker) -> None:
        self._aws, self.docker = aws, docker
        self.client, self.ecr = aws.client, aws.client("ecr")
        self.environment = aws.environment() | docker.environment()

    def setup(self, *words: str, **environment: str) -> CompletedProcess[str]:
        given = self.environment | environment
        return run_here({name: value for name, value in given.items() if value}, "setup", *words)

    def push(self) -> None:
        """What Docker did, as far as ECR knows."""
        push_image(self._aws)


@pytest.fixture
def account(tmp_path: Path) -> Iterator[Account]:
    with fake_aws() as aws:
        yield Account(aws, FakeDocker(tmp_path / "docker"))


def test_it_is_built_and_pushed_once(account: Account) -> None:
    done = account.setup("image", "--yes", "--", "--build-arg", "BASE_IMAGE=mine:3")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{IMAGE}\n"
    assert "for this machine's processor only" in done.stderr
    (repository,) = account.ecr.describe_repositories()["repositories"]
    assert repository["repositoryName"] == "task-profiler"
    assert repository["imageTagMutability"] == "IMMUTABLE"
    login, build, push = account.docker.commands("version", "buildx version", "info")
    assert login == f"login --username AWS --password-stdin {REGISTRY}"
    assert account.docker.password() == f"{ACCOUNT}-auth-token"
    assert build.endswith(
        f"--tag {IMAGE} --build-arg VERSION={VERSION} --build-arg BASE_IMAGE=mine:3 {ROOT}"
    )
    assert push == f"push {IMAGE}"

    account.push()
    again = account.setup("image", "--yes", PATH="/nowhere")  # which needs no Docker
    assert again.returncode == 0, again.stderr
    assert again.stdout == f"{IMAGE}\n"
    assert again.stderr == f"In ECR already: task-profiler:{VERSION}\n"


@pytest.mark.diagonal
@pytest.mark.parametrize(("name", "code"), [("TERM", 143), ("HUP", 129), ("INT", 130)])
@pytest.mark.parametrize("step", ["login", "build", "push"])
def test_a_signal_ends_docker_and_leaves_no_password(
    account: Account, tmp_path: Path, name: str, code: int, step: str
) -> None:
    """Docker is asked to end, and is waited for: a killed one leaves its plugin and its build."""
    ended, temporary = tmp_path / "ended", tmp_path / "temporary"
    temporary.mkdir()
    at_step = f"kill -{name} $PPID; while :; do sleep 0.02; done"
    if step != "build":  # the signal of a terminal, which Docker gets, too
        at_step = f"touch {ended}; kill -{name} $PPID; exit 1"
    at_step = f"trap 'touch {ended}; exit 1' TERM; {at_step}"
    word = step if step == "push" else f"at_{step}"
    steps: Any = {word: at_step}
    account.environment |= FakeDocker(tmp_path / "slow", **steps).environment()
    with patch.object(tempfile, "tempdir", str(temporary)):
        done = account.setup("image", "--yes")
    assert done.returncode == code, done.stderr
    assert ended.exists()
    assert [*temporary.iterdir()] == []
    assert f"It ended before task-profiler:{VERSION} was known to be in ECR." in done.stderr
    again = account.setup("image", "--yes", **account.docker.environment())
    assert again.returncode == 0, again.stderr


def test_a_dry_run_prints_the_commands_and_changes_nothing(account: Account) -> None:
    done = account.setup(
        "image", "--repository", "tools/monitor", "--tag", "7", "--region", "us-east-1"
    )
    assert done.returncode == 0, done.stderr
    named = f"--tag {REGISTRY}/tools/monitor:7 --build-arg VERSION={VERSION}"
    assert done.stdout.splitlines() == [
        (
            "aws ecr create-repository --repository-name tools/monitor --image-tag-mutability "
            "IMMUTABLE --region us-east-1"
        ),
        (
            "aws ecr get-login-password --region us-east-1 | docker login --username AWS "
            "--password-stdin "
        )
        + REGISTRY,
        f"docker build --file {ROOT}/taskdef/Dockerfile {named} {ROOT}",
        f"docker push {REGISTRY}/tools/monitor:7",
    ]
    assert done.stderr.endswith("Nothing was changed; --yes carries this out.\n")
    (plan,) = map(json.loads, account.setup("image", "--json", "--tag", "7").stdout.splitlines())
    assert plan["commands"][-1] == f"docker push {REGISTRY}/task-profiler:7"
    assert account.ecr.describe_repositories()["repositories"] == []
    assert "build" not in str(account.docker.commands("version", "buildx version"))


def test_settings_that_would_remove_the_image_or_its_pull_are_named(account: Account) -> None:
    account.ecr.create_repository(repositoryName="task-profiler")
    account.push()
    selections: tuple[dict[str, Any], ...] = (
        {"tagStatus": "tagged", "tagPrefixList": ["0."]},
        {"tagStatus": "tagged", "tagPrefixList": ["0.", "other"]},
        {"tagStatus": "tagged", "tagPatternList": ["*.0"]},
        {"tagStatus": "untagged"},
        {"tagStatus": "any"},
    )
    limit = {"countType": "imageCountMoreThan", "countNumber": 9}
    listed = enumerate((selection | limit for selection in selections), 1)
    rules = [
        {"rulePriority": place, "selection": one, "action": {"type": "expire"}}
        for place, one in listed
    ]
    account.ecr.put_lifecycle_policy(
        repositoryName="task-profiler", lifecyclePolicyText=json.dumps({"rules": rules})
    )
    statements = [
        {"Sid": "NoPull", "Effect": "Deny", "Principal": "*", "Action": "ecr:Batch*"},
        {"Sid": "Pull", "Effect": "Allow", "Principal": "*", "Action": ["ecr:BatchGetImage"]},
        {"Sid": "Janitor", "Effect": "Allow", "Principal": "*", "Action": ["ecr:BatchDeleteImage"]},
    ]
    policy = json.dumps({"Version": "2012-10-17", "Statement": statements})
    account.ecr.set_repository_policy(repositoryName="task-profiler", policyText=policy)
    done = account.setup("image", "--yes")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{IMAGE}\n"
    _, *warnings = done.stderr.splitlines()
    named = (
        "tags of task-profiler",
        *(f"lifecycle rule {number}" for number in (1, 3, 5)),
        "statement NoPull in",
        "statement Janitor in",
    )
    assert [" ".join(line.split(" ")[1:5]) for line in warnings] == [
        f"The {name}" for name in named
    ]


@pytest.mark.parametrize(
    ("words", "environment", "said"),
    [
        ((), {"PATH": "/nowhere"}, "Docker is not installed: install it"),
        (
            (),
            {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""},
            "there are no AWS credentials: sign in",
        ),
        (("--platform", "linux/arm64"), {}, "--platform needs Docker's plugin buildx"),
    ],
)
def test_what_is_missing_is_one_sentence(
    account: Account, words: tuple[str, ...], environment: dict[str, str], said: str
) -> None:
    done = account.setup("image", "--yes", *words, AWS_EC2_METADATA_DISABLED="true", **environment)
    assert done.returncode != 0
    (line,) = done.stderr.splitlines()
    assert said in line
    assert done.stdout == ""
    assert account.ecr.describe_repositories()["repositories"] == []


def test_without_a_subcommand_the_steps_are_printed(account: Account) -> None:
    add = "task-profiler taskdef add-monitor --cluster NAME --scheduled --attach-policy --register"
    advice = "With a search cluster, add --elasticsearch URL --all-log-groups."
    empty = account.setup("--region", "us-east-1")
    assert empty.returncode == 0, empty.stderr
    assert empty.stdout.splitlines() == [
        "1 image     not done  There is no ECR repository task-profiler in us-east-1.",
        "                      task-profiler setup image --region us-east-1",
        f"2 stack     not done  There is no stack task-profiler. {advice}",
        (
            "                      task-profiler setup stack --slack-failure-webhook "
            "@webhook.txt --region us-east-1"
        ),
        "3 monitors  unknown   There is no ECS cluster in us-east-1: check the Region.",
        f"                      {add} --region us-east-1",
        "4 check     unknown   It looks at every family when it runs.",
        "                      task-profiler doctor --cluster NAME --region us-east-1",
    ]

    rows = [*map(json.loads, account.setup("--region", "us-east-1", "--json").stdout.splitlines())]
    assert [(row["name"], row["isDone"]) for row in rows[:2]] == [
        ("image", False),
        ("stack", False),
    ]
    assert rows[0]["commands"] == [["task-profiler", "setup", "image", "--region", "us-east-1"]]

    account.ecr.create_repository(repositoryName="task-profiler")
    add_schedules(account)
    some = account.setup().stdout.splitlines()
    assert (
        some[0] == f"1 image     not done  The ECR repository task-profiler has no image {VERSION}."
    )
    assert some[4] == (
        "3 monitors  not done  0 of 4 schedules and rules start a task with a current monitor. "
        "1 is pinned to another revision, until --update-schedules moves them."
    )
    account.push()
    assert some[5].strip() == f"{add.replace('NAME', 'jobs')} --update-schedules"
    unmoved = run_here(account.environment, *some[5].replace(" --update-schedules", "").split()[1:])
    assert unmoved.returncode == 0
    assert (
        "1 of 4 schedules and rules is pinned to another revision, which they go on starting"
        in unmoved.stderr
    )
    assert "\n3 monitors  not done  3 of 4 schedules and rules start" in account.setup().stdout
    assert run_here(account.environment, *some[5].split()[1:]).returncode == 0
    queue = {"Resources": {"Queue": {"Type": "AWS::SQS::Queue"}}}
    cloudformation = account.client("cloudformation")
    values = {**OF_FORWARDER, "SlackSecretId": "slack", "LogGroups": "/ecs/jobs"}
    given = {
        "Parameters": {name: {"Type": "String", "Default": value} for name, value in values.items()}
    }
    cloudformation.create_stack(StackName="task-profiler", TemplateBody=json.dumps(queue | given))
    done = account.setup("--cluster", "jobs")
    steps, export, insights = done.stdout.split("\n\n")
    assert export == "export TASK_PROFILER_FROM=logs:/ecs/jobs"
    assert insights.startswith("Container Insights is off for jobs. ")
    assert steps.splitlines() == [
        f"1 image     done      {IMAGE} is in ECR.",
        "2 stack     done      The stack task-profiler is deployed (CREATE_COMPLETE).",
        "3 monitors  done      4 of 4 schedules and rules start a task with a current monitor.",
        "4 check     unknown   It looks at every family when it runs.",
        "                      task-profiler doctor --cluster jobs",
    ]


def test_with_a_stack_for_notifications_alone_the_source_of_past_runs_is_named(
    account: Account,
) -> None:
    template = {
        "Resources": {"Queue": {"Type": "AWS::SQS::Queue"}},
        "Parameters": {
            name: {"Type": "String", "Default": value}
            for name, value in {**OF_FORWARDER, "SlackSecretId": "slack"}.items()
        },
    }
    account.client("cloudformation").create_stack(
        StackName="task-profiler", TemplateBody=json.dumps(template)
    )
    done = account.setup("--region", "us-east-1")
    sentence = (
        "Past runs are in the log groups of the tasks: history, recommend and report read them "
        "with --cluster NAME or --from logs:GLOB."
    )
    assert sentence in done.stdout


def add_schedules(account: Account) -> None:
    ecs, scheduler, iam = map(account.client, ("ecs", "scheduler", "iam"))
    ecs.create_cluster(clusterName="jobs")
    role = iam.create_role(RoleName="jobs", AssumeRolePolicyDocument="{}")["Role"]["Arn"]
    batch = {"name": "batch", "image": "etl:1", "memory": 256, "logConfiguration": awslogs()}
    for name in ("job-0", "job-1", "job-2", "job-0:1"):  # Terraform pins schedules to revisions
        if ":" not in name:
            ecs.register_task_definition(
                family=name, taskRoleArn=role, containerDefinitions=[batch]
            )
        start_by_schedule(scheduler, name.replace(":", "-"), name)
