"""The recommended sizes on the page."""

import base64
import gzip

import pytest

from profiler.html_report.limited_gzip import to_json
from profiler.html_report.page_data import build_page_data
from profiler.record.record_model import Report
from tests.report_page import content, run_of, unpacked
from tests.runs import checkpoint as one_checkpoint
from tests.runs import report as sized_run


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
    made = unpacked(build_page_data(runs, generated_at="", version="", max_bytes=200_000).text)
    assert 0 < len(made["sizing"]) < 200
    assert len(base64.b64encode(gzip.compress(to_json(made["sizing"]).encode()))) <= 20_000
