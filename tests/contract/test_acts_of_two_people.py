"""Two people at once: what somebody changes after a plan is printed is never undone by the plan.

An act reads again, just before each write, what its plan was made from. The other person acts at
the beginning of the act, which lists the schedules and rules once more, or between the registration
and the moves.
"""

import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from profiler.cli.wiring import aws_options
from profiler.core.timestamps import NS_PER_HOUR
from profiler.task_definitions.permissions import report_policy
from tests.aws_proxy import Answer, AwsProxy, Request
from tests.resize_account import ACCOUNT, BATCH, DEFINITIONS, STACK_TAG, Account, logs_to
from tests.role_policies import starter_role
from tests.step_functions import change_machine, machine, make_machine, running
from tools.local_answers import answer_here
from tools.moto_server import FakeAws, OwnedResource, fake_aws

# Of each test, `make test` runs one case: the cases differ by a policy, an answer or a moment.
pytestmark = pytest.mark.diagonal(1)

ACT = ("--register", "--update-schedules")
RESIZED = "task-profiler:resized-from"


class TwoPeople:
    """An account whose commands go through a proxy, and what the other person does, once, when an
    operation is sent for the n-th time.
    """

    def __init__(self, aws: FakeAws, proxy: AwsProxy, folder: Path) -> None:
        self.account = Account(aws, folder)
        self.account.url = proxy.url
        self.proxy = proxy
        self.operations = proxy.operations
        self._other: tuple[str, int, Callable[[], object]] = ("", 0, lambda: None)
        proxy.before = self.act

    def act(self, operation: str, _body: bytes) -> None:
        name, nth, change = self._other
        if operation == name and self.operations.count(name) == nth:
            self._other = ("", 0, lambda: None)
            change()

    def when_the_act_begins(self, change: Callable[[], object]) -> None:
        self.operations.clear()
        self._other = ("ListEventBuses", 2, change)

    def when_the_revision_is_registered(self, change: Callable[[], object]) -> None:
        self.operations.clear()
        self._other = ("RegisterTaskDefinition", 1, change)

    def set_schedule(self, name: str, **changed: object) -> None:
        """Change members of a schedule."""
        scheduler = self.account.aws.client("scheduler")
        present = scheduler.get_schedule(Name=name)
        for member in ("Arn", "CreationDate", "LastModificationDate", "ResponseMetadata"):
            present.pop(member, None)
        scheduler.update_schedule(**{**present, **changed})

    def set_input(self, name: str, text: str) -> None:
        target = self.account.aws.client("scheduler").get_schedule(Name=name)["Target"]
        self.set_schedule(name, Target={**target, "Input": text})


@pytest.fixture
def people(tmp_path: Path) -> Iterator[TwoPeople]:
    with fake_aws() as aws, AwsProxy(aws.url) as proxy:
        yield TwoPeople(aws, proxy, tmp_path)


def test_a_changed_schedule_is_not_moved_and_a_call_for_its_family_moves_it(
    people: TwoPeople,
) -> None:
    account = people.account
    account.oversized("nightly")
    for name in ("off", "free", "other"):
        account.schedule(name, "nightly:1")
    account.rule("often", "nightly:1")
    events = account.aws.client("events")

    def change() -> None:
        people.set_schedule("off", State="DISABLED")
        people.set_input("free", '{"containerOverrides": []}')
        account.schedule("newer", "nightly:1")
        events.disable_rule(Name="often")

    people.when_the_act_begins(change)
    done = account.resize(*ACT)
    assert done.returncode == 1
    for title, why in (
        ("schedule off", "somebody has changed it since the plan (State)"),
        ("schedule free", "somebody has changed it since the plan (Input)"),
        ("schedule newer", "it is newer than the plan"),
        ("rule often", "somebody has changed it since the plan (State)"),
    ):
        sentence = f"The {title} was not moved, because {why}: name the family to move it: "
        command = "task-profiler taskdef resize nightly --register --update-schedules"
        assert f"nightly: {sentence}{command} --region us-east-1.\n" in done.stderr
    assert done.stderr.endswith("1 registered, 1 schedule moved, 4 failed.\n")
    assert account.started_by_schedule("other") == "nightly:2"
    assert account.started_by_schedule("off") == "nightly:1"
    assert account.started_by_rule("often") == "nightly:1"

    account.resize(*ACT)  # the same command moves from the revision that it replaces alone
    assert account.started_by_schedule("off") == "nightly:1"
    again = account.resize("nightly", *ACT)
    assert again.returncode == 0, again.stderr
    for name in ("off", "free", "newer"):
        assert account.started_by_schedule(name) == "nightly:2"
    assert account.started_by_rule("often") == "nightly:2"
    scheduler = account.aws.client("scheduler")
    assert scheduler.get_schedule(Name="off")["State"] == "DISABLED"
    assert scheduler.get_schedule(Name="free")["Target"]["Input"] == '{"containerOverrides": []}'


