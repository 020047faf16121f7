"""Retries of killed tasks among odd schedules, changes meanwhile, and interruptions between each
two calls.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any

import pytest

from profiler.forwarder.invocation import DeliveryError
from tests.cases import each_case
from tests.memory_retries import (
    CLUSTER,
    FAMILY_ARN,
    NEW_ID,
    STOPPED,
    TARGET,
    TASK_ID,
    RetryAccount,
    ended,
)
from tests.task_events import task

UNIVERSAL = "arn:aws:scheduler:::aws-sdk:ecs:runTask"
STARTED = "Started again with 1 GB (was 512 MB): task 99999999."


A1 = {"name": "A", "value": "1"}
B2 = {"name": "B", "value": "2"}


class KilledError(BaseException):
    """Ends an invocation as Lambda does: nothing catches it."""


def cut(fakes: RetryAccount, nth: int, *, is_carried_out: bool) -> Callable[[], None]:
    """Let the n-th call from now end the invocation, before or after AWS does its work. Returns
    what lets later calls pass.
    """
    answer = fakes.aws._answer
    seen = 0

    def answered(request: Any, **more: Any) -> Any:
        nonlocal seen
        seen += 1
        if seen == nth and not is_carried_out:
            raise KilledError
        given = answer(request, **more)
        if seen == nth:
            raise KilledError
        return given

    for client in clients(fakes):
        client.meta.events.unregister("before-send", answer)
        client.meta.events.register_first("before-send", answered)

    def disarm() -> None:
        nonlocal seen
        seen = nth

    return disarm


def clients(fakes: RetryAccount) -> Iterator[Any]:
    ecs, schedules = fakes.retries.aws()
    yield from (ecs, schedules._events, schedules._scheduler)


@pytest.mark.diagonal
@pytest.mark.parametrize("starter", ["chronos-schedule/nightly", "events-rule/nightly"])
@pytest.mark.parametrize("is_carried_out", [False, True])
@pytest.mark.parametrize("has_table", [False, True])
def test_an_invocation_that_ends_at_any_call_leaves_one_retry(
    starter: str, *, is_carried_out: bool, has_table: bool
) -> None:
    """Lambda ends it between two calls, and repeats the event."""
    for nth in range(1, 9):
        fakes = RetryAccount(has_table=has_table)
        fakes.aws.rules = {"nightly": [{**TARGET, "Id": "1"}]}
        run = ended(startedBy=starter)
        disarm = cut(fakes, nth, is_carried_out=is_carried_out)
        try:
            first = fakes.handle(run)
        except KilledError:
            first = None
        assert len(fakes.aws.tasks) <= 1
        disarm()
        again = fakes.handle(run)
        assert again is not None
        assert (again.sentence, again.retried_as) == (STARTED, NEW_ID)
        assert first in (None, again)
        assert len(fakes.aws.tasks) == 1
        if first is not None:
            break
    else:
        pytest.fail("the calls never end")
    assert nth > 4, "each of the calls has ended an invocation"


@pytest.mark.parametrize("meanwhile", ["disabled", "deleted", "changed", "refused"])
def test_what_may_have_been_started_is_never_said_not_to_be(meanwhile: str) -> None:
    """The answer of RunTask is lost, and somebody changes the schedule before the event comes
    again.
    """
    fakes = RetryAccount()
    fakes.aws.lost = "RunTask"
    with pytest.raises(DeliveryError):
        fakes.handle()
    assert len(fakes.aws.tasks) == 1
    if meanwhile == "disabled":
        fakes.aws.settings = {"State": "DISABLED"}
    elif meanwhile == "deleted":
        fakes.aws.targets = {}
    elif meanwhile == "changed":
        fakes.aws.targets = {("default", "nightly"): {**TARGET, "Input": "<aws.scheduler.x>"}}
    else:
        denied = (400, "AccessDeniedException", "no")
        fakes.aws.errors["ListSchedules"] = [denied]
    retry = fakes.handle()
    assert retry is not None
    assert "Not started again" not in retry.sentence
    assert retry.sentence.startswith("It is not known whether it was started again")
    assert "startedBy task-profiler-retry/" in retry.sentence
    assert fakes.handle() == retry
    assert len(fakes.aws.tasks) == 1


@pytest.mark.parametrize("meanwhile", ["disabled", "deleted"])
def test_what_was_certainly_not_started_is_said(meanwhile: str) -> None:
    """The control: no call was ever made, or each was refused."""
    fakes = RetryAccount()
    fakes.aws.errors["GetSchedule"] = [(400, "ThrottlingException", "no")]
    with pytest.raises(DeliveryError):
        fakes.handle()
    if meanwhile == "disabled":
        fakes.aws.settings = {"State": "DISABLED"}
    else:
        fakes.aws.targets = {}
    assert fakes.refusal().startswith("Not started again: its schedule")
    assert fakes.aws.tasks == {}


@pytest.mark.parametrize("has_table", [True, False])
def test_without_a_table_a_refusal_says_that_an_earlier_attempt_is_unknown(
    *, has_table: bool
) -> None:
    """RunTask's answer is lost, and the schedule is switched off before the event comes again."""
    fakes = RetryAccount(has_table=has_table)
    fakes.aws.lost = "RunTask"
    with pytest.raises(DeliveryError):
        fakes.handle()
    fakes.aws.settings = {"State": "DISABLED"}
    retry = fakes.handle()
    assert retry is not None
    starter = f"startedBy task-profiler-retry/{TASK_ID[:8]}."
    assert retry.sentence.endswith(f"look for a task with {starter}")
    reason = "Not started again: its schedule nightly is disabled. Without IDEMPOTENCY_TABLE, "
    assert retry.sentence.startswith(reason) is not has_table
    assert len(fakes.aws.tasks) == 1


