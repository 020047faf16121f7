"""What the page says of a family's size."""

from profiler.report_page.page_data import size_rows
from profiler.runs.past_runs.family_evidence import evidence_of_past_runs
from profiler.runs.past_runs.run_source import PastRun
from profiler.sizing.prices import PriceOverrides
from tests.runs import report


def test_the_command_for_another_size_runs_in_a_shell_with_credentials() -> None:
    runs = [PastRun(report=report(number, region="eu-west-1")) for number in range(8)]
    evidences = [evidence for evidence in evidence_of_past_runs(runs) if evidence is not None]
    labels = {evidence.family: evidence.family.name for evidence in evidences}
    (row,) = size_rows(evidences, labels, PriceOverrides())
    assert row["resize"] == "task-profiler taskdef resize nightly --region eu-west-1"
