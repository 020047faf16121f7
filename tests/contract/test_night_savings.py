"""The saving in the morning message: what the printed ``taskdef resize`` says, of the same runs in a
search cluster and the same account on moto.
"""

import gzip
import json
import re
import shlex
import time
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import botocore.client
import pytest

import handler
from profiler.core.timestamps import NS_PER_HOUR, format_ms
from profiler.forwarder import night_savings
from profiler.forwarder.digest_delivery import StoredLastMessages
from profiler.forwarder.document_updates import Document
from profiler.forwarder.function_settings import ForwarderSettings
from profiler.forwarder.invocation import SearchClusterError
from profiler.forwarder.morning_digest import NightSaving
from profiler.forwarder.night_period import RememberedNight
from profiler.forwarder.night_runs import EarlierRun, FamilyHistory
from profiler.forwarder.run_documents import report_document
from profiler.record.record_model import encode
from profiler.record.units import format_usd
from profiler.runs.past_runs.record_files import FileRuns
from profiler.runs.past_runs.run_source import RunFilter
from tests.aws_proxy import AwsProxy
from tests.cloudformation import REGION, deploy, listed
from tests.fake_slack import FakeSlack
from tests.http_server import FakeHttpServer
from tests.lambda_environment import (
    InvocationContext,
    create_idempotency_table,
    forget_environment,
    moto_account,
)
from tests.resize_account import DEFINITIONS, Account
from tests.role_policies import starter_role
from tests.runs import slowdown
from tests.step_functions import executing, machine, machine_arn, make_machine, publish
from tools.moto_server import fake_aws

# Of each test, `make test` runs one case: the cases differ by a policy, an answer or a moment.
pytestmark = pytest.mark.diagonal(1)

CALLS = {
    "cloudformation:DescribeStackResources",
    *("ecs:DescribeServices", "ecs:DescribeTaskDefinition", "ecs:ListClusters"),
    *("ecs:ListServices", "ecs:ListTaskDefinitions"),
    *("events:ListEventBuses", "events:ListRules", "events:ListTargetsByRule"),
    *("scheduler:GetSchedule", "scheduler:ListSchedules"),
    *("states:DescribeStateMachine", "states:DescribeStateMachineAlias"),
    *("states:ListStateMachineAliases", "states:ListStateMachines"),
    "tag:GetResources",
}
NOT_OF_THE_PLAN = {"WriteOwnLog", "TellOnce", "ReadSlackSecret", "DecryptSchedulesAndQueues"}
LOST = {"_shards": {"total": 3, "successful": 2}}
NOT_KNOWN = "; by how much is unknown here ("