def test_what_changes_between_the_registration_and_the_move_is_seen(people: TwoPeople) -> None:
    account = people.account
    account.oversized("nightly")
    account.schedule("night", "nightly:1")
    account.rule("often", "nightly:1")

    def change() -> None:
        people.set_input("night", '{"containerOverrides": []}')
        account.aws.client("events").disable_rule(Name="often")

    people.when_the_revision_is_registered(change)
    done = account.resize(*ACT)
    assert done.returncode == 1
    assert "The schedule night was not moved, because somebody has changed it" in done.stderr
    assert "The rule often was not moved, because somebody has changed it" in done.stderr
    assert account.started_by_schedule("night") == "nightly:1"
    assert account.started_by_rule("often") == "nightly:1"


@pytest.mark.parametrize(
    ("read", "started"), [("GET /schedules/night", "schedule"), ("ListRules", "rule")]
)
def test_nothing_is_moved_to_a_revision_that_somebody_deregisters_meanwhile(
    people: TwoPeople, read: str, started: str
) -> None:
    """It would start no task any more."""
    account = people.account
    account.oversized("nightly")
    if started == "schedule":
        account.schedule("night", "nightly:1")
    else:
        account.rule("night", "nightly:1")
    ecs = account.aws.client("ecs")

    def deregister(operation: str, _body: bytes) -> None:
        if operation == read and "RegisterTaskDefinition" in people.operations:
            ecs.deregister_task_definition(taskDefinition="nightly:2")

    people.operations.clear()
    people.proxy.before = deregister
    done = account.resize(*ACT)
    assert done.returncode == 1
    sentence = (
        f"The {started} night was not moved, because nightly:2 was deregistered meanwhile: it goes "
        "on starting nightly:1."
    )
    assert sentence in " ".join(done.stderr.split())
    find = account.started_by_schedule if started == "schedule" else account.started_by_rule
    assert find("night") == "nightly:1"


