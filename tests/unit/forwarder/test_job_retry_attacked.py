"""Retries of killed jobs whose invocation ends at each call, and what somebody changes before the
event comes again.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec import Struct

from profiler.forwarder.ended_run import MemoryRetry
from profiler.forwarder.job_retry import JobAwsClients
from tests.fake_batch import FakeBatch
from tests.notices import KeyTable
from tests.retried_jobs import Job, RetriedJobs, batch_with_etl, killed
from tests.values import present

UNKNOWN = "It is not known whether it was started again"


class KilledError(BaseException):
    """Ends an invocation as Lambda does: nothing catches it."""


class EndlessKeys(KeyTable):
    """The key of work that was killed stays busy."""

    def once(self, key: str, work: Callable[[], Any]) -> Any:
        try:
            return super().once(key, work)
        except KilledError:
            self.busy.add(key)
            raise


class Mortal(Struct):
    """A client of which the n-th call of all ends the invocation."""

    client: Any
    calls: list[str]
    nth: int
    is_carried_out: bool

    def __getattr__(self, name: str) -> Any:
        call = getattr(self.client, name)
        if name in ("exceptions", "meta"):
            return call

        def made(**asked: Any) -> Any:
            self.calls.append(name)
            is_last = len(self.calls) == self.nth
            if is_last and not self.is_carried_out:
                raise KilledError
            answer = call(**asked)
            if is_last:
                raise KilledError
            return answer

        return made


@pytest.fixture
def batch() -> Iterator[FakeBatch]:
    with batch_with_etl() as fake:
        yield fake


def ended_at(account: RetriedJobs, job: Job, nth: int, *, is_carried_out: bool) -> str | None:
    """Let the n-th call end the invocation; the name of that call, None if there are fewer."""
    calls: list[str] = []
    client = account.clients.batch
    mortal = Mortal(client, calls, nth, is_carried_out)
    account.begun = EndlessKeys()
    whole = account.clients
    account.clients = JobAwsClients(mortal, mortal, account.instances, account.schedules)
    try:
        account.handle(job)
    except KilledError:
        return calls[-1]
    finally:
        account.clients = whole
    return None


def change_nothing(_account: RetriedJobs, _job: Job) -> None:
    """The event comes again, and all is as it was."""


def switch_off(account: RetriedJobs, _job: Job) -> None:
    account.schedules.add(State="DISABLED")


def forbid(account: RetriedJobs, _job: Job) -> None:
    account.batch.refused.add("DescribeJobDefinitions")


def forget(account: RetriedJobs, job: Job) -> None:
    del account.batch.jobs[job["jobId"]]


def grow_old(account: RetriedJobs, _job: Job) -> None:
    """A redrive the day after."""
    account.batch.now_ms += 24 * 3_600_000


@pytest.mark.parametrize("is_carried_out", [False, True])
@pytest.mark.parametrize("meanwhile", [change_nothing, switch_off, forbid, forget, grow_old])
def test_an_invocation_that_ends_at_any_call_submits_once_and_denies_nothing(
    batch: FakeBatch, meanwhile: Callable[[RetriedJobs, Job], None], *, is_carried_out: bool
) -> None:
    seen = set()
    for nth in range(1, 9):
        account = RetriedJobs(batch)
        job = killed(batch)
        batch.refused.clear()
        before = len(batch.requests("SubmitJob"))
        name = ended_at(account, job, nth, is_carried_out=is_carried_out)
        if name is None:
            break
        seen.add(name)
        made = len(batch.requests("SubmitJob")) - before
        assert made == (name == "submit_job" and is_carried_out)
        meanwhile(account, job)
        retry: MemoryRetry = present(account.handle(job))
        batch.refused.clear()
        again = len(batch.requests("SubmitJob")) - before
        if name == "submit_job":  # nobody knows whether Batch has carried it out
            assert retry.sentence.startswith(UNKNOWN)
            assert again == made
        elif meanwhile is change_nothing:
            assert retry.retried_as is not None
            assert again == 1
        else:
            assert retry.sentence.startswith("Not started again: ")
            assert again == 0
        assert account.handle(job) == retry
    else:
        pytest.fail("the calls never end")
    assert seen >= {"describe_jobs", "describe_job_definitions", "submit_job"}


def test_a_job_that_was_submitted_is_told_although_its_result_was_not_kept(
    batch: FakeBatch,
) -> None:
    """The invocation ends after the submission's key was written, and before its own."""
    account = RetriedJobs(batch)
    job = killed(batch)
    first = present(account.handle(job))
    account.table = KeyTable()
    account.schedules.add(State="DISABLED")
    assert account.handle(job) == first
    assert len(batch.requests("SubmitJob")) == 1


def deny(account: RetriedJobs, *, is_denied: bool) -> None:
    account.batch.refused = {"SubmitJob"} if is_denied else set()


def disable(account: RetriedJobs, *, is_denied: bool) -> None:
    if is_denied:
        account.schedules.add(State="DISABLED")
    else:
        account.schedules.targets.clear()


@pytest.mark.parametrize("refuse", [deny, disable])
def test_a_refusal_is_told_although_its_result_was_not_kept(
    batch: FakeBatch, refuse: Callable[..., None]
) -> None:
    """The invocation ends before its own key is written, and nothing refuses it afterwards."""
    account = RetriedJobs(batch)
    job = killed(batch)
    refuse(account, is_denied=True)
    first = present(account.handle(job))
    assert first.sentence.startswith("Not started again: ")
    submitted = len(batch.requests("SubmitJob"))
    account.table = KeyTable()
    refuse(account, is_denied=False)
    assert account.handle(job) == first
    assert len(batch.requests("SubmitJob")) == submitted
