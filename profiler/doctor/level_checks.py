"""Diagnoses how much the monitor can see of what the batch waits for and runs: the levels of the time breakdown."""

from profiler.doctor.findings import Finding, note, ok, problem
from profiler.readers.linux.kernel_view import KernelView
from profiler.settings import StacksMode

LEVEL, STACKS, KERNEL = "level", "call stacks", "kernel"
_ACCESS = (
    'set "pidMode": "task", the capability SYS_PTRACE and "user": "0": task-profiler taskdef add-monitor --stacks.'
)
_NEXT_LEVEL = f"For level 2, which also shows network, sleep, locks, pipes and child processes, {_ACCESS}"


def level_finding(*, sees_processes: bool, may_trace: bool) -> Finding:
    """The level of the time breakdown, and what the next one requires."""
    if not sees_processes:
        return note(
            LEVEL,
            "There is no time breakdown, because the batch's processes are not visible.",
            f'For level 1, the time on a CPU, waiting for one, and on disks, set "pidMode": "task". {_NEXT_LEVEL}',
        )
    if may_trace:
        return ok(LEVEL, "The time breakdown has level 2: it shows what the batch waits for.")
    return note(LEVEL, "The time breakdown has level 1: the time on a CPU, waiting for one, and on disks.", _NEXT_LEVEL)


def stacks_finding(mode: StacksMode, *, may_trace: bool, py_spy: str | None) -> Finding:
    """Whether the call stacks that are switched on can be read.

    Args:
        mode: The setting, not ``off``.
        may_trace: Whether the monitor may read the batch's system calls, and so its call stacks.
        py_spy: What py-spy says about its version, empty if that is not known; None if it was not found.
    """
    setting = f"TASK_PROFILER_STACKS is {mode}"
    if not may_trace:
        return problem(
            STACKS,
            f"{setting}, but the monitor may not read the batch's call stacks.",
            f"S{_ACCESS[1:]}",
        )
    if py_spy is None:
        return problem(
            STACKS, f"{setting}, but the image has no py-spy.", "Build the image with EXTRAS=gpu,stacks, the default."
        )
    return ok(STACKS, f"{setting}{py_spy and f', and {py_spy} reads the call stacks'}.")


def kernel_finding(view: KernelView) -> Finding:
    """What the kernel offers, whatever the monitor's privileges are."""
    scope = "none" if view.ptrace_scope is None else view.ptrace_scope
    version = "none" if view.cgroup_version is None else f"version {view.cgroup_version}"
    rest = f"PSI: {'yes' if view.pressure else 'no'}. Yama's ptrace_scope: {scope}. Control groups: {version}."
    if view.schedstat:
        return ok(KERNEL, f"The kernel counts the time that processes wait for a CPU (schedstat). {rest}")
    return note(KERNEL, f"The kernel does not count the time that processes wait for a CPU (schedstat). {rest}")
