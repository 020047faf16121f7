"""The HTML page of past runs, and the command that makes it."""

import functools
import hashlib
import json
import re
import sqlite3
import string
from collections.abc import Mapping, Sequence
from contextlib import closing
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from profiler.cli.report_command import command
from profiler.core.errors import TaskProfilerError, UsageError
from profiler.history.run_database import HistoryStore
from profiler.history.timeline import Point
from profiler.html_report.data import (
    MAX_BYTES,
    build_page_data,
)
from profiler.html_report.packed_runs import pack_runs
from profiler.html_report.packed_series import (
    MAX_STEPS,
    columns,
    pack_column,
    pack_columns,
    series_members,
    steps_per_run,
)
from profiler.html_report.page import Assets, escape_for_script, render_page, round_significant, to_script_json
from profiler.html_report.runs import (
    Run,
    Step,
    downsample,
    series_of_steps,
    steps_of_checkpoints,
    steps_of_points,
    steps_of_series,
)
from profiler.past_runs.run_source import PastRun
from profiler.record.model import (
    Container,
    Distribution,
    Interval,
    Metrics,
    OtherContainer,
    Record,
    RecordType,
    Report,
    Series,
    encode,
)
from profiler.record.run_outcome import Status
from tests import shown_runs
from tests.fakes import FakeClock
from tests.runs import checkpoint as one_checkpoint
from tests.runs import report as sized_run
from tools.chart_library import BUNDLE, SHA256, VERSION

INJECTIONS = (
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "]]><img src=x onerror=alert(1)>",
    "&lt;b&gt;",
    "\u2028\u2029\u202e",
    "\"'`${alert(1)}",
    "\x00\x1b[31m",
    "%{x}<br><a href='javascript:alert(1)'>",
)
DIGITS = string.ascii_uppercase + string.ascii_lowercase + string.digits + "-_"
ASSETS = Assets(body="<main></main>", style="main {}", plotly="var a = '</script>';", scripts=("one();", "two();"))


def report(
    task_id: str = "t",
    *,
    day: int = 1,
    family: str | None = "etl",
    status: Status = "success",
    kind: RecordType = "task.report",
    minute: int = 0,
    metrics: Metrics | None = None,
    interval: Interval | None = None,
    out_of_memory: bool | None = None,
) -> Report:
    record = Record(
        task_id=task_id,
        family=family,
        container=Container(name="batch"),
        status=status,
        likely_out_of_memory=out_of_memory,
        started_at=f"2026-11-{day:02d}T06:00:00.000Z",
        metrics=metrics or Metrics(),
        interval=interval,
    )
    return Report(time=f"2026-11-{day:02d}T06:{minute:02d}:00.000Z", type=kind, record=record)


def checkpoint(task_id: str, minute: int, *, vcpu: float | None = 0.5, memory_mb: float | None = 100.0) -> Report:
    interval = Interval(
        finished_at=f"2026-11-01T06:{minute:02d}:00.000Z",
        vcpu_used=None if vcpu is None else Distribution(avg=vcpu),
        memory_used_mb=None if memory_mb is None else Distribution(avg=1.0, max=memory_mb),
    )
    return report(task_id, status="running", kind="task.checkpoint", minute=minute, interval=interval)


def step(elapsed_ms: int, vcpu: float | None = 1.0, memory_mb: float | None = 10.0, **more: Any) -> Step:
    return Step(elapsed_ms=elapsed_ms, vcpu_used=vcpu, memory_used_mb=memory_mb, **more)


def run_of(one: Report, steps: tuple[Step, ...] = ()) -> Run:
    return Run(past=PastRun(report=one, line=encode(one)), steps=steps)


def io_checkpoint(minute: int, read_bytes: int | None, write_bytes: int | None) -> Report:
    """A checkpoint with the bytes read and written since the run's start."""
    one = checkpoint("a", minute)
    totals = Metrics(block_read_bytes=read_bytes, block_write_bytes=write_bytes)
    return replace(one, record=replace(one.record, metrics=totals))


