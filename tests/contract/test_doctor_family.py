"""``doctor FAMILY`` finds what ``doctor --cluster`` finds of that family, and its remedies touch no
other one: images, roles, groups, and schedules that start nothing.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from profiler.core.ecs_terms import MONITOR_NAME
from tests.aws_proxy import AwsProxy, ProxiedAccount
from tests.command_line import run_here
from tests.moto_state import KeptState
from tests.sidecars import ACCOUNT, IMAGE, REGION, awslogs
from tests.step_functions import change_machine, machine, make_machine, running
from tools.local_answers import answer_here
from tools.moto_server import (
    FakeAws,
    OwnedResource,
    fake_aws,
    push_image,
    start_by_schedule,
)

# Of each test, `make test` runs one case: the cases differ by a policy, an answer or a moment.
pytestmark = pytest.mark.diagonal(1)

ROLE = f"arn:aws:iam::{ACCOUNT}:role/jobs"
TYPO = IMAGE.replace("0.1.0", "0.1.O")
DEFINITIONS = f"arn:aws:ecs:{REGION}:{ACCOUNT}:task-definition"


def in_group(group: str) -> dict[str, Any]:
    """A batch that logs to a group."""
    return {"name": "batch", "image": "etl:26", "memory": 256, "logConfiguration": awslogs(group)}


class Account(ProxiedAccount):
    """The families "etl" and "other" with a monitor that may write, and a schedule each."""

    def __init__(self, aws: FakeAws, proxy: AwsProxy) -> None:
        super().__init__(aws, proxy)
        self.iam.create_role(RoleName="jobs", AssumeRolePolicyDocument="{}")
        aws.create_log_group("/ecs/jobs")
        for family in ("etl", "other"):
            self.register(family)
            start_by_schedule(self.scheduler, family)
        self.add("--attach-policy", "--register")

    def register(self, family: str, **fields: Any) -> None:
        batch = in_group("/ecs/jobs")
        given = {"taskRoleArn": ROLE, "containerDefinitions": [batch], **fields}
        self.ecs.register_task_definition(family=family, **given)

    def again(self, family: str, **fields: Any) -> None:
        """The family's newest revision with other fields."""
        now = self.ecs.describe_task_definition(taskDefinition=family)["taskDefinition"]
        kept = {name: now[name] for name in ("taskRoleArn", "containerDefinitions") if name in now}
        self.ecs.register_task_definition(family=family, **{**kept, **fields})

    def add(self, *words: str, families: tuple[str, ...] = ("etl", "other")) -> Any:
        return self.command("taskdef", "add-monitor", *families, "--image", IMAGE, *words)

    def of_family(self, family: str = "etl") -> list[dict[str, Any]]:
        """The problems that ``doctor FAMILY`` finds, whose exit code says so."""
        done = self.command("doctor", family, "--json")
        found = [*map(json.loads, done.stdout.splitlines())]
        problems = [finding for finding in found if finding["level"] == "problem"]
        assert done.returncode == bool(problems), done.stderr
        return problems

    def of_cluster(self, family: str = "etl") -> list[dict[str, Any]]:
        done = self.command("doctor", "--cluster", "jobs", "--json")
        (row,) = [
            row for row in map(json.loads, done.stdout.splitlines()) if row["family"] == family
        ]
        return [finding for finding in row.get("findings", ()) if finding["level"] == "problem"]

    def pin(self, name: str, revision: str, **more: Any) -> None:
        start_by_schedule(self.scheduler, name, revision, **more)


def proxy_of(aws: FakeAws) -> AwsProxy:
    return AwsProxy(aws.url, answers={"DescribeAccountPolicies": {}})


@pytest.fixture(scope="module")
def built() -> Iterator[tuple[Account, KeptState]]:
    """Built once, because that takes as long as a test."""
    with fake_aws() as aws, proxy_of(aws) as proxy:
        yield Account(aws, proxy), KeptState()


@pytest.fixture
def account(built: tuple[Account, KeptState]) -> Iterator[Account]:
    made, state = built
    state.restore()
    made.aws.disown()
    with proxy_of(made.aws) as made.proxy:
        yield made


def delete_image(account: Account) -> None:
    account.aws.client("ecr").delete_repository(repositoryName="task-profiler", force=True)


def delete_role(account: Account) -> None:
    account.iam.delete_role_policy(RoleName="jobs", PolicyName="task-profiler")
    account.iam.delete_role(RoleName="jobs")


def take_right(account: Account) -> None:
    account.iam.delete_role_policy(RoleName="jobs", PolicyName="task-profiler")


def delete_group(account: Account) -> None:
    account.aws.client("logs").delete_log_group(logGroupName="/ecs/jobs")


