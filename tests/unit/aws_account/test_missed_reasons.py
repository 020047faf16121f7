import json
from typing import Any
from unittest.mock import Mock

from botocore.exceptions import ClientError
from msgspec.structs import replace

from profiler.aws_account.missed_reasons import MissedReasonFinder
from profiler.core.timestamps import NS_PER_SECOND, parse_ns
from profiler.schedules.schedule_model import Schedule
from tests.cases import each_case
from tests.scheduled_account import ACCOUNT, REGION, FakeCloudTrail, event, run_task

MINUTE_NS = 60 * NS_PER_SECOND
DUE = "2026-11-20T03:00:00Z"
QUEUE = f"arn:aws:sqs:{REGION}:{ACCOUNT}:failed-starts"
SCHEDULE = Schedule(
    kind="schedule",
    name="nightly",
    expression="cron(0 3 * * ? *)",
    cluster_arn=f"arn:aws:ecs:{REGION}:{ACCOUNT}:cluster/jobs",
    definition_arn=f"arn:aws:ecs:{REGION}:{ACCOUNT}:task-definition/nightly:3",
    dead_letter_arn=QUEUE,
)
RULE = replace(SCHEDULE, kind="rule")
DUE_NS = parse_ns(DUE) or 0


class FakeSqs:
    """A queue on three servers: a long poll asks all of them, a short one the next.

    A message that was read is hidden until its visibility timeout is set to 0; none is ever
    deleted.
    """

    def __init__(self, *messages: dict[str, Any], is_redriven: bool = False) -> None:
        self.messages, self._is_redriven = messages, is_redriven
        self.hidden, self.reads = set[str](), 0

    def get_queue_url(self, **given: Any) -> dict[str, Any]:
        assert given == {"QueueName": "failed-starts", "QueueOwnerAWSAccountId": ACCOUNT}
        return {"QueueUrl": "https://sqs/failed-starts"}

    def get_queue_attributes(self, **given: Any) -> dict[str, Any]:
        assert given["AttributeNames"] == ["RedrivePolicy"]
        return {"Attributes": {"RedrivePolicy": "{}"}} if self._is_redriven else {}

    def receive_message(self, **given: Any) -> dict[str, Any]:
        assert given["MaxNumberOfMessages"] <= 10
        self.reads += 1
        asked = (
            self.messages if given.get("WaitTimeSeconds") else self.messages[self.reads % 3 :: 3]
        )
        found = [one for one in asked if one["MessageId"] not in self.hidden][
            : given["MaxNumberOfMessages"]
        ]
        if given["VisibilityTimeout"]:
            self.hidden.update(message["MessageId"] for message in found)
        return (
            {"Messages": [{**one, "ReceiptHandle": one["MessageId"]} for one in found]}
            if found
            else {}
        )

    def change_message_visibility_batch(self, **given: Any) -> dict[str, Any]:
        assert len(given["Entries"]) <= 10
        for entry in given["Entries"]:
            assert entry["VisibilityTimeout"] == 0
            self.hidden.remove(entry["ReceiptHandle"])
        return {"Successful": [{"Id": entry["Id"]} for entry in given["Entries"]]}


def letter(
    source: str, code: str = "AccessDenied", *, body: str = "{}", **attributes: str
) -> dict[str, Any]:
    name, _, arn = source.partition("=")
    values = {name: arn, "ERROR_CODE": code, "ERROR_MESSAGE": "Not allowed.", **attributes}
    return {
        "MessageId": repr((source, body, attributes)),
        "Body": body,
        "MessageAttributes": {
            name: {"DataType": "String", "StringValue": value} for name, value in values.items()
        },
    }


def reasons(
    trail: Any = None,
    sqs: Any = None,
    said: list[str] | None = None,
    waited: list[float] | None = None,
) -> MissedReasonFinder:
    return MissedReasonFinder(
        {"cloudtrail": trail or FakeCloudTrail(), "sqs": sqs or FakeSqs()}.__getitem__,
        pause=(waited if waited is not None else []).append,
        warn=(said if said is not None else []).append,
    )


