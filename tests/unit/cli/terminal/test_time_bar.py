"""The bar of a run's time."""

import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from profiler.cli.terminal.page_parts import View, drawn_lines
from profiler.cli.terminal.time_bar import time_parts
from profiler.record.activity_model import NO_BREAKDOWN, TimeBreakdown
from profiler.record.record_model import Metrics
from tests.documentation import ROOT
from tests.runs import reported_story
from tests.shown_runs import waiting
from tests.terminals import texts

INDENT = 11


def shown(width: int = 80, **record: Any) -> list[str]:
    shown_record = waiting(**record).record
    view = View(width=width, now_ns=0)
    return texts(drawn_lines(time_parts(reported_story(shown_record), view), width))


def bar(times: TimeBreakdown, width: int = 111) -> dict[str, int]:
    """The number of each character; all of one kind are together."""
    text = shown(width, time_breakdown=times)[0][INDENT:]
    assert (
        sum(text[place] != text[place - 1] for place in range(1, len(text))) == len(set(text)) - 1
    )
    return {character: text.count(character) for character in text}


def test_the_parts_of_a_run_and_what_it_waited_for() -> None:
    assert shown() == [
        "  Time     ██████████████████████▓▓▒▒░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░zzz·",
        "           █ on CPU 31 %  ▓ waiting for CPU 4 %  ▒ disk 3 %  ░ network 55 %",
        "           z sleep 5 %  · other 1 %",
        "  waits     48 %  10.0.3.9:5432 (network)",
        "             7 %  [2600:1f14::7]:443 (network)",
        "             3 %  /data/orders-2025.parquet (disk)",
    ]


def test_a_part_has_one_name_here_and_on_the_page() -> None:
    lane = (ROOT / "profiler/report_page/assets/modules/time_lane.js").read_text()
    names = re.findall(r'^  \["\w+", "([\w ]+)"\],$', lane, re.MULTILINE)
    fields = [name for name in TimeBreakdown.__struct_fields__ if name.endswith("_percent")]
    parts: dict[str, Any] = dict.fromkeys(fields, 10.0) | {"covered_percent": 100.0}
    legend = " ".join(shown(200, time_breakdown=TimeBreakdown(**parts)))
    assert len(names) == 9
    assert [name for name in names if f" {name} 10 %" not in legend] == []


def test_each_part_has_its_share_of_the_bar() -> None:
    assert bar(TimeBreakdown(on_cpu_percent=50, network_percent=30, other_percent=20)) == {
        "█": 50,
        "░": 30,
        "·": 20,
    }
    assert bar(TimeBreakdown(sleep_percent=100)) == {"z": 100}
    small = TimeBreakdown(
        on_cpu_percent=96, disk_percent=1, lock_percent=1, pipe_percent=1, child_percent=1
    )
    assert bar(small, 60) == {"█": 45, "▒": 1, "!": 1, "|": 1, "+": 1}


def test_parts_below_one_percent_are_others_and_a_part_of_the_run_is_said() -> None:
    times = TimeBreakdown(
        on_cpu_percent=98.2, disk_percent=0.9, lock_percent=0.8, other_percent=0.1
    )
    assert bar(times) == {"█": 98, "·": 2}
    assert shown(time_breakdown=times)[1].split("  ")[-1] == "· other 2 %"
    assert bar(TimeBreakdown(on_cpu_percent=99.5, disk_percent=0.5)) == {"█": 100}
    seen = TimeBreakdown(on_cpu_percent=100, covered_percent=80)
    assert "seen for 80 % of the run" in shown(120, time_breakdown=seen)[1]


def test_the_wait_for_a_cpu_is_shown_where_it_matters() -> None:
    assert not [line for line in shown() if "CPU wait" in line]
    metrics = Metrics(cpu_wait_percent=14.6, cpu_wait_seconds=61.4)
    wait = (
        "  CPU wait 1m 01s in total: it shares its CPU with others, or its threads run in short "
        "bursts"
    )
    assert shown(120, metrics=metrics, time_breakdown=NO_BREAKDOWN) == [wait]
    times = TimeBreakdown(on_cpu_percent=90, other_percent=10)
    assert shown(120, metrics=metrics, time_breakdown=times)[-1] == wait
    assert (
        shown(
            metrics=Metrics(cpu_wait_percent=20, cpu_wait_seconds=0.002),
            time_breakdown=NO_BREAKDOWN,
        )
        == []
    )


PERCENT = st.none() | st.floats(0, 120) | st.sampled_from([1e8, 1e-9])


@given(st.lists(PERCENT, min_size=9, max_size=9), st.integers(60, 120))
def test_any_shares_fill_at_most_the_bar(shares: list[float | None], width: int) -> None:
    names = [
        name
        for name in TimeBreakdown.__struct_fields__
        if name.endswith("_percent") and "covered" not in name
    ]
    times = replace(TimeBreakdown(), **dict(zip(names, shares, strict=True)))
    lines = shown(width, time_breakdown=times)
    if lines:
        assert set(lines[0][INDENT:]) <= set("█▓▒░z!|+·")
        assert 0 < len(lines[0]) - INDENT <= width - INDENT