def take_role(account: Account) -> None:
    account.again("etl", taskRoleArn="")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            delete_image,
            "ECR has no image task-profiler:0.1.0, without which the tasks do not start",
        ),
        (delete_role, "has a task role that does not exist (jobs), so ECS starts no task."),
        (take_right, "The task role jobs does not allow logs:PutLogEvents for the report."),
        (delete_group, "The log group /ecs/jobs does not exist, so ECS starts no task."),
        (take_role, "The task definition has no task role."),
    ],
)
def test_the_doctor_of_a_family_finds_what_that_of_its_cluster_finds(
    account: Account, change: Any, sentence: str
) -> None:
    assert account.of_family() == account.of_cluster() == []
    change(account)
    of_family = account.of_family()
    of_cluster = account.of_cluster()
    assert [finding["text"] for finding in of_cluster if sentence in finding["text"]]
    assert [finding for finding in of_cluster if finding not in of_family] == []
    for finding in (*of_family, *of_cluster):
        advice = finding.get("advice", "")
        assert "--cluster" not in advice
        assert ("add-monitor" in advice) == ("add-monitor --family etl " in advice)


def test_a_deleted_role_is_found_whatever_the_monitor_needs_of_it(account: Account) -> None:
    """The tasks do not start, although their reports need no permission, nor their image a pull."""
    account.iam.create_role(RoleName="start", AssumeRolePolicyDocument="{}")
    own = {"executionRoleArn": f"arn:aws:iam::{ACCOUNT}:role/start"}
    account.register("etl", **own)
    words = ("--report-stream", "monitor", "--image", "team/task-profiler:1", "--register")
    assert account.command("taskdef", "add-monitor", "etl", *words).returncode == 0
    assert account.of_family() == account.of_cluster() == []
    account.iam.delete_role(RoleName="start")
    delete_role(account)
    found = account.of_family()
    new_role = "Create the role again, or give the definition another one."
    assert {finding["advice"] for finding in found} == {new_role}
    texts = [finding["text"] for finding in found]
    assert texts == [
        "The execution role start does not exist, so ECS starts no task.",
        "The task definition has a task role that does not exist (jobs), so ECS starts no task.",
    ]
    assert [finding["text"] for finding in account.of_cluster()] == texts
    changed = account.command("taskdef", "add-monitor", "etl", "--report-stream", "batch")
    assert "does not exist (jobs), so ECS starts no task" in " ".join(changed.stdout.split())
    words = ("--report-stream", "batch", "--image", IMAGE, "--register")
    assert account.command("taskdef", "add-monitor", "etl", *words).returncode == 0
    arns = account.ecs.list_task_definitions(familyPrefix="etl")["taskDefinitionArns"]
    assert len(arns) == 5, "without the roles, no task starts with or without the monitor"


@pytest.mark.parametrize("is_known", [True, False])
def test_the_policy_of_a_role_that_a_stack_owns_belongs_into_its_template(
    account: Account,
    is_known: bool,  # noqa: FBT001
) -> None:
    """As --attach-policy says. Without the right to ask, it is the act that finds out."""
    take_right(account)
    role = {"physical_resource_id": "jobs", "resource_type": "AWS::IAM::Role"}
    account.aws.own(OwnedResource(stack_name="batch", **role))
    account.proxy.refused = set() if is_known else {"DescribeStackResources"}
    (found,) = [one for one in account.of_family() if one["topic"] == "role"]
    (of_cluster,) = [one for one in account.of_cluster() if one["topic"] == "role"]
    said = "It is not changed, because the stack batch of CloudFormation owns it. Add the statement"
    for advice in (found["advice"], of_cluster["advice"]):
        assert advice.startswith(
            said if is_known else "Allow it: task-profiler taskdef add-monitor"
        )
        assert ("--policy prints to its template" in advice) is is_known
        assert ("--attach-policy" in advice) is not is_known


def test_a_remedy_acts_in_the_account_and_the_region_that_were_looked_at(
    account: Account, tmp_path: Path
) -> None:
    """The profile's Region is another one."""
    keys = "aws_access_key_id = testing\naws_secret_access_key = testing\n"
    (tmp_path / "config").write_text(f"[profile other]\nregion = eu-west-1\n{keys}")
    take_right(account)
    environment = account.aws.environment() | {
        "AWS_ENDPOINT_URL": account.proxy.url,
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
    }
    place = ("--region", REGION, "--profile", "other")
    shown = run_here(environment, "doctor", "etl", "--json", *place)
    (found,) = [one for one in map(json.loads, shown.stdout.splitlines()) if one["topic"] == "role"]
    command = f"task-profiler taskdef add-monitor --family etl {' '.join(place)}"
    assert found["advice"] == f"Allow it: {command} --attach-policy --yes."
    of_cluster = run_here(environment, "doctor", "--cluster", "jobs", *place)
    command = f"task-profiler taskdef add-monitor --cluster jobs {' '.join(place)}"
    assert f"Allow it: {command} --attach-policy --yes." in " ".join(of_cluster.stdout.split())


def document(*statements: tuple[str, str]) -> str:
    """A policy with these effects on these actions, on everything."""
    listed = [
        {"Effect": effect, "Action": action, "Resource": "*"} for effect, action in statements
    ]
    return json.dumps({"Version": "2012-10-17", "Statement": listed})


def limit(account: Account, *statements: tuple[str, str]) -> None:
    """Give the task role a permissions boundary."""
    made = account.iam.create_policy(PolicyName="developers", PolicyDocument=document(*statements))
    account.iam.put_role_permissions_boundary(
        RoleName="jobs", PermissionsBoundary=made["Policy"]["Arn"]
    )


