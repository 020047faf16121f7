"""The drawn page of a run has the numbers, the marks and the sentences of ``show``."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from profiler.core.text import as_sentence
from profiler.record.activity_model import NO_BREAKDOWN
from profiler.record.cpu_wait import long_cpu_wait
from profiler.record.fact_list import NUMBERS, number_fact
from profiler.record.measured import UNKNOWN
from profiler.record.process_rows import measured_rows
from profiler.record.record_model import Report
from profiler.record.units import format_memory
from profiler.runs.past_runs.run_moments import find_moments
from profiler.runs.step_series import steps_of_record
from tests import screens
from tests.awkward_runs import RUNS, recommended
from tests.browser.conftest import Opener
from tests.report_page import run_of, write_page

pytestmark = pytest.mark.browser


def numbered(number: int, report: Report) -> Report:
    """The run with an id and a family of its own."""
    record = replace(report.record, task_id=f"run-{number}", family=f"family-{number}")
    return replace(report, record=record)


REPORTS = [numbered(number, recommended(make)) for number, make in enumerate(RUNS.values())]


def test_the_page_of_a_run_has_the_numbers_and_sentences_of_show(
    opened: Opener, tmp_path: Path
) -> None:
    runs = [run_of(report, steps_of_record(report.record)) for report in REPORTS]
    page = write_page(tmp_path / "page.html", runs, ())
    tab = opened(page)
    for name, report in zip(RUNS, REPORTS, strict=True):
        tab.goto(f"{page.as_uri()}#run={report.record.task_id}")
        tab.wait_for_selector(f"#detail-body >> text={report.record.task_id}")
        text = tab.inner_text("#detail-body").replace("\u00a0", " ")
        for number in NUMBERS:
            fact = number_fact(number, report.record)
            if number.page_field and fact.number is not UNKNOWN:
                assert fact.text.removesuffix(" vCPU") in text, (name, number.name)
        for moment in find_moments(report.record):
            assert moment.text.casefold() in text.casefold(), name
        wait = long_cpu_wait(report.record)
        if wait.sentence and report.record.time_breakdown != NO_BREAKDOWN:
            assert as_sentence(wait.sentence) in text, name
        shown = screens.show(report)
        for row in measured_rows(report.record.processes, report.record.metrics.memory_peak):
            memory = row.peak_mb.text(format_memory)
            assert memory in text, (name, memory)
            # It has room for the largest ones.
            assert memory in shown or row.process.name not in shown, (name, memory)