INACTIVE: Any = {
    "errorCode": "ClientException",
    "errorMessage": "TaskDefinition is inactive",
    "responseElements": None,
}
NOT_ALLOWED = (
    "User: x is not authorized to perform: ecs:RunTask on resource: "
    f"arn:aws:ecs:{REGION}:{ACCOUNT}:task-definition/nightly:3 because no policy allows it"
)
REFUSED_CALL = {
    "errorCode": "AccessDenied",
    "errorMessage": NOT_ALLOWED,
    "sourceIPAddress": "events.amazonaws.com",
}
IN_CHINA = "events.amazonaws.com.cn"
CALLED = "2026-11-20T03:00:41Z"
SOME_STARTED = {"failures": [{"reason": "AGENT"}], "tasks": [{"taskArn": "arn:aws:ecs:x"}]}
FULL = "Capacity is unavailable at this time. Please try again later."


@each_case(
    ("call", "reason"),
    [
        (run_task(CALLED, failure="RESOURCE:MEMORY"), "RunTask started no task: RESOURCE:MEMORY."),
        (
            run_task(CALLED, failure="AGENT"),
            (
                "RunTask started no task: AGENT (the ECS agent of the container instance is not "
                "connected)."
            ),
        ),
        (run_task(CALLED, failure=FULL), f"RunTask started no task: {FULL}"),
        (
            run_task(CALLED, **INACTIVE),
            "RunTask failed with ClientException: TaskDefinition is inactive.",
        ),
        (
            event("RunTask", CALLED, None, **REFUSED_CALL),
            f"RunTask failed with AccessDenied: {NOT_ALLOWED}.",
        ),
        (
            event("RunTask", CALLED, None, **{**REFUSED_CALL, "sourceIPAddress": IN_CHINA}),
            f"RunTask failed with AccessDenied: {NOT_ALLOWED}.",
        ),
        (run_task(CALLED), None),
        (run_task(CALLED, responseElements=SOME_STARTED), None),
        (run_task("2026-11-20T02:58:00Z", failure="RESOURCE:CPU"), None),
        (run_task("2026-11-20T03:04:00Z", failure="RESOURCE:CPU"), None),
        (run_task(CALLED, failure="RESOURCE:CPU", started_by="chronos-schedule/hourly"), None),
        (run_task(CALLED, failure="RESOURCE:CPU", family="hourly"), None),
        (run_task(CALLED, failure="RESOURCE:CPU", cluster="other"), None),
        (event("RunTask", CALLED, None, **{**REFUSED_CALL, "errorMessage": "iam:PassRole"}), None),
        # A person who may not start the task either.
        (
            event("RunTask", CALLED, None, **{**REFUSED_CALL, "sourceIPAddress": "198.51.100.7"}),
            None,
        ),
        (event("RunTask", CALLED, {"startedBy": 7}, responseElements=[]), None),
    ],
)
def test_the_schedules_own_failed_call_is_the_reason_and_no_other_one(
    call: dict[str, Any], reason: str | None
) -> None:
    assert reasons(FakeCloudTrail(call)).find_reason(SCHEDULE, DUE_NS) == reason


LONG = "etl-of-all-orders-of-the-north"
OTHER = "etl-of-all-orders-of-the-south"  # the same in the first 19 characters


@each_case(
    ("started_by", "is_its"),
    [
        (f"chronos-schedule/{LONG}", True),  # ECS accepts 128 characters
        (f"chronos-schedule/{LONG}"[:36], True),
        (f"chronos-schedule/{OTHER}", False),
        (f"chronos-schedule/{OTHER}"[:36], True),  # AWS does not tell them apart
        (f"events-rule/{LONG}", False),
    ],
)
def test_a_call_of_a_schedule_with_a_long_name_is_known_whole_and_cut(
    started_by: str,
    is_its: bool,  # noqa: FBT001
) -> None:
    call = run_task(CALLED, failure="AGENT", started_by=started_by)
    reason = reasons(FakeCloudTrail(call)).find_reason(replace(SCHEDULE, name=LONG), DUE_NS)
    assert (reason is not None) == is_its