def content(runs: Sequence[Run]) -> Any:
    return unpacked(build_page_data(runs, generated_at="2026-11-20T06:00:00.000Z", version="1").text)


def unpacked(data: str) -> Any:
    """Parse the data block as the page's script does."""
    found = json.loads(data)

    def text(value: Any) -> Any:
        return [text(one) for one in value] if isinstance(value, list) else found["texts"][value]

    found["runs"] = [
        {
            field: text(value) if field in found["shared"] else value
            for field, value in zip(found["fields"], run, strict=True)
            if value is not None
        }
        for run in found["runs"]
    ]
    found["series"] = {run: decoded(series) for run, series in found["series"].items()}
    return found


def decoded(series: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Decode a time series as the page's script does."""
    columns = dict(series)
    if "steps" in columns:
        count, length, end = columns.pop("steps")
        times = [*(length * number for number in range(1, count)), end]
    else:
        times = columns.pop("ms")
    return {"ms": times, **{name: decoded_column(column, len(times)) for name, column in columns.items()}}


def decoded_column(column: Sequence[Any], count: int) -> list[float | None]:
    maximum, text = column
    width = len(text) // count
    texts = [text[start : start + width] for start in range(0, len(text), width)]
    levels = len(DIGITS) ** width - 1

    def level(digits: str) -> int:
        return functools.reduce(lambda value, digit: value * len(DIGITS) + DIGITS.index(digit), digits, 0)

    return [None if "~" in one else float(f"{maximum * level(one) / levels:.{width + 1}g}") for one in texts]


# --- the time series of a run --------------------------------------------------------------------


def test_a_point_of_the_history_is_a_step() -> None:
    points = (Point(elapsed_ms=1000, vcpu_used=0.5, memory_used_bytes=3 * 2**20),)
    assert steps_of_points(points) == (step(1000, 0.5, 3.0),)
    more = replace(points[0], block_read_bytes=7, block_write_bytes=0, gpu_percent=50.0, gpu_memory_bytes=2**31)
    assert steps_of_points([more]) == (
        step(1000, 0.5, 3.0, block_read_bytes=7, block_write_bytes=0, gpu_percent=50.0, gpu_memory_mb=2048.0),
    )


def test_what_a_point_does_not_know_its_step_does_not_know() -> None:
    assert steps_of_points((Point(elapsed_ms=7, vcpu_used=None, memory_used_bytes=None),)) == (step(7, None, None),)


def test_checkpoints_are_steps_in_the_order_of_time() -> None:
    assert steps_of_checkpoints([checkpoint("a", 2), checkpoint("a", 1, vcpu=None, memory_mb=None)]) == (
        step(60_000, None, None),
        step(120_000, 0.5, 100.0),
    )


def test_a_checkpoint_that_knows_only_the_percentage_tells_the_vcpu_by_the_size() -> None:
    interval = Interval(cpu_utilization_percent=Distribution(avg=50.0), memory_used_mb=Distribution(avg=5.0))
    one = report(minute=1, kind="task.checkpoint", metrics=Metrics(vcpu_size=0.5), interval=interval)
    assert steps_of_checkpoints([one]) == (step(60_000, 0.25, 5.0),)


def test_between_checkpoints_the_totals_have_grown_by_what_was_read_and_written() -> None:
    lines = [io_checkpoint(2, 150, 8), io_checkpoint(1, 100, None), io_checkpoint(3, None, 8), io_checkpoint(4, 175, 9)]
    steps = steps_of_checkpoints(lines)
    assert [(one.block_read_bytes, one.block_write_bytes) for one in steps] == [
        (100, None),
        (50, 8),
        (None, 0),
        (25, 1),
    ]
    assert all(one.gpu_percent is None and one.gpu_memory_mb is None for one in steps)


def test_totals_that_began_again_between_two_checkpoints_are_no_negative_growth() -> None:
    steps = steps_of_checkpoints([io_checkpoint(1, 100, 5), io_checkpoint(2, 30, 6)])
    assert [(one.block_read_bytes, one.block_write_bytes) for one in steps] == [(100, 5), (30, 1)]


def test_thinning_keeps_all_bytes_and_of_the_gpus_the_average_and_the_largest_memory() -> None:
    steps = (
        step(1000, block_read_bytes=5, gpu_percent=10.0, gpu_memory_mb=1.0),
        step(4000, block_read_bytes=7, block_write_bytes=1, gpu_percent=30.0, gpu_memory_mb=3.0),
        step(5000, gpu_memory_mb=2.0),
        step(6000),
    )
    assert downsample(steps, 2) == (
        step(4000, block_read_bytes=12, block_write_bytes=1, gpu_percent=25.0, gpu_memory_mb=3.0),
        step(6000, gpu_memory_mb=2.0),
    )


@given(st.lists(st.none() | st.integers(0, 2**40), max_size=300), st.integers(1, 50))
def test_thinning_keeps_every_byte(grown_bytes: list[int | None], most: int) -> None:
    steps = [step(1000 * place, block_read_bytes=grown) for place, grown in enumerate(grown_bytes, start=1)]
    total_bytes = sum(grown or 0 for grown in grown_bytes)
    assert sum(one.block_read_bytes or 0 for one in downsample(steps, most)) == total_bytes


def test_thinning_keeps_the_largest_memory_and_the_average_cpu() -> None:
    steps = (step(1000, 1.0, 10.0), step(4000, 2.0, 30.0), step(5000, None, 20.0), step(6000, 3.0, None))
    assert downsample(steps, 2) == (step(4000, 1.75, 30.0), step(6000, 3.0, 20.0))


@given(st.lists(st.floats(0, 64), max_size=300), st.integers(1, 50))
def test_thinning_keeps_cpu_time_and_peak(vcpus: list[float], most: int) -> None:
    steps = [step(1000 * place, vcpu, vcpu) for place, vcpu in enumerate(vcpus, start=1)]
    thin = downsample(steps, most)
    assert len(thin) <= most
    starts = [0, *(one.elapsed_ms for one in thin)]
    cpu_ms = sum((one.vcpu_used or 0) * (one.elapsed_ms - start) for one, start in zip(thin, starts, strict=False))
    assert cpu_ms == pytest.approx(1000 * sum(vcpus))
    assert max((one.memory_used_mb or 0 for one in thin), default=0) == max(vcpus, default=0)


def test_a_course_has_a_column_for_each_kind_of_number_that_was_measured() -> None:
    steps = (step(2000, None, 1.26, block_read_bytes=3 * 2**20), step(3000, 0.5, None, gpu_percent=33.33))
    assert columns(steps) == {
        "ms": [2000, 3000],
        "vcpu": [None, 0.5],
        "mb": [1.26, None],
        "read": [1.5, None],
        "gpu": [None, 33.33],
    }
    assert columns([step(1000, None, None)]) == columns([]) == {}


def test_a_rate_is_that_since_the_bytes_were_last_known() -> None:
    steps = (step(1000, block_write_bytes=2**20), step(2000), step(3000, block_write_bytes=2**20), step(3000))
    assert columns(steps)["written"] == [1, None, 0.5, None]
    assert "read" not in columns(steps)


@pytest.mark.parametrize(
    ("value", "shown"), [(0.0, 0), (2.0, 2), (12.345, 12.3), (98765.4, 98800), (0.00012345, 0.000123)]
)
def test_three_digits_are_enough_for_a_rate(value: float, shown: float) -> None:
    assert repr(round_significant(value)) == repr(shown)


def test_a_course_without_any_number_is_none() -> None:
    assert list(series_members([run_of(report(), steps=(step(1000, None, None),))], MAX_BYTES)) == []


# --- the data block ------------------------------------------------------------------------------


def test_numbers_that_were_not_measured_are_absent() -> None:
    (run,) = content([run_of(report("a"))])["runs"]
    assert run.keys() == {"id", "family", "container", "outcome", "began", "verdict"}


def test_a_memory_kill_is_an_outcome_of_its_own() -> None:
    (run,) = content([run_of(report("a", status="failure", out_of_memory=True))])["runs"]
    assert run["outcome"] == "out of memory"


def test_numbers_without_an_end_are_left_out() -> None:
    (run,) = content([run_of(report(metrics=Metrics(max_memory_used_mb=float("inf"), vcpu_size=2.0)))])["runs"]
    assert "peak" not in run
    assert run["vcpuSize"] == 2


def test_a_page_without_room_leaves_out_the_series_of_the_oldest_runs() -> None:
    steps = tuple(step(1000 * number) for number in range(1, 61))
    runs = [run_of(report(str(number)), steps=steps) for number in range(20)]
    shown = json.loads("{" + ",".join(series_members(runs, 5_000)) + "}")
    assert 5 < len(shown) < 20
    assert set(shown) == {str(number) for number in range(len(shown))}


def test_a_page_has_a_bounded_number_of_steps() -> None:
    assert steps_per_run(1) == 600
    assert steps_per_run(3000) * 3000 == MAX_STEPS
    assert steps_per_run(100_000) == 60


def test_five_thousand_runs_of_ecs_keep_their_series() -> None:
    steps = tuple(step(10_000 * number, vcpu=number / 60, memory_mb=3.0 * number) for number in range(1, 61))
    made = build_page_data(
        [run_of(report(f"{number:032x}"), steps=steps) for number in range(5000)], generated_at="", version=""
    )
    assert len(unpacked(made.text)["series"]) == 5000
    assert len(made.text) <= MAX_BYTES


@given(st.lists(st.none() | st.floats(0, 1e6), min_size=1, max_size=200), st.sampled_from([2, 3]))
@example(values=[2.3e-308, 0.0], width=2)
@example(values=[5e-324, None], width=3)
@example(values=[0.0, None], width=3)
def test_a_packed_column_has_the_precision_of_its_width(values: list[float | None], width: int) -> None:
    maximum = max((value for value in values if value is not None), default=0)
    found = decoded_column(pack_column(values, width), len(values))
    error = maximum / len(DIGITS) ** width + 10.0**-width * maximum
    for value, shown in zip(values, found, strict=True):
        assert (value is None) == (shown is None)
        assert value is None or shown == pytest.approx(value, abs=error)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_a_value_that_no_meter_shows_counts_as_not_measured(value: float) -> None:
    assert decoded_column(pack_column([1.0, value], 2), 2) == [1.0, None]


def test_equal_steps_cost_three_numbers() -> None:
    steps = [step(1000), step(2000), step(2500)]
    assert pack_columns(columns(steps), 2)["steps"] == [3, 1000, 2500]
    assert pack_columns(columns([step(1000), step(5000), step(6000)]), 2)["ms"] == [1000, 5000, 6000]
    assert pack_columns({}, 2) == {}


def test_the_series_of_a_record_is_steps_that_end_with_the_run() -> None:
    series = Series(
        started_at="2026-11-01T06:00:00.000Z",
        step_ms=1000,
        vcpu_used=(0.5, None, 0.7),
        memory_used_mb=(10.0, 20.0),
        neuron_utilization_percent=(None, 50.0, None),
    )
    record = replace(report(metrics=Metrics(duration_ms=2600)).record, series=series)
    assert steps_of_series(record) == (
        step(1000, 0.5, 10.0),
        step(2000, None, 20.0, neuron_percent=50.0),
        step(2600, 0.7, None),
    )
    assert steps_of_series(report().record) == ()


def test_steps_of_any_length_become_a_series_with_gaps() -> None:
    series = series_of_steps("2026-11-01T06:00:00.000Z", (step(1000, 1.0, 5.0), step(3000, None, 7.0), step(4000)))
    assert series is not None
    assert (series.step_ms, series.vcpu_used, series.memory_used_mb) == (
        1000,
        (1.0, None, None, 1.0),
        (5.0, 7.0, 7.0, 10.0),
    )
    assert series_of_steps("", ()) is None


def test_an_opened_run_has_verdict_moments_processes_and_kills() -> None:
    killed = shown_runs.out_of_memory()
    (run,) = content([run_of(killed)])["runs"]
    tone, text, evidence = run["verdict"]
    assert tone == "bad"
    assert "ran out of memory after" in text
    assert evidence
    assert run["moments"]
    assert all(0 <= start <= end <= run["ms"] for _, start, end, _ in run["moments"])
    assert run["logStream"] == "ecs/batch/{id}"
    assert content([run_of(shown_runs.local())])["runs"][0]["kills"] == [2, [["worker", None, None, None, 2100, None]]]


LABELS = {f"label{place}": "x" * 200 for place in range(30)}


def labelled(task_id: str, labels: Mapping[str, str]) -> Run:
    one = report(task_id)
    return run_of(replace(one, record=replace(one.record, labels=labels)), steps=(step(1000),))


def test_labels_that_do_not_fit_are_left_out_before_any_run_is() -> None:
    runs = [labelled(str(place), {**LABELS, "own": f"{place}" * 200}) for place in range(100)]
    made = build_page_data(runs, generated_at="", version="", max_bytes=30_000)
    shown = unpacked(made.text)
    assert len(made.text) <= 30_000
    assert (made.runs, len(shown["runs"])) == (100, 100)
    labels = ["labels" in run for run in shown["runs"]]
    assert labels == sorted(labels, reverse=True)
    assert labels.count(False) == made.without_details == shown["leftOut"]["details"] == 100 - labels.count(True)
    assert 0 < made.without_details < 100
    assert set(shown["series"]) == {str(place) for place in range(100)}


def test_labels_that_runs_have_in_common_cost_their_length_once() -> None:
    made = build_page_data(
        [labelled(str(place), LABELS) for place in range(100)], generated_at="", version="", max_bytes=50_000
    )
    assert made.without_details == 0


def test_runs_that_do_not_fit_are_left_out_the_oldest_first() -> None:
    runs = [run_of(report(f"{place:0200}")) for place in range(100)]
    made = build_page_data(runs, generated_at="", version="", max_bytes=10_000)
    shown = unpacked(made.text)
    assert len(made.text) <= 10_000
    assert 30 < made.runs < 100
    assert shown["leftOut"] == {"runs": 100 - made.runs, "details": made.without_details}
    assert [run["id"] for run in shown["runs"]] == [f"{place:0200}" for place in range(made.runs)]


VALUES = st.fixed_dictionaries(
    {"id": st.text(max_size=30)},
    optional={
        "family": st.sampled_from(["a", "b", "<c>", "d" * 50]),
        "ms": st.integers(0, 10**9),
        "labels": st.lists(st.text(max_size=40), max_size=4),
        "gpus": st.lists(st.just({"name": "GPU"}), max_size=2),
    },
)


@given(st.lists(VALUES, min_size=1, max_size=40), st.integers(0, 2000))
def test_packed_runs_are_no_longer_than_they_may_be_and_the_newest_is_there(
    runs: list[dict[str, Any]], max_bytes: int
) -> None:
    kept = pack_runs(runs, max_bytes)
    length = sum(len(to_script_json(row)) + 1 for row in kept.rows) + sum(
        len(to_script_json(text)) + 1 for text in kept.texts
    )
    assert len(kept.rows) >= 1
    assert length <= max_bytes or len(kept.rows) == 1
    for row, run in zip(kept.rows, runs, strict=False):
        assert row[kept.fields.index("id")] == run["id"]
        if "family" in run:
            place = row[kept.fields.index("family")]
            assert isinstance(place, int)
            assert kept.texts[place] == run["family"]


@pytest.mark.parametrize("text", INJECTIONS)
def test_no_text_ends_the_script_that_it_stands_in(text: str) -> None:
    data = build_page_data([run_of(report(text, family=text))], generated_at=text, version=text).text
    assert not set("<>&\u2028\u2029") & set(data)
    assert unpacked(data)["runs"][0]["family"] == text


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_family_comes_out_as_it_went_in(family: str) -> None:
    data = build_page_data([run_of(report(family=family))], generated_at="", version="").text
    assert data.isascii()
    assert not set("<>&") & set(data)
    assert unpacked(data)["runs"][0]["family"] == (family or "batch")


def test_escaping_changes_nothing_but_the_spelling() -> None:
    assert json.loads(escape_for_script('["<&>"]')) == ["<&>"]


# --- the page ------------------------------------------------------------------------------------


class _Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_the_page_names_nothing_to_fetch() -> None:
    tags = _Tags(render_page("{}", ASSETS, title="a")).found
    assert {value for _, attributes in tags for name, value in attributes.items() if name in {"src", "href"}} == {
        "data:,"
    }
    policies = [attributes["content"] for _, attributes in tags if "http-equiv" in attributes]
    assert policies
    assert "default-src 'none'" in (policies[0] or "")
    assert "http" not in (policies[0] or "")


@pytest.mark.parametrize("text", INJECTIONS)
def test_no_text_adds_an_element(text: str) -> None:
    def tags(family: str) -> list[str]:
        data = build_page_data([run_of(report(family=family))], generated_at="", version="").text
        return [tag for tag, _ in _Tags(render_page(data, ASSETS, title=family)).found]

    assert tags(text) == tags("etl")


def test_a_program_with_an_end_tag_in_it_is_not_cut_short() -> None:
    text = render_page("{}", ASSETS, title="a")
    assert text.count("</script>") == 3
    assert r"var a = '<\/script>';" in text


# --- the command ---------------------------------------------------------------------------------


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TASK_PROFILER_HISTORY", str(tmp_path / "history.sqlite3"))
    return tmp_path


def call(*words: str, given: bytes = b"") -> Result:
    return CliRunner().invoke(command, words, input=given)


def data_of(file: Path) -> Any:
    found = re.search(r'<script type="application/json" id="task-data">(.*)</script>', file.read_text())
    assert found is not None
    return unpacked(found[1])


def keep(file: Path, *task_ids: str) -> None:
    history = HistoryStore(file, FakeClock())
    for day, task_id in enumerate(task_ids, start=1):
        point = Point(elapsed_ms=1000, vcpu_used=0.5, memory_used_bytes=2**20)
        assert history.add(encode(report(task_id, day=day)), report(task_id, day=day), (point,), max_runs=100) is None


def test_the_history_becomes_a_page(here: Path) -> None:
    keep(here / "history.sqlite3", "a", "b")
    result = call()
    assert result.exit_code == 0
    file = here / "task-report.html"
    assert result.output == f"task-report.html: 2 runs, {file.stat().st_size / 1e6:.1f} MB\n"
    assert file.stat().st_size < 8_000_000
    data = data_of(file)
    assert [run["id"] for run in data["runs"]] == ["b", "a"]
    assert data["series"]["0"] == {"ms": [1000], "vcpu": [0.5], "mb": [1]}
    assert [path.name for path in here.iterdir() if path.name.startswith(".")] == []


def test_the_page_on_standard_output_is_all_that_is_there(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(here / "history.sqlite3", "a")
    written: list[bytes] = []
    monkeypatch.setattr("profiler.cli.report_command.write_out", written.append)
    result = call("-o", "-")
    assert (result.exit_code, result.output) == (0, "")
    assert written[0].startswith(b"<!DOCTYPE html>")
    assert [path.name for path in here.iterdir() if path.suffix != ".sqlite3"] == []
    assert isinstance(call("-o", "-", "--open").exception, UsageError)


def test_io_and_gpus_of_the_history_stand_in_the_page(here: Path) -> None:
    point = Point(elapsed_ms=1000, vcpu_used=0.5, memory_used_bytes=2**20, block_read_bytes=2**20, gpu_percent=25.0)
    history = HistoryStore(here / "history.sqlite3", FakeClock())
    assert history.add(encode(report("a")), report("a"), (point,), max_runs=100) is None
    assert call().exit_code == 0
    course = data_of(here / "task-report.html")["series"]["0"]
    assert course == {"ms": [1000], "vcpu": [0.5], "mb": [1], "read": [1], "gpu": [25]}


def test_a_history_from_before_io_and_gpus_draws_as_before(here: Path) -> None:
    keep(here / "history.sqlite3", "a")
    with closing(sqlite3.connect(here / "history.sqlite3")) as connection, connection:
        connection.execute("UPDATE run SET points = '[[1000,0.5,1048576],[2000,null,2097152]]'")
    assert call().exit_code == 0
    course = data_of(here / "task-report.html")["series"]["0"]
    assert course == {"ms": [1000, 2000], "vcpu": [0.5, None], "mb": [1, 2]}


def test_what_does_not_fit_into_the_page_is_said(here: Path) -> None:
    ids = [f"{place:02}" + "i" * 95_000 for place in range(80)]
    lines = b"\n".join(encode(labelled(task_id, {"own": task_id * 10}).past.report) for task_id in ids)
    result = call("--from", "-", given=lines)
    assert result.exit_code == 0
    shown = data_of(here / "task-report.html")
    kept = len(shown["runs"])
    assert 50 < kept < 80
    assert result.stdout.startswith(f"task-report.html: {kept} runs, ")
    runs, details = result.stderr.splitlines()
    assert runs.startswith(f"task-profiler: The oldest {80 - kept} of 80 runs do not fit into a page of 8 MB")
    assert details.startswith(f"task-profiler: Labels, processes, GPUs and the like of {kept} runs do not fit")
    assert (here / "task-report.html").stat().st_size < 8_000_000


def test_one_run_is_all_there_is_with_run(here: Path) -> None:
    keep(here / "history.sqlite3", "aa", "b")
    assert call("--run", "a", "-o", "one.html").exit_code == 0
    data = data_of(here / "one.html")
    assert data["onlyOne"]
    assert [run["id"] for run in data["runs"]] == ["aa"]


def test_one_run_of_a_task_with_two_reports_is_chosen_by_its_container(here: Path) -> None:
    one = report("a")
    others = (OtherContainer(name="side"),)
    both = (
        replace(one, record=replace(one.record, containers=others)),
        replace(one, record=replace(one.record, container=Container(name="side"), containers=others)),
    )
    lines = b"\n".join(map(encode, both))
    error = call("--from", "-", "--run", "a", given=lines).exception
    assert isinstance(error, TaskProfilerError)
    assert "choose one by a/" in str(error)
    assert call("--from", "-", "--run", "a/side", given=lines).exit_code == 0
    assert [run["container"] for run in data_of(here / "task-report.html")["runs"]] == ["side"]


def test_no_runs_are_a_failure_with_a_sentence(here: Path) -> None:
    for words in ((), ("--from", "-")):
        error = call(*words).exception
        assert isinstance(error, TaskProfilerError)
        assert error.exit_code == 1
        assert str(error).startswith("There are no runs in ")
    assert list(here.glob("*.html")) == []


def test_lines_that_are_no_records_are_counted_and_named(here: Path) -> None:
    lines = b"\n".join([b"hello", encode(report("a")), b"", b"{}", b"\xff", encode(checkpoint("a", 1))])
    result = call("--from", "-", given=lines)
    assert result.exit_code == 0
    assert result.stderr == "task-profiler: standard input: 3 lines are not records and are left out: 1, 4, 5\n"
    assert data_of(here / "task-report.html")["series"]["0"]["ms"] == [60_000]


def test_a_long_list_of_lines_is_cut(here: Path) -> None:
    (here / "lines").write_bytes(b"x\n" * 7 + encode(report("a")))
    assert call("--from", "lines").stderr.endswith("7 lines are not records and are left out: 1, 2, 3, 4, 5, …\n")
    (here / "lines").write_bytes(b"x\n" + encode(report("a")))
    assert call("--from", "lines").stderr.endswith("1 line is not a record and is left out: 1\n")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--from", "nowhere"), "nowhere cannot be read"),
        (("--from", "."), ". cannot be read"),
        (("-o", "no/such/folder.html"), "cannot be written"),
    ],
)
def test_files_that_cannot_be_used_are_a_sentence(here: Path, words: tuple[str, ...], sentence: str) -> None:
    keep(here / "history.sqlite3", "a")
    error = call(*words).exception
    assert isinstance(error, TaskProfilerError)
    assert sentence in str(error)


