"""``taskdef add-monitor`` and ``remove-monitor`` for a whole account, played by moto behind a
proxy that throttles.
"""

import json
from collections.abc import Iterator
from subprocess import CompletedProcess
from typing import Any

import pytest

import profiler
from profiler.aws_account.family_monitors import plan_monitors, read_monitors
from tests.aws_proxy import AwsProxy, ProxiedAccount
from tests.sidecars import ACCOUNT, IMAGE, REGION, awslogs
from tools.moto_server import FakeAws, fake_aws, push_image, start_by_schedule

CLUSTER = f"arn:aws:ecs:{REGION}:{ACCOUNT}:cluster/jobs"
BATCH: dict[str, Any] = {
    "name": "batch",
    "image": "etl:26",
    "memory": 256,
    "logConfiguration": awslogs(),
}
ROLE = f"arn:aws:iam::{ACCOUNT}:role/batch/jobs"
HELPER = {"name": "helper", "image": "helper:1", "essential": False, "memory": 64}
MONITOR = {"name": "task-monitor", "image": IMAGE, "essential": True, "memory": 64}


def kinds() -> dict[str, dict[str, Any]]:
    """Families of every kind: their definitions without the family."""
    arm = {"runtimePlatform": {"cpuArchitecture": "ARM64", "operatingSystemFamily": "LINUX"}}
    windows = {"runtimePlatform": {"operatingSystemFamily": "WINDOWS_SERVER_2022_CORE"}}
    gpu = {**BATCH, "resourceRequirements": [{"type": "GPU", "value": "1"}]}
    router = {
        "name": "router",
        "image": "fluent-bit:3",
        "memory": 64,
        "firelensConfiguration": {"type": "fluentbit"},
    }
    routed = {**BATCH, "logConfiguration": {"logDriver": "awsfirelens", "options": {}}}
    special: dict[str, dict[str, Any]] = {
        "arm": {"containerDefinitions": [BATCH], **arm},
        "windows": {"containerDefinitions": [BATCH], **windows},
        "gpu": {"containerDefinitions": [gpu]},
        "firelens": {"containerDefinitions": [routed, router]},
        "silent": {"containerDefinitions": [{"name": "batch", "image": "etl:26", "memory": 256}]},
        "ambiguous": {"containerDefinitions": [BATCH, {**BATCH, "name": "second"}]},
        "foreign": {"containerDefinitions": [BATCH, {**MONITOR, "image": "other/agent:1"}]},
        "old-monitor": {"containerDefinitions": [BATCH, MONITOR]},
        "full": {"containerDefinitions": [{**BATCH, "memory": 512}], "memory": "512"},
        "no-role": {"containerDefinitions": [BATCH], "taskRoleArn": ""},
        "eleventh": {
            "containerDefinitions": [BATCH, *({**HELPER, "name": f"h{n}"} for n in range(9))]
        },
        "tagged": {"containerDefinitions": [BATCH], "tags": [{"key": "team", "value": "data"}]},
        "service": {"containerDefinitions": [BATCH]},
    }
    numbers = (*range(3), *range(10, 15), *range(20, 35))
    usual = {
        f"plain-{n:02}": {"containerDefinitions": [BATCH], "cpu": "256", "memory": "1024"}
        for n in numbers
    }
    return {f"job-{name}": {"taskRoleArn": ROLE, **one} for name, one in (special | usual).items()}


REFUSED = {"job-windows", "job-ambiguous", "job-foreign", "job-full", "job-eleventh"}
LEFT = {"job-service"}


