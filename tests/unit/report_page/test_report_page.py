"""The report page: its document, its data with the recommended sizes, time series and what the
processes did.
"""

import hashlib
import json
import random
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from profiler.record.activity_model import ProcessSeries, TimeBreakdown
from profiler.record.batch_job import BatchJob
from profiler.record.notice_model import ScheduleNoticeLine
from profiler.record.record_model import (
    AverageAndMaximum,
    Distribution,
    Metrics,
    Process,
    RaisedNotice,
    Record,
    Report,
)
from profiler.record.stacks_line import StacksLine, StackStep
from profiler.report_page.html_document import read_assets, render_page
from profiler.report_page.page_activity import MAX_CHARACTERS, activity_of, activity_texts
from profiler.report_page.page_data import (
    MAX_BYTES,
    PageData,
    PageRequest,
    build_page_data,
    first_that_fit,
    json_array,
)
from profiler.report_page.page_rows import RunActivity
from profiler.report_page.page_series import (
    MAX_STEPS,
    compressed_base64,
    memory_digits,
    series_columns,
    steps_per_run,
)
from profiler.sizing.prices import PriceOverrides
from tests import shown_runs
from tests.gpu_runs import gpu_run
from tests.report_page import INJECTIONS, content, parsed, report, run_of, series_of, step, unpacked
from tests.runs import report as sized_run
from tests.runs import reported_story
from tests.values import present
from tools.chart_library import BUNDLE, SHA256, VERSION

CHANCE = random.Random(1)
WAITING = shown_runs.waiting()
TEXTS = st.lists(st.text(max_size=60) | st.integers() | st.none(), max_size=60)
EMPTY = PageData(text="", series="", activity="", runs=0, without_details=0)
PAGE = render_page(EMPTY, {**read_assets(), "plotly": "var a = '</script>';"}, title="a")


def test_the_page_says_why_its_runs_are_only_a_part() -> None:
    page = render_page(EMPTY, read_assets(), title="a", missing=["<b> is closed."])
    note = '\n<p class="panel" role="note">&lt;b&gt; is closed.</p>'
    assert note in page
    assert page.replace(note, "") == render_page(EMPTY, read_assets(), title="a")


class _Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_the_page_fetches_nothing() -> None:
    """The page fetches nothing and the chart library is text until a chart needs it."""
    tags = [attributes for _, attributes in _Tags(PAGE).found]
    assert {one[name] for one in tags for name in one.keys() & {"src", "href"}} == {"data:,"}
    (policy,) = [one["content"] or "" for one in tags if "http-equiv" in one]
    assert "default-src 'none'" in policy
    assert "http" not in policy
    assert [one["type"] for one in tags if one.get("id") == "plotly"] == ["text/plain"]


def test_a_script_with_an_end_tag_is_not_cut_short() -> None:
    assert PAGE.count("</script>") == 7
    assert r"var a = '<\/script>';" in PAGE


def test_the_chart_library_is_the_file_of_its_tool() -> None:
    assert hashlib.sha256(BUNDLE.read_bytes()).hexdigest() == SHA256
    assert f"v{VERSION}\n" in BUNDLE.read_text()[:200]


