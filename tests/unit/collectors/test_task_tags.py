"""The tags of the task: one request in the background, and its result in the record."""

import threading
from collections.abc import Mapping

from profiler.collectors.collector import TaskTags, with_collected
from profiler.core.clock import SystemClock
from profiler.core.threads import BackgroundCall
from profiler.readers import Unavailable
from profiler.record.record_model import Container, Monitor, Record
from tests.values import present
from tools.waiting import wait_until

CHECKPOINT = Record(task_id="1", container=Container(name="batch"), status="running", monitor=Monitor(warnings=("a.",)))
REPORT = Record(task_id="1", container=Container(name="batch"), status="success", monitor=Monitor(warnings=("a.",)))


def after_answer(answer: Mapping[str, str] | Unavailable, record: Record = REPORT) -> Record:
    request: BackgroundCall[Mapping[str, str] | Unavailable] = BackgroundCall(lambda: answer, SystemClock(), 10)
    assert request.result() == answer
    return with_collected(record, (TaskTags(lambda _batch: request),))


def warnings(record: Record) -> tuple[str, ...]:
    return present(record.monitor).warnings


def test_the_tags_are_in_reports_and_checkpoints_if_the_task_has_any() -> None:
    for record in (CHECKPOINT, REPORT):
        found = after_answer({"team": "data"}, record)
        assert (found.tags, warnings(found)) == ({"team": "data"}, ("a.",))
        assert after_answer({}, record) == record


def test_a_failure_is_one_warning() -> None:
    found = after_answer(Unavailable("/taskWithTags answered HTTP 429"))
    assert found.tags is None
    assert warnings(found) == ("a.", "The task's tags are missing: /taskWithTags answered HTTP 429.")


def test_nothing_waits_for_a_request_that_hangs() -> None:
    over, sent = threading.Event(), []

    def hang() -> Mapping[str, str] | Unavailable:
        sent.append(threading.current_thread())
        over.wait(30)
        return {}

    tags = TaskTags(lambda _batch: BackgroundCall(hang, SystemClock(), 0))
    assert with_collected(CHECKPOINT, (tags,)) == CHECKPOINT
    assert warnings(with_collected(REPORT, (tags,)))[1:] == (
        "The task's tags are missing: /taskWithTags had not answered when the run ended.",
    )
    assert not over.is_set()
    wait_until(lambda: sent, 10, "the request")
    assert len(sent) == 1
    assert sent[0].daemon
    over.set()