def deny(account: Account, *statements: tuple[str, str]) -> None:
    """Give the task role one more inline policy."""
    account.iam.put_role_policy(
        RoleName="jobs", PolicyName="more", PolicyDocument=document(*statements)
    )


BOUNDARY = (
    "The permissions boundary developers of the task role jobs does not allow logs:PutLogEvents "
    "for the report."
)
DENIES = "A policy of the task role jobs denies logs:PutLogEvents for the report."


@pytest.mark.parametrize(
    ("change", "statements", "found"),
    [
        (limit, [("Allow", "s3:*")], BOUNDARY),
        (limit, [("Allow", "*"), ("Deny", "logs:Put*")], BOUNDARY),
        (limit, [("Allow", "logs:*")], None),
        (deny, [("Deny", "logs:*")], DENIES),
        (deny, [("Allow", "logs:*")], None),
    ],
)
def test_what_outweighs_the_policies_of_a_role_is_read(
    account: Account, change: Any, statements: list[tuple[str, str]], found: str | None
) -> None:
    """The policy of the monitor is there. The remedy is not to attach another one, and the plan
    says it, too, before it attaches one.
    """
    change(account, *statements)
    of_family = account.of_family()
    assert of_family == account.of_cluster()
    assert [finding["text"] for finding in of_family] == ([] if found is None else [found])
    assert not [finding for finding in of_family if "--attach-policy" in finding["advice"]]
    for words in ((), ("--attach-policy",)):
        plan = " ".join(account.add(*words, families=("etl",)).stdout.split())
        assert (str(found) in plan) is (found is not None), words


BY_ORGANIZATION = (
    "IAM's simulation says that a policy of the organization refuses logs:PutLogEvents to the role "
    "jobs. The simulation does not have all values that conditions compare, so look at the "
    "policies of the organization."
)


def unknown_of(account: Account) -> list[str]:
    """What ``doctor FAMILY`` says to be unknown; it finds no problem, and nothing allowed."""
    done = account.command("doctor", "etl", "--json")
    assert done.returncode == 0, done.stdout
    found = [*map(json.loads, done.stdout.splitlines())]
    return [finding["text"] for finding in found if finding["topic"] == "unknown"]


def test_what_may_outweigh_the_policies_of_a_role_is_said_to_be_unknown(account: Account) -> None:
    refused = "not authorized to perform: iam:GetRole"
    simulated: list[bytes] = []
    organization: Any = None

    def answered(request: Any, body: bytes) -> Any:
        if b"Action=GetRole&" in body and is_refused:
            error = f"<Error><Code>AccessDenied</Code><Message>{refused}</Message></Error>"
            content = f"<ErrorResponse>{error}<RequestId>1</RequestId></ErrorResponse>"
            return 403, {"Content-Type": "text/xml"}, content.encode()
        if b"Action=SimulatePrincipalPolicy" in body:
            simulated.append(body)
            return organization
        return passed(request, body)

    passed = account.proxy.answer
    decision = "<AllowedByOrganizations>{}</AllowedByOrganizations>"
    content = f"<OrganizationsDecisionDetail>{decision}</OrganizationsDecisionDetail>"
    for name in ("member", "EvaluationResults", "SimulatePrincipalPolicyResult", "Response"):
        content = f"<{name}>{content}</{name}>"
    answer_here(account.proxy.url, answered)
    is_refused = False
    for word, sentences in (("true", []), ("false", [BY_ORGANIZATION])):
        organization = (200, {"Content-Type": "text/xml"}, content.format(word).encode())
        assert unknown_of(account) == sentences
    assert b"log-stream%3Aecs%2Fbatch%2Fx" in simulated[0]
    assert f"aws%3ARequestedRegion&ContextEntries.member.1.ContextKeyValues.member.1={REGION}" in (
        simulated[0].decode()
    )
    is_refused = True
    (sentence,) = unknown_of(account)
    assert sentence.startswith(
        "It is unknown whether permissions boundaries limit the roles: AWS refused"
    )
    assert "iam:GetRole" in sentence


def test_an_older_revision_is_examined_on_request(account: Account) -> None:
    account.again("etl", taskRoleArn=f"arn:aws:iam::{ACCOUNT}:role/gone")
    assert len(account.of_family()) == 1
    assert account.of_family("etl:2") == []


def test_the_doctor_goes_on_without_rights(account: Account) -> None:
    account.proxy.refused = {"DescribeImages", "ListSchedules", "DescribeLogGroups"}
    done = account.command("doctor", "etl")
    assert done.returncode == 0, done.stdout
    assert "allow ecr:DescribeImages" in " ".join(done.stdout.split())


def test_one_command_is_for_the_families_with_the_same_problem(account: Account) -> None:
    for family in ("bare", "bare-2"):
        account.register(family)
        start_by_schedule(account.scheduler, family)
    text = " ".join(account.command("doctor", "--cluster", "jobs").stdout.split())
    command = "task-profiler taskdef add-monitor --family bare --family bare-2 --register."
    assert (
        f"bare, bare-2: There is no monitor, so the runs have no report. Add it: {command}" in text
    )
    for family in ("etl", "other"):
        account.register(family)
    text = " ".join(account.command("doctor", "--cluster", "jobs").stdout.split())
    assert "Add it: task-profiler taskdef add-monitor --cluster jobs --register." in text


