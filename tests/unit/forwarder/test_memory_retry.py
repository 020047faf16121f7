"""The retry of killed runs: what is asked of AWS and of the search cluster, and what is said. The clients are boto3's.

``FakeAws`` answers as the services do: pages, codes of errors, tokens of RunTask, ``failures``.
"""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest
from botocore.awsrequest import AWSResponse
from botocore.config import Config
from botocore.exceptions import ReadTimeoutError
from msgspec.structs import replace

from profiler.aws_account.scheduled_targets import Schedules
from profiler.forwarder.family_runs import FamilyMemory
from profiler.forwarder.function_settings import RetrySettings
from profiler.forwarder.invocation import DeliveryError, SearchClusterError
from profiler.forwarder.memory_retry import MemoryRetries
from profiler.forwarder.notices.announcements import EndedTask, MemoryRetry
from profiler.forwarder.notices.event_details import ended_run
from profiler.forwarder.notices.slack_messages import ended_task_message
from tests.fake_search import AnsweringSearch
from tests.notices import report_line as read
from tests.unit.forwarder.test_retry_plan import CLUSTER, FAMILY_ARN, KILLED, batch, ended, report_line
from tests.unit.forwarder.test_task_event import ARN
from tests.unit.forwarder.test_task_stopped import WITH_MONITOR, report

TASK_ID = ARN.rsplit("/", 1)[-1]
NEW_ID = "99999999aaaa4bbbb8cccc9dddd0eeee"
NEW_ARN = f"arn:aws:ecs:us-west-2:111122223333:task/jobs/{NEW_ID}"
STOPPED = datetime(2026, 3, 1, 10, 12, 56, tzinfo=UTC)
TARGET = {
    "Arn": CLUSTER,
    "RoleArn": "arn:aws:iam::111122223333:role/scheduler",
    "EcsParameters": {"TaskDefinitionArn": FAMILY_ARN, "TaskCount": 2, "LaunchType": "FARGATE"},
    "Input": '{"containerOverrides":[{"name":"batch","command":["x"]}]}',
}
CALLS = ("ListSchedules", "GetSchedule", "ListTargetsByRule", "RunTask")


