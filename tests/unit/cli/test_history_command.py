"""The table of past runs."""

from profiler.cli.history_command import table_lines
from profiler.cli.styled_text import render_lines
from profiler.record.record_model import Report
from tests.runs import report


def head(*reports: Report) -> list[str]:
    lines = table_lines((one.record for one in reports), None)
    return render_lines(lines, is_coloured=False, encoding="utf-8").decode().splitlines()[0].split()


def test_account_and_region_have_columns_only_where_there_are_several() -> None:
    first = ["Run", "Started", "Family"]
    rest = ["Result", "Time", "CPU", "Memory"]
    assert head(report(), report(1)) == [*first, *rest]
    assert head(report(account_id="1"), report(1, account_id="2")) == [*first, "Account", *rest]
    assert head(report(account_id="1"), report(1, account_id="1", region="eu-west-1")) == [*first, "Region", *rest]