@pytest.mark.parametrize("image", [IMAGE.replace("task-profiler:", "tools/profiler:"), TYPO])
def test_a_family_whose_image_is_not_there_is_left_alone(account: Account, image: str) -> None:
    account.register("bare")
    words = ("taskdef", "add-monitor", "bare", "--image", image)
    plan = account.command(*words)
    title = image.partition("/")[2]
    sentence = f"ECR has no image {title}, without which the tasks do not start: push it"
    assert plan.returncode == 0
    assert sentence in " ".join(plan.stdout.split())
    done = account.command(*words, "--register")
    assert done.returncode == 1
    assert f"bare: It is left alone. {sentence}" in done.stderr
    assert "registered" not in done.stdout
    tag = title.rpartition(":")[2]
    push_image(account.aws, tag, title.rpartition(":")[0])
    assert account.command(*words, "--register").returncode == 0


@pytest.mark.parametrize(
    "image",
    [
        "team/task-profiler:9",
        IMAGE.replace(ACCOUNT, "999999999999").replace("0.1.0", "9"),
        IMAGE.replace("task-profiler:", "cache/task-profiler:"),
    ],
    ids=["another registry", "another account", "pulled through"],
)
def test_an_image_that_the_registry_does_not_disprove_is_used(account: Account, image: str) -> None:
    account.aws.pull_through("cache")
    account.register("bare")
    done = account.command("taskdef", "add-monitor", "bare", "--image", image, "--register")
    assert done.returncode == 0, done.stderr
    assert "registered bare:2" in done.stdout


def test_an_image_of_another_region_is_looked_for_there(account: Account) -> None:
    """One with the same name is in the account's own Region."""
    image = IMAGE.replace(REGION, "eu-west-1")
    account.register("bare")
    words = ("taskdef", "add-monitor", "bare", "--image", image, "--register")
    done = account.command(*words)
    assert done.returncode == 1
    assert (
        "bare: It is left alone. ECR in eu-west-1 has no image task-profiler:0.1.0" in done.stderr
    )
    assert "push it, or name another image with --image" in done.stderr
    account.proxy.refused = {"DescribeImages"}
    assert "allow ecr:DescribeImages" in account.command(*words[:-1]).stderr
    account.proxy.refused = set()
    push_image(FakeAws(url=account.aws.url, region="eu-west-1"), "0.1.0")
    assert account.command(*words).returncode == 0


def test_an_image_that_may_not_be_looked_for_is_said_and_used(account: Account) -> None:
    account.proxy.refused = {"DescribeImages"}
    account.register("bare")
    done = account.add("--register", families=("bare",))
    assert done.returncode == 0, done.stderr
    assert "allow ecr:DescribeImages" in done.stderr


def test_a_digest_is_looked_for(account: Account) -> None:
    account.register("bare")
    image = f"{IMAGE.partition(':')[0]}@sha256:{64 * '0'}"
    done = account.command("taskdef", "add-monitor", "bare", "--image", image, "--register")
    assert done.returncode == 1
    assert "ECR has no image task-profiler@sha256:0" in done.stderr


def plan(account: Account, *words: str) -> tuple[int, str]:
    done = account.add(*words, families=("etl",))
    return done.returncode, " ".join(f"{done.stdout} {done.stderr}".split())


def test_a_schedule_pinned_to_a_deregistered_revision_starts_nothing(account: Account) -> None:
    account.again("etl")
    account.pin("pinned", "etl:2")
    assert account.of_family() == account.of_cluster() == []
    account.ecs.deregister_task_definition(taskDefinition="etl:2")
    sentence = (
        "The schedule pinned is pinned to etl:2, which was deregistered, so it starts nothing."
    )
    for found in (account.of_family(), account.of_cluster()):
        assert [finding["text"] for finding in found] == [sentence]
        assert "--family etl --register --update-schedules" in found[0]["advice"]
    code, text = plan(account)
    assert code == 1
    assert f"{sentence} --register --update-schedules moves it." in text
    assert "which they go on starting" not in text
    code, text = plan(account, "--register", "--update-schedules")
    assert code == 0, text
    assert "moved schedule pinned to etl:3" in text
    assert plan(account)[0] == 0


def test_a_schedule_pinned_to_a_deleted_revision_is_moved_by_hand(account: Account) -> None:
    account.again("etl")
    account.pin("pinned", "etl:2")
    account.ecs.deregister_task_definition(taskDefinition="etl:2")
    account.ecs.delete_task_definitions(taskDefinitions=["etl:2"])
    (found,) = account.of_family()
    assert "etl:2, which does not exist, so it starts nothing." in found["text"]
    assert found["advice"] == "Set an active revision there."
    code, text = plan(account, "--register", "--update-schedules")
    assert code == 1
    assert "which does not exist, so it starts nothing. Set an active revision there." in text


