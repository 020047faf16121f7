"""A played AWS for retries of runs that were killed for memory."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
from botocore.awsrequest import AWSResponse
from botocore.config import Config
from botocore.exceptions import ReadTimeoutError
from botocore.session import get_session
from botocore.validate import ParamValidator

from profiler.aws_account.eventbridge_calls import ScheduleReader
from profiler.aws_account.scheduled_targets import ScheduledTarget
from profiler.forwarder.ended_run import EndedRun, MemoryRetry
from profiler.forwarder.family_runs import FamilyRunReader
from profiler.forwarder.function_settings import ForwarderSettings
from profiler.forwarder.report_finder import ReportLine
from profiler.forwarder.run_documents import event_documents
from profiler.forwarder.search_cluster.bulk_client import SearchCluster
from profiler.forwarder.task_retry import TaskRetrier, choose_larger_memory, run_task_arguments
from profiler.record.family_statistics import NeedAtSize
from tests.ended_runs import run_of
from tests.notices import KeyTable
from tests.stopped_tasks import WITH_MONITOR, judged_task
from tests.task_events import ARN, task

KILLED = "OutOfMemoryError: Container killed due to memory usage"
BATCH = {"name": "batch", "exitCode": 137, "reason": KILLED}
MAX_MB = 61_440
# What the schedule gives to the task, as ECS's event says it, which names each container.
OVERRIDES = {"containerOverrides": [{"name": "batch", "command": ["x"]}, {"name": "log_router"}]}


def ended(
    *, line: ReportLine | None = None, described: Any = WITH_MONITOR, **detail: Any
) -> EndedRun:
    given = {"containers": [BATCH], "cpu": "256", "memory": "512", "overrides": OVERRIDES}
    stopped = task(**given | detail)
    end, name = judged_task(stopped, described)
    return run_of(task=stopped, end=end, container=name, report_line=line)


def batch(exit_code: int | None, reason: str | None = None) -> list[dict[str, Any]]:
    return [{"name": "batch", "exitCode": exit_code, "reason": reason}]


CLUSTER = "arn:aws:ecs:us-west-2:111122223333:cluster/jobs"
FAMILY_ARN = "arn:aws:ecs:us-west-2:111122223333:task-definition/nightly"


def target(parameters: Any = None, kind: Any = "schedule", **started: Any) -> ScheduledTarget:
    parameters = {"TaskDefinitionArn": FAMILY_ARN} if parameters is None else parameters
    content = {"Arn": CLUSTER, "EcsParameters": parameters, **started}
    return ScheduledTarget(
        kind=kind,
        name="nightly",
        group="default",
        cluster_arn=CLUSTER,
        definition_arn=FAMILY_ARN,
        content=content if kind == "rule" else {"Target": content},
    )


def request(one: ScheduledTarget, described: Any = WITH_MONITOR, **detail: Any) -> dict[str, Any]:
    killed = task(**{"cpu": "256", "memory": "512", **detail})
    memory = choose_larger_memory(killed, described, "batch", NeedAtSize(), MAX_MB)
    made = dict(run_task_arguments(one, killed, "batch", memory, described))
    shape = get_session().get_service_model("ecs").operation_model("RunTask").input_shape
    assert ParamValidator().validate(made, shape).generate_report() == ""
    return made


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


class FakeAws:
    """ECS, EventBridge and its Scheduler behind boto3's own clients: requests are checked,
    answers are parsed.
    """

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.requests: list[dict[str, Any]] = []
        self.tasks: dict[str, tuple[dict[str, Any], str]] = {}  # by token
        self.errors: dict[str, list[tuple[int, str, str]]] = {}
        self.failures: list[dict[str, str]] = []
        self.garbled: bytes | None = None  # in place of the next answer of RunTask
        self.lost: str | None = None  # the operation of which the next answer does not arrive
        self.targets: dict[tuple[str, str], dict[str, Any]] = {("default", "nightly"): TARGET}
        self.rules: dict[str, list[dict[str, Any]]] = {}
        self.bus = "default"  # of the rules
        self.settings: dict[str, Any] = {}  # of each schedule and rule

    def client(self, service: str) -> Any:
        made = boto3.client(
            service,
            region_name="us-west-2",
            aws_access_key_id="a",
            aws_secret_access_key="b",
            config=Config(retries={"total_max_attempts": 1}),
        )
        made.meta.events.register(
            f"before-call.{made.meta.service_model.service_id.hyphenize()}", self._keep
        )
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
        if self.garbled is not None and self.operation == "RunTask":
            answer._content, self.garbled = self.garbled, None
        if self.lost == self.operation:
            self.lost = None
            raise ReadTimeoutError(endpoint_url=request.url)
        return answer

    def _json(
        self, request: Any, content: Mapping[str, Any], status: int = 200, **headers: str
    ) -> AWSResponse:
        class Raw:
            def stream(self, **_: Any) -> Any:
                yield json.dumps(content).encode()

        return AWSResponse(
            request.url, status, {"Content-Type": "application/json", **headers}, Raw()
        )

    def _error(
        self, request: Any, status: int, code: str, message: str, **more: Any
    ) -> AWSResponse:
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
            return self._error(
                request, 404, "ResourceNotFoundException", f"Schedule {name} does not exist."
            )
        return self._json(
            request, {"Name": name, "Target": target, "State": "ENABLED"} | self.settings
        )

    def _ListRules(self, request: Any) -> AWSResponse:  # noqa: N802
        asked = json.loads(self.sent["body"])
        bus = asked["EventBusName"]
        found = [
            {"Name": name, "EventBusName": bus, "State": "ENABLED"} | self.settings
            for name in self.rules
            if name.startswith(asked["NamePrefix"]) and bus == self.bus
        ]
        return self._json(request, {"Rules": found})

    def _ListEventBuses(self, request: Any) -> AWSResponse:  # noqa: N802
        """Two pages."""
        asked = json.loads(self.sent["body"])
        if "NextToken" not in asked:
            return self._json(request, {"EventBuses": [{"Name": "default"}], "NextToken": "2"})
        return self._json(request, {"EventBuses": [{"Name": "orders"}]})

    def _ListTargetsByRule(self, request: Any) -> AWSResponse:  # noqa: N802
        asked = json.loads(self.sent["body"])
        if asked["Rule"] not in self.rules or asked["EventBusName"] != self.bus:
            return self._error(
                request,
                400,
                "ResourceNotFoundException",
                "Rule does not exist on EventBus default.",
            )
        return self._json(request, {"Targets": self.rules[asked["Rule"]]})

    def _RunTask(self, request: Any) -> AWSResponse:  # noqa: N802
        asked = json.loads(self.sent["body"])
        self.requests.append(asked)
        if self.failures:
            return self._json(request, {"tasks": [], "failures": self.failures})
        known = self.tasks.setdefault(asked["clientToken"], (asked, NEW_ARN))
        if known[0] != asked:
            return self._error(
                request, 400, "ConflictException", "The token is in use.", resourceIds=[known[1]]
            )
        return self._json(request, {"tasks": [{"taskArn": known[1]}], "failures": []})


class RetryAccount:
    """Everything that a retry uses. ``table`` is that of notices, if there is one."""

    def __init__(self, search: SearchCluster | None = None, *, has_table: bool = True) -> None:
        self.aws = FakeAws()
        self.search = search
        self.table = KeyTable() if has_table else None
        self.warnings: list[str] = []
        self.now = STOPPED + timedelta(seconds=30)
        ecs, schedules = self.aws.client("ecs"), ScheduleReader(self.aws.client)
        self.retries = TaskRetrier(
            ("nightly",),
            MAX_MB,
            aws=lambda: (ecs, schedules),
            family=lambda: (
                None
                if search is None
                else FamilyRunReader(cluster=search, prefix="task", timeout_seconds=5, now=self.now)
            ),
            remember=lambda key, work: work() if self.table is None else self.table.once(key, work),
            now=lambda: self.now,
            warn=self.warnings.append,
            knows_earlier=has_table,
        )

    def handle(
        self, run: EndedRun | None = None, described: Any = WITH_MONITOR
    ) -> MemoryRetry | None:
        return self.retries.retry_killed_task(ended() if run is None else run, described)

    def refusal(self, run: EndedRun | None = None, described: Any = WITH_MONITOR) -> str:
        """What a run that is not started again leaves: the sentence, and the warning with the
        task's id.
        """
        retry = self.handle(run, described)
        assert retry is not None
        assert retry.retried_as is None
        assert self.warnings == [f"Task {TASK_ID}: {retry.sentence}"]
        assert self.handle(run, described) == retry, "a repeat says the same"
        return retry.sentence


def killed(**detail: Any) -> dict[str, Any]:
    """The document of a killed run that left no report."""
    (document,) = event_documents(ended(**detail), ForwarderSettings())
    return {"_source": document.initial_fields}


def need_of(peak_mb: float | None, killed: int = 0) -> dict[str, Any]:
    """What a search cluster answers of the runs at the definition's size."""
    need = {"successes": {"peak": {"value": peak_mb or None}}, "killed": {"doc_count": killed}}
    return {"aggregations": {"families": {"buckets": [{"key": "nightly", **need}]}}}
