"""Every command that reads runs bears any record: a line is shown, or counted as invalid."""

import base64
import gzip
import json

import msgspec
from hypothesis import given

from profiler.cli.compare_command import comparison_document
from profiler.cli.history_command import run_table_lines
from profiler.cli.styled_text import render_lines
from profiler.cli.terminal.comparison_tables import comparison_lines
from profiler.cli.terminal.page_parts import View
from profiler.cli.terminal.run_page import page_lines
from profiler.cli.terminal.stacks_page import stacks_lines
from profiler.record.record_model import decode
from profiler.record.stacks_line import decode_stacks_line
from profiler.report_page.page_data import PageRequest, build_page_data
from profiler.report_page.page_series import Run
from profiler.runs.comparison.compared_metrics import compare_metrics
from profiler.runs.comparison.run_changes import compare_runs
from profiler.runs.comparison.run_sets import RunSet
from profiler.runs.past_runs.family_advice import find_advice
from profiler.runs.past_runs.past_run import PastRun
from profiler.runs.step_series import downsample, steps_of_record
from profiler.sizing.advice import advise_on_size
from profiler.sizing.advice_document import advice_as_json
from profiler.sizing.choose_size import SizePolicy
from profiler.sizing.prices import PriceOverrides
from profiler.sizing.run_collector import FamilyRunCollector
from profiler.sizing.size_summary import size_story
from tests import shown_runs
from tests.changed_records import LINES, changed_lines
from tests.shown_runs import NOW_NS

STACKS_LINE = json.loads(msgspec.json.encode(shown_runs.waiting_stacks()))


@given(changed_lines())
def test_any_record_is_shown_or_invalid(line: bytes) -> None:
    try:
        report = decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return
    run = PastRun(report=report, line=line)
    view = View(width=80, now_ns=NOW_NS)
    other = compare_runs(run.record, shown_runs.etl().record, "run", is_complete=True)
    sizes = size_story(find_advice(run, None, PriceOverrides()), run.story.usage)
    assert page_lines(run, view, report.record.series, other, sizes)
    assert len(run_table_lines([run], 80)) >= 2
    families = FamilyRunCollector()
    families.add_run(report, run.outcome)
    for evidence in families.evidence_by_row().values():
        if evidence is not None:
            msgspec.json.encode(
                advice_as_json(advise_on_size(evidence, SizePolicy(), PriceOverrides()))
            )
    sets = [RunSet(text="x", reports=(one,)) for one in (report, shown_runs.etl())]
    changes = compare_metrics(sets[0].records, sets[1].records)
    assert render_lines(comparison_lines(sets, changes, 80), is_coloured=True, encoding="ascii")
    msgspec.json.encode(comparison_document(sets, changes))
    drawn = Run(past=run, steps=downsample(steps_of_record(report.record), 60))
    page_data = build_page_data([drawn], PageRequest(generated_at="", version=""))
    for text in (page_data.text, page_data.series, *page_data.activity.split()):
        msgspec.json.decode(gzip.decompress(base64.b64decode(text)))  # JSON without NaN


@given(changed_lines([STACKS_LINE]), changed_lines(LINES[-1:]))
def test_any_stacks_are_shown_or_damaged(line: bytes, record_line: bytes) -> None:
    stacks = decode_stacks_line(line)
    try:
        report = decode(record_line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return
    if stacks is not None:
        shown = stacks_lines(report.record, stacks, 60)
        assert render_lines(shown, is_coloured=True, encoding="ascii")
