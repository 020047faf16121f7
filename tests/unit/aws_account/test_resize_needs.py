"""What a resize knows of the memory that each container of a task needs."""

from profiler.aws_account.resize_plan import _seen_memory
from profiler.record.record_model import Metrics, TaskSize
from profiler.sizing.family_window import FamilyWindow, WindowSpan
from profiler.sizing.run_counts import RunCounts
from profiler.sizing.run_facts import facts_of
from tests.fakes import START_NS
from tests.runs import report

SIZE = TaskSize(vcpu=1, memory_mb=2048)
RUN = facts_of(report(others={"proxy": Metrics(max_memory_used_mb=300)}))
SPAN = WindowSpan(now_ns=START_NS)


def needs_mb(window: FamilyWindow) -> dict[str, float]:
    return dict(_seen_memory(window, SIZE, 20).needs_mb)


def test_runs_that_were_read_show_what_each_container_needs() -> None:
    window = FamilyWindow(SPAN)
    window.add(RUN)
    assert needs_mb(window) == {"batch": 480, "proxy": 360}


def test_counted_runs_show_nothing_of_a_container_without_a_report() -> None:
    """Its largest memory may be in a run that was only counted: its limit is not lowered."""
    window = FamilyWindow(SPAN)
    counts = RunCounts()
    counts.add(RUN)
    window.add_counts("1", SIZE, counts)
    window.add_counted(RUN)
    assert needs_mb(window) == {"batch": 480}