class Account(ProxiedAccount):
    """An account with many families, a service, a rule and schedules."""

    def __init__(self, aws: FakeAws, proxy: AwsProxy) -> None:
        super().__init__(aws, proxy)
        for family, definition in kinds().items():
            self.ecs.register_task_definition(family=family, **definition)
        self.ecs.create_service(
            cluster="jobs", serviceName="api", taskDefinition="job-service", desiredCount=0
        )
        self._schedule()
        self.iam.create_role(RoleName="jobs", Path="/batch/", AssumeRolePolicyDocument="{}")

    def _schedule(self) -> None:
        pinned, newest = (
            {"TaskDefinitionArn": self.arn(name)} for name in ("job-plain-00:1", "job-plain-01")
        )
        self.events.put_rule(Name="nightly", ScheduleExpression="rate(1 day)")
        targets = [
            {"Id": "pinned", "Arn": CLUSTER, "RoleArn": ROLE, "EcsParameters": pinned},
            {"Id": "newest", "Arn": CLUSTER, "RoleArn": ROLE, "EcsParameters": newest},
            {"Id": "queue", "Arn": f"arn:aws:sqs:{REGION}:{ACCOUNT}:other"},
        ]
        self.events.put_targets(Rule="nightly", Targets=targets)
        self.scheduler.create_schedule_group(Name="etl")
        self.ecs.create_cluster(clusterName="jobs-2")
        for name, cluster in (("hourly", "jobs"), ("elsewhere", "jobs-2")):
            start_by_schedule(self.scheduler, name, "job-plain-02:1", cluster, GroupName="etl")

    def arn(self, name: str) -> str:
        return f"arn:aws:ecs:{REGION}:{ACCOUNT}:task-definition/{name}"

    def run(self, *words: str) -> CompletedProcess[str]:
        return self.command("taskdef", *words)

    def revisions(self) -> dict[str, int]:
        return {
            family: self.ecs.describe_task_definition(taskDefinition=family)["taskDefinition"][
                "revision"
            ]
            for family in kinds()
        }

    def pinned(self) -> list[str]:
        """The revisions that the rule and both schedules start."""
        (rule, *_) = self.events.list_targets_by_rule(Rule="nightly")["Targets"]
        schedules = [
            self.scheduler.get_schedule(Name=name, GroupName="etl")
            for name in ("hourly", "elsewhere")
        ]
        targets = [rule, *(schedule["Target"] for schedule in schedules)]
        return [
            target["EcsParameters"]["TaskDefinitionArn"].rpartition("/")[2] for target in targets
        ]


@pytest.fixture
def account(request: pytest.FixtureRequest) -> Iterator[Account]:
    """An account that throttles now and then."""
    with (
        fake_aws() as aws,
        AwsProxy(aws.url, **getattr(request, "param", {"throttled_share": 50})) as proxy,
    ):
        yield Account(aws, proxy)


throttling = pytest.mark.parametrize(
    "account", [{"throttled_share": 5}], indirect=True, ids=["throttling"]
)
with_pages_of_two = pytest.mark.parametrize(
    "account", [{"page_size": 2}], indirect=True, ids=["pages"]
)


def rows(text: str) -> dict[str, str]:
    return {line.split()[0]: line for line in text.splitlines() if line.startswith("job-")}


@throttling
def test_the_plan_names_every_family_and_changes_nothing(account: Account) -> None:
    done = account.run("add-monitor", "--family", "job-*", "--image", IMAGE)
    assert done.returncode == 0, done.stderr
    plan = rows(done.stdout)
    assert set(plan) == set(kinds())
    assert {family for family, line in plan.items() if "  refused " in line} == REFUSED
    assert {family for family, line in plan.items() if "  skipped " in line} == LEFT
    assert {family for family, line in plan.items() if "update monitor" in line} == {
        "job-old-monitor"
    }
    assert "job-plain-00:1" in plan["job-plain-00"]
    assert "rule nightly" in plan["job-plain-00"]
    assert "schedule etl/hourly" in plan["job-plain-02"]
    assert "pinned" not in plan["job-plain-01"]
    assert "taskRoleArn" in plan["job-no-role"]
    assert "ARM64" in plan["job-arm"]
    assert "/ecs/job-firelens" in plan["job-firelens"]
    assert account.proxy.throttled > 10
    assert set(account.revisions().values()) == {1}
    assert account.pinned() == ["job-plain-00:1", "job-plain-02:1", "job-plain-02:1"]


def test_a_sentence_about_all_families_is_printed_once(account: Account) -> None:
    """Its command has the selection of the plan."""
    done = account.run("add-monitor", "job-plain-*", "--image", IMAGE)
    (line,) = (line for line in done.stdout.splitlines() if "does not allow logs:Put" in line)
    count = sum(family.startswith("job-plain-") for family in kinds())
    assert line.startswith("- job-plain-00, job-plain-01, ")
    assert f" and {count - line.partition(': ')[0].count(',') - 1} more: " in line
    assert line.endswith(
        f" taskdef add-monitor --family 'job-plain-*' --image {IMAGE} --attach-policy --yes."
    )


