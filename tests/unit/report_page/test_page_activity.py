"""What the processes of a run did, as the page has it, in compressed JSON of a limited length."""

import json
import random
import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from profiler.record.activity_model import ProcessSeries, StacksLine, StackStep, TimeBreakdown
from profiler.record.record_model import Report
from profiler.report_page.page_activity import MAX_CHARACTERS, activity_fields, activity_texts
from profiler.report_page.page_data import array_of, build_page_data, first_that_fit
from profiler.report_page.page_series import compressed
from tests import shown_runs
from tests.report_page import parsed, report, run_of
from tests.unit.report_page.test_html_document import INJECTIONS
from tests.values import present

CHANCE = random.Random(2)
WAITING = shown_runs.waiting()
TEXTS = st.lists(st.text(max_size=60) | st.integers() | st.none(), max_size=60)


def lines(text: str) -> list[Any]:
    return [parsed(line) if line else None for line in text.split("\n")]


def waiting_stacks(_report: Report) -> StacksLine:
    return shown_runs.waiting_stacks()


def with_stacks(number: int) -> Report:
    return replace(WAITING, record=replace(WAITING.record, task_id=f"{number:032x}"))


def long_stacks(length: int) -> StacksLine:
    stacks = {CHANCE.randbytes(50).hex(): 1 for _ in range(length // 100)}
    return StacksLine(
        type="task.stacks",
        task_id="t",
        container="batch",
        steps=(StackStep(offset_ms=0, duration_ms=1000, stacks=stacks),),
    )


def test_the_parts_of_the_time_have_the_order_of_the_breakdown() -> None:
    fields = activity_fields(WAITING.record)
    assert fields["time"] == [31.2, 4.1, 3, 55.4, 5, 0.2, 0, 0, 1.1]
    assert fields["targets"][0] == ["network", "10.0.3.9:5432", 48.3]
    assert "covered" not in fields
    partly = replace(WAITING.record, time_breakdown=TimeBreakdown(covered_percent=94.96))
    assert activity_fields(partly)["covered"] == 94.96


def test_a_run_that_nobody_looked_into_has_no_fields() -> None:
    assert activity_fields(report().record) == {}
    assert activity_fields(replace(WAITING.record, time_breakdown=TimeBreakdown())).get("time") is None


def test_processes_and_stacks_are_a_text_for_each_run() -> None:
    none, found = lines(activity_texts([report(), WAITING], waiting_stacks, MAX_CHARACTERS))
    assert none is None
    assert found["steps"] == [119, 10_000, 1_182_000]
    assert [one[0] for one in found["processes"]] == ["python3 export.py", "gzip", "other"]
    assert found["processes"][2][1][:2] == [None, 0]
    assert found["processes"][2][2] is None
    assert set(found["wait"]) == {0.1}
    assert found["stacks"][1][:2] == [420_000, 60_000]
    assert found["stacks"][1][2]["<module> (job.py);load_orders (etl/load.py);recv (socket.py) [waiting]"] == 54


def test_the_newest_runs_have_texts_as_far_as_there_is_room() -> None:
    text = activity_texts([with_stacks(number) for number in range(40)], waiting_stacks, 8000)
    assert len(text) <= 8000
    found = [line is not None for line in lines(text)]
    assert 2 < sum(found) < 40
    assert found == sorted(found, reverse=True)


def test_stacks_that_do_not_fit_leave_the_processes() -> None:
    (found,) = lines(activity_texts([WAITING], lambda _report: long_stacks(200_000), 20_000))
    assert found.keys() == {"steps", "processes", "wait"}


def test_the_stacks_of_at_most_fifty_runs_are_read() -> None:
    asked: list[str] = []

    def stacks_of(one: Report) -> None:
        asked.append(one.record.task_id)

    activity_texts([with_stacks(number) for number in range(80)], stacks_of, MAX_CHARACTERS)
    assert asked == [f"{number:032x}" for number in range(50)]


def test_the_page_with_stacks_is_not_longer_than_its_limit() -> None:
    runs = [run_of(with_stacks(number)) for number in range(60)]
    made = build_page_data(
        runs, generated_at="", version="", stacks_of=lambda _report: long_stacks(200_000), max_bytes=600_000
    )
    assert made.activity
    assert len(made.text) + len(made.series) + len(made.activity) <= 600_000


@given(st.sampled_from(INJECTIONS) | st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_stays_inside_its_element(text: str) -> None:
    series = present(WAITING.record.series)
    odd = replace(series, processes=(ProcessSeries(command=text, vcpu_used=(1.0,)),))
    one = replace(WAITING, record=replace(WAITING.record, series=odd))
    step = StackStep(offset_ms=0, duration_ms=1, stacks={text: 1})
    line = StacksLine(type="task.stacks", task_id="t", container="c", steps=(step,))
    packed = activity_texts([one], lambda _report: line, MAX_CHARACTERS)
    assert re.fullmatch("[A-Za-z0-9+/=\n]+", packed)
    (found,) = lines(packed)
    assert found["processes"][0][0] == text
    assert found["stacks"] == [[0, 1, {text: 1}]]


@given(values=TEXTS, room=st.integers(0, 2000), at_least=st.integers(0, 3))
def test_an_array_is_no_longer_than_it_may_be(values: list[object], room: int, at_least: int) -> None:
    texts, left = first_that_fit(values, room, share=0.5, at_least=at_least)
    text = compressed(array_of(texts))
    assert len(text) <= room / 2 or len(texts) <= at_least
    assert left == max(room - len(text), 0)
    assert parsed(text) == values[: len(texts)]
    if at_least < len(texts) < len(values):
        assert len(compressed(array_of([*texts, json.dumps(values[len(texts)])]))) > room / 2 - 8