class FakeAws:
    """ECS, EventBridge and its Scheduler behind boto3's own clients: requests are checked, answers are parsed."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.requests: list[dict[str, Any]] = []
        self.tasks: dict[str, tuple[dict[str, Any], str]] = {}  # by token
        self.errors: dict[str, list[tuple[int, str, str]]] = {}
        self.failures: list[dict[str, str]] = []
        self.lost: str | None = None  # the operation of which the next answer does not arrive
        self.targets: dict[tuple[str, str], dict[str, Any]] = {("default", "nightly"): TARGET}
        self.rules: dict[str, list[dict[str, Any]]] = {}

    def client(self, service: str) -> Any:
        made = boto3.client(
            service,
            region_name="us-west-2",
            aws_access_key_id="a",
            aws_secret_access_key="b",
            config=Config(retries={"total_max_attempts": 1}),
        )
        made.meta.events.register(f"before-call.{made.meta.service_model.service_id.hyphenize()}", self._keep)
        made.meta.events.register_first("before-send", self._answer)
        return made

    def _keep(self, model: Any, params: Mapping[str, Any], **_: Any) -> None:
        self.operation, self.sent = model.name, params

    def _answer(self, request: Any, **_: Any) -> AWSResponse:
        self.calls.append(self.operation)
        failed = self.errors.get(self.operation)
        if failed:
            return self._error(request, *failed.pop(0))
        answer: AWSResponse = getattr(self, f"_{self.operation}")(request)
        if self.lost == self.operation:
            self.lost = None
            raise ReadTimeoutError(endpoint_url=request.url)
        return answer

    def _json(self, request: Any, content: Mapping[str, Any], status: int = 200, **headers: str) -> AWSResponse:
        class Raw:
            def stream(self, **_: Any) -> Any:
                yield json.dumps(content).encode()

        return AWSResponse(request.url, status, {"Content-Type": "application/json", **headers}, Raw())

    def _error(self, request: Any, status: int, code: str, message: str, **more: Any) -> AWSResponse:
        content = {"__type": code, "Message": message, "message": message, **more}
        return self._json(request, content, status, **{"x-amzn-ErrorType": code})

    def _ListSchedules(self, request: Any) -> AWSResponse:  # noqa: N802  the name of the operation
        """Two pages; the first one is empty."""
        asked = self.sent["query_string"]
        if "NextToken" not in asked:
            return self._json(request, {"Schedules": [], "NextToken": "2"})
        found = [
            {"Name": name, "GroupName": group, "Target": {"Arn": target["Arn"]}}
            for (group, name), target in self.targets.items()
            if name.startswith(asked.get("NamePrefix", ""))
        ]
        return self._json(request, {"Schedules": found})

    def _GetSchedule(self, request: Any) -> AWSResponse:  # noqa: N802
        name = self.sent["url_path"].rsplit("/", 1)[-1]
        target = self.targets.get((self.sent["query_string"]["groupName"], name))
        if target is None:
            return self._error(request, 404, "ResourceNotFoundException", f"Schedule {name} does not exist.")
        return self._json(request, {"Name": name, "Target": target, "State": "ENABLED"})

    def _ListTargetsByRule(self, request: Any) -> AWSResponse:  # noqa: N802
        asked = json.loads(self.sent["body"])
        if asked["Rule"] not in self.rules or asked["EventBusName"] != "default":
            return self._error(request, 400, "ResourceNotFoundException", "Rule does not exist on EventBus default.")
        return self._json(request, {"Targets": self.rules[asked["Rule"]]})

    def _RunTask(self, request: Any) -> AWSResponse:  # noqa: N802
        asked = json.loads(self.sent["body"])
        self.requests.append(asked)
        if self.failures:
            return self._json(request, {"tasks": [], "failures": self.failures})
        known = self.tasks.setdefault(asked["clientToken"], (asked, NEW_ARN))
        if known[0] != asked:
            return self._error(request, 400, "ConflictException", "The token is in use.", resourceIds=[known[1]])
        return self._json(request, {"tasks": [{"taskArn": known[1]}], "failures": []})


class World:
    """Everything that a retry uses. ``kept`` is the table of notices."""

    def __init__(self, search: AnsweringSearch | None = None) -> None:
        self.aws = FakeAws()
        self.search = search
        self.kept: dict[str, str] | None = {}
        self.warnings: list[str] = []
        self.now = STOPPED + timedelta(seconds=30)
        ecs, schedules = self.aws.client("ecs"), Schedules(self.aws.client)
        self.retries = MemoryRetries(
            RetrySettings(families=("nightly",)),
            aws=lambda: (ecs, schedules),
            family=lambda: None if search is None else FamilyMemory(cluster=search, prefix="task", timeout_seconds=5),
            remember=self.remember,
            now=lambda: self.now,
            warn=self.warnings.append,
        )

    def remember(self, key: str, work: Callable[[], str]) -> str:
        if self.kept is None:
            return work()
        if key not in self.kept:
            self.kept[key] = work()
        return self.kept[key]

    def handle(self, run: EndedTask | None = None, described: Any = WITH_MONITOR) -> MemoryRetry | None:
        return self.retries.handle(ended() if run is None else run, described)

    def refusal(self, run: EndedTask | None = None, described: Any = WITH_MONITOR) -> str:
        """What a run that is not started again leaves: the sentence, and the warning with the task's id."""
        retry = self.handle(run, described)
        assert retry is not None
        assert retry.retried_as is None
        assert self.warnings == [f"Task {TASK_ID}: {retry.sentence}"]
        assert self.handle(run, described) == retry, "a repeat says the same"
        return retry.sentence


STARTED = MemoryRetry(sentence="Started again with 1 GB (was 512 MB): task 99999999.", retried_as=NEW_ID)


def test_a_killed_run_is_started_again_as_its_schedule_says() -> None:
    world = World()
    assert world.handle() == STARTED
    assert world.aws.calls == ["ListSchedules", "ListSchedules", "GetSchedule", "RunTask"]
    (request,) = world.aws.requests
    assert request["overrides"] == {
        "containerOverrides": [{"name": "batch", "command": ["x"]}],
        "cpu": "256",
        "memory": "1024",
    }
    assert (request["count"], request["launchType"], request["cluster"]) == (1, "FARGATE", CLUSTER)


def of_rule(world: World, operation: str = "ListTargetsByRule") -> EndedTask:
    """A run of a rule if the operation is a rule's, else of a schedule."""
    world.aws.rules = {"nightly": [{**TARGET, "Id": "1"}, {"Id": "2", "Arn": "arn:aws:sqs:us-west-2:111122223333:q"}]}
    return ended(startedBy="events-rule/nightly") if operation == "ListTargetsByRule" else ended()


def test_a_rule_is_read_by_its_name_and_a_cut_name_finds_its_schedule() -> None:
    world, other = World(), World()
    assert world.handle(of_rule(world)) == STARTED
    assert world.aws.calls == ["ListTargetsByRule", "RunTask"]
    name = "a-name-of-more-than-nineteen-characters"
    other.aws.targets = {("nights", name): TARGET}
    assert other.handle(ended(startedBy=f"chronos-schedule/{name}"[:36])) == STARTED