def test_a_refused_family_with_a_dead_pin_is_a_problem(account: Account) -> None:
    account.pin("pinned", "etl:1")
    account.ecs.deregister_task_definition(taskDefinition="etl:1")
    account.again("etl", runtimePlatform={"operatingSystemFamily": "WINDOWS_SERVER_2022_CORE"})
    assert "starts nothing" in account.of_cluster()[-1]["text"]
    code, text = plan(account)
    assert code == 1
    assert "etl:1, which was deregistered, so it starts nothing." in text


@pytest.mark.parametrize(
    "over",
    [
        {"State": "DISABLED"},
        {"ScheduleExpression": "at(2020-01-01T00:00:00)"},
        {"ScheduleExpression": "rate(1 day)", "EndDate": 1_600_000_000},
    ],
    ids=["disabled", "once, long ago", "ended"],
)
def test_a_schedule_that_is_over_needs_no_revision(account: Account, over: Any) -> None:
    account.again("etl")
    account.pin("pinned", "etl:2")
    schedule = account.scheduler.get_schedule(Name="pinned")
    fields = ("Name", "ScheduleExpression", "FlexibleTimeWindow", "Target")
    kept = {field: schedule[field] for field in fields}
    account.scheduler.update_schedule(**{**kept, **over})
    account.ecs.deregister_task_definition(taskDefinition="etl:2")
    assert account.of_family() == []
    assert plan(account)[0] == 0


def test_the_schedules_command_says_which_start_nothing(account: Account) -> None:
    account.again("etl")
    account.pin("pinned", "etl:2")
    healthy = account.command("schedules")
    assert healthy.returncode == 0, healthy.stderr
    account.ecs.deregister_task_definition(taskDefinition="etl:2")
    done = account.command("schedules")
    assert done.returncode == 1
    text = " ".join(done.stdout.split())
    assert "pinned: It is pinned to etl:2, which was deregistered, so it starts nothing." in text
    rows = map(json.loads, account.command("schedules", "--json").stdout.splitlines())
    assert [row["name"] for row in rows if row["reason"]] == ["pinned"]
    account.proxy.refused = {"DescribeTaskDefinition"}
    unread = account.command("schedules")
    assert unread.returncode == 0
    assert "It is unknown whether all schedules start tasks or jobs." in unread.stderr


def test_the_plan_names_the_families_that_could_write_into_each_others_streams(
    account: Account,
) -> None:
    """Those of other teams, too, which this call does not change."""
    account.register("apart", containerDefinitions=[in_group("/ecs/apart")])
    account.register("thumbs")
    code, text = plan(account, "--attach-policy")
    sentence = "The policy lets tasks write into the log streams of etl, other and thumbs, and so"
    assert code == 0
    assert sentence in text
    command = f"add-monitor --family etl --image {IMAGE} --report-stream monitor --register."
    assert command in text
    assert "apart" not in text
    assert sentence in " ".join(account.add("--policy", families=("etl",)).stderr.split())
    assert sentence not in plan(account)[1]
    alone = account.add("--attach-policy", families=("apart",))
    assert "The policy lets tasks write" not in alone.stdout
    separate = plan(account, "--attach-policy", "--report-stream", "monitor")[1]
    assert "The policy lets tasks write" not in separate


def test_families_that_cannot_be_listed_are_a_sentence(account: Account) -> None:
    account.proxy.before = lambda _operation, body: account.proxy.refused.update(
        {"DescribeTaskDefinition"} if b'"other"' in body else set()
    )
    done = account.add("--attach-policy", families=("etl",))
    assert done.returncode == 0, done.stderr
    assert "Which other families log to the same streams is unknown." in done.stderr


ON_FARGATE = {
    "cpu": "256",
    "memory": "512",
    "requiresCompatibilities": ["FARGATE"],
    "networkMode": "awsvpc",
}


def of_container(name: str, **fields: Any) -> str:
    """The input of a schedule that overrides one container."""
    return json.dumps({"containerOverrides": [{"name": name, **fields}]})


def give_input(account: Account, name: str, source: str) -> None:
    """Let a schedule give this input to RunTask."""
    schedule = account.scheduler.get_schedule(Name=name)
    fields = ("Name", "ScheduleExpression", "FlexibleTimeWindow", "Target")
    kept = {field: schedule[field] for field in fields}
    kept["Target"]["Input"] = source
    account.scheduler.update_schedule(**kept)


def starts_nothing(refusal: str, name: str = "etl") -> str:
    return f"The schedule {name} starts nothing, because its input {refusal}."


NOT_THERE = "overrides the container btch, which the definition does not have"