def test_a_refused_call_after_a_lost_one_tells_of_the_task_that_was_started() -> None:
    """Without a change, the same token finds the task."""
    fakes = RetryAccount()
    fakes.aws.lost = "RunTask"
    with pytest.raises(DeliveryError):
        fakes.handle()
    retry = fakes.handle()
    assert retry is not None
    assert retry.retried_as == NEW_ID


def test_a_token_that_is_in_use_has_started_the_task_also_if_aws_does_not_name_it() -> None:
    """Who reads that it was not started starts it by hand, beside the one that runs."""
    fakes = RetryAccount()
    fakes.aws.errors["RunTask"] = [(400, "ConflictException", "The token is in use.")]
    retry = fakes.handle()
    assert retry is not None
    assert retry.sentence == "Started again with more memory."
    assert fakes.aws.calls.count("RunTask") == 1


@pytest.mark.parametrize("cluster", [CLUSTER, "jobs"])
def test_a_universal_schedule_of_the_same_name_is_no_starter(cluster: str) -> None:
    """RunTask's own request has its own ``startedBy``."""
    fakes = RetryAccount()
    request = {"TaskDefinition": FAMILY_ARN, "Cluster": cluster}
    universal = {"Arn": UNIVERSAL, "RoleArn": TARGET["RoleArn"], "Input": json.dumps(request)}
    fakes.aws.targets = {("default", "nightly"): TARGET, ("other", "nightly"): universal}
    retry = fakes.handle()
    assert retry is not None
    assert retry.sentence == STARTED
    alone = RetryAccount()
    alone.aws.targets = {("other", "nightly"): universal}
    assert alone.refusal() == "Not started again: its schedule no longer exists."


@pytest.mark.parametrize(("minutes", "is_retried"), [(-1, True), (1, False), (None, True)])
def test_a_schedule_that_was_changed_after_the_start_says_something_else_now(
    minutes: int | None, *, is_retried: bool
) -> None:
    """Its input may be that of another run: a date, a customer, a command."""
    fakes = RetryAccount()
    created = STOPPED - timedelta(hours=1)
    if minutes is not None:
        changed = created + timedelta(minutes=minutes)
        fakes.aws.settings = {"LastModificationDate": changed.timestamp()}
    run = ended(createdAt=created.isoformat())
    if is_retried:
        retry = fakes.handle(run)
        assert retry is not None
        assert retry.sentence == STARTED
        return
    said = "Not started again: its schedule nightly was changed after it had started this run."
    assert fakes.refusal(run) == said
    assert fakes.aws.tasks == {}


