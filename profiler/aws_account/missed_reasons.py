"""Why AWS started no task at a due time: the calls that CloudTrail keeps, and the schedule's
dead-letter queue.

Both are asked for a due time that seems missed, and the requests are bounded. No message leaves its
queue.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import cache
from itertools import chain
from typing import Any, TypeAlias

import msgspec

from profiler.aws_account.aws_errors import OpenClient, noted_errors
from profiler.core.ecs_terms import cluster_name, family_of
from profiler.core.errors import TaskProfilerError
from profiler.core.json_fields import (
    decoded_or_none,
    mapping_or_empty,
    mappings_in_list,
    text_or_none,
)
from profiler.core.queue_messages import hidden_messages
from profiler.core.text import on_one_line
from profiler.core.timestamps import NS_PER_HOUR, NS_PER_MINUTE, NS_PER_SECOND, parse_ns
from profiler.record.run_outcome import explained_refusal
from profiler.schedules.schedule_model import Schedule, may_have_starter

_MAX_LOOKUPS = 20
_MAX_PAGES_OF_A_PERIOD = 4
_SECONDS_BETWEEN_LOOKUPS = 0.5  # CloudTrail accepts two a second
_MAX_READS_OF_QUEUES = 100  # 1,000 messages
_HIDDEN_SECONDS = 30  # messages stay hidden this long if a read breaks off
# EventBridge starts a task within a minute of its due time, and tries again at once.
_START_NS = 120 * NS_PER_SECOND
_CHANGES_OF_RULES = ("PutRule", "EnableRule", "PutTargets")
_DELETIONS = ("DeleteSchedule", "DeleteScheduleGroup")
_MAX_REASON_LENGTH = 500
_SERVICES = (".amazonaws.com", ".amazonaws.com.cn")  # the ends of the names of AWS's services

_Event = Mapping[str, Any]
# An invocation that failed: the ARN of the schedule or rule, the due time or a time in its window,
# and the reason.
_DeadLetter: TypeAlias = tuple[str, int, str]


class MissedReasonFinder:
    """Finds the reasons; for one look at the schedules, since it asks for nothing twice.

    ``pause`` takes seconds.
    """

    def __init__(
        self,
        open_client: OpenClient,
        pause: Callable[[float], None],
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.open_client = open_client
        self._pause = pause
        self._warn = warn
        self._lookups_left = _MAX_LOOKUPS
        self._reads_left = _MAX_READS_OF_QUEUES
        # The calls of a period, as far as they were read; None after the last of them.
        self._calls_of = cache(lambda *period: tuple(self._look_up_calls(*period)))
        self._dead_letters = cache(lambda arn: tuple(self._read_dead_letters(arn)) if arn else ())

    def find_reason(self, schedule: Schedule, due_ns: int) -> str | None:
        """Return the reason as a sentence; None if AWS returns none, or not yet."""
        end_ns = due_ns + schedule.window_minutes * NS_PER_MINUTE + _START_NS
        # Of a job and of a state machine, only the dead-letter queue has the reason.
        is_of_task = not (schedule.is_of_jobs or schedule.is_of_machine)
        calls = () if not is_of_task else self._cached_calls("RunTask", due_ns, end_ns)
        letters = self._dead_letters(schedule.dead_letter_arn)
        for event in filter(None, calls):
            reason = _failure_reason(event, schedule)
            if reason:
                return reason
        # A rule's ARN does not contain the default bus.
        names = ([schedule.name], [schedule.group, schedule.name])
        for source_arn, scheduled_ns, letter in letters:
            is_its = source_arn.rpartition(":")[2].split("/")[1:] in names
            if is_its and due_ns <= scheduled_ns < end_ns:
                return letter
        return None

    def was_rule_changed(self, schedule: Schedule, since_ns: int, until_ns: int) -> bool | None:
        """Whether a rule was made, changed or enabled in this period; None if CloudTrail cannot
        be read.
        """
        if schedule.kind != "rule":
            return False
        return self._had_call(_CHANGES_OF_RULES, _is_change_of_rule, schedule, since_ns, until_ns)

    def was_deleted(self, schedule: Schedule, since_ns: int, until_ns: int) -> bool | None:
        """Whether somebody deleted a schedule, or its group, in this period; None if CloudTrail
        cannot be read.
        """
        return self._had_call(_DELETIONS, _is_deletion, schedule, since_ns, until_ns)

    def _had_call(
        self,
        names: Iterable[str],
        is_meant: Callable[[_Event, Schedule], bool],
        schedule: Schedule,
        since_ns: int,
        until_ns: int,
    ) -> bool | None:
        # The same period for the due times of many.
        begin_ns = min(since_ns, until_ns - NS_PER_HOUR)
        calls = [self._cached_calls(name, begin_ns, until_ns) for name in names]
        for event in filter(None, chain(*calls)):
            at_ns = parse_ns(event.get("eventTime")) or 0
            if at_ns >= since_ns and is_meant(event, schedule):
                return True
        if all(events[-1:] == (None,) for events in calls):
            return False
        return None

    def _cached_calls(self, name: str, since_ns: int, until_ns: int) -> tuple[_Event | None, ...]:
        return self._calls_of(name, since_ns // NS_PER_MINUTE, -(-until_ns // NS_PER_MINUTE))

    def _look_up_calls(
        self, name: str, since_minute: int, until_minute: int
    ) -> Iterator[_Event | None]:
        """The calls of an operation in a period, from CloudTrail; None after the last of them."""
        arguments: dict[str, Any] = {
            "LookupAttributes": [{"AttributeKey": "EventName", "AttributeValue": name}],
            "StartTime": datetime.fromtimestamp(since_minute * 60, UTC),
            "EndTime": datetime.fromtimestamp(until_minute * 60, UTC),
        }
        for _ in range(_MAX_PAGES_OF_A_PERIOD):
            if not self._lookups_left:
                return
            page = None
            with noted_errors(
                self._warn, "The reasons of missed runs cannot be read", "cloudtrail:LookupEvents"
            ):
                if self._lookups_left < _MAX_LOOKUPS:
                    self._pause(_SECONDS_BETWEEN_LOOKUPS)
                page = self.open_client("cloudtrail").lookup_events(**arguments)
            if page is None:
                # The next requests would take as long, and fail as well.
                self._lookups_left = 0
                return
            self._lookups_left -= 1
            yield from (_decode_event(event.get("CloudTrailEvent")) for event in page["Events"])
            if not page.get("NextToken"):
                yield None
                return
            arguments["NextToken"] = page["NextToken"]

    def _read_dead_letters(self, arn: str) -> Iterator[_DeadLetter]:
        """Read all messages; of a queue with a redrive policy, none: SQS moves a message that
        was read too often.
        """
        *_, account, name = arn.split(":")
        actions = (
            "sqs:GetQueueUrl, sqs:GetQueueAttributes, sqs:ReceiveMessage and "
            "sqs:ChangeMessageVisibility"
        )
        with noted_errors(self._warn, f"The dead-letter queue {name} cannot be read", actions):
            sqs = self.open_client("sqs")
            url = sqs.get_queue_url(QueueName=name, QueueOwnerAWSAccountId=account)["QueueUrl"]
            policy = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["RedrivePolicy"])
            if policy.get("Attributes"):
                return
            with hidden_messages(sqs, url) as queue:
                while self._reads_left:
                    self._reads_left -= 1
                    messages = queue.receive(
                        VisibilityTimeout=_HIDDEN_SECONDS, MessageAttributeNames=["All"]
                    )
                    if not messages:
                        return
                    yield from filter(None, map(_parse_dead_letter, messages))
            raise TaskProfilerError(
                f"The dead-letter queue {name} has too many messages to read all: delete old ones."
            )


def _failure_reason(event: _Event, schedule: Schedule) -> str | None:
    """Why a call of RunTask started no task; None if the call is not the schedule's, or has
    started a task.
    """
    request = mapping_or_empty(event.get("requestParameters"))
    message = text_or_none(event.get("errorMessage")) or ""
    if request:
        is_its = (
            may_have_starter(schedule, text_or_none(request.get("startedBy")))
            and family_of(str(request.get("taskDefinition"))) == schedule.family
            and cluster_name(text_or_none(request.get("cluster")) or "default")
            == cluster_name(schedule.cluster_arn)
        )
    else:
        # A refused call has no parameters, but its message has the task definition. People call
        # from an address.
        is_its = str(event.get("sourceIPAddress")).endswith(_SERVICES) and (
            f":task-definition/{schedule.family}:" in f"{message} ".replace(" ", ":")
        )
    if not is_its:
        return None
    if event.get("errorCode"):
        return _reason_sentence(f"RunTask failed with {event['errorCode']}", message)
    answer = mapping_or_empty(event.get("responseElements"))
    reasons = {
        text_or_none(failure.get("reason")) for failure in mappings_in_list(answer.get("failures"))
    } - {None}
    if not reasons or answer.get("tasks"):
        return None
    return _reason_sentence(
        "RunTask started no task", ", ".join(map(explained_refusal, sorted(map(str, reasons))))
    )


def _is_change_of_rule(event: _Event, schedule: Schedule) -> bool:
    """Whether the call succeeded and is about the rule, which PutTargets has in another field."""
    request = mapping_or_empty(event.get("requestParameters"))
    return schedule.name in (request.get("name"), request.get("rule")) and not event.get(
        "errorCode"
    )


def _is_deletion(event: _Event, schedule: Schedule) -> bool:
    """Whether somebody, and no service of AWS, has deleted the schedule or its group."""
    if event.get("errorCode") or str(event.get("sourceIPAddress")).endswith(_SERVICES):
        return False
    request = mapping_or_empty(event.get("requestParameters"))
    if event.get("eventName") == "DeleteScheduleGroup":
        return request.get("name") == schedule.group
    group = text_or_none(request.get("groupName")) or "default"
    return (group, request.get("name")) == (schedule.group, schedule.name)


def _parse_dead_letter(message: Mapping[str, Any]) -> _DeadLetter | None:
    """Read a message of EventBridge Scheduler, which contains the time, or of a rule, whose body
    is the event.
    """
    attributes = {
        name: str(mapping_or_empty(value).get("StringValue"))
        for name, value in message.get("MessageAttributes", {}).items()
    }
    source_arn = attributes.get("SCHEDULE_ARN") or attributes.get("RULE_ARN")
    scheduled_ns = parse_ns(attributes.get("SCHEDULED_TIME")) or parse_ns(
        _decode_event(message.get("Body")).get("time")
    )
    if not source_arn or scheduled_ns is None:
        return None
    reason = _reason_sentence(
        attributes.get("ERROR_CODE", "Unknown error"), attributes.get("ERROR_MESSAGE", "")
    )
    return source_arn, scheduled_ns, reason


def _reason_sentence(what: str, why: str) -> str:
    whole = f"{what}: {why}" if why else what
    return on_one_line(whole[:_MAX_REASON_LENGTH]).strip().rstrip(".") + "."


def _decode_event(content: object) -> _Event:
    return (
        mapping_or_empty(decoded_or_none(msgspec.json.decode, content))
        if isinstance(content, str)
        else {}
    )