@pytest.mark.slow
def test_an_input_that_run_task_refuses_starts_nothing(account: Account) -> None:
    """Of the newest revision, and of a pinned one, as far as a Fargate task, whose size must
    exist, and containers, which must be there, say it.
    """
    account.register("etl", **ON_FARGATE)
    assert account.add("--register", families=("etl",)).returncode == 0
    account.pin("pinned", "etl:2")
    give_input(account, "pinned", of_container(MONITOR_NAME, command=["monitor"]))
    assert account.of_family() == account.of_cluster() == []
    for source, refusal in (
        (of_container("btch", command=["etl"]), NOT_THERE),
        (
            of_container("batch", memory=1024),
            "gives containers more than the task's 0.25 vCPU, 512 MB",
        ),
        ('{"memory": "8192"}', "makes it 0.25 vCPU, 8 GB, which Fargate does not have"),
        (of_container("", command=["etl"]), "overrides a container without its name"),
        ('{"memory": "1024", "cpu": "512"}', None),
        (of_container("batch", command=["btch"]), None),
        ('{"containerOverrides": [{}]}', None),
    ):
        give_input(account, "etl", source)
        sentences = [] if refusal is None else [starts_nothing(refusal)]
        for found in (account.of_family(), account.of_cluster()):
            assert [finding["text"] for finding in found] == sentences
            assert {finding["advice"] for finding in found} <= {"Change its input."}
        done = account.command("schedules", "--json")
        reasons = {row["name"]: row["reason"] for row in map(json.loads, done.stdout.splitlines())}
        said = f"It starts nothing, because its input {refusal}: change its input."
        assert (said in str(reasons["etl"])) is (refusal is not None)
        assert "starts nothing" not in f"{reasons['pinned']}{reasons['other']}"
        assert done.returncode == (refusal is not None)
    give_input(account, "etl", "{}")
    give_input(account, "pinned", of_container("btch", command=["etl"]))
    for found in (account.of_family(), account.of_cluster()):
        assert [finding["text"] for finding in found] == [starts_nothing(NOT_THERE, "pinned")]
    assert account.of_family("other") == []


@pytest.mark.slow
def test_a_state_of_step_functions_that_run_task_refuses_starts_nothing(account: Account) -> None:
    """Of the newest revision, and of a pinned one that is there no more."""
    account.ecs.create_cluster(clusterName="default")
    account.register("etl", **ON_FARGATE)
    assert account.add("--register", families=("etl",)).returncode == 0
    client = account.aws.client("stepfunctions")
    asked = {"TaskDefinition": "etl", "Overrides": {"ContainerOverrides": [{"Name": "batch"}]}}
    make_machine(client, "night", machine(running(asked)))
    assert account.of_family() == account.of_cluster() == []
    assert account.command("schedules").returncode == 0
    typo = {"ContainerOverrides": [{"Name": "btch", "Command": ["etl"]}]}
    gone = {"TaskDefinition": "etl:1", "Cluster": "jobs"}
    start = "The state 'Run' of the state machine night"
    for request, sentence, advice in (
        (
            {**asked, "Overrides": typo},
            f"{start} starts nothing, because its input {NOT_THERE}.",
            "Change its input in the state machine.",
        ),
        (
            gone,
            f"{start} is pinned to etl:1, which was deregistered, so it starts nothing.",
            "Set an active revision there.",
        ),
    ):
        change_machine(client, "night", machine(running(request)))
        if request is gone:
            account.ecs.deregister_task_definition(taskDefinition="etl:1")
        for found in (account.of_family(), account.of_cluster()):
            assert [(one["text"], one["advice"]) for one in found] == [(sentence, advice)]
        done = account.command("schedules")
        assert done.returncode == 1
        assert sentence[:-1] in done.stderr
        assert account.command("schedules", "other").returncode == 0
        code, text = plan(account, "--update-schedules", "--register")
        assert f"{sentence} {advice}" in text
        assert code == 1
    assert account.of_family("other") == []
    change_machine(client, "night", machine(running({"TaskDefinition": "nobody"})))
    done = account.command("schedules")
    assert f"{start} starts nothing: nobody has no active revision." in done.stderr
    assert done.returncode == 1


def test_a_state_of_step_functions_is_an_obstacle_as_a_schedule_is(account: Account) -> None:
    account.ecs.create_cluster(clusterName="default")
    account.register("bare", **ON_FARGATE)
    overrides = {"ContainerOverrides": [{"Name": "batch", "Memory": 512}]}
    request = {"TaskDefinition": "bare", "Overrides": overrides}
    client = account.aws.client("stepfunctions")
    make_machine(client, "night", machine(running(request)))
    done = account.add("--register", families=("bare",))
    sentence = (
        "With this revision, the state 'Run' of the state machine night would start nothing, "
        "because its input gives containers more than the task's 0.25 vCPU, 512 MB"
    )
    assert sentence in " ".join(done.stdout.split())
    assert done.returncode == 1
    pinned = {**request, "TaskDefinition": "bare:1"}
    change_machine(client, "night", machine(running(pinned)))
    done = account.add("--register", "--update-schedules", families=("bare",))
    assert done.returncode == 0, done.stderr
    assert "registered bare:2" in done.stdout
    text = " ".join(account.add(families=("bare",)).stdout.split())
    assert (
        "The state 'Run' of the state machine night is pinned to bare:1, by its definition: set "
        "the revision there by hand."
    ) in text