def incompressible(length: int) -> str:
    return CHANCE.randbytes(length // 2).hex()


@pytest.mark.slow
def test_five_thousand_runs_of_ecs_keep_their_series() -> None:
    steps = tuple(
        step(10_000 * number, vcpu=number / 60, memory_mb=3.0 * number) for number in range(1, 61)
    )
    runs = [run_of(report(f"{number:032x}"), steps=steps) for number in range(5000)]
    made = build_page_data(runs, PageRequest(generated_at="", version=""))
    series = parsed(made.series)
    assert len(series) == 5000
    assert all(series)
    assert len(made.text) + len(made.series) <= MAX_BYTES


def test_an_opened_run_has_verdict_moments_processes_and_kills() -> None:
    killed = shown_runs.out_of_memory()
    (run,) = content([run_of(killed)])["runs"]
    tone, text, evidence = run["verdict"]
    assert tone == "bad"
    assert "ran out of memory after" in text
    assert evidence
    assert run["moments"]
    assert all(0 <= start <= end <= run["ms"] for _, start, end, _ in run["moments"])
    assert run["logStream"] == killed.record.log_stream
    assert content([run_of(shown_runs.local())])["runs"][0]["kills"] == [
        "The kernel killed 2 processes for lack of memory: worker.",
        [["worker", None, None, None, 2100, None, False, False]],
    ]

    shown = shown_runs.etl()
    assert {"files", "countsFiles"} & content([run_of(shown)])["runs"][0].keys() == {"countsFiles"}
    apart = AverageAndMaximum(avg=300, max=600)
    metrics = replace(
        shown.record.metrics,
        memory_mapped_file_mb=apart,
        memory_huge_pages_mb=apart,
        max_memory_used_mb=60,
    )
    (run,) = content([run_of(shown_runs.etl(metrics=metrics))])["runs"]
    assert run["files"].startswith("It also keeps up to 600 MB of its files in memory (with less")
    assert run["hugePages"] == (
        "It also holds up to 600 MB of huge pages, which the memory used lacks."
    )
    assert "countsFiles" not in run
    notices = (
        RaisedNotice(kind="stuck", at="2026-11-20T03:42:45.000Z"),
        RaisedNotice(kind="newer", at=""),
    )
    (run,) = content([run_of(shown_runs.etl(notices=notices))])["runs"]
    assert run["notices"] == ["stuck at +30m", "newer"]


def test_labels_that_do_not_fit_are_left_out_before_any_run_is() -> None:
    runs = [
        run_of(report(str(place), labels={"own": incompressible(10_000)}), (step(1000),))
        for place in range(100)
    ]
    made = build_page_data(runs, PageRequest(generated_at="", version="", max_bytes=600_000))
    shown = unpacked(made.text)
    assert len(made.text) + len(made.series) <= 600_000
    assert made.runs == 100
    assert len(shown["runs"]) == 100
    labels = ["labels" in run for run in shown["runs"]]
    assert labels == sorted(labels, reverse=True)
    assert (
        labels.count(False)
        == made.without_details
        == shown["leftOut"]["details"]
        == 100 - labels.count(True)
    )
    assert 0 < made.without_details < 100
    assert len(parsed(made.series)) == 100
    assert all(parsed(made.series))


def test_runs_that_do_not_fit_are_left_out_the_oldest_first_but_never_all() -> None:
    ids = [incompressible(10_000) for _ in range(100)]
    made = build_page_data(
        [run_of(report(task_id)) for task_id in ids],
        PageRequest(generated_at="", version="", max_bytes=500_000),
    )
    shown = unpacked(made.text)
    assert len(made.text) + len(made.series) <= 500_000
    assert 30 < made.runs < 100
    assert shown["leftOut"] == {"runs": 100 - made.runs, "details": made.without_details}
    assert [run["id"] for run in shown["runs"]] == ids[: made.runs]

    long = build_page_data(
        [run_of(report(incompressible(10_000)))],
        PageRequest(generated_at="", version="", max_bytes=1000),
    )
    assert long.runs == 1  # whatever its length


def test_a_missed_run_is_in_the_lane_of_its_family_unless_the_places_differ() -> None:
    """A missed run has the fields of a run and is in the lane of its family unless the places
    differ.
    """

    def page_of(notice: ScheduleNoticeLine, account_id: str = "111122223333") -> Any:
        runs = [run_of(shown_runs.etl(account_id=account_id))]
        return unpacked(
            build_page_data(runs, PageRequest(generated_at="", version="", notices=[notice])).text
        )

    missed = shown_runs.missed_notice()
    data = page_of(replace(missed, cluster="arn:aws:ecs:us-west-2:111122223333:cluster/jobs"))
    assert data["notices"] == [
        {
            "family": "nightly-etl",
            "account": "111122223333",
            "region": "us-west-2",
            "cluster": "jobs",
            "outcome": "missed",
            "began": 1_795_143_600_000,
            "text": missed.notice.message,
        }
    ]
    data = page_of(missed)
    assert {one["family"] for one in (*data["runs"], *data["notices"])} == {"nightly-etl"}
    data = page_of(missed, account_id="2")
    families = [one["family"] for one in (*data["runs"], *data["notices"])]
    assert families == ["nightly-etl (2)", "nightly-etl (111122223333)"]


def test_a_run_of_unknown_start_is_in_the_night_of_its_record() -> None:
    """A run whose start is unknown is in the night of its record and says so."""
    made = shown_runs.etl()
    runs = content(
        [run_of(made), run_of(replace(made, record=replace(made.record, started_at=None)))]
    )["runs"]
    assert [run.get("startUnknown") for run in runs] == [None, True]
    assert runs[1]["began"] == runs[0]["began"] + 1_183_000


def test_a_task_that_came_late_is_no_longer_missed() -> None:
    missed = shown_runs.missed_notice()
    late = replace(missed, notice=replace(missed.notice, kind="late", reason=None))
    other = replace(missed, schedule=replace(missed.schedule, name="other"))
    before = replace(missed, notice=replace(missed.notice, due_at="2026-11-19T03:00:00.000Z"))
    notices = [late, missed, other, before]
    data = unpacked(
        build_page_data(
            [run_of(shown_runs.etl())], PageRequest(generated_at="", version="", notices=notices)
        ).text
    )
    assert [notice.get("cameLate") for notice in data["notices"]] == [None, True, None, None]


def test_the_page_gets_the_digits_of_the_record() -> None:
    """Rounded twice, 10.46 MB were 11 MB on the page and 10 MB in the terminal."""
    (run,) = content([run_of(report("a"))])["runs"]
    assert run.keys() == {"id", "family", "container", "outcome", "why", "began", "verdict"}
    cpu = Distribution(avg=54.4996)
    metrics = Metrics(
        max_memory_used_mb=10.46,
        duration_ms=404.9996,
        cpu_seconds=0.404999,
        cpu_utilization_percent=cpu,
    )
    (run,) = content([run_of(report(metrics=metrics))])["runs"]
    assert [run[field] for field in ("peak", "ms", "cpuSeconds", "cpu")] == [
        10.46,
        404.9996,
        0.404999,
        54.4996,
    ]


@pytest.mark.parametrize(
    ("run", "fits"),
    [
        (sized_run(size=(0.25, 512)), True),
        (sized_run(peak_mb=500, size=(0.25, 512)), False),
        (sized_run(size=None), False),
        (sized_run(size=(0.25, 512), launch_type="EC2", likely_out_of_memory=True), False),
        (sized_run(peak_mb=250_000, size=(32, 244 * 1024)), False),
    ],
    ids=["right", "too small", "unknown size", "out of memory", "nothing larger"],
)
def test_a_size_fits_only_if_it_is_known_and_enough(run: Report, *, fits: bool) -> None:
    (row,) = content([run_of(run)])["sizing"]
    assert row["fits"] is fits


@pytest.mark.parametrize(
    ("more", "shown"),
    [
        ({"batch": BatchJob(job_id="j"), "launch_type": "EC2"}, (4, True)),
        ({"batch": BatchJob(job_id="j"), "launch_type": "FARGATE"}, (8, None)),
        ({"launch_type": "EC2"}, (8, None)),
    ],
    ids=["a job on EC2", "a job on Fargate", "a task on EC2"],
)
def test_what_a_job_asked_for_is_no_size(
    more: dict[str, Any], shown: tuple[int, bool | None]
) -> None:
    metrics = {"vcpu_size": 8, "vcpu_share": 4}
    report = sized_run(size=None, metrics=metrics, **more)
    (run,) = content([run_of(report)])["runs"]
    assert (run["vcpuSize"], run.get("vcpuAsked")) == shown


def test_an_opened_run_says_what_its_gpus_did() -> None:
    (run,) = content([run_of(shown_runs.gpu())])["runs"]
    assert [gpu["name"][:9] for gpu in run["gpus"]] == [
        "0: NVIDIA",
        "1: NVIDIA",
        "2: NVIDIA",
        "3: NVIDIA",
    ]
    assert [(gpu["percent"], gpu["sm"], gpu["idle"]) for gpu in run["gpus"]][:2] == [
        ("81 %", "41 %", "17 %"),
        ("79 %", "40 %", "19 %"),
    ]
    assert run["gpuNotes"] == [
        (
            "The 4 GPUs were idle 38 % of the run on average; while all were idle, the batch "
            "read files (48 %: /data/train.tar) and used the CPU (31 %)."
        ),
        "0.5 idle GPU-hours ($1.23).",
        "SM active 30 %.",
        "1 of 4 GPUs was never used: request 3, or spread the work.",
    ]


@pytest.mark.parametrize(("size_mb", "shown"), [(16_384, 16_384), (0, None), (None, None)])
def test_neuron_devices_of_which_no_size_is_known_have_none_on_the_page(
    size_mb: int | None, shown: int | None
) -> None:
    one = shown_runs.neuron()
    devices = replace(one.record.neuron, device_memory_size_mb=size_mb)
    (run,) = content([run_of(replace(one, record=replace(one.record, neuron=devices)))])["runs"]
    assert run["neuron"]["mb"] == 7000
    assert run["neuron"].get("size") == shown
    assert run["deviceUse"].startswith("2 NeuronCores 45 %, 6.8 GB")
    assert run["beside"] == " beside 2 NeuronCores"


def test_a_gpu_machine_has_the_price_of_its_owner_on_the_page() -> None:
    request = PageRequest(
        generated_at="2026-11-20T06:00:00.000Z",
        version="1",
        price_overrides=PriceOverrides(hour_usd=4.1),
    )
    report = gpu_run("starved")
    runs = []
    for day in range(9, 3, -1):  # the newest first
        started_at = f"2026-11-{day:02d}T06:00:00.000Z"
        record = replace(report.record, task_id=f"{day}", started_at=started_at)
        runs.append(run_of(replace(report, record=record)))
    run, *_ = unpacked(build_page_data(runs, request).text)["runs"]
    assert run["usd"] == pytest.approx(0.0212, abs=0.0001)
    assert "0.005 idle GPU-hours ($0.021)." in run["gpuNotes"]
    assert "usd" in run["usual"]


def test_a_series_has_a_column_for_each_kind_of_number_that_was_measured() -> None:
    steps = (
        step(2000, None, 1.26, block_read_bytes=3 * 2**20),
        step(3000, 0.5, None, gpu_percent=33.33),
        step(4000),
    )
    assert series_columns(series_of(steps)) == {
        "ms": [2000, 3000, 4000],
        "vcpu": [None, 0.5, 1.0],
        "mb": [1.26, None, 10.0],
        "read": [1.5, None, None],
        "gpu": [None, 33.3, None],
    }
    assert (
        series_columns(series_of([step(1000, None, None)])) == series_columns(series_of([])) == {}
    )

    # A rate is that since the bytes were last known.
    written = {"block_write_bytes": 2**20}
    columns = series_columns(
        series_of((step(1000, **written), step(2000), step(3000, **written), step(3000)))
    )
    assert columns["written"] == [1, None, 0.5, None]
    assert "read" not in columns


def test_a_page_has_a_bounded_number_of_steps_and_equal_ones_cost_three_numbers() -> None:
    assert [steps_per_run(runs) for runs in (1, 3000, 100_000)] == [600, MAX_STEPS / 3000, 60]
    equal = series_columns(series_of([step(1000), step(2000), step(2500)]))
    assert equal["steps"] == [3, 1000, 2500]
    assert "ms" not in equal
    different = series_columns(series_of([step(1000), step(5000), step(6000)]))
    assert different["ms"] == [1000, 5000, 6000]
    assert "steps" not in different


@given(st.lists(st.none() | st.floats(0, 1e6), min_size=1, max_size=200))
@example(values=[5e-324, None])
def test_values_have_three_significant_digits(values: list[float | None]) -> None:
    steps = [step(1000 * number, value, 1.0) for number, value in enumerate(values, start=1)]
    shown = series_columns(series_of(steps)).get("vcpu", [None] * len(values))
    for value, rounded in zip(values, shown, strict=True):
        assert (value is None) == (rounded is None)
        assert value is None or rounded == pytest.approx(value, rel=0.005, abs=1e-300)


def test_the_course_of_the_memory_is_its_highest_value_a_part() -> None:
    """The course of the memory is its highest value in each part of the run."""
    growing = [step(1000 * number, memory_mb=float(number)) for number in range(1, 49)]
    assert memory_digits(series_of(growing)) == "134679acdfgijkmnpqstvwyz"
    assert (
        memory_digits(series_of([step(1000, memory_mb=70.0), step(24_000, memory_mb=35.0)]))
        == "z" + 23 * "i"
    )
    gap = [step(1000, memory_mb=70.0), step(23_000, memory_mb=None), step(24_000, memory_mb=0.0)]
    assert memory_digits(series_of(gap)) == "z" + 22 * "-" + "0"
    unknown = step(2000, memory_mb=None)
    for steps in (
        (),
        (step(1000),),
        (step(1000), unknown),
        (step(0), step(0)),
        (step(1000, memory_mb=0.0),) * 2,
    ):
        assert memory_digits(series_of(steps)) is None


@given(st.lists(st.tuples(st.integers(-5, 10**9), st.none() | st.floats(0, 1e18)), max_size=40))
def test_any_steps_have_a_course_of_digits(steps: list[tuple[int, float | None]]) -> None:
    course = memory_digits(series_of(step(elapsed_ms, memory_mb=mb) for elapsed_ms, mb in steps))
    assert course is None or (
        len(course) == 24 and all(one == "-" or one.isalnum() for one in course)
    )


def lines(text: str) -> list[Any]:
    return [parsed(line) if line else None for line in text.split("\n")]


def waiting_stacks(_report: Report) -> StacksLine:
    return shown_runs.waiting_stacks()


def with_stacks(number: int) -> Report:
    return shown_runs.waiting(task_id=f"{number:032x}")


def stacks_line(stacks: dict[str, int]) -> StacksLine:
    steps = (StackStep(offset_ms=0, duration_ms=1, stacks=stacks),)
    return StacksLine(type="task.stacks", task_id="t", container="batch", steps=steps)


def long_stacks(_report: Report) -> StacksLine:
    return stacks_line({CHANCE.randbytes(50).hex(): 1 for _ in range(2000)})


def activity(record: Record) -> RunActivity:
    return activity_of(record, reported_story(record))


def test_the_parts_of_the_time_have_the_order_of_the_breakdown() -> None:
    shown = activity(WAITING.record)
    assert shown.time == [31.2, 4.1, 3, 55.4, 5, 0.2, 0, 0, 1.1]
    assert present(shown.targets)[0] == ("network", "10.0.3.9:5432", 48.3)


def test_only_a_low_coverage_is_shown() -> None:
    partly = TimeBreakdown(covered_percent=94.96)
    assert activity(WAITING.record).covered is None
    assert activity(replace(WAITING.record, time_breakdown=partly)).covered == 94.96


def test_a_run_that_nobody_looked_into_has_no_activity() -> None:
    assert activity(report().record).as_json() == {}
    assert activity(replace(WAITING.record, time_breakdown=TimeBreakdown())).time is None


def test_a_process_with_unread_cpu_time_is_marked_as_a_lower_bound() -> None:
    rows = (Process(name="heavy", cpu_seconds=0.3), Process(name="other", cpu_seconds=2.1))
    report = shown_runs.etl(processes=rows)
    assert content([run_of(report)])["runs"][0]["processes"] == [
        ["heavy", None, None, 0.3, None, None, True, False],
        ["other or unread programs", None, None, 2.1, None, None, False, False],
    ]


def test_processes_and_stacks_are_a_text_for_each_run() -> None:
    none, found = lines(activity_texts([report(), WAITING], waiting_stacks, MAX_CHARACTERS))
    assert none is None
    assert found["steps"] == [119, 10_000, 1_182_000]
    assert [one[0] for one in found["processes"]] == ["python3 export.py", "gzip", "other"]
    assert found["processes"][2][1][:2] == [None, 0]
    assert found["processes"][2][2] is None
    assert set(found["wait"]) == {0.1}
    assert found["stacks"][1][:2] == [420_000, 60_000]
    assert (
        found["stacks"][1][2][
            "<module> (job.py);load_orders (etl/load.py);recv (socket.py) [waiting]"
        ]
        == 54
    )


def test_the_newest_runs_have_texts_as_far_as_there_is_room() -> None:
    text = activity_texts([with_stacks(number) for number in range(40)], waiting_stacks, 8000)
    assert len(text) <= 8000
    found = [line is not None for line in lines(text)]
    assert 2 < sum(found) < 40
    assert found == sorted(found, reverse=True)


def test_stacks_that_do_not_fit_leave_the_processes() -> None:
    (found,) = lines(activity_texts([WAITING], long_stacks, 20_000))
    assert found.keys() == {"steps", "processes", "wait"}


def test_the_stacks_of_at_most_fifty_runs_are_read() -> None:
    asked: list[Report] = []
    activity_texts([with_stacks(number) for number in range(80)], asked.append, MAX_CHARACTERS)
    assert [one.record.task_id for one in asked] == [f"{number:032x}" for number in range(50)]


@pytest.mark.slow
def test_series_and_stacks_do_not_make_the_page_longer_than_its_limit() -> None:
    """The newest runs have the series that fit."""
    runs = []
    for number in range(60):
        steps = (
            step(1000 * end, vcpu=CHANCE.random(), memory_mb=CHANCE.random())
            for end in range(1, 601)
        )
        runs.append(run_of(with_stacks(number), steps=tuple(steps)))
    for max_bytes in (155_000, 600_000):
        made = build_page_data(
            runs,
            PageRequest(generated_at="", version="", stacks_of=long_stacks, max_bytes=max_bytes),
        )
        assert len(made.text) + len(made.series) + len(made.activity) <= max_bytes
        has_series = [series is not None for series in parsed(made.series)]
        assert has_series == sorted(has_series, reverse=True)
        assert made.activity
        assert (5 < sum(has_series) < 60) is (max_bytes < 600_000)


@given(st.sampled_from(INJECTIONS) | st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_stays_inside_its_element(text: str) -> None:
    series = present(WAITING.record.series)
    odd = replace(series, processes=(ProcessSeries(command=text, vcpu_used=(1.0,)),))
    packed = activity_texts(
        [shown_runs.waiting(series=odd)], lambda _: stacks_line({text: 1}), MAX_CHARACTERS
    )
    assert re.fullmatch("[A-Za-z0-9+/=\n]+", packed)
    (found,) = lines(packed)
    assert found["processes"][0][0] == text
    assert found["stacks"] == [[0, 1, {text: 1}]]


@given(values=TEXTS, room=st.integers(0, 2000), at_least=st.integers(0, 3))
def test_an_array_is_no_longer_than_it_may_be(
    values: list[object], room: int, at_least: int
) -> None:
    texts, left = first_that_fit(values, room, share=0.5, at_least=at_least)
    text = compressed_base64(json_array(texts))
    assert len(text) <= room / 2 or len(texts) <= at_least
    assert left == max(room - len(text), 0)
    assert parsed(text) == values[: len(texts)]
    if at_least < len(texts) < len(values):
        assert (
            len(compressed_base64(json_array([*texts, json.dumps(values[len(texts)])])))
            > room / 2 - 8
        )