@pytest.mark.parametrize("words", [("--from", "a", "--history", "b"), ("-o", "")])
def test_options_that_make_no_sense_are_refused(here: Path, words: tuple[str, ...]) -> None:
    assert isinstance(call(*words).exception, UsageError)


def test_the_chart_library_is_the_published_file() -> None:
    assert hashlib.sha256(BUNDLE.read_bytes()).hexdigest() == SHA256
    assert f"v{VERSION}\n" in BUNDLE.read_text()[:200]


def test_a_page_for_one_run_has_the_last_success_to_compare_with(here: Path) -> None:
    keep(here / "history.sqlite3", "a", "b", "c")
    result = call("--run", "b")
    assert result.stdout.startswith("task-report.html: 1 run, ")
    data = data_of(here / "task-report.html")
    assert [run["id"] for run in data["runs"]] == ["b", "a"]


def test_open_shows_the_page_and_says_when_it_cannot(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(here / "history.sqlite3", "a")
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    result = call("--open")
    assert opened == [(here / "task-report.html").as_uri()]
    assert result.exit_code == 0
    assert "No browser could be started: open task-report.html" in result.stderr


def test_a_page_can_go_into_a_pipe_or_device(here: Path) -> None:
    keep(here / "history.sqlite3", "a")
    assert call("-o", "/dev/null").exit_code == 0
    assert Path("/dev/null").is_char_device()


# --- the right size ------------------------------------------------------------------------------


def test_the_right_size_of_each_family_comes_from_the_same_engine_as_recommend() -> None:
    runs = [run_of(sized_run(number)) for number in range(3)]
    (row,) = content(runs)["sizing"]
    assert (row["family"], row["size"], row["changes"], row["saving"]) == (
        "nightly",
        {"vcpu": 0.25, "mb": 512},
        True,
        75.0,
    )
    assert row["reasons"][0].startswith("3 runs used at most 400 MB of memory (sampled)")


@pytest.mark.parametrize(
    ("run", "fits"),
    [
        (sized_run(size=(0.25, 512)), True),
        (sized_run(), False),
        (sized_run(peak_mb=500, size=(0.25, 512)), False),
        (sized_run(size=None), False),
        (sized_run(size=None, launch_type="LOCAL", likely_out_of_memory=True), False),
        (sized_run(size=(0.25, 512), launch_type="EC2", likely_out_of_memory=True), False),
        (sized_run(size=(0.25, 512), launch_type="EC2", p95=0.2), True),
        (sized_run(peak_mb=250_000, size=(32, 244 * 1024)), False),
    ],
    ids=["right", "too large", "too small", "unknown size", "local", "out of memory", "EC2", "nothing larger"],
)
def test_a_size_fits_only_if_it_is_known_and_enough(run: Report, *, fits: bool) -> None:
    (row,) = content([run_of(run)])["sizing"]
    assert row["fits"] is fits


def test_runs_that_go_on_and_runs_without_numbers_have_no_right_size() -> None:
    going_on = run_of(one_checkpoint(sized_run()))
    bare = run_of(sized_run(1, peak_mb=None, p95=None))
    assert content([going_on, bare])["sizing"] == []


def test_the_right_sizes_are_no_longer_than_their_share_of_the_page() -> None:
    runs = [run_of(sized_run(number, family=f"family-{number}")) for number in range(200)]
    made = json.loads(build_page_data(runs, generated_at="", version="", max_bytes=100_000).text)
    assert 0 < len(made["sizing"]) < 200
    assert len(to_script_json(made["sizing"])) <= 10_000