def test_a_schedule_whose_cluster_lacks_its_capacity_provider_starts_nothing(
    account: Account,
) -> None:
    """ECS lets one be removed from a cluster that only schedules use. A cluster is read once."""
    schedule = account.scheduler.get_schedule(Name="etl")
    fields = ("Name", "ScheduleExpression", "FlexibleTimeWindow", "Target")
    kept = {field: schedule[field] for field in fields}
    kept["Target"]["EcsParameters"]["CapacityProviderStrategy"] = [
        {"capacityProvider": name, "weight": 1} for name in ("FARGATE", "spot")
    ]
    account.scheduler.update_schedule(**kept)
    because = "because the cluster jobs does not have its capacity provider spot"
    for names in (["FARGATE", "spot"], ["FARGATE"]):
        clusters = [{"clusterArn": kept["Target"]["Arn"], "capacityProviders": names}]
        account.proxy.answers["DescribeClusters"] = {"clusters": clusters, "failures": []}
        is_missing = "spot" not in names
        for found in (account.of_family(), account.of_cluster()):
            said = [f"The schedule etl starts nothing, {because}."] if is_missing else []
            assert [finding["text"] for finding in found] == said
        done = account.command("schedules")
        assert done.returncode == is_missing
        assert (f"It starts nothing, {because}" in " ".join(done.stdout.split())) is is_missing
        assert plan(account)[0] == is_missing
    assert account.of_family("other") == []
    account.proxy.operations.clear()
    account.command("schedules")
    assert account.proxy.operations.count("DescribeClusters") == 1
    del account.proxy.answers["DescribeClusters"]
    account.proxy.refused = {"DescribeClusters"}
    done = account.command("schedules")
    assert done.returncode == 0
    assert "allow ecs:DescribeClusters" in done.stderr


@pytest.mark.slow
def test_a_schedule_on_a_launch_type_that_ecs_does_not_list_starts_nothing(
    account: Account,
) -> None:
    """RunTask refuses Fargate's providers a definition that ECS runs on instances alone."""
    schedule = account.scheduler.get_schedule(Name="etl")
    fields = ("Name", "ScheduleExpression", "FlexibleTimeWindow", "Target")
    kept = {field: schedule[field] for field in fields}
    spot = [{"capacityProvider": "FARGATE_SPOT", "weight": 1}]
    kept["Target"]["EcsParameters"]["CapacityProviderStrategy"] = spot
    account.scheduler.update_schedule(**kept)
    cluster = {"clusterArn": kept["Target"]["Arn"], "capacityProviders": ["FARGATE_SPOT"]}
    account.proxy.answers["DescribeClusters"] = {"clusters": [cluster], "failures": []}
    because = (
        "because its tasks do not run on Fargate, for which it asks (the definition supports EC2)"
    )
    for fields_of_definition, is_refused in ((ON_FARGATE, False), ({}, True)):
        account.register("etl", **fields_of_definition)
        assert account.add("--register", families=("etl",)).returncode == is_refused
        for found in (account.of_family(), account.of_cluster()):
            said = [f"The schedule etl starts nothing, {because}."] if is_refused else []
            assert [finding["text"] for finding in found] == said
        done = account.command("schedules")
        assert done.returncode == is_refused
        assert (f"It starts nothing, {because}" in " ".join(done.stdout.split())) is is_refused


def test_a_schedule_of_a_deleted_cluster_starts_nothing(account: Account) -> None:
    make_machine(
        account.aws.client("stepfunctions"), "night", machine(running({"TaskDefinition": "etl"}))
    )
    account.ecs.create_cluster(clusterName="default")
    assert account.of_family() == []
    for name in ("jobs", "default"):
        account.ecs.delete_cluster(cluster=name)
    titles = ("schedule etl", "state 'Run' of the state machine night")
    names = ("jobs", "default")
    sentences = [
        f"The {title} starts nothing, because the cluster {name} does not exist."
        for title, name in zip(titles, names, strict=True)
    ]
    assert [finding["text"] for finding in account.of_family()] == sentences
    done = account.command("schedules")
    assert done.returncode == 1
    shown = " ".join((done.stdout + done.stderr).split())
    remedy = "does not exist: create the cluster, or change the target."
    assert f"It starts nothing, because the cluster jobs {remedy}" in shown
    assert f"{titles[1]} starts nothing, because the cluster default {remedy}" in shown


def test_a_size_that_only_fargate_lacks_is_no_problem_on_an_instance(account: Account) -> None:
    give_input(account, "etl", '{"memory": "8000"}')
    assert account.of_family() == account.of_cluster() == []
    assert account.command("schedules").returncode == 0