@pytest.mark.parametrize("has_table", [True, False])
def test_a_repeated_event_starts_nothing_twice(*, has_table: bool) -> None:
    world = World()
    if not has_table:
        world.kept = None
    assert [world.handle(), world.handle(), world.handle()] == [STARTED] * 3
    assert len(world.aws.tasks) == 1
    assert len(world.aws.requests) == (1 if has_table else 3)


def test_a_token_in_use_counts_as_started() -> None:
    """The peak of another run that ended meanwhile changes the size: the token is in use with the first one."""
    search = AnsweringSearch()
    world = World(search)
    world.kept = None
    assert world.handle() == STARTED
    search.answer = {"aggregations": {"peak": {"value": 1500}}}
    assert world.handle() == MemoryRetry(sentence="Started again with more memory: task 99999999.", retried_as=NEW_ID)
    assert len(world.aws.tasks) == 1


@pytest.mark.parametrize("operation", CALLS)
@pytest.mark.parametrize(
    ("status", "code"),
    [(400, "ThrottlingException"), (429, "TooManyRequestsException"), (500, "ServerException"), (503, "x")],
)
def test_a_throttled_call_raises_and_the_next_event_starts_it_once(operation: str, status: int, code: str) -> None:
    world = World()
    world.aws.errors[operation] = [(status, code, "Rate exceeded")] * 2
    run = of_rule(world, operation)
    for _ in range(2):
        with pytest.raises(DeliveryError, match=r"A killed run is not started again yet.*Lambda retries\.$"):
            world.handle(run)
    assert not world.aws.tasks
    assert [world.handle(run), world.handle(run)] == [STARTED] * 2
    assert len(world.aws.tasks) == 1
    assert world.warnings == []


@pytest.mark.parametrize("operation", CALLS)
def test_an_answer_that_is_lost_does_not_start_it_twice(operation: str) -> None:
    world = World()
    world.aws.lost = operation
    run = of_rule(world, operation)
    with pytest.raises(DeliveryError, match="ReadTimeoutError"):
        world.handle(run)
    assert world.handle(run) == STARTED
    assert len(world.aws.tasks) == 1


OF_ANOTHER = {**TARGET, "EcsParameters": {"TaskDefinitionArn": f"{FAMILY_ARN}-2"}}
INACTIVE, DENIED = (400, "ClientException", "It is inactive."), (403, "AccessDeniedException", "not authorized")
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "refused": ({"errors": {"RunTask": [INACTIVE]}}, "(ClientException: It is inactive.)"),
    "failures": ({"failures": [{"arn": "x", "reason": "RESOURCE:MEMORY"}]}, "ECS did not start it (RESOURCE:MEMORY)."),
    "unreadable": ({"errors": {"GetSchedule": [DENIED]}}, "its schedule could not be read (AccessDeniedException: not"),
    "gone": ({"targets": {("default", "nightly-2"): TARGET}}, "its schedule no longer exists."),
    "of another family": ({"targets": {("default", "nightly"): OF_ANOTHER}}, "its schedule no longer exists."),
}


@pytest.mark.parametrize(("answers", "said"), REFUSED.values(), ids=REFUSED)
def test_what_aws_refuses_is_said_and_is_no_error(answers: dict[str, Any], said: str) -> None:
    world = World()
    for name, answer in answers.items():
        setattr(world.aws, name, answer)
    assert said in world.refusal()
    assert not world.aws.tasks


def test_schedules_that_cannot_be_distinguished_start_nothing_unless_they_say_the_same() -> None:
    world, other = World(), World()
    world.aws.targets[("nights", "nightly")] = TARGET
    assert world.handle() == STARTED
    other.aws.targets[("nights", "nightly")] = {**TARGET, "Input": "{}"}
    assert other.refusal() == "Not started again: several schedules can have started it."
    assert not other.aws.requests


@pytest.mark.parametrize(
    ("run", "described", "hours", "reason"),
    [
        (ended(), None, 0, "its task definition could not be read"),
        (ended(launchType="EC2"), WITH_MONITOR, 0, "its batch container has no memory limit of its own"),
        (
            ended(),
            WITH_MONITOR,
            13,
            "it ended more than 12 hours ago",
        ),  # ECS forgets its tokens, the table its keys
    ],
)
def test_what_cannot_be_retried_asks_nothing_of_aws(run: EndedTask, described: Any, hours: int, reason: str) -> None:
    world = World()
    world.now += timedelta(hours=hours)
    assert world.refusal(run, described) == f"Not started again: {reason}."
    assert world.aws.calls == []


