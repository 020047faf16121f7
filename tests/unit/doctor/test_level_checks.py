"""The levels of the time breakdown, and what is missing for the next."""

import pytest
from msgspec.structs import replace

from profiler.doctor.findings import ok
from profiler.doctor.level_checks import kernel_finding, level_finding, stacks_finding
from profiler.readers.linux.kernel_view import KernelView

VIEW = KernelView(schedstat=True, system_calls=True, pressure=True, ptrace_scope=1, cgroup_version=2)


@pytest.mark.parametrize(
    ("sees_processes", "may_trace", "level", "advice"),
    [
        (False, False, "no time breakdown", ["level 1", '"pidMode": "task"', "level 2"]),
        (True, False, "level 1", ["level 2", "SYS_PTRACE", '"user": "0"']),
        (True, True, "level 2", []),
    ],
)
def test_the_level_and_what_the_next_one_requires(
    level: str, advice: list[str], *, sees_processes: bool, may_trace: bool
) -> None:
    found = level_finding(sees_processes=sees_processes, may_trace=may_trace)
    assert level in found.text
    assert found.level == ("note" if advice else "ok")
    assert all(part in (found.advice or "") for part in advice)


@pytest.mark.parametrize(
    ("may_trace", "py_spy", "text"),
    [(False, "py-spy 0.4.3", "may not read"), (True, None, "has no py-spy")],
)
def test_call_stacks_that_cannot_be_read_are_a_problem(text: str, py_spy: str | None, *, may_trace: bool) -> None:
    found = stacks_finding("moments", may_trace=may_trace, py_spy=py_spy)
    assert found.level == "problem"
    assert found.text.startswith("TASK_PROFILER_STACKS is moments, but ")
    assert text in found.text


def test_call_stacks_that_can_be_read_name_their_reader_if_it_is_known() -> None:
    named = stacks_finding("on", may_trace=True, py_spy="py-spy 0.4.3")
    assert named == ok("call stacks", "TASK_PROFILER_STACKS is on, and py-spy 0.4.3 reads the call stacks.")
    assert stacks_finding("on", may_trace=True, py_spy="").text == "TASK_PROFILER_STACKS is on."


def test_the_kernel_is_described_in_few_words() -> None:
    assert kernel_finding(VIEW) == ok(
        "kernel",
        "The kernel counts the time that processes wait for a CPU (schedstat). "
        "PSI: yes. Yama's ptrace_scope: 1. Control groups: version 2.",
    )
    bare = replace(VIEW, schedstat=False, pressure=False, ptrace_scope=None, cgroup_version=None)
    found = kernel_finding(bare)
    assert (found.level, "does not count" in found.text) == ("note", True)
    assert found.text.endswith("PSI: no. Yama's ptrace_scope: none. Control groups: none.")