class PlayedSearch(FakeHttpServer):
    """Has documents over which it computes nothing but the night of the message: the readers of
    past runs get them one by one. ``part`` is added to the answers to these readers.
    """

    def __init__(self) -> None:
        super().__init__()
        self.documents: list[dict[str, Any]] = []
        self.savings: dict[str, float] = {}
        self.part: dict[str, Any] = {}
        self.broken: str | None = None  # a search with this in its body or its path has no answer
        self.closed_index: str | None = None
        self.searches = 0

    def answer(
        self, request: BaseHTTPRequestHandler, body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        self.searches += 1
        text = gzip.decompress(body) if request.headers.get("Content-Encoding") == "gzip" else body
        headers = {"X-Elastic-Product": "Elasticsearch", "Content-Type": "application/json"}
        if self.broken and self.broken in f"{request.path} {text.decode()}":
            return 503, headers, b"{}"
        asked = json.loads(text or b"{}")
        is_of_night = bool({"night", "jobs", "missed"} & asked.get("aggs", {}).keys())
        is_of_night |= "resized" in str(asked.get("aggs"))
        if self.closed_index and not is_of_night and "open,closed" in request.path:
            error = {"type": "index_closed_exception", "index": self.closed_index}
            return 400, headers, json.dumps({"error": error}).encode()
        answer = self._found(asked)
        if not is_of_night:
            answer |= self.part
        return 200, headers, json.dumps(answer).encode()

    def _found(self, asked: dict[str, Any]) -> dict[str, Any]:
        aggs = asked.get("aggs", {})
        aggregations: dict[str, Any] = {name: {"buckets": []} for name in aggs}
        hits: list[dict[str, Any]] = []
        if "night" in aggs:
            aggregations = {"night": self._night(), "remembered": {"tasks": {"buckets": []}}}
        elif "resized" in str(aggs):
            aggregations = {"families": {"buckets": [*map(self._earlier, self.savings)]}}
        elif not aggs and "event.start" in str(asked.get("sort")) and asked["size"]:
            names = str(asked["query"])
            hits = [
                {"_source": document, "sort": [0]}
                for document in self.documents
                if f"'{document['task']['family']}'" in names
            ]
        shards = {"total": 1, "successful": 1}
        return {"hits": {"hits": hits}, "aggregations": aggregations, "_shards": shards}

    def _night(self) -> dict[str, Any]:
        one = {"tasks": {"value": 1}}
        families = [{"key": name, "all": one, "decided": one} for name in self.savings]
        return {"last": {"all": one, "reports": one, "by_family": {"buckets": families}}}

    def _earlier(self, family: str) -> dict[str, Any]:
        run = {
            "@timestamp": format_ms(time.time_ns() - NS_PER_HOUR),
            "task": {"status": "success"},
            "recommendation": {"saving_usd_per_month": self.savings[family]},
        }
        return {"key": family, "newest": {"hits": {"hits": [{"_source": run}]}}}


class DigestContext(InvocationContext):
    function_name = "profiler-morning-digest"
    invoked_function_arn = "arn:aws:lambda:us-east-1:123456789012:function:profiler-morning-digest"


class Morning:
    """An account with families whose runs are in the cluster, and its message."""

    def __init__(self, account: Account, search: PlayedSearch, slack: FakeSlack) -> None:
        self.account = account
        self.search = search
        self._slack = slack

    def add(
        self,
        name: str,
        saving_usd: float = 9,
        hours: float = 6,
        metrics: Mapping[str, Any] | None = None,
    ) -> None:
        """A family of a run a day that needs a quarter of its size, and what its last run
        advises.
        """
        self.account.family(name)
        billed_ms = 3_600_000 * hours
        times = {"duration_ms": billed_ms - 10_000, "billed_duration_ms": billed_ms}
        self.account.runs(name, 25, metrics={**times, **(metrics or {})})
        self.search.savings[name] = saving_usd
        self.search.documents = [
            _document(run.report) for run in FileRuns(str(self.account.file), 0).runs(RunFilter())
        ]

    def send(self, left_ms: int = 60_000) -> list[str]:
        """The message's lines about the saving."""
        handler.morning_digest({}, DigestContext(left_ms))
        text = json.dumps(self._slack.messages[-1], ensure_ascii=False)
        return re.findall(r"[^\"\\•]*(?:save|recommend a cheaper size)[^\"]*", text)

    def told(self, left_ms: int = 60_000) -> tuple[str, float, list[str]]:
        """The sentence, and what the command in it says."""
        (line,) = self.send(left_ms)
        words = shlex.split(re.findall(r"task-profiler (taskdef resize [^`\\]*)", line)[0])
        done = self.account.command(*words, "--json")
        assert done.returncode == 0, done.stderr
        total = json.loads(done.stdout.splitlines()[-1])
        return line, total["savingUsdPerMonth"], words


def _document(report: Any) -> dict[str, Any]:
    made = report_document(report, encode(report).decode(), ForwarderSettings())
    assert isinstance(made, Document)
    fields = dict(made.fields)
    fields["task"] = {**fields["task"], "confirmed": True}
    return fields


@pytest.fixture
def morning(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, slack: FakeSlack) -> Iterator[Morning]:
    with fake_aws() as aws, PlayedSearch() as search:
        create_idempotency_table("done", aws.client("dynamodb"))
        settings = {
            **aws.environment(),
            "AWS_REGION": "us-east-1",
            "SLACK_SUCCESS_WEBHOOK_URL": slack.webhook_url,
            "IDEMPOTENCY_TABLE": "done",
            "ELASTICSEARCH_URL": search.url,
            "AWS_LAMBDA_FUNCTION_NAME": "function",
        }
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        forget_environment()
        yield Morning(Account(aws, tmp_path), search, slack)
    forget_environment()


def test_the_message_names_the_amount_that_its_command_says(morning: Morning) -> None:
    """Of the families that the command would change; a service's is left alone."""
    morning.add("nightly")
    morning.add("payroll", 12)
    morning.add("web", 30)
    morning.account.ecs.create_service(
        cluster="jobs", serviceName="web", taskDefinition="web", desiredCount=0
    )
    line, saving_usd, words = morning.told()
    assert saving_usd > 1
    assert f"Other sizes of 2 families would save {format_usd(saving_usd)} a month:" in line
    assert words[:4] == ["taskdef", "resize", "payroll", "nightly"]


def test_what_the_command_leaves_alone_is_no_line(morning: Morning) -> None:
    """Whatever the last runs recommend: of few runs, nothing changes."""
    morning.add("few")
    morning.search.documents = morning.search.documents[:5]
    assert morning.send() == []


@pytest.mark.parametrize("propagates", [True, False])
@pytest.mark.parametrize("is_tagged", [True, False])
def test_a_first_tag_that_a_role_may_refuse_is_promised_by_nobody(
    morning: Morning, *, propagates: bool, is_tagged: bool
) -> None:
    """The command asks the schedule's role, which allows it no tag here. Who gives tags already is
    asked by ECS today.
    """
    morning.add("nightly")
    if is_tagged:
        arn = f"{DEFINITIONS}/nightly:1"
        morning.account.ecs.tag_resource(resourceArn=arn, tags=[{"key": "team", "value": "etl"}])
    starter_role(morning.account.aws.client("iam"), "schedules", f"{DEFINITIONS}/*")
    given = {"PropagateTags": "TASK_DEFINITION"} if propagates else {}
    morning.account.universal_schedule(
        "night", {"TaskDefinition": "nightly", "Cluster": "jobs", **given}
    )
    if propagates and not is_tagged:
        assert morning.send() == []
        done = morning.account.resize("--json")
        assert "its new tag would keep the schedule night from starting" in done.stdout
        return
    line, saving_usd, _ = morning.told()
    assert saving_usd > 1
    assert format_usd(saving_usd) in line


def test_a_saving_of_less_than_a_dollar_is_no_line(morning: Morning) -> None:
    morning.add("cheap", hours=0.1)
    assert morning.send() == []


@pytest.mark.slow
def test_families_beyond_the_first_are_counted_without_an_amount(morning: Morning) -> None:
    names = [f"job-{number}" for number in range(7)]
    for number, name in enumerate(names):
        morning.add(name, 50 - number)
    line, saving_usd, words = morning.told()
    assert f"Other sizes of 5 families would save {format_usd(saving_usd)} a month, and " in line
    assert "the last runs of 2 more recommend a cheaper size" in line
    assert words[2:7] == names[:5]
    assert morning.search.searches < 60


@pytest.mark.parametrize("part", [LOST, {"timed_out": True}, {"terminated_early": True}])
def test_a_part_of_the_runs_is_no_amount(morning: Morning, part: dict[str, Any]) -> None:
    morning.add("nightly")
    morning.search.part = part
    (line,) = morning.send()
    assert f"The last runs of 1 family recommend a cheaper size{NOT_KNOWN}" in line
    assert "so runs are missing" in line
    assert "$" not in line


def test_a_closed_index_of_the_window_is_no_amount(morning: Morning) -> None:
    morning.add("nightly")
    morning.search.closed_index = f"task-reports-{format_ms(time.time_ns())[:7].replace('-', '.')}"
    (line,) = morning.send()
    assert NOT_KNOWN in line
    assert "is closed" in line
    assert "$" not in line


@pytest.mark.parametrize(
    ("refused", "right"),
    [
        ("DescribeTaskDefinition", "ecs:DescribeTaskDefinition"),
        ("ListServices", "ecs:ListServices"),
        ("ListRules", "events:ListRules"),
        ("GET /schedules", "scheduler:ListSchedules"),
        ("GetResources", "tag:GetResources"),
        ("DescribeStackResources", "cloudformation:DescribeStackResources"),
    ],
)
def test_without_a_right_there_is_no_amount(
    morning: Morning, monkeypatch: pytest.MonkeyPatch, refused: str, right: str
) -> None:
    morning.add("nightly")
    with AwsProxy(morning.account.aws.url) as proxy:
        proxy.refused = {refused}
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        forget_environment()
        (line,) = morning.send()
    assert NOT_KNOWN in line
    assert right in line
    assert "$" not in line


@pytest.mark.parametrize(
    ("limit", "why"),
    [("MAX_SEARCHES", "it takes more than 3 searches"), ("MAX_CALLS", "more than 3 calls of AWS")],
)
def test_the_message_is_sent_without_an_amount_where_its_budget_does_not_suffice(
    morning: Morning, monkeypatch: pytest.MonkeyPatch, limit: str, why: str
) -> None:
    morning.add("nightly")
    monkeypatch.setattr(night_savings, limit, 3)
    (line,) = morning.send()
    assert NOT_KNOWN in line
    assert why in line


def test_an_answer_that_is_none_costs_only_the_amount(morning: Morning) -> None:
    morning.add("nightly")
    morning.search.part = {"aggregations": {"groups": {"buckets": [{"key": 1}]}}}
    (line,) = morning.send()
    assert f"{NOT_KNOWN}an answer of AWS or of the search cluster is invalid" in line


def planned(morning: Morning, context: InvocationContext) -> NightSaving:
    """The plan alone, of all families."""
    run = EarlierRun(
        ended_ns=0,
        status="success",
        duration_ms=1,
        peak_mb=1,
        size_mb=1,
        saving_usd_per_month=9,
    )
    history = FamilyHistory(runs={name: [run] for name in morning.search.savings})
    return handler._night_saving(history, time.time_ns(), context)


def started_by_all(morning: Morning) -> None:
    """A family that a schedule and state machines start."""
    morning.add("nightly")
    morning.account.schedule("nightly", "nightly")
    for name in ("one", "two"):
        morning.account.state_machine(name, {"TaskDefinition": "nightly"})


@pytest.mark.slow
def test_whichever_call_is_one_too_many_there_is_no_amount(
    morning: Morning, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some readers go on without an answer, as the command does without a right."""
    started_by_all(morning)
    calls: list[int] = []
    count = night_savings.ReadBudget.count_aws_call

    def counting(budget: night_savings.ReadBudget, **event: object) -> None:
        calls.append(1)
        count(budget, **event)

    with monkeypatch.context() as patch:
        patch.setattr(night_savings.ReadBudget, "count_aws_call", counting)
        whole = planned(morning, DigestContext())
    assert whole.usd_per_month > 1
    for limit in range(len(calls)):
        monkeypatch.setattr(night_savings, "MAX_CALLS", limit)
        problem = planned(morning, DigestContext()).problem
        assert problem == f"it takes more than {limit} calls of AWS"
    monkeypatch.setattr(night_savings, "MAX_CALLS", len(calls))
    assert planned(morning, DigestContext()) == whole


@pytest.mark.parametrize("left_seconds", [15, 29, 119, 899])
def test_calls_without_an_answer_leave_the_message_its_time(
    morning: Morning, monkeypatch: pytest.MonkeyPatch, left_seconds: float
) -> None:
    """Each attempt takes 7 seconds, and up to 2 until the next one."""
    started_by_all(morning)
    context = DigestContext(round(left_seconds * 1000))
    check = night_savings.ReadBudget._check_time

    def spending(budget: night_savings.ReadBudget) -> None:
        check(budget)
        context.left_ms -= 9_000

    monkeypatch.setattr(night_savings.ReadBudget, "_check_time", spending)
    problem = planned(morning, context).problem
    assert (problem is None) is (left_seconds > 500)
    assert context.left_ms >= min(left_seconds * 1000, 11_000)


@pytest.mark.diagonal
@pytest.mark.parametrize("reply", [{}, "a"])
@pytest.mark.parametrize(
    "operation", ["DescribeTaskDefinition", "ListRules", "ListStateMachines", "GetResources"]
)
def test_an_answer_that_is_not_of_aws_costs_no_message(
    morning: Morning, monkeypatch: pytest.MonkeyPatch, operation: str, reply: Any
) -> None:
    morning.add("nightly")
    with AwsProxy(morning.account.aws.url) as proxy:
        proxy.answers[operation] = lambda _request: reply
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        forget_environment()
        lines = morning.send()
    assert all("$" not in line and NOT_KNOWN in line for line in lines)


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        ("resized", "What was unusual, what grows and what would be saved is unknown here (Ela"),
        ("/task-notices", "Due times that were missed are in the next message (Elasticsearch"),
    ],
)
def test_the_runs_are_told_without_what_cannot_be_searched(
    morning: Morning, slack: FakeSlack, broken: str, sentence: str
) -> None:
    """The next message looks for the notices from the same moment on."""
    morning.add("nightly")
    morning.search.broken = broken
    handler.morning_digest({}, DigestContext())
    (message,) = slack.messages
    assert "1 run" in message["text"]
    assert json.dumps(message).count(sentence) == 1
    table = StoredLastMessages(table="done", client=morning.account.aws.client("dynamodb"))
    kept = table.last_remembered("slack", RememberedNight(end_ns=0, whole_ns=0))
    looked_back = (kept.end_ns - (kept.due_whole_ns or 0)) / NS_PER_HOUR
    assert (looked_back > 23) is (broken == "/task-notices")


def test_without_the_runs_there_is_no_message_and_a_retry_has_them(
    morning: Morning, slack: FakeSlack
) -> None:
    morning.add("nightly")
    morning.search.broken = '"night"'
    with pytest.raises(SearchClusterError):
        handler.morning_digest({}, DigestContext())
    assert not slack.messages
    morning.search.broken = None
    handler.morning_digest({}, DigestContext())
    assert len(slack.messages) == 1


@pytest.mark.slow
def test_the_due_times_of_state_machines_count_as_in_the_command(morning: Morning) -> None:
    """Of the inner one, by the outer one's rule, which may be due in each hour: a run of five and a
    half hours could last until the next is due. The control has a machine that nothing starts.
    """
    slower = {"slowdown_at_vcpu": slowdown(v0_25=(1.1, 1.2), v0_5=(1.1, 1.2))}
    for name in ("control", "nightly"):
        morning.add(name, hours=5.5, metrics=slower)
        morning.account.state_machine(name, {"TaskDefinition": name})
    client = morning.account.aws.client("stepfunctions")
    make_machine(client, "outer", machine(executing(machine_arn(client, "nightly"))))
    events = morning.account.aws.client("events")
    events.put_rule(Name="often", ScheduleExpression="rate(6 hours)")
    target = {"Arn": machine_arn(client, "outer"), "RoleArn": "arn:aws:iam::123456789012:role/a"}
    events.put_targets(Rule="often", Targets=[{"Id": "1", **target}])
    line, saving_usd, words = morning.told()
    assert f"Other sizes of 1 family would save {format_usd(saving_usd)} a month:" in line
    assert words[2] == "control"


def test_state_machines_that_may_not_be_read_cost_a_line_of_the_log(
    morning: Morning, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """As in the command, whose saving stays the same."""
    morning.add("nightly")
    with AwsProxy(morning.account.aws.url) as proxy:
        proxy.refused = {"ListStateMachines"}
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        forget_environment()
        line, saving_usd, _ = morning.told()
    assert format_usd(saving_usd) in line
    assert "unknown what state machines of Step Functions start" in capfd.readouterr().out


def test_the_plan_calls_what_the_functions_role_allows(
    morning: Morning, monkeypatch: pytest.MonkeyPatch
) -> None:
    morning.add("nightly")
    morning.account.schedule("nightly", "nightly")
    morning.account.rule("hourly", "nightly")
    morning.account.state_machine("machine", {"TaskDefinition": "nightly"})
    publish(morning.account.aws.client("stepfunctions"), "machine", "live")
    morning.account.family("web")
    morning.account.ecs.create_service(
        cluster="jobs", serviceName="web", taskDefinition="web", desiredCount=0
    )
    made: set[str] = set()
    call = botocore.client.BaseClient._make_api_call

    def recording(client: Any, operation: str, arguments: dict[str, Any]) -> Any:
        service = client.meta.service_model.signing_name.replace("tagging", "tag")
        made.add(f"{service}:{operation}")
        return call(client, operation, arguments)

    with monkeypatch.context() as patch:
        patch.setattr(botocore.client.BaseClient, "_make_api_call", recording)
        assert "$" in morning.send()[0]
    assert {action for action in made if not action.startswith("dynamodb:")} == CALLS


def test_the_functions_role_allows_no_more_than_the_plan_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def allowed(**parameters: str) -> set[str]:
        actions: set[str] = set()
        with moto_account(monkeypatch, REGION):
            stack = deploy(DigestSchedule="rate(1 day)", SlackSecretId="slack", **parameters)
            for statement in stack.statements("MorningDigestRole"):
                if statement["Sid"] not in NOT_OF_THE_PLAN:
                    actions.update(listed(statement["Action"]))
        return actions

    assert allowed() == CALLS
    assert allowed(ElasticsearchUrl="") == {"logs:FilterLogEvents"}