def test_what_a_schedule_has_started_meanwhile_for_the_last_time_is_not_updated(
    people: TwoPeople, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person answers hours after the plan was printed; the other one is due later."""
    account = people.account
    account.oversized("nightly")
    now = datetime.now(UTC)
    for name, hours in (("soon", 1), ("later", 5)):
        due = now + timedelta(hours=hours)
        account.schedule(name, "nightly:1", expression=f"at({due:%Y-%m-%dT%H:%M:%S})")

    later_ns = time.time_ns() + 2 * NS_PER_HOUR

    def wait() -> None:
        monkeypatch.setattr(time, "time_ns", lambda: later_ns)

    people.when_the_revision_is_registered(wait)
    done = account.resize(*ACT)
    assert done.returncode == 0, done.stderr
    assert account.newest("nightly") == [2]
    assert account.started_by_schedule("later") == "nightly:2"
    assert account.started_by_schedule("soon") == "nightly:1"
    assert "schedule soon skipped: it is not due any more" in done.stdout


def test_a_reading_that_failed_is_not_taken_for_the_plan(people: TwoPeople) -> None:
    """The services cannot be read for the first family, after the schedules."""
    account = people.account
    for name in ("hourly", "nightly"):
        account.oversized(name)
    account.schedule("night", "nightly:1")

    def change() -> None:
        people.set_schedule("night", State="DISABLED")
        people.proxy.refused.add("ListServices")

    def allow(operation: str, body: bytes) -> None:
        if operation == "ListEventBuses":
            people.proxy.refused.clear()
        people.act(operation, body)

    people.proxy.before = allow
    people.when_the_act_begins(change)
    done = account.resize(*ACT)
    assert done.returncode == 1
    assert "hourly: The services could not be listed" in done.stderr
    assert "The schedule night was not moved, because somebody has changed it" in done.stderr
    assert account.started_by_schedule("night") == "nightly:1"


@pytest.mark.parametrize("name", ["night", "newer"])
def test_an_override_that_somebody_adds_counts(people: TwoPeople, name: str) -> None:
    """Its schedule has no revision, so that it would start the new one at once: ECS refuses a
    container's memory above the task's.
    """
    account = people.account
    account.oversized("nightly")
    account.schedule("night", "nightly")
    override = '{"containerOverrides": [{"name": "batch", "memory": 1800}]}'

    def change() -> None:
        if name == "night":
            people.set_input(name, override)
        else:
            account.schedule(name, "nightly", override)

    people.when_the_act_begins(change)
    done = account.resize("--register")
    assert done.returncode == 0, done.stderr
    assert "nightly  resize  1 vCPU, 2 GB  0.25 vCPU, 512 MB" in done.stdout
    said = done.stdout.partition("nightly is planned again, because what starts it has changed: ")
    assert "overrides sizes" in said[2]
    newest, _ = account.described("nightly")
    assert (newest["cpu"], newest["memory"]) == ("256", "2048")


@pytest.mark.parametrize("made", ["schedule", "rule", "moved schedule"])
def test_what_is_made_for_a_later_family_during_the_act_counts(
    people: TwoPeople, made: str
) -> None:
    account = people.account
    for name in ("hourly", "nightly"):
        account.oversized(name)
    account.schedule("free", "hourly")
    override = '{"containerOverrides": [{"name": "batch", "memory": 1800}]}'

    def change() -> None:
        if made == "schedule":
            account.schedule("newer", "nightly", override)
        elif made == "rule":
            account.rule("newer", "nightly", Input=override)
        else:
            account.schedule("other", "nightly", override)
            scheduler = account.aws.client("scheduler")
            target = scheduler.get_schedule(Name="other")["Target"]
            scheduler.delete_schedule(Name="other")
            people.set_schedule("free", Target=target)

    people.when_the_revision_is_registered(change)
    done = account.resize("--register")
    assert done.returncode == 0, done.stderr
    said = done.stdout.partition("nightly is planned again, because what starts it has changed: ")
    assert "overrides sizes" in said[2], done.stdout
    sizes = {name: account.described(name)[0]["memory"] for name in ("hourly", "nightly")}
    assert sizes == {"hourly": "512", "nightly": "2048"}


OVERRIDE = '{"containerOverrides": [{"name": "batch", "memory": 1800}]}'
FITTING = '{"containerOverrides": [{"name": "batch", "memory": 256}]}'


def two_oversized(people: TwoPeople) -> None:
    """Two families, of which the second one's schedule is pinned, and a rule that starts the first
    one.
    """
    people.account.oversized("hourly", "nightly")
    people.account.schedule("night", "nightly:1")
    people.account.universal_schedule("asks", {"Cluster": "jobs", "TaskDefinition": "nightly"})
    people.account.rule("often", "hourly")


@pytest.mark.parametrize("changed", ["rule", "schedule", "both"])
def test_a_size_that_no_longer_fits_is_put_back(people: TwoPeople, changed: str) -> None:
    """Somebody edits a rule while another family is in work, or makes a schedule while the size is
    registered.
    """
    account = people.account
    two_oversized(people)

    def edit_rule() -> None:
        if changed != "schedule":
            start_by_rule(people, "often", "nightly", OVERRIDE)

    def change(operation: str, _body: bytes) -> None:
        if operation != "RegisterTaskDefinition":
            return
        nth = people.operations.count(operation)
        if nth == 1:
            edit_rule()
        elif nth == 2 and changed != "rule":
            account.schedule("newer", "nightly", OVERRIDE)

    people.operations.clear()
    people.proxy.before = change
    done = account.resize(*ACT, "--json")
    assert done.returncode == 1
    *_, total = map(json.loads, done.stdout.splitlines())
    assert total["changes"] == 1  # hourly's
    said = (
        "nightly: nightly:2 does not fit any more what starts it, so nightly:1 was registered again "
        "as nightly:3: call it again. "
    )
    assert said in done.stderr
    assert "overrides sizes" in done.stderr.partition(said)[2]
    assert "moved schedule night to nightly:3\n" in done.stderr
    sizes = {name: account.described(name)[0]["memory"] for name in ("hourly", "nightly")}
    assert sizes == {"hourly": "512", "nightly": "2048"}
    assert account.described("nightly")[1] == {"task-profiler:restored-over": "2"}
    assert account.started_by_schedule("night") == "nightly:3"

    again = account.resize(*ACT)
    assert again.returncode == 0, again.stderr
    assert account.newest("hourly", "nightly") == [2, 3]


def start_by_rule(people: TwoPeople, name: str, definition: str, source: str) -> None:
    """Let an existing rule start another family, with an input."""
    events = people.account.aws.client("events")
    (target,) = events.list_targets_by_rule(Rule=name)["Targets"]
    parameters = {**target["EcsParameters"], "TaskDefinitionArn": f"{DEFINITIONS}/{definition}"}
    events.put_targets(
        Rule=name, Targets=[{**target, "EcsParameters": parameters, "Input": source}]
    )


def a_size_that_stops_fitting(people: TwoPeople, *after: Callable[[], object]) -> None:
    """Somebody makes a schedule while the size is registered; ``after``: what happens before the
    move to it, and before the registration of the revision before.
    """
    account = people.account
    account.oversized("nightly")
    account.schedule("night", "nightly:1")
    steps = iter((lambda: account.schedule("newer", "nightly", OVERRIDE), *after))
    operations = iter(("RegisterTaskDefinition", "PUT /schedules/night", "RegisterTaskDefinition"))
    awaited = next(operations)

    def change(operation: str, _body: bytes) -> None:
        nonlocal awaited
        if operation == awaited:
            awaited = next(operations, "")
            next(steps, lambda: None)()

    people.proxy.before = change


UNFIT = "nightly: nightly:2 does not fit any more what starts it"


def test_what_is_deployed_and_pinned_while_a_size_is_put_back_stays(people: TwoPeople) -> None:
    account = people.account
    batch = {**BATCH, "image": "etl:27"}

    def deploy() -> None:
        account.family("nightly", containerDefinitions=[batch])
        target = account.aws.client("scheduler").get_schedule(Name="night")["Target"]
        parameters = {**target["EcsParameters"], "TaskDefinitionArn": f"{DEFINITIONS}/nightly:1"}
        people.set_schedule("night", Target={**target, "EcsParameters": parameters})

    a_size_that_stops_fitting(people, lambda: None, deploy)
    done = account.resize(*ACT)
    assert done.returncode == 1
    assert UNFIT in done.stderr
    said = "nightly:3 was registered meanwhile, so it was registered again as nightly:5, after"
    assert f"{said} nightly:4: call it again." in done.stderr
    assert account.described("nightly")[0]["containerDefinitions"][0]["image"] == "etl:27"
    assert account.newest("nightly") == [5]
    assert account.started_by_schedule("night") == "nightly:1"


@pytest.mark.parametrize("why", ["deployed", "refused"])
def test_a_schedule_does_not_stay_at_a_size_that_cannot_be_put_back(
    people: TwoPeople, why: str
) -> None:
    """Somebody has registered a newer revision, or the right is gone."""
    account = people.account

    def prevent() -> None:
        if why == "refused":
            people.proxy.denied.add("nightly")
        else:
            account.family("nightly")

    a_size_that_stops_fitting(people, prevent)
    done = account.resize(*ACT)
    assert done.returncode == 1
    said = {
        "refused": f"{UNFIT}. ",
        "deployed": f"{UNFIT}, and is not the newest revision any more: call it again. ",
    }
    assert said[why] in done.stderr
    assert "moved schedule night to nightly:1\n" in done.stdout
    assert account.started_by_schedule("night") == "nightly:1"


@pytest.mark.parametrize(("allowed", "back"), [((1, 2), 1), (("*",), 3), ((1, 2, 3), 3)])
def test_a_schedule_is_put_back_to_a_revision_that_its_role_allows(
    people: TwoPeople, allowed: tuple[object, ...], back: int
) -> None:
    """The one that it had, where the role allows no newer one: both have the same size."""
    account = people.account
    iam = account.aws.client("iam")
    starter_role(iam, "schedules", *(f"{DEFINITIONS}/nightly:{one}" for one in allowed))
    a_size_that_stops_fitting(people)
    done = account.resize(*ACT)
    assert done.returncode == 1
    assert f"{UNFIT}, so nightly:1 was registered again as nightly:3: " in done.stderr
    assert f"moved schedule night to nightly:{back}\n" in done.stdout
    assert account.started_by_schedule("night") == f"nightly:{back}"


def test_a_schedule_gets_its_own_size_back(people: TwoPeople) -> None:
    """Not that of the newest revision, from which a call that names the family moves it."""
    account = people.account
    account.family("nightly", size=(2.0, 4096))
    account.family("nightly")
    account.runs("nightly", 25, revision=2)
    account.schedule("night", "nightly:1")
    people.when_the_revision_is_registered(lambda: account.schedule("newer", "nightly", OVERRIDE))
    done = account.resize("nightly", *ACT)
    assert done.returncode == 1
    assert "nightly:2 was registered again as nightly:4" in done.stderr
    assert account.started_by_schedule("night") == "nightly:1"


@pytest.mark.parametrize("operation", ["RegisterTaskDefinition", "PUT /schedules/night"])
def test_a_lost_answer_while_a_size_is_put_back_is_looked_for(
    people: TwoPeople, operation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aws_options, "_MAX_RETRIES", 0)
    account = people.account
    answer = people.proxy.answer

    def lose(request: Request, body: bytes) -> Answer:
        answered = answer(request, body)
        if people.operations[-1] == operation and people.operations.count(operation) == 2:
            return 500, {"Content-Type": "application/x-amz-json-1.1"}, b"{}"
        return answered

    a_size_that_stops_fitting(people)
    answer_here(people.proxy.url, lose)
    done = account.resize(*ACT)
    assert done.returncode == 1
    assert f"{UNFIT}, so nightly:1 was registered again as nightly:3: " in done.stderr
    assert "moved schedule night to nightly:3\n" in done.stdout
    assert done.stderr.endswith("task-profiler: 1 failed.\n")
    assert account.newest("nightly") == [3]
    assert account.started_by_schedule("night") == "nightly:3"


def run_by(**overrides: object) -> dict[str, object]:
    return machine(running({"TaskDefinition": "nightly", "Overrides": overrides}))


@pytest.mark.parametrize("memory", [1800, 256])
def test_a_state_machine_that_somebody_edits_is_seen_like_a_schedule(
    people: TwoPeople, memory: int
) -> None:
    """After the last reading before the registration: the size is put back, unless it fits."""
    account = people.account
    two_oversized(people)
    client = account.aws.client("stepfunctions")
    make_machine(client, "night", run_by())
    override = {"Name": "batch", "Memory": memory}
    people.when_the_revision_is_registered(
        lambda: change_machine(client, "night", run_by(ContainerOverrides=[override]))
    )
    done = account.resize(*ACT)
    assert account.newest("hourly") == [2]
    sizes = {1800: "2048", 256: "512"}
    assert account.described("nightly")[0]["memory"] == sizes[memory]
    assert (UNFIT in done.stderr) is (memory == 1800)
    assert done.returncode == (memory == 1800)


@pytest.mark.parametrize("moves", [(), ("--update-schedules",)])
@pytest.mark.parametrize("override", [OVERRIDE, FITTING])
def test_an_input_that_stops_fitting_before_a_registration_is_seen(
    people: TwoPeople, override: str, moves: tuple[str, ...]
) -> None:
    """Whether or not schedules are moved."""
    account = people.account
    account.family("nightly", containerDefinitions=[{**BATCH, "memory": 256}])
    account.schedule("night", "nightly")
    stops = json.loads(override)
    stops["containerOverrides"][0]["memory"] += 248  # with the monitor, more than the task has
    people.when_the_act_begins(lambda: people.set_input("night", json.dumps(stops)))
    words = ("add-monitor", "nightly", "--image", "team/task-profiler:1", "--register", *moves)
    done = account.command("taskdef", *words)
    fits = override == FITTING
    assert account.newest("nightly") == [2 if fits else 1]
    assert done.returncode == (not fits)
    sentence = "With this revision, the schedule night would start nothing, because its input"
    assert (sentence in done.stderr) is not fits


def test_schedules_that_may_not_be_read_are_said_once_and_a_monitor_is_added(
    people: TwoPeople,
) -> None:
    account = people.account
    account.family("nightly", containerDefinitions=[BATCH])
    people.proxy.refused.add("GET /schedules")
    words = ("add-monitor", "nightly", "--image", "team/task-profiler:1", "--register")
    done = account.command("taskdef", *words)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("The plan lacks pinned schedules.") == 1
    assert account.newest("nightly") == [2]


def test_a_change_that_the_size_fits_puts_nothing_back(people: TwoPeople) -> None:
    account = people.account
    two_oversized(people)
    people.when_the_revision_is_registered(
        lambda: start_by_rule(people, "often", "nightly", FITTING)
    )
    done = account.resize(*ACT)
    assert done.returncode == 0, done.stderr
    assert account.newest("hourly", "nightly") == [2, 2]
    assert account.started_by_schedule("night") == "nightly:2"


def test_a_schedule_that_the_definition_refuses_is_named(people: TwoPeople) -> None:
    """Such as one that somebody made after a resize; a pinned one starts what it is pinned to, and
    one that is disabled or past starts nothing in any case.
    """
    account = people.account
    account.oversized("nightly")
    assert account.resize("--register").returncode == 0
    account.schedule("fits", "nightly", FITTING)
    account.schedule("pinned", "nightly:1", OVERRIDE)
    account.schedule("off", "nightly", OVERRIDE, State="DISABLED")
    account.schedule("past", "nightly", OVERRIDE, "at(2020-01-01T00:00:00)")
    done = account.resize()
    assert "starts nothing" not in done.stdout
    account.schedule("newer", "nightly", OVERRIDE)
    said = " ".join(account.resize().stdout.split())
    assert (
        "nightly: The schedule newer starts nothing, because its input gives containers more than "
        "the task's 0.25 vCPU, 512 MB."
    ) in said
    assert said.count("starts nothing") == 1


def test_a_last_reading_that_fails_is_said(people: TwoPeople) -> None:
    account = people.account
    account.oversized("nightly")
    people.when_the_revision_is_registered(lambda: people.proxy.refused.add("ListEventBuses"))
    done = account.resize(*ACT)
    assert done.returncode == 1
    assert "It is unknown whether somebody has changed meanwhile what starts the" in done.stderr
    assert account.newest("nightly") == [2]


@pytest.mark.slow
def test_the_lists_are_read_a_few_times_however_many_families_there_are(
    people: TwoPeople,
) -> None:
    """Each listing has two pages of event buses and rules, and 20 of schedules."""
    account = people.account
    names = [f"job-{number:02}" for number in range(12)]
    account.oversized(*names)
    for number in range(40):
        account.schedule(f"other-{number}", "elsewhere")
    people.proxy._page_size = 2
    people.operations.clear()
    done = account.resize("--register", "--yes")
    assert done.returncode == 0, done.stderr
    assert account.newest(*names) == [2] * 12
    # For the plan, at the beginning and the end of the act, and once between.
    assert people.operations.count("GET /schedules") == 4 * 20


def test_a_rule_of_a_reading_that_failed_is_read_again(people: TwoPeople) -> None:
    """The schedules cannot be listed for the second family, after the rules."""
    account = people.account
    for name in ("daily", "hourly", "nightly"):
        account.oversized(name)

    def change() -> None:
        override = '{"containerOverrides": [{"name": "batch", "memory": 1800}]}'
        account.rule("newer", "nightly", Input=override)
        people.proxy.refused.add("GET /schedules")
        people.operations.clear()

    def allow(operation: str, body: bytes) -> None:
        if people.operations.count("ListEventBuses") == 2:
            people.proxy.refused.clear()
        people.act(operation, body)

    people.proxy.before = allow
    people.when_the_revision_is_registered(change)
    done = account.resize("--register", "--json")
    assert done.returncode == 1
    assert "hourly: The schedules of EventBridge Scheduler could not be read" in done.stderr
    sizes = {name: account.described(name)[0]["memory"] for name in ("daily", "hourly", "nightly")}
    assert sizes == {"daily": "512", "hourly": "2048", "nightly": "2048"}


@pytest.mark.parametrize("first", ["resize", "add-monitor"])
def test_a_size_and_a_monitor_at_once_lose_neither(people: TwoPeople, first: str) -> None:
    """The second person's command is whole before the first one's registration, which hides it: the
    second one's revision is registered again, and the first command, called again, builds on it.
    """
    account = people.account
    account.oversized("nightly")
    account.schedule("night", "nightly:1")
    commands = {
        "resize": ("resize", "nightly", "--from", str(account.file), *ACT),
        "add-monitor": ("add-monitor", "nightly", "--image", "team/task-profiler:2", *ACT),
    }
    second = next(name for name in commands if name != first)

    def act() -> None:
        people.proxy.before = lambda _operation, _body: None
        done = account.command("taskdef", *commands[second])
        assert done.returncode == 0, done.stderr

    people.when_the_revision_is_registered(act)
    done = account.command("taskdef", *commands[first])
    assert done.returncode == 1
    said = "nightly:2 was registered meanwhile, so it was registered again as nightly:4, after"
    assert f"nightly: {said} nightly:3: call it again." in done.stderr

    hidden, newest = (account.described(f"nightly:{number}")[0] for number in (2, 4))
    for name in ("cpu", "memory", "containerDefinitions"):
        assert newest[name] == hidden[name]
    again = account.command("taskdef", *commands[first])
    assert again.returncode == 0, again.stderr
    definition, tags = account.described("nightly")
    (image,) = (
        container["image"]
        for container in definition["containerDefinitions"]
        if container["name"] == "task-monitor"
    )
    assert image == "team/task-profiler:2"
    # After the first one's resize, the next one waits for runs of the new monitor's revision.
    expected = "2048", {"task-profiler:restored-over": "3"}
    if first == "add-monitor":
        expected = "512", {RESIZED: "1/1024/2048"}
    assert (definition["memory"], tags) == expected
    assert account.started_by_schedule("night") == f"nightly:{definition['revision']}"


@pytest.mark.parametrize("command", ["resize", "add-monitor"])
def test_a_family_that_becomes_a_services_is_left_alone(people: TwoPeople, command: str) -> None:
    account = people.account
    act: tuple[str, ...] = ("resize", "--from", str(account.file))
    if command == "add-monitor":
        account.family("nightly", containerDefinitions=[BATCH])
        act = ("add-monitor", "nightly", "--image", "team/task-profiler:1")
    else:
        account.oversized("nightly")
    account.schedule("night", "nightly:1")

    def serve() -> None:
        account.ecs.create_service(
            cluster="jobs", serviceName="web", taskDefinition="nightly:1", desiredCount=1
        )

    people.when_the_act_begins(serve)
    done = account.command("taskdef", *act, *ACT)
    assert done.returncode == 0, done.stderr
    assert "nightly is left alone now: " in done.stdout
    assert "service" in done.stdout.partition("left alone now")[2]
    assert account.newest("nightly") == [1]


@pytest.mark.parametrize("command", ["resize", "add-monitor"])
@pytest.mark.parametrize("imported", ["definition", "schedule"])
def test_what_a_stack_imports_after_the_plan_is_left_to_it(
    people: TwoPeople, command: str, imported: str
) -> None:
    """Of ``nightly``, which has a schedule, but not of ``other``."""
    account = people.account
    words: tuple[str, ...] = ("resize", "--from", str(account.file))
    if command == "add-monitor":
        for name in ("nightly", "other"):
            account.family(name, containerDefinitions=[BATCH])
        words = ("add-monitor", "nightly", "other", "--image", "team/task-profiler:1")
    else:
        account.oversized("nightly", "other")
    account.schedule("night", "nightly:1")
    account.schedule("day", "other:1")
    ids = {
        "definition": (f"{DEFINITIONS}/nightly:1", "AWS::ECS::TaskDefinition"),
        "schedule": ("night", "AWS::Scheduler::Schedule"),
    }
    physical_id, resource_type = ids[imported]
    people.when_the_act_begins(
        lambda: account.aws.own(
            OwnedResource(
                stack_name="jobs", physical_resource_id=physical_id, resource_type=resource_type
            )
        )
    )
    done = account.command("taskdef", *words, *ACT)
    assert "stack jobs of CloudFormation owns it" in done.stdout
    assert account.newest("nightly", "other") == [1 if imported == "definition" else 2, 2]
    assert account.started_by_schedule("night") == "nightly:1"
    assert account.started_by_schedule("day") == "other:2"


def test_a_stack_that_deploys_during_the_act_keeps_its_revision(people: TwoPeople) -> None:
    """Between the plan and the registration. The other family is done."""
    account = people.account
    account.oversized("nightly", "other")
    people.when_the_act_begins(
        lambda: account.family(
            "nightly", containerDefinitions=[{**BATCH, "image": "etl:27"}], tags=[STACK_TAG]
        )
    )
    done = account.resize(*ACT)
    assert "from nightly:2: refused The stack jobs of CloudFormation owns it" in done.stdout
    assert account.newest("nightly", "other") == [2, 2]
    found, tags = account.described("nightly")
    assert (found["memory"], RESIZED in tags) == ("2048", False)


def two_families_of_a_role(account: Account) -> None:
    """Nightly and weekly have the role shared, each with a log group of its own."""
    account.aws.client("iam").create_role(RoleName="shared", AssumeRolePolicyDocument="{}")
    role = f"arn:aws:iam::{ACCOUNT}:role/shared"
    for name in ("nightly", "weekly"):
        container = {**BATCH, **logs_to(f"/ecs/{name}")}
        account.family(name, containerDefinitions=[container], taskRoleArn=role)


def attach(account: Account, family: str) -> None:
    words = ("taskdef", "add-monitor", family, "--image", "team/task-profiler:1")
    done = account.command(*words, "--attach-policy", "--yes")
    assert done.returncode == 0, done.stderr


def allowed_groups(account: Account) -> list[str]:
    """The log groups of the role's policy."""
    iam = account.aws.client("iam")
    document = iam.get_role_policy(RoleName="shared", PolicyName="task-profiler")["PolicyDocument"]
    (statement,) = document["Statement"]
    return sorted(one.split(":log-group:")[1].split(":")[0] for one in statement["Resource"])


def test_a_policy_keeps_what_somebody_attaches_meanwhile(people: TwoPeople) -> None:
    account = people.account
    two_families_of_a_role(account)
    reads = 0

    def count(_operation: str, body: bytes) -> None:
        """The second person acts after the first has read the role."""
        nonlocal reads
        if b"Action=ListRolePolicies" in body:
            reads += 1
            if reads == 2:
                attach(account, "weekly")
                assert allowed_groups(account) == ["/ecs/weekly"]

    people.proxy.before = count
    attach(account, "nightly")
    assert allowed_groups(account) == ["/ecs/nightly", "/ecs/weekly"]


@pytest.mark.parametrize("is_replaced", [True, False])
def test_a_policy_that_somebody_replaces_is_attached_again(
    people: TwoPeople,
    is_replaced: bool,  # noqa: FBT001
) -> None:
    """The second person has read the role before the first one's policy was there."""
    account = people.account
    iam = account.aws.client("iam")
    iam.create_role(RoleName="shared", AssumeRolePolicyDocument="{}")
    role = f"arn:aws:iam::{ACCOUNT}:role/shared"
    account.family("nightly", containerDefinitions=[BATCH], taskRoleArn=role)
    groups = f"arn:aws:logs:us-east-1:{ACCOUNT}:log-group:"
    theirs = report_policy([f"{groups}/ecs/weekly:log-stream:ecs/batch/*"])

    def puts() -> int:
        return sum(b"Action=PutRolePolicy" in body for _, body in people.proxy.bodies)

    def replace(_operation: str, body: bytes) -> None:
        if b"Action=ListRolePolicies" in body and puts():
            people.proxy.before = lambda _operation, _body: None
            document = json.dumps(theirs)
            iam.put_role_policy(
                RoleName="shared", PolicyName="task-profiler", PolicyDocument=document
            )

    if is_replaced:
        people.proxy.before = replace
    words = ("taskdef", "add-monitor", "nightly", "--image", "team/task-profiler:1")
    done = account.command(*words, "--attach-policy", "--register")
    assert done.returncode == 0, done.stderr
    document = iam.get_role_policy(RoleName="shared", PolicyName="task-profiler")
    (statement,) = document["PolicyDocument"]["Statement"]
    found = {one.split(":log-group:")[1].split(":")[0] for one in statement["Resource"]}
    assert found == ({"/ecs/jobs", "/ecs/weekly"} if is_replaced else {"/ecs/jobs"})
    again = "attached the policy task-profiler to the role shared again, because IAM did"
    assert (again in done.stdout) is is_replaced
    assert puts() == 1 + is_replaced


@pytest.mark.slow
def test_two_policies_of_one_role_at_once_keep_both(people: TwoPeople) -> None:
    """Whichever call of IAM the other person's whole act precedes. Only within the moment between
    the first one's last reading and its put is the other's part lost, which IAM cannot tell: its
    next call attaches it again, beside the first one's.
    """
    account = people.account
    iam = account.aws.client("iam")
    two_families_of_a_role(account)
    preceded: list[bytes] = []  # the calls of IAM of which one was preceded by the other act
    left = 0

    def act(_operation: str, body: bytes) -> None:
        nonlocal left
        if b"Version=2010-05-08" in body and left:
            left -= 1
            if not left:
                preceded.append(body.partition(b"&")[0])
                attach(account, "weekly")

    people.proxy.before = act
    for nth in range(1, 100):
        left = nth
        attach(account, "nightly")
        if left:
            break
        if preceded[-1] == b"Action=PutRolePolicy":
            assert allowed_groups(account) == ["/ecs/nightly"]
            attach(account, "weekly")
        assert allowed_groups(account) == ["/ecs/nightly", "/ecs/weekly"], nth
        iam.delete_role_policy(RoleName="shared", PolicyName="task-profiler")
    assert preceded.count(b"Action=PutRolePolicy") == 1
    assert len(preceded) > 5