@each_case(
    ("cluster", "asked", "is_its"),
    [("default", {}, True), ("jobs", {}, False), ("jobs", {"cluster": "jobs"}, True)],
)
def test_a_request_without_a_cluster_is_for_the_default_one(
    cluster: str,
    asked: dict[str, str],
    is_its: bool,  # noqa: FBT001
) -> None:
    """Of a universal target, the request is the schedule's input."""
    arn = SCHEDULE.cluster_arn.replace("jobs", cluster)
    universal = replace(SCHEDULE, cluster_arn=arn, requested_starter="nightly")
    request = {"taskDefinition": "nightly", "startedBy": "nightly", **asked}
    failures = {"failures": [{"reason": "AGENT"}], "tasks": []}
    call = event("RunTask", CALLED, request, responseElements=failures)
    reason = reasons(FakeCloudTrail(call)).find_reason(universal, DUE_NS)
    assert (reason is not None) == is_its


def test_all_pages_of_a_window_are_read_once_and_slowly() -> None:
    late = run_task("2026-11-20T03:20:00Z", failure="RESOURCE:CPU")
    assert reasons(FakeCloudTrail(late)).find_reason(replace(SCHEDULE, window_minutes=30), DUE_NS)
    waited: list[float] = []
    others = [
        run_task("2026-11-20T03:00:59Z", started_by=f"events-rule/{number}") for number in range(5)
    ]
    trail = FakeCloudTrail(*others, run_task("2026-11-20T03:00:05Z", failure="RESOURCE:CPU"))
    found = reasons(trail, waited=waited)
    assert (
        found.find_reason(SCHEDULE, DUE_NS)
        == found.find_reason(SCHEDULE, DUE_NS)
        == "RunTask started no task: RESOURCE:CPU."
    )
    assert len(trail.requests) == 3
    assert waited == [0.5, 0.5]


def test_requests_are_bounded() -> None:
    trail = FakeCloudTrail()
    found = reasons(trail)
    assert {found.find_reason(SCHEDULE, DUE_NS + minute * MINUTE_NS) for minute in range(100)} == {
        None
    }
    assert len(trail.requests) == 20
    said: list[str] = []
    sqs = FakeSqs(
        *[
            letter("SCHEDULE_ARN=x", SCHEDULED_TIME=DUE, NUMBER=str(number))
            for number in range(1100)
        ]
    )
    assert reasons(sqs=sqs, said=said).find_reason(SCHEDULE, DUE_NS) is None
    assert sqs.reads == 100
    assert sqs.hidden == set()
    assert said == [
        "The dead-letter queue failed-starts has too many messages to read all: delete old ones."
    ]
    sqs = FakeSqs(is_redriven=True)  # SQS moves a message that was read too often
    assert reasons(sqs=sqs).find_reason(SCHEDULE, DUE_NS) is None
    assert sqs.reads == 0


def test_a_long_dead_letter_queue_is_read_to_its_end() -> None:
    """A long dead letter queue is read to its end and its messages are visible again."""
    arn = f"SCHEDULE_ARN=arn:aws:scheduler:{REGION}:{ACCOUNT}:schedule/default/"
    others = [
        letter(f"{arn}other", SCHEDULED_TIME=f"2026-11-19T03:{n // 60:02}:{n % 60:02}Z")
        for n in range(288)
    ]
    sqs = FakeSqs(*others, letter(f"{arn}nightly", SCHEDULED_TIME=DUE))
    found = reasons(sqs=sqs)
    assert found.find_reason(SCHEDULE, DUE_NS) == "AccessDenied: Not allowed."
    assert found.find_reason(SCHEDULE, DUE_NS + 24 * 60 * MINUTE_NS) is None
    assert found.find_reason(replace(SCHEDULE, group="nights"), DUE_NS) is None
    assert sqs.reads == 30
    assert sqs.hidden == set()


