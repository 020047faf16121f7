"""The data of the page, with the recommended sizes."""

import random
from typing import Any

import pytest
from msgspec.structs import replace

from profiler.record.notice_model import ScheduleNoticeLine
from profiler.record.record_model import Distribution, Metrics, RaisedNotice, Report
from profiler.report_page.page_data import MAX_BYTES, build_page_data
from tests import shown_runs
from tests.report_page import content, labelled, parsed, report, run_of, step, unpacked
from tests.runs import report as sized_run

CHANCE = random.Random(1)


def incompressible(length: int) -> str:
    return CHANCE.randbytes(length // 2).hex()


def test_numbers_that_were_not_measured_are_absent() -> None:
    (run,) = content([run_of(report("a"))])["runs"]
    assert run.keys() == {"id", "family", "container", "outcome", "began", "verdict"}


@pytest.mark.slow
def test_five_thousand_runs_of_ecs_keep_their_series() -> None:
    steps = tuple(step(10_000 * number, vcpu=number / 60, memory_mb=3.0 * number) for number in range(1, 61))
    made = build_page_data(
        [run_of(report(f"{number:032x}"), steps=steps) for number in range(5000)], generated_at="", version=""
    )
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
    assert content([run_of(shown_runs.local())])["runs"][0]["kills"] == [2, [["worker", None, None, None, 2100, None]]]


def test_an_opened_run_has_its_notices() -> None:
    notices = (RaisedNotice(kind="stuck", at="2026-11-20T03:42:45.000Z"), RaisedNotice(kind="newer", at=""))
    (run,) = content([run_of(shown_runs.etl(notices=notices))])["runs"]
    assert run["notices"] == ["stuck at +30m", "newer"]


def test_labels_that_do_not_fit_are_left_out_before_any_run_is() -> None:
    runs = [labelled(str(place), {"own": incompressible(10_000)}) for place in range(100)]
    made = build_page_data(runs, generated_at="", version="", max_bytes=600_000)
    shown = unpacked(made.text)
    assert len(made.text) + len(made.series) <= 600_000
    assert (made.runs, len(shown["runs"])) == (100, 100)
    labels = ["labels" in run for run in shown["runs"]]
    assert labels == sorted(labels, reverse=True)
    assert labels.count(False) == made.without_details == shown["leftOut"]["details"] == 100 - labels.count(True)
    assert 0 < made.without_details < 100
    assert len(parsed(made.series)) == 100
    assert all(parsed(made.series))


def test_runs_that_do_not_fit_are_left_out_the_oldest_first() -> None:
    ids = [incompressible(10_000) for _ in range(100)]
    made = build_page_data([run_of(report(task_id)) for task_id in ids], generated_at="", version="", max_bytes=500_000)
    shown = unpacked(made.text)
    assert len(made.text) + len(made.series) <= 500_000
    assert 30 < made.runs < 100
    assert shown["leftOut"] == {"runs": 100 - made.runs, "details": made.without_details}
    assert [run["id"] for run in shown["runs"]] == ids[: made.runs]


def test_one_run_is_there_whatever_its_length() -> None:
    made = build_page_data([run_of(report(incompressible(10_000)))], generated_at="", version="", max_bytes=1000)
    assert made.runs == 1


def test_without_room_the_newest_runs_have_series() -> None:
    steps = [
        tuple(step(1000 * number, vcpu=CHANCE.random(), memory_mb=CHANCE.random()) for number in range(1, 601))
        for _ in range(40)
    ]
    runs = [run_of(report(str(number)), steps=one) for number, one in enumerate(steps)]
    made = build_page_data(runs, generated_at="", version="", max_bytes=100_000)
    has_series = [series is not None for series in parsed(made.series)]
    assert len(has_series) == 40
    assert 5 < sum(has_series) < 40
    assert has_series == sorted(has_series, reverse=True)
    assert len(made.text) + len(made.series) <= 100_000


def page_of(notices: list[ScheduleNoticeLine], account_id: str = "111122223333") -> Any:
    runs = [run_of(shown_runs.etl(account_id=account_id))]
    return unpacked(build_page_data(runs, generated_at="", version="", notices=notices).text)


def test_a_missed_run_has_the_fields_by_which_runs_are_selected() -> None:
    missed = shown_runs.missed_notice()
    data = page_of([replace(missed, cluster="arn:aws:ecs:us-west-2:111122223333:cluster/jobs")])
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


def test_a_missed_run_is_in_the_lane_of_its_family_unless_the_places_differ() -> None:
    missed = shown_runs.missed_notice()
    data = page_of([missed])
    assert {one["family"] for one in (*data["runs"], *data["notices"])} == {"nightly-etl"}
    data = page_of([missed], account_id="2")
    families = [one["family"] for one in (*data["runs"], *data["notices"])]
    assert families == ["nightly-etl (2)", "nightly-etl (111122223333)"]


def test_the_page_gets_the_digits_of_the_record_and_rounds_only_the_text() -> None:
    """Rounded twice, 10.46 MB were 11 MB on the page and 10 MB in the terminal."""
    cpu = Distribution(avg=54.4996)
    metrics = Metrics(max_memory_used_mb=10.46, duration_ms=404.9996, cpu_seconds=0.404999, cpu_utilization_percent=cpu)
    (run,) = content([run_of(report(metrics=metrics))])["runs"]
    assert [run[field] for field in ("peak", "ms", "cpuSeconds", "cpu")] == [10.46, 404.9996, 0.404999, 54.4996]


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


def test_an_opened_run_says_what_its_gpus_did() -> None:
    (run,) = content([run_of(shown_runs.gpu())])["runs"]
    assert [(gpu["percent"], gpu["sm"], gpu["idle"]) for gpu in run["gpus"]][:2] == [(81, 40.5, 17), (79, 39.5, 19)]
    assert run["gpuNotes"] == [
        (
            "The 4 GPUs were idle 38 % of the run on average; while all were idle, the batch read files (48 %: "
            "/data/train.tar) and used the CPU (31 %)."
        ),
        "0.5 idle GPU-hours ($1.23).",
        "1 of 4 GPUs was never used: request 3, or spread the work.",
    ]
