"""The tags of the task in the record.

``tests/integration/test_monitor_process.py`` has a request that hangs.
"""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from profiler.aggregation.record_parts import RecordPart
from profiler.collectors.collector import Collectors, TaskTags
from profiler.readers import Unavailable
from profiler.record.record_model import Container, Monitor, Record
from tests.collected import with_collected
from tests.values import present

CHECKPOINT = Record(
    task_id="1",
    container=Container(name="batch"),
    status="running",
    monitor=Monitor(warnings=("a.",)),
)
REPORT = Record(
    task_id="1",
    container=Container(name="batch"),
    status="success",
    monitor=Monitor(warnings=("a.",)),
)


def found(
    answer: Mapping[str, str] | Unavailable | None, record: Record = REPORT
) -> tuple[object, tuple[str, ...]]:
    """The tags and the warnings of a record; without an answer, the request is still under way."""
    request: Any = SimpleNamespace(
        result_so_far=lambda: answer
    )  # nothing can wait for it: it has no ``result``
    requests = iter([request])  # the only one
    tags = TaskTags(lambda _batch: next(requests))
    collected = with_collected(record, (tags,))
    assert with_collected(record, (tags,)) == collected
    return collected.tags, present(collected.monitor).warnings


def test_the_tags_are_in_reports_and_checkpoints_if_the_task_has_any() -> None:
    for record in (CHECKPOINT, REPORT):
        assert found({"team": "data"}, record) == ({"team": "data"}, ("a.",))
        assert found({}, record) == (None, ("a.",))


def test_a_failure_is_one_warning_and_a_missing_answer_is_one_of_the_report() -> None:
    failed = found(Unavailable("/taskWithTags answered HTTP 429"))
    assert failed == (None, ("a.", "The task's tags are missing: /taskWithTags answered HTTP 429."))
    assert found(None, CHECKPOINT) == (None, ("a.",))
    missing = "The task's tags are missing: /taskWithTags had not answered when the run ended."
    assert found(None) == (None, ("a.", missing))


class _Broken:
    def part(self, record: Record, batch: str) -> RecordPart:
        raise ValueError(record, batch)

    stacks_line = part


def test_a_defect_in_one_collector_costs_only_its_own_values() -> None:
    request: Any = SimpleNamespace(result_so_far=lambda: {"team": "data"})
    collectors = Collectors(_Broken(), TaskTags(lambda _batch: request))
    collected = with_collected(REPORT, collectors)
    left_out = "Values are left out because of an error in the profiler (ValueError in _Broken)."
    assert collected.tags == {"team": "data"}
    assert present(collected.monitor).warnings == ("a.", left_out)
    assert collectors.stacks_line(REPORT) is None
