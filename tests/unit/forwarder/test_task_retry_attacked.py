"""Retries of killed tasks among odd schedules, changes meanwhile, and interruptions between each
two calls.
"""

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from profiler.forwarder.invocation import DeliveryError
from tests.memory_retries import (
    CLUSTER,
    FAMILY_ARN,
    NEW_ID,
    STOPPED,
    TARGET,
    RetryAccount,
    ended,
)

UNIVERSAL = "arn:aws:scheduler:::aws-sdk:ecs:runTask"
STARTED = "Started again with 1 GB (was 512 MB): task 99999999."


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


@pytest.mark.parametrize("starter", ["chronos-schedule/nightly", "events-rule/nightly"])
@pytest.mark.parametrize("is_carried_out", [False, True])
@pytest.mark.parametrize("has_table", [False, True])
def test_an_invocation_that_ends_at_any_call_leaves_one_retry(
    starter: str, *, is_carried_out: bool, has_table: bool
) -> None:
    """Lambda ends it between two calls, and repeats the event."""
    for nth in range(1, 9):
        fakes = RetryAccount()
        if not has_table:
            fakes.table = None
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


def test_a_refused_call_after_a_lost_one_tells_of_the_task_that_was_started() -> None:
    """Without a change, the same token finds the task."""
    fakes = RetryAccount()
    fakes.aws.lost = "RunTask"
    with pytest.raises(DeliveryError):
        fakes.handle()
    retry = fakes.handle()
    assert retry is not None
    assert retry.retried_as == NEW_ID


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
