"""``taskdef resize --job-definition`` under attack: forged, foreign and partial evidence, several
people at once, missing rights, throttling. Beside each definition that must stay, one must still be
resized.
"""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from moto.logs.models import logs_backends
from msgspec.structs import replace

from profiler.cli.wiring import aws_options
from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND, format_ms
from profiler.record.batch_job import NO_JOB, BatchJob
from profiler.record.record_model import Container, encode
from tests import batch_jobs
from tests.aws_proxy import AwsProxy
from tests.batch_jobs import Json
from tests.fake_batch import FakeBatch
from tests.job_account import KILLED, NEW, OLD, JobAccount, ec2
from tests.resize_account import ACCOUNT, Account
from tools.moto_server import fake_aws

# Of each test, `make test` runs one case: the cases differ by a policy, an answer or a moment.
pytestmark = pytest.mark.diagonal(1)

GROUP = "/aws/batch/job"


@pytest.fixture
def account(tmp_path: Path) -> Iterator[JobAccount]:
    """An account with a definition that each test must see resized."""
    with fake_aws() as aws, FakeBatch() as batch:
        made = JobAccount(aws, batch, tmp_path)
        made.oversized("control")
        yield made


def registered(account: JobAccount, *words: str) -> dict[str, Json]:
    """The rows of a call that registers the control."""
    rows, _ = account.rows("--register", "--update-schedules", *words)
    assert account.sizes("control") == [NEW]
    return rows


# Whose runs they are.


def test_a_task_of_the_same_name_is_another_thing(account: JobAccount) -> None:
    account.batch.define("nightly")
    account.runs("nightly", 25, family="nightly", batch=NO_JOB, cluster="jobs")
    rows = registered(account)
    assert rows["nightly"]["reason"] == "no run of revision 1 is known yet"


def test_a_job_whose_definition_no_record_says_does_not_count(account: JobAccount) -> None:
    account.batch.define("nightly")
    unnamed = BatchJob(job_id=batch_jobs.job_id(1), queue="nightly", attempt=1)
    account.runs("nightly", 25, family="nightly", batch=unnamed)
    done = account.resize("--register")
    assert "25 runs of jobs do not say the job definition, and so not count" in done.stderr
    assert account.sizes("nightly") == [OLD]
    assert account.sizes("control") == [NEW]


@pytest.mark.parametrize(
    "elsewhere",
    [{"account_id": "999999999999"}, {"region": "eu-west-1"}],
    ids=["account", "region"],
)
def test_jobs_of_another_place_do_not_count(account: JobAccount, elsewhere: dict[str, Any]) -> None:
    account.batch.define("nightly")
    account.runs("nightly", 25, **elsewhere)
    rows = registered(account)
    assert rows["nightly"]["action"] == "none"
    assert account.sizes("nightly") == [OLD]


def test_a_platform_that_the_jobs_do_not_run_on_is_left_alone(account: JobAccount) -> None:
    account.batch.define("moved")
    account.runs_on_instances("moved", 25, OLD)
    rows = registered(account)
    assert rows["moved"]["action"] == "none"
    assert account.sizes("moved") == [OLD]


def test_container_insights_alone_registers_nothing(account: JobAccount) -> None:
    done = account.resize("--register", source="insights:AWSBatch-*")
    assert done.returncode == 2
    assert "Container Insights" in done.stderr
    assert account.sizes("control") == [OLD]


def test_unlike_sizes_of_another_revision_hide_no_kill(account: JobAccount) -> None:
    """A night that is killed and succeeds with more by its submission is a kill."""
    account.batch.define("nightly")
    account.runs("nightly", 20, peak_mb=1500)
    account.runs("nightly", 1, peak_mb=2040, **KILLED)
    account.runs("nightly", 1, size=(1, 8192), peak_mb=3000)
    rows = registered(account)
    assert rows["nightly"]["action"] == "resize"
    assert rows["nightly"]["to"]["memoryMB"] > 3000


# Log groups: any task definition can name Batch's group, a definition's prefix and its container.


