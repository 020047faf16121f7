"""What a resize knows of the memory that each container of a task needs."""

from profiler.aws_account.resize_plan import _seen_memory_of_containers
from profiler.record.record_model import AverageAndMaximum, Metrics, TaskSize
from profiler.sizing.family_window import FamilyWindow, WindowSpan
from profiler.sizing.memory_margin import MemoryMargin
from profiler.sizing.run_counts import RunCounts
from profiler.task_definitions.containers import read_containers
from tests.fakes import START_NS
from tests.runs import report, reported_facts

SIZE = TaskSize(vcpu=1, memory_mb=2048)
RUN = reported_facts(report(others={"proxy": Metrics(max_memory_used_mb=300)}))
SPAN = WindowSpan(now_ns=START_NS)
# Of a family whose largest need is known, and lies 5 % above its median.
OWN = MemoryMargin(percent=5, why="the largest of 40 runs lies 5 % above their median")
ASKED = MemoryMargin(percent=5)


def needs_mb(window: FamilyWindow, margin: MemoryMargin = OWN) -> dict[str, float]:
    return dict(_seen_memory_of_containers(window, SIZE, margin).needs_mb)


def test_runs_that_were_read_show_what_each_container_needs() -> None:
    window = FamilyWindow(SPAN)
    window.add_run(RUN)
    assert needs_mb(window) == {"batch": 420, "proxy": 360}
    assert needs_mb(window, ASKED) == {"batch": 420, "proxy": 315}


def test_mapped_files_hold_a_containers_limit_back() -> None:
    """They are no need: a limit is not raised for them."""
    files = AverageAndMaximum(avg=500, max=1000)
    window = FamilyWindow(SPAN)
    window.add_run(reported_facts(report(metrics={"memory_mapped_file_mb": files})))
    window.add_run(
        reported_facts(
            report(1, metrics={"memory_usage_peak_mb": 900, "memory_mapped_file_mb": files})
        )
    )
    seen = _seen_memory_of_containers(window, SIZE, OWN)
    assert seen.needs_mb == {"batch": 420}
    assert seen.held_mb == {"batch": 1400}
    (container,) = read_containers({"containerDefinitions": [{"name": "batch", "memory": 2048}]})
    assert [seen.least_mb(container, defined_mb) for defined_mb in (2048, 1200, 100)] == [
        1400,
        1200,
        100,
    ]
    assert seen.killed_limits({"containerDefinitions": [{"name": "batch", "memory": 500}]}) == {}


def test_above_a_limit_at_which_a_run_was_killed_the_need_is_not_known() -> None:
    window = FamilyWindow(SPAN)
    killed = report(
        likely_out_of_memory=True, status="failure", metrics={"memory_size_mb": 500}, peak_mb=499
    )
    window.add_run(reported_facts(killed))
    assert needs_mb(window) == {"batch": 600}
    assert needs_mb(window, ASKED) == {"batch": 525}


def test_a_kill_at_the_limit_of_another_size_raises_no_limit() -> None:
    """Such as one before somebody raised the size and the limit: what it used still counts."""
    window = FamilyWindow(SPAN)
    killed = report(
        size=(0.5, 1024),
        likely_out_of_memory=True,
        status="failure",
        metrics={"memory_size_mb": 500},
        peak_mb=499,
    )
    window.add_run(reported_facts(killed))
    window.add_run(RUN)
    seen = _seen_memory_of_containers(window, SIZE, OWN)
    assert seen.killed_mb == {}
    assert seen.needs_mb["batch"] == 499 * 1.05


def test_counted_runs_show_nothing_of_a_container_without_a_report() -> None:
    """Its largest memory may be in a run that was only counted: its limit is not lowered."""
    window = FamilyWindow(SPAN)
    counts = RunCounts()
    counts.count_run(RUN)
    window.add_counts("1", SIZE, counts)
    window.add_counted_run(RUN)
    assert needs_mb(window) == {"batch": 420}