GIVEN = {"name": "batch", "command": ["x"], "environment": [A1, B2]}
CHANGED = (
    "Not started again: its rule nightly is not known to give it the same command, environment and "
    "cluster now as this run had."
)


def rule_with(*containers: Mapping[str, object], **more: object) -> dict[str, Any]:
    """A rule's target that gives this to its tasks."""
    source = json.dumps({"containerOverrides": containers})
    return {**TARGET, "Id": "1", "Input": source, **more}


def without(name: str) -> dict[str, object]:
    return {key: value for key, value in GIVEN.items() if key != name}


@each_case(
    ("now", "is_retried"),
    [
        ([rule_with(GIVEN)], True),
        ([rule_with(GIVEN | {"memory": 300})], True),
        ([rule_with(GIVEN | {"environment": [B2, A1]})], True),
        ([rule_with(GIVEN, {"name": "log_router", "environment": []})], True),
        # Another run of the same rule has another target.
        ([rule_with(without("command"), Id="2"), rule_with(GIVEN)], True),
        ([rule_with(GIVEN | {"command": ["y"]})], False),
        ([rule_with(without("command"))], False),
        ([rule_with(GIVEN | {"environment": [A1 | {"value": "2"}, B2]})], False),
        ([rule_with(without("environment"))], False),
        ([rule_with(GIVEN | {"name": "log_router"})], False),
        ([rule_with(GIVEN, Arn=f"{CLUSTER}-2")], False),
        ([rule_with(GIVEN, {"name": "log_router", "command": ["z"]})], False),
        ([rule_with(GIVEN | {"environmentFiles": [{"type": "s3", "value": "arn:x"}]})], False),
        ([{name: value for name, value in rule_with().items() if name != "Input"}], False),
    ],
)
def test_a_rule_that_gives_something_else_now_starts_nothing_again(
    now: list[dict[str, Any]], *, is_retried: bool
) -> None:
    """AWS returns no date of its change, but ECS's event says what the run had."""
    fakes = RetryAccount()
    fakes.aws.rules = {"nightly": now}
    overrides = {"containerOverrides": [GIVEN, {"name": "log_router"}]}
    run = ended(startedBy="events-rule/nightly", overrides=overrides)
    if not is_retried:
        assert fakes.refusal(run) == CHANGED
        assert fakes.aws.tasks == {}
        return
    retry = fakes.handle(run)
    assert retry is not None
    assert retry.sentence == STARTED
    ((asked, _),) = fakes.aws.tasks.values()
    assert asked["overrides"]["containerOverrides"][0]["command"] == ["x"]


@each_case("overrides", [None, {}, {"containerOverrides": "x"}, [GIVEN]])
@each_case("starter", ["chronos-schedule", "events-rule"])
def test_an_event_that_does_not_say_what_a_run_had_proves_no_rule(
    starter: str, overrides: object
) -> None:
    """The control is a schedule, whose last change has a date."""
    fakes = RetryAccount()
    fakes.aws.rules = {"nightly": [rule_with(GIVEN)]}
    run = ended(startedBy=f"{starter}/nightly", overrides=overrides)
    if starter == "events-rule":
        assert fakes.refusal(run) == CHANGED
        return
    retry = fakes.handle(run)
    assert retry is not None
    assert retry.sentence == STARTED


def test_what_a_container_was_given_is_no_text_of_the_task() -> None:
    """An environment has secrets: nothing that is logged or kept shows them."""
    given = [{"name": "batch", "environment": [{"name": "PASSWORD", "value": "hunter2"}]}]
    stopped = task(overrides={"containerOverrides": given})
    assert stopped.work is not None
    assert "hunter2" not in repr(stopped)
    assert "PASSWORD" not in repr(stopped)


@pytest.mark.parametrize(
    "override",
    [
        {"name": {}, "command": "x", "environment": 1},
        {"name": "batch", "command": [[["x"]], None, 1], "environment": [{"name": []}, "x"]},
        {"environmentFiles": [{"value": {}}, 7], "command": {}},
    ],
)
def test_overrides_of_odd_types_cost_nothing(override: dict[str, object]) -> None:
    assert task(overrides={"containerOverrides": [override]}).work is not None