@pytest.mark.slow
def test_families_may_be_arguments_the_plan_json_and_services_are_included_on_request(
    account: Account,
) -> None:
    done = account.run("add-monitor", "job-plain-*", "--image", IMAGE, "--json")
    rows = [*map(json.loads, done.stdout.splitlines())]
    assert rows
    assert all(
        row["family"].startswith("job-plain-") and row["action"] == "add monitor" for row in rows
    )
    assert set(rows[0]) == {"family", "batch", "startedBy", "action", "notes"}
    unattached = account.run("add-monitor", "job-plain-*", "--image", IMAGE, "--attach-policy")
    assert "No policy was attached: --yes attaches it" in unattached.stderr
    assert account.iam.list_role_policies(RoleName="jobs")["PolicyNames"] == []
    service = account.run(
        "add-monitor", "--family", "job-service", "--services", "--image", IMAGE, "--register"
    )
    assert service.returncode == 0, service.stderr
    assert "registered job-service:2" in service.stdout
    refused = account.run("add-monitor", "-", "--json")
    assert refused.returncode == 2, refused.stderr
    assert "the definition in a FILE is printed as it is" in refused.stderr


def test_the_policy_is_printed_and_attached_once_to_each_role(account: Account) -> None:
    stream = f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group:/ecs/jobs:log-stream:ecs/batch/*"
    printed = account.run("add-monitor", "--family", "job-*", "--image", IMAGE, "--policy")
    (statement,) = json.loads(printed.stdout)["Statement"]
    assert statement["Action"] == "logs:PutLogEvents"
    assert statement["Resource"] == [stream]

    own = {"Sid": "Own", "Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}
    before = json.dumps({"Version": "2012-10-17", "Statement": [own]})
    account.iam.put_role_policy(RoleName="jobs", PolicyName="task-profiler", PolicyDocument=before)
    done = account.run(
        "add-monitor", "--family", "job-*", "--image", IMAGE, "--attach-policy", "--yes"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("attached the policy task-profiler to the role jobs") == 1
    after = account.iam.get_role_policy(RoleName="jobs", PolicyName="task-profiler")[
        "PolicyDocument"
    ]
    assert after == {
        "Version": "2012-10-17",
        "Statement": [own, {**statement, "Resource": [stream]}],
    }
    again = account.run(
        "add-monitor", "--family", "job-*", "--image", IMAGE, "--attach-policy", "--yes"
    )
    assert again.returncode == 0, again.stderr
    assert "attached" not in again.stdout
    assert set(account.revisions().values()) == {1}


@pytest.mark.slow
def test_a_role_of_many_families_gets_prefixes(
    account: Account,
) -> None:
    """A role of many families gets prefixes and one that is gone is a failure."""
    for number in range(20):
        batch = {**BATCH, "logConfiguration": awslogs(f"/ecs/many-{number:02}", prefix="x" * 480)}
        account.ecs.register_task_definition(
            family=f"many-{number:02}", taskRoleArn=ROLE, containerDefinitions=[batch]
        )
    words = ("add-monitor", "--family", "many-*", "--image", IMAGE)
    plan = account.run(*words)
    assert plan.stderr.count("The role jobs would need a policy of") == 1
    assert (
        "in a role's inline policies, so the policy gets prefixes of log groups: /ecs/many-0*"
        in plan.stderr
    )
    other = {
        "Sid": "Own",
        "Effect": "Allow",
        "Action": "s3:GetObject",
        "Resource": "arn:aws:s3:::" + "x" * 5_000,
    }
    policy = json.dumps({"Version": "2012-10-17", "Statement": other})
    account.iam.put_role_policy(RoleName="jobs", PolicyName="other", PolicyDocument=policy)
    done = account.run(*words, "--attach-policy", "--yes")
    assert done.returncode == 0, done.stderr
    assert "/ecs/many-0* and /ecs/many-1*." in done.stderr
    for policy in ("task-profiler", "other"):
        account.iam.delete_role_policy(RoleName="jobs", PolicyName=policy)
    account.iam.delete_role(RoleName="jobs")
    gone = account.run(
        "add-monitor", "--family", "job-plain-*", "--image", IMAGE, "--attach-policy", "--yes"
    )
    assert gone.returncode == 1, gone.stderr
    assert "the role 'jobs' was not changed" in gone.stderr


# How the tasks of a family are started, and who the plan says it was.
STARTED: dict[str, tuple[tuple[dict[str, Any], ...], str]] = {
    "job-plain-20": (({"startedBy": "airflow"},), "Airflow"),
    "job-plain-21": (
        ({"tags": [{"key": "dagster/run_id", "value": "1"}], "startedBy": "x"},),
        "Dagster",
    ),
    "job-plain-22": (({"tags": [{"key": "prefect.io/flow-name", "value": "etl"}]},), "Prefect"),
    "job-plain-23": (({"startedBy": "AWS Step Functions"},), "Step Functions"),
    "job-plain-24": (
        ({"startedBy": "chronos-schedule/nightly"}, {"startedBy": "ada"}),
        "person (ada), schedule",
    ),
    "job-tagged": (
        ({"tags": [{"key": "airflow_dag_id", "value": "etl"}], "startedBy": "b1946ac9"},),
        "Airflow",
    ),
    "job-service": (({"group": "service:api"},), "service"),
    "job-gpu": (({},), "person"),
    "job-plain-01": ((), "schedule"),  # which is known without a task
    "job-plain-02": (({"startedBy": "ada"},), "person (ada), schedule"),
    "job-plain-26": ((), "-"),
}


def start_by_each(account: Account) -> None:
    for family, (starts, _) in STARTED.items():
        for options in starts:
            account.aws.start_task(family, **options)


WORDS = {
    "--report-stream monitor": {"job-plain-20", "job-tagged", "job-no-role"},
    "pipes_container_name": {"job-plain-21"},
    "task-profiler run": {"job-plain-20", "job-tagged", "job-plain-21", "job-plain-22"},
}


def test_the_plan_names_who_starts_a_family_and_what_the_monitor_means_for_them(
    account: Account,
) -> None:
    start_by_each(account)
    done = account.run("add-monitor", "--family", "job-*", "--image", IMAGE)
    assert done.returncode == 0, done.stderr
    title, plan = done.stdout.splitlines()[0], rows(done.stdout)
    start, end = title.index("STARTED BY"), title.index("ACTION")
    shown = {family: plan[family][start:end].rstrip() for family in STARTED}
    assert shown == {family: starter for family, (_, starter) in STARTED.items()}
    for words, families in WORDS.items():
        usual = set(plan) - REFUSED
        assert {family for family in usual if words in plan[family]} == families, words
    removal = account.run("remove-monitor", "--family", "job-*")
    assert "STARTED BY" not in removal.stdout


@pytest.mark.slow
def test_airflows_families_get_the_monitors_own_stream_unless_it_was_chosen(
    account: Account,
) -> None:
    def streams() -> dict[str, str | None]:
        found = {}
        for family in ("job-plain-20", "job-plain-23", "job-tagged"):
            described = account.ecs.describe_task_definition(taskDefinition=family)[
                "taskDefinition"
            ]
            monitor = described["containerDefinitions"][-1]
            variables = {one["name"]: one["value"] for one in monitor["environment"]}
            found[family] = variables.get("TASK_PROFILER_REPORT_STREAM")
        return found

    start_by_each(account)
    words = (
        "add-monitor",
        "--family",
        "job-plain-2[03]",
        "--family",
        "job-tagged",
        "--image",
        IMAGE,
        "--register",
    )
    assert account.run(*words[:-1], "--policy").stdout.count("log-stream") == 1
    account.run(*words, "--report-stream", "batch")
    assert streams() == {"job-plain-20": None, "job-plain-23": None, "job-tagged": None}
    account.run(*words)
    assert streams() == {"job-plain-20": "monitor", "job-plain-23": None, "job-tagged": "monitor"}
    account.run(
        "add-monitor",
        "--family",
        "job-tagged",
        "--report-stream",
        "batch",
        "--image",
        IMAGE,
        "--register",
    )
    before = account.revisions()
    account.run(*words)  # the owner's choice
    assert streams() == {"job-plain-20": "monitor", "job-plain-23": None, "job-tagged": "batch"}
    for task in account.ecs.list_tasks(cluster="jobs")["taskArns"]:
        account.ecs.stop_task(cluster="jobs", task=task)
    account.proxy.refused = {"ListTasks"}
    unseen = account.run(*words)
    assert unseen.returncode == 0, unseen.stderr
    assert account.revisions() == before, unseen.stderr
    assert "ListTasks" in unseen.stderr
    assert " - " in rows(unseen.stdout)["job-plain-20"]


@with_pages_of_two
def test_lists_of_many_pages_are_read_to_their_end(account: Account) -> None:
    events = account.events
    events.create_event_bus(Name="etl")
    for bus, rule in (("default", "second"), ("default", "third"), ("etl", "fourth")):
        events.put_rule(Name=rule, EventBusName=bus, EventPattern='{"source": ["etl"]}')
        targets = [
            {"Id": f"queue-{n}", "Arn": f"arn:aws:sqs:{REGION}:{ACCOUNT}:{n}"} for n in range(3)
        ]
        pinned = {"TaskDefinitionArn": account.arn("job-plain-33:1")}
        targets.append({"Id": "task", "Arn": CLUSTER, "RoleArn": ROLE, "EcsParameters": pinned})  # type: ignore[dict-item]
        events.put_targets(Rule=rule, EventBusName=bus, Targets=targets)
    for number in range(5):
        account.ecs.create_cluster(clusterName=f"cluster-{number}")
        account.ecs.create_service(
            cluster=f"cluster-{number}",
            serviceName="api",
            taskDefinition=f"job-plain-1{number}",
            desiredCount=0,
        )
    done = account.run("add-monitor", "--family", "job-*", "--image", IMAGE)
    assert done.returncode == 0, done.stderr
    plan = rows(done.stdout)
    assert set(plan) == set(kinds())
    services = {f"job-plain-1{number}" for number in range(5)}
    assert {family for family, line in plan.items() if "  skipped" in line} == LEFT | services
    for title in ("rule second", "rule third", "rule etl/fourth"):
        assert f"The {title} is pinned to job-plain-33:1." in plan["job-plain-33"]
    assert all(f"schedule etl/{name}" in plan["job-plain-02"] for name in ("elsewhere", "hourly"))
    assert account.proxy.operations.count("ListTaskDefinitionFamilies") == len(kinds()) / 2


@with_pages_of_two
def test_a_cluster_has_the_families_of_all_its_tasks(account: Account) -> None:
    families = [f"job-plain-{number}" for number in range(20, 32)]
    for family in families:
        account.aws.start_task(family, count=10)
    (stopped, *_) = account.ecs.list_tasks(cluster="jobs", family="job-plain-31")["taskArns"]
    account.ecs.stop_task(cluster="jobs", task=stopped)
    done = account.run("add-monitor", "--cluster", "jobs", "--image", IMAGE)
    assert done.returncode == 0, done.stderr
    assert set(rows(done.stdout)) == {*families, "job-plain-00", "job-plain-01", "job-plain-02"}
    described = [
        json.loads(body)["tasks"] for name, body in account.proxy.bodies if name == "DescribeTasks"
    ]
    assert max(map(len, described)) == 100  # the most that ECS accepts
    assert sum(map(len, described)) == 120


@pytest.mark.slow
def test_only_families_that_a_schedule_or_a_rule_starts(account: Account) -> None:
    account.aws.start_task("job-plain-20")
    for selection in (("--cluster", "jobs"), ("--family", "job-plain-*")):
        scheduled = account.run("add-monitor", *selection, "--scheduled", "--image", IMAGE)
        assert scheduled.returncode == 0, scheduled.stderr
        assert set(rows(scheduled.stdout)) == {"job-plain-00", "job-plain-01", "job-plain-02"}
    nobody = account.run("add-monitor", "--family", "job-plain-3*", "--scheduled", "--image", IMAGE)
    assert nobody.returncode == 1, nobody.stderr
    assert nobody.stdout == ""
    assert nobody.stderr.count("\n") == 1
    assert "that a schedule or a rule starts is selected by 'job-plain-3*'" in nobody.stderr

    # Which of them have a current monitor?
    assert (
        account.run(
            "add-monitor", "--family", "job-plain-0[01]", "--image", IMAGE, "--register"
        ).returncode
        == 0
    )
    wrapper = {
        "name": "batch",
        "image": "etl:26",
        "memory": 256,
        "command": ["task-profiler", "run", "--", "etl"],
    }
    account.ecs.register_task_definition(
        family="job-plain-02", containerDefinitions=[wrapper], taskRoleArn=ROLE
    )
    rollout = plan_monitors(account.aws.client, scheduled=True, now_ns=0, on_problem=pytest.fail)
    states = {
        one.planned.family: one.state for one in read_monitors(rollout, rollout.selected_families())
    }
    assert states == {
        "job-plain-00": "current",
        "job-plain-01": "current",
        "job-plain-02": "wrapper",
    }
    everything = plan_monitors(
        account.aws.client, scheduled=False, now_ns=0, on_problem=pytest.fail
    )
    states = {
        one.planned.family: one.state
        for one in read_monitors(everything, everything.selected_families())
    }
    assert {states[family] for family in REFUSED} == {"impossible"}
    assert states["job-service"] == "service"
    assert states["job-old-monitor"] == "outdated"
    assert states["job-gpu"] == "missing"

    account.proxy.refused = {"ListEventBuses"}
    unread = account.run("add-monitor", "--family", "job-*", "--scheduled", "--image", IMAGE)
    assert unread.returncode == 1, unread.stderr
    assert unread.stdout == ""
    assert "The rules of EventBridge could not be read" in unread.stderr


OF_NIGHTLY = {
    "name": "batch",
    "image": "etl:26",
    "memory": 1024,
    "logConfiguration": awslogs("/ecs/nightly"),
}
TAGS = [{"key": "team", "value": "data"}]


def test_without_register_the_plan_is_printed_and_nothing_changes(account: Account) -> None:
    account.ecs.register_task_definition(
        family="printed", containerDefinitions=[OF_NIGHTLY], tags=TAGS
    )
    account.aws.client("ecr").delete_repository(repositoryName="task-profiler", force=True)
    words = ("add-monitor", "--family", "printed")
    done = account.run(*words)
    assert done.returncode == 0, done.stderr
    assert "add monitor" in done.stdout
    assert "taskRoleArn" in done.stdout
    missing = (
        f"ECR has no image task-profiler:{profiler.__version__}, without which the tasks do not "
        "start"
    )
    assert missing in " ".join(done.stdout.split())
    refused = account.run(*words, "--register")
    assert refused.returncode == 1, refused.stderr
    assert missing in refused.stderr
    assert (
        account.ecs.describe_task_definition(taskDefinition="printed")["taskDefinition"]["revision"]
        == 1
    )
    push_image(account.aws)
    account.run(*words, "--register")
    definition = account.ecs.describe_task_definition(taskDefinition="printed:2")["taskDefinition"]
    image = definition["containerDefinitions"][1]["image"]
    assert (
        image
        == f"123456789012.dkr.ecr.us-east-1.amazonaws.com/task-profiler:{profiler.__version__}"
    )


def test_an_image_without_a_registry_is_refused_where_no_task_gets_it(account: Account) -> None:
    """On Fargate it is one of Docker's own images; an instance may have it already."""
    kinds_of_place: dict[str, dict[str, Any]] = {
        "on-fargate": {"requiresCompatibilities": ["FARGATE"], "cpu": "256", "memory": "2048"},
        "on-instances": {"requiresCompatibilities": ["EC2"]},
    }
    for family, place in kinds_of_place.items():
        account.ecs.register_task_definition(
            family=family,
            networkMode="awsvpc",
            containerDefinitions=[{**BATCH, "logConfiguration": awslogs("/ecs/nightly")}],
            taskRoleArn=ROLE,
            **place,
        )
    said = (
        "The image monitor:1 contains no registry, so ECS looks for it in Docker Hub, which does "
        "not have it."
    )
    words = ("--image", "monitor:1", "--register")
    refused = account.run("add-monitor", "--family", "on-fargate", *words)
    assert refused.returncode == 1, refused.stderr
    assert said in " ".join(refused.stderr.split())
    assert "setup image" in refused.stderr
    assert (
        len(account.ecs.list_task_definitions(familyPrefix="on-fargate")["taskDefinitionArns"]) == 1
    )
    done = account.run("add-monitor", "--family", "on-instances", *words)
    assert done.returncode == 0, done.stderr
    assert f"{said} It starts on instances alone that have it already." in " ".join(
        done.stdout.split()
    )
    named = account.run(
        "add-monitor", "--family", "on-instances", "--image", "team/task-profiler:1"
    )
    assert "no registry" not in named.stdout


def test_fields_that_boto3_does_not_know_are_never_lost_by_registering(account: Account) -> None:
    account.ecs.register_task_definition(family="newer", containerDefinitions=[OF_NIGHTLY])
    definition = account.ecs.describe_task_definition(taskDefinition="newer")["taskDefinition"]
    definition["containerDefinitions"] = [{**OF_NIGHTLY, "fromTheFuture": {"a": 1}}]
    described = {
        "taskDefinition": {
            name: value for name, value in definition.items() if name != "registeredAt"
        }
    }
    account.proxy.answers["DescribeTaskDefinition"] = described
    refused = account.run("add-monitor", "--family", "newer", "--image", "own:1", "--register")
    assert refused.returncode == 1
    assert all(text in refused.stderr for text in ("fromTheFuture", "upgrade boto3", "1 failed"))