def put_jobs(account: JobAccount, definition: str, *, ended_as: str, claims: str) -> None:
    """25 reports in the streams of a definition's jobs, as task_stopped has seen the tasks end."""
    played = Account(account.aws, account.file.parent)
    played.install_stack()
    logs = account.aws.client("logs")
    if not logs.describe_log_groups(logGroupNamePrefix=GROUP)["logGroups"]:
        account.aws.create_log_group(GROUP)
        played.age_group(GROUP)
    control = [one for one in account.reports if one.record.batch != NO_JOB][:25]
    now_ns = time.time_ns()
    for age, made in enumerate(control):
        ended_ns = now_ns - age * 13 * 3600 * NS_PER_SECOND
        job = BatchJob(
            job_id=batch_jobs.job_id(age), job_definition=claims, job_definition_revision=1
        )
        record = replace(
            made.record,
            task_id=uuid4().hex,
            batch=job,
            account_id=None,
            region=batch_jobs.REGION,
            container=Container(name="default"),
            started_at=format_ms(ended_ns - 590 * NS_PER_SECOND),
            finished_at=format_ms(ended_ns),
        )
        line = encode(replace(made, time=format_ms(ended_ns), record=record)).decode()
        stream = f"{definition}/default/{record.task_id}"
        backend = logs_backends[ACCOUNT]["us-east-1"]
        backend.create_log_stream(GROUP, stream)
        event = {"timestamp": ended_ns // NS_PER_MS, "message": line}
        backend.put_log_events(GROUP, stream, [event])
        played.put_ended(replace(record, family=ended_as, revision="1"))


def test_from_log_groups_batchs_word_counts_and_nobody_elses(account: JobAccount) -> None:
    for name in ("forged", "stolen", "honest"):
        account.batch.define(name)
    put_jobs(account, "honest", ended_as="honest", claims="honest")
    # A task definition that names the group, the prefix and the container of a job.
    put_jobs(account, "forged", ended_as="thumbs", claims="forged")
    # A job that says it is another definition's.
    put_jobs(account, "honest", ended_as="honest", claims="stolen")
    rows, _ = account.rows("--register", source="logs:/aws/batch/*")
    assert rows["forged"]["reason"] == "no run of revision 1 is known yet"
    assert rows["stolen"]["reason"] == "no run of revision 1 is known yet"
    assert [account.sizes(name) for name in ("forged", "stolen")] == [[OLD], [OLD]]
    assert account.sizes("honest") == [NEW], rows["honest"]


def test_without_the_stack_log_groups_register_nothing(account: JobAccount) -> None:
    account.aws.create_log_group(GROUP)
    done = account.resize("--register", source="logs:/aws/batch/*")
    assert done.returncode == 1
    assert "Nothing is changed by log groups alone." in done.stderr
    assert account.sizes("control") == [OLD]


# Tags that somebody wrote.


@pytest.mark.parametrize(
    ("tag", "reason"),
    [
        ("garbage", "no size before is known"),
        ("1/16384/122880", "so somebody changed the tag"),
        ("77/300/512", "which Fargate does not have"),
        ("1/" + "9" * 200 + "/512", "so somebody changed the tag"),
        ("3/1024/2048", "which is not an earlier revision"),
    ],
)
def test_a_tag_that_somebody_wrote_puts_nothing_back(
    account: JobAccount, tag: str, reason: str
) -> None:
    account.batch.define("forged")
    account.batch.define("forged", *NEW, tags={"task-profiler:resized-from": tag})
    account.runs("forged", 20)
    account.runs("forged", 1, revision=2, size=NEW, **KILLED)
    asked = account.resize("--job-definition", "forged", "--revert", "--register")
    assert reason in " ".join(asked.stdout.split())
    registered(account)
    assert account.sizes("forged")[0][1] <= 2048


@pytest.mark.parametrize("tag", ["1/512/8192", "1/0/8192", "1/4096/3", "1/1536/8192"])
def test_a_tag_on_instances_that_somebody_wrote_puts_nothing_back(
    account: JobAccount, tag: str
) -> None:
    """The revision before is gone, so that nothing else says its size."""
    account.batch.define("forged", **ec2(4, 8192))
    account.batch.define("forged", **ec2(4, 4096), tags={"task-profiler:resized-from": tag})
    account.batch.definitions = [
        one for one in account.batch.definitions if one["jobDefinitionArn"][-9:] != "/forged:1"
    ]
    account.runs_on_instances("forged", 1, (4, 4096), revision=2, **KILLED)
    asked = account.resize("--job-definition", "forged", "--revert", "--register")
    assert "a job on EC2 has whole vCPUs" in " ".join(asked.stdout.split())
    registered(account)
    kept = account.newest("forged")["containerProperties"]
    assert kept["vcpus"] == 4
    assert kept["memory"] >= 4096


def test_a_tag_on_another_job_uncovers_nothing(account: JobAccount) -> None:
    """The revision before is another image: a deregistration would undo a deployment."""
    account.batch.define("nightly", memory_mb=2048)
    properties = {**account.newest("nightly")["containerProperties"], "image": "etl:27"}
    needs = [{"type": "VCPU", "value": "0.25"}, {"type": "MEMORY", "value": "512"}]
    account.batch.define(
        "nightly",
        containerProperties={**properties, "resourceRequirements": needs},
        platformCapabilities=["FARGATE"],
        tags={"task-profiler:resized-from": "1/1024/2048"},
    )
    account.runs("nightly", 1, revision=2, size=NEW, **KILLED)
    registered(account)
    newest = account.newest("nightly")
    assert (newest["revision"], newest["containerProperties"]["image"]) == (3, "etl:27")
    assert account.sizes("nightly") == [OLD]


# Several people at once.


def once(account: JobAccount, operation: str, act: Any) -> None:
    """Act before the first call of an operation of Batch is answered."""
    done: list[str] = []

    def before(name: str, asked: Json) -> None:
        if name == operation and not done:
            done.append(name)
            act(asked)

    account.batch.before = before


def test_a_definition_that_changes_between_plan_and_registration_is_the_base(
    account: JobAccount,
) -> None:
    image = {**account.newest("control")["containerProperties"], "image": "etl:27"}
    reads = iter(range(100))

    def deploy(name: str, asked: Json) -> None:
        # The first read of this name alone is the one before the registration.
        if name == "DescribeJobDefinitions" and "jobDefinitionName" in asked and not next(reads):
            account.batch.define(
                "control", containerProperties=image, platformCapabilities=["FARGATE"]
            )

    account.batch.before = deploy
    done = account.resize("--register")
    assert done.returncode == 0, done.stderr
    assert account.newest("control")["containerProperties"]["image"] == "etl:27"


def test_a_definition_that_is_registered_at_the_same_moment_comes_back(
    account: JobAccount,
) -> None:
    image = {**account.newest("control")["containerProperties"], "image": "etl:27"}
    account.rule("day", "control:1")
    once(
        account,
        "RegisterJobDefinition",
        lambda _: account.batch.define(
            "control", containerProperties=image, platformCapabilities=["FARGATE"]
        ),
    )
    done = account.resize("--register", "--update-schedules", "--json")
    assert done.returncode == 1
    assert (
        "control: control:2 was registered meanwhile, so it was registered again as control:4, "
        "after control:3: call it again." in done.stderr
    )
    newest = account.newest("control")
    assert (newest["revision"], newest["containerProperties"]["image"]) == (4, "etl:27")
    assert account.sizes("control") == [OLD]
    assert account.submitted_by_rule("day")["JobDefinition"] == "control:1"
    account.runs("control", 25, revision=4)
    rows, _ = account.rows("--register")
    assert rows["control"]["action"] == "resize", rows["control"]["reason"]


def test_a_definition_that_is_deregistered_in_between_is_not_registered(
    account: JobAccount,
) -> None:
    account.oversized("gone", "rolled-back")
    account.batch.define("rolled-back")
    account.runs("rolled-back", 25, revision=2)
    client = account.batch.client()

    def deregister(_: Json) -> None:
        for name in ("gone:1", "rolled-back:2"):
            client.deregister_job_definition(jobDefinition=name)

    once(account, "RegisterJobDefinition", deregister)
    done = account.resize("--register")
    assert done.returncode == 1
    assert "gone" in done.stderr
    assert account.sizes("control") == [NEW]
    assert [
        one["status"] for one in account.batch.definitions if one["jobDefinitionName"] == "gone"
    ]
    assert account.newest("rolled-back")["revision"] == 1
    assert account.sizes("rolled-back") == [OLD]


def test_two_calls_at_once_register_one_size(account: JobAccount) -> None:
    account.oversized("nightly")
    with ThreadPoolExecutor() as threads:
        client = account.batch.client()
        once(
            account,
            "RegisterJobDefinition",
            lambda asked: threads.submit(client.register_job_definition, **asked).result(),
        )
        assert account.resize("--register").returncode == 0
    for name in ("nightly", "control"):
        assert account.sizes(name) == [NEW]
        assert account.newest(name)["tags"] == {"task-profiler:resized-from": "1/1024/2048"}


# A part of the rights.


@pytest.mark.parametrize(
    ("operation", "right"),
    [
        ("DescribeJobDefinitions", "batch:DescribeJobDefinitions"),
        ("RegisterJobDefinition", "batch:RegisterJobDefinition"),
    ],
)
def test_without_a_right_nothing_is_registered_and_the_right_is_named(
    account: JobAccount, operation: str, right: str
) -> None:
    account.batch.refused = {operation}
    done = account.resize("--register", "--json")
    assert done.returncode == 1
    assert right in done.stderr
    account.batch.refused = set()
    assert account.sizes("control") == [OLD]


@pytest.mark.parametrize(
    ("operation", "right"),
    [
        ("DescribeStackResources", "cloudformation:DescribeStackResources"),
        ("ListEventBuses", "events:ListEventBuses"),
        ("ListRules", "events:ListRules"),
        ("GET /schedules", "scheduler:ListSchedules"),
    ],
)
def test_without_a_right_to_ask_others_nothing_is_registered(
    account: JobAccount, operation: str, right: str
) -> None:
    with AwsProxy(account.aws.url) as proxy:
        account.url = proxy.url
        proxy.refused = {operation}
        done = account.resize("--register", "--json")
    assert done.returncode == 1, done.stdout
    assert right in done.stderr
    assert account.sizes("control") == [OLD]


@pytest.mark.parametrize("operation", ["TagResource", "DeregisterJobDefinition"])
def test_a_size_that_may_not_be_taken_back_is_an_error_and_is_tried_again(
    account: JobAccount, operation: str
) -> None:
    registered(account)
    account.runs("control", 1, revision=2, size=NEW, **KILLED)
    account.batch.refused = {operation}
    done = account.resize("--register")
    assert done.returncode == 1
    assert f"batch:{operation}" in done.stderr
    assert account.newest("control")["revision"] == 2
    account.batch.refused = set()
    assert account.resize("--register").returncode == 0
    assert account.newest("control")["revision"] == 1


@pytest.mark.parametrize("is_done", [True, False])
def test_a_size_taken_back_without_an_answer_is_looked_for(
    account: JobAccount,
    monkeypatch: pytest.MonkeyPatch,
    is_done: bool,  # noqa: FBT001  of pytest
) -> None:
    monkeypatch.setattr(aws_options, "_MAX_RETRIES", 0)
    registered(account)
    account.runs("control", 1, revision=2, size=NEW, **KILLED)
    unanswered = account.batch.lost if is_done else account.batch.failing
    unanswered.add("DeregisterJobDefinition")
    done = account.resize("--register")
    assert done.returncode == (0 if is_done else 1), done.stderr
    assert ("deregistered control:2" in done.stdout) is is_done
    assert ("No revision was deregistered" in done.stderr) is not is_done
    assert account.newest("control")["revision"] == (1 if is_done else 2)


def test_throttling_is_waited_out_and_another_error_is_said_once(account: JobAccount) -> None:
    account.oversized("nightly")
    account.batch.throttled = 3
    registered(account)
    assert account.sizes("nightly") == [NEW]
    account.batch.failing = {"DescribeJobDefinitions"}
    done = account.resize()
    assert done.returncode == 1
    assert done.stderr.count("could not be read") == 1


def test_of_a_refused_definition_the_others_are_done(account: JobAccount) -> None:
    account.batch.define("refused", tags={f"t{number}": "1" for number in range(49)})
    account.runs("refused", 25)

    def deny(name: str, asked: Json) -> None:
        if name == "RegisterJobDefinition":
            account.batch.failing = {name} if asked["jobDefinitionName"] == "refused" else set()

    account.batch.before = deny
    done = account.resize("--register", "--json")
    assert done.returncode == 1
    assert "refused: No revision was registered" in done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["changes"] == 1
    assert account.sizes("control") == [NEW]


# Who presses.


@pytest.mark.slow
def test_more_than_five_registrations_need_a_word(account: JobAccount) -> None:
    account.oversized(*(f"job-{number}" for number in range(6)))
    refused = account.resize("--register")
    assert refused.returncode == 2
    assert "7 families would be registered" in refused.stderr
    assert account.sizes("control") == [OLD]
    assert account.resize("--register", "--first", "2").returncode == 0
    assert account.resize("--register", "--yes").returncode == 0
    assert account.sizes("control") == [NEW]


@pytest.mark.slow
def test_few_calls_answer_for_many_definitions(account: JobAccount) -> None:
    for number in range(120):
        account.batch.define(f"job-{number}")
    account.batch.calls.clear()
    account.resize()
    asked = account.batch.requests("DescribeJobDefinitions")
    # Two pages of all, and the revisions of the one that would be resized.
    assert len(asked) == 3, asked
    account.batch.calls.clear()
    registered(account)
    assert len(account.batch.requests("DescribeJobDefinitions")) <= 5