def test_a_revision_that_an_input_does_not_fit_any_more_is_not_registered(account: Account) -> None:
    """The monitor needs memory that a schedule gives to the batch, or a schedule names it."""
    account.register("bare", **ON_FARGATE)
    account.pin("bare", "bare")
    give_input(account, "bare", of_container("batch", memory=512))
    done = account.add("--register", families=("bare",))
    text = " ".join(f"{done.stdout} {done.stderr}".split())
    sentence = (
        "With this revision, the schedule {} would start nothing, because its input {}: change its "
        "input first."
    )
    assert (
        sentence.format("bare", "gives containers more than the task's 0.25 vCPU, 512 MB") in text
    )
    assert done.returncode == 1
    give_input(account, "etl", of_container(MONITOR_NAME, command=["monitor"]))
    done = account.command("taskdef", "remove-monitor", "--family", "etl", "--register")
    text = " ".join(f"{done.stdout} {done.stderr}".split())
    refusal = f"overrides the container {MONITOR_NAME}, which the definition does not have"
    assert sentence.format("etl", refusal) in text
    assert done.returncode == 1
    account.pin("pinned", "other:2")
    give_input(account, "pinned", of_container(MONITOR_NAME, command=["monitor"]))
    remove = ("taskdef", "remove-monitor", "--family", "other", "--register")
    refused = account.command(*remove, "--update-schedules")
    assert sentence.format("pinned", refusal) in " ".join(refused.stdout.split())
    assert refused.returncode == 1
    assert account.command(*remove).returncode == 0
    newest = [
        account.ecs.describe_task_definition(taskDefinition=family)["taskDefinition"]["revision"]
        for family in ("bare", "etl", "other")
    ]
    assert newest == [1, 2, 3]


def test_no_schedule_is_moved_to_a_revision_that_its_input_does_not_fit(account: Account) -> None:
    """Nor to one that is there already."""
    account.register("bare", **ON_FARGATE)
    account.pin("bare", "bare:1")
    give_input(account, "bare", of_container("batch", memory=512))
    assert account.add("--register", families=("bare",)).returncode == 0
    done = account.add("--register", "--update-schedules", families=("bare",))
    sentence = (
        "With this revision, the schedule bare would start nothing, because its input gives "
        "containers more than the task's 0.25 vCPU, 512 MB: change its input first."
    )
    assert sentence in " ".join(done.stdout.split())
    assert f"bare: It is left alone. {sentence}" in " ".join(done.stderr.split())
    assert done.returncode == 1
    target = account.scheduler.get_schedule(Name="bare")["Target"]
    assert target["EcsParameters"]["TaskDefinitionArn"].endswith("/bare:1")
    give_input(account, "bare", of_container("btch", command=["etl"]))
    done = account.add("--register", "--update-schedules", families=("bare",))
    assert starts_nothing(NOT_THERE, "bare") in " ".join(done.stdout.split())
    assert "moved schedule bare to bare:2" in done.stdout
    assert done.returncode == 1, "it starts nothing where it was, and none here"


@pytest.mark.slow
def test_secrets_that_the_execution_role_may_not_read_are_a_problem(account: Account) -> None:
    """By the policies of the role and of the secret; no value is read."""
    secrets = account.aws.client("secretsmanager")
    arns = [secrets.create_secret(Name=name, SecretString="x")["ARN"] for name in ("db", "own")]
    place = f"arn:aws:ssm:us-east-1:{ACCOUNT}:parameter"
    values = [f"{arns[0]}:password::", arns[1], "/jobs/key", f"{place}/jobs/token"]
    listed = [{"name": f"V{number}", "valueFrom": value} for number, value in enumerate(values)]
    start = f"arn:aws:iam::{ACCOUNT}:role/start"
    account.iam.create_role(RoleName="start", AssumeRolePolicyDocument="{}")
    batch = {**in_group("/ecs/jobs"), "secrets": listed}
    account.register("etl", executionRoleArn=start, containerDefinitions=[batch])
    policy = {"Effect": "Allow", "Principal": {"AWS": start}, "Action": "secretsmanager:*"}
    secrets.put_resource_policy(
        SecretId="own", ResourcePolicy=json.dumps({"Statement": [policy | {"Resource": "*"}]})
    )

    def found() -> list[str]:
        of_family = [one["text"] for one in account.of_family() if one["topic"] == "secrets"]
        of_cluster = [one["text"] for one in account.of_cluster() if one["topic"] == "secrets"]
        assert of_family == of_cluster
        return of_family

    def allow(*statements: dict[str, object]) -> None:
        document = json.dumps({"Version": "2012-10-17", "Statement": list(statements)})
        account.iam.put_role_policy(RoleName="start", PolicyName="x", PolicyDocument=document)

    refused = "The execution role start does not allow {}, without which no task starts."
    no_secret = refused.format("secretsmanager:GetSecretValue on the secret db")
    both = "ssm:GetParameters on the parameter /jobs/key, the parameter /jobs/token"
    assert found() == [no_secret, refused.format(both)]
    parameters: dict[str, object] = {
        "Effect": "Allow",
        "Action": "ssm:GetParameters",
        "Resource": f"{place}/jobs/k*",
    }
    allow(parameters)
    one = "ssm:GetParameters on the parameter /jobs/token"
    assert found() == [no_secret, refused.format(one)]
    every: dict[str, object] = {"Effect": "Allow", "Action": "*", "Resource": "*"}
    allow(every)
    assert found() == []
    allow(every, {"Effect": "Deny", "Action": "secretsmanager:*", "Resource": arns[1]})
    denied = "secretsmanager:GetSecretValue on the secret own, without which no task starts"
    assert found() == [f"A policy of the execution role start denies {denied}."]
    assert "GetSecretValue" not in account.proxy.operations