def test_the_report_alone_is_enough_proof_and_other_runs_ask_and_say_nothing() -> None:
    """The first event found no report; its repeat does."""
    world = World(search := AnsweringSearch())
    assert world.handle(ended(containers=batch(1))) is world.handle(ended(startedBy="airflow")) is None
    assert (world.aws.calls, world.warnings, world.kept, search.bodies) == ([], [], {}, [])
    assert world.handle(ended(containers=batch(1), line=report_line())) == STARTED
    assert world.handle(ended(containers=batch(1))) is None
    assert len(world.aws.tasks) == 1


# The search cluster


def test_a_cluster_that_does_not_respond_starts_nothing_yet() -> None:
    world = World(AnsweringSearch(error=SearchClusterError("down", status=None)))
    with pytest.raises(SearchClusterError):
        world.handle()
    assert world.aws.calls == []


@pytest.mark.parametrize(
    "search", [AnsweringSearch(error=SearchClusterError("no", status=403)), AnsweringSearch({"hits": {}})]
)
def test_without_a_peak_the_size_alone_counts(search: AnsweringSearch) -> None:
    assert World(search).handle() == STARTED


# The retry's own end


def hit(task_id: str = TASK_ID, record: str | None = None) -> dict[str, Any]:
    return {"_source": {"task": {"id": task_id}, "record": record}}


def killed_record(memory_mb: int = 512, **metrics: Any) -> str:
    return report(taskSize={"vcpu": 0.25, "memoryMB": memory_mb}, metrics=metrics)


def retry_run(exit_code: int = 0, reason: str | None = None, **detail: Any) -> EndedTask:
    return ended(
        **{
            "taskArn": NEW_ARN,
            "startedBy": "task-profiler-retry/4dd5853f",
            "containers": [{"name": "batch", "exitCode": exit_code, "reason": reason}],
            "memory": "1024",
            "attributes": [{"name": "ecs.cpu-architecture", "value": "x86_64"}],
            **detail,
        },
        line=read(report(status="success", metrics={"billedDurationMs": 3_600_000})),
    )


FOUND = AnsweringSearch({"hits": {"hits": [hit(record=killed_record()), hit()]}})
PRICE = " (+$0.0022 a run)"


@pytest.mark.parametrize(
    ("search", "run", "sentence"),
    [
        (FOUND, retry_run(), f"Succeeded with 1 GB after 512 MB were too little: set 1 GB{PRICE}."),
        (FOUND, retry_run(attributes=[]), "Succeeded with 1 GB after 512 MB were too little: set 1 GB."),
        (FOUND, retry_run(137, KILLED), "This was the retry of 4dd5853f with 1 GB: it is not started again."),
        (None, retry_run(), "This was the retry of 4dd5853f: it succeeded with 1 GB."),
        (
            AnsweringSearch({"hits": {"hits": [hit(record=killed_record(memorySizeMB=400))]}}),
            retry_run(launchType="EC2", containers=[{"name": "batch", "exitCode": 0, "memory": "640"}]),
            "Succeeded with 640 MB after 400 MB were too little: set 640 MB.",
        ),
    ],
)
def test_the_end_of_a_retry_says_so_and_starts_nothing(
    search: AnsweringSearch | None, run: EndedTask, sentence: str
) -> None:
    world = World(search)
    for _ in range(2):
        assert world.handle(run) == MemoryRetry(sentence=sentence, retry_of=None if search is None else TASK_ID)
    assert world.aws.calls == []


@pytest.mark.parametrize(
    "search",
    [
        AnsweringSearch({"hits": {"hits": [hit(), hit("4dd5853f-another")]}}),
        AnsweringSearch(error=SearchClusterError("down", status=503)),
    ],
)
def test_a_killed_run_that_is_not_certain_is_not_named(search: AnsweringSearch) -> None:
    retry = World(search).handle(retry_run())
    assert retry == MemoryRetry(sentence="This was the retry of 4dd5853f: it succeeded with 1 GB.")


# Settings and notifications


def test_slack_and_the_event_contain_the_sentence() -> None:
    notice = replace(ended(), retry=replace(STARTED, sentence='Not started again: <x> & "y".'))
    assert "Not started again: &lt;x&gt; &amp;" in json.dumps(ended_task_message(notice, kibana_url=None).blocks)
    assert ended_run(notice, kibana_url=None).text.endswith("Not started again: <x> & 'y'.")