def test_the_dead_letter_queue_of_a_rule_has_the_event() -> None:
    arn = f"RULE_ARN=arn:aws:events:{REGION}:{ACCOUNT}:"
    sqs = FakeSqs(
        letter(f"{arn}rule/elsewhere/nightly", "Other", body=json.dumps({"time": DUE})),
        letter(f"{arn}rule/nightly", "Early", body=json.dumps({"time": "2026-11-20T02:00:00Z"})),
        letter(
            f"{arn}rule/nightly", body=json.dumps({"time": DUE, "detail-type": "Scheduled Event"})
        ),
        {"MessageId": "x", "Body": "not of EventBridge"},
    )
    assert reasons(sqs=sqs).find_reason(RULE, DUE_NS) == "AccessDenied: Not allowed."


DENIED = Mock(
    side_effect=ClientError(
        {"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "LookupEvents"
    )
)
REFUSING = Mock(lookup_events=DENIED, get_queue_url=DENIED)


def test_what_cannot_be_read_gives_no_reason_but_one_warning() -> None:
    said: list[str] = []
    found = reasons(REFUSING, REFUSING, said)
    assert [found.find_reason(SCHEDULE, DUE_NS + minutes * MINUTE_NS) for minutes in (0, 60)] == [
        None,
        None,
    ]
    refused = "cannot be read: AWS refused (AccessDeniedException: no): allow"
    sqs = (
        "sqs:GetQueueUrl, sqs:GetQueueAttributes, sqs:ReceiveMessage and "
        "sqs:ChangeMessageVisibility"
    )
    assert said == [
        f"The reasons of missed runs {refused} cloudtrail:LookupEvents.",
        f"The dead-letter queue failed-starts {refused} {sqs}.",
    ]


CHANGED = "2026-11-20T03:05:00Z"
END_NS = DUE_NS + 20 * MINUTE_NS


def change(name: str, /, **parameters: Any) -> dict[str, Any]:
    return event(name, CHANGED, parameters)


@each_case(
    ("called", "is_changed"),
    [
        (change("PutRule", name="nightly", eventBusName="default"), True),
        (change("EnableRule", name="nightly"), True),
        (change("PutTargets", rule="nightly", targets=[]), True),
        (change("PutTargets", rule="hourly", targets=[]), False),
        (event("PutRule", "2026-11-20T02:55:00Z", {"name": "nightly"}), False),
        (change("PutRule", name="hourly"), False),
        (event("PutRule", CHANGED, {"name": "nightly"}, errorCode="AccessDenied"), False),
        (change("DisableRule", name="nightly"), False),
    ],
)
def test_a_rule_that_was_changed_later_may_not_have_been_due(
    called: dict[str, Any], *, is_changed: bool
) -> None:
    assert reasons(FakeCloudTrail(called)).was_rule_changed(RULE, DUE_NS, END_NS) is is_changed
    assert not reasons(FakeCloudTrail(called)).was_rule_changed(SCHEDULE, DUE_NS, END_NS)


def test_without_cloudtrail_it_is_unknown_whether_a_rule_was_changed() -> None:
    assert reasons(REFUSING).was_rule_changed(RULE, DUE_NS, END_NS) is None
    assert reasons(REFUSING).was_rule_changed(SCHEDULE, DUE_NS, END_NS) is False
    others = [change("PutTargets", rule=f"rule-{number}") for number in range(100)]
    assert reasons(FakeCloudTrail(*others)).was_rule_changed(RULE, DUE_NS, END_NS) is None
