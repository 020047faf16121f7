"""Builds the collector of call stacks, where it is enabled."""

import os
import sys
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from profiler.cli.run_options import rate_hz
from profiler.collectors.collector import COMMAND, Collectors
from profiler.collectors.processes.discovery import pids_of
from profiler.collectors.stacks.py_spy import PySpy, find_py_spy
from profiler.collectors.stacks.python_processes import Identity, still_running_identities
from profiler.collectors.stacks.stack_collector import StackAccess, StackAdvice, StackCollector
from profiler.core.clock import Clock
from profiler.core.log import Log
from profiler.core.text import install_hint
from profiler.readers.linux.host import read_host
from profiler.readers.linux.process_tree import ProcessTree
from profiler.settings import StacksMode

if TYPE_CHECKING:
    from profiler.local_run.prepared_run import PreparedRun

_IN_TASK = StackAdvice(
    missing="TASK_PROFILER_STACKS is set, but the monitor has no py-spy: use the image of "
    "task-profiler, or install py-spy in yours.",
    invisible="There are no call stacks because the monitor does not see the batch's processes: "
    "set pidMode to task (task-profiler taskdef add-monitor --stacks).",
    refused="There are no call stacks because the monitor may not read the batch's processes: give "
    "it the capability SYS_PTRACE and user 0 (task-profiler taskdef add-monitor --stacks).",
)
_IN_RUN = StackAdvice(
    missing=f"--stacks needs py-spy, which is not installed: {install_hint('py-spy')}.",
    invisible="There are no call stacks because the command's processes are not visible in /proc.",
    refused="There are no call stacks because the command's Python processes may not be read: run "
    "task-profiler as the same user, and as root where kernel.yama.ptrace_scope is not 0.",
)


def with_local_stacks(collectors: Collectors, word: str, prepared: "PreparedRun") -> Collectors:
    """The collectors of a run with one of the command's stacks in addition, as ``--stacks`` says:
    a mode, or a rate.
    """
    # In memory already, and not needed in the monitor.
    from profiler.local_run.command_usage import UnrelatedChildren
    from profiler.local_run.local_record import read_limits

    clock = prepared.clock
    vcpu = read_limits(prepared.cgroups, read_host()).vcpu
    mode: StacksMode = "moments" if word == "moments" else "on"
    access = _stack_access(lambda _: (), _IN_RUN, vcpu)
    collector = StackCollector(access, mode, clock, Log(), rate_hz(word))
    collectors = Collectors(*collectors, collector)
    unrelated_children = UnrelatedChildren(prepared.preexisting_children, collectors)
    tree = ProcessTree(os.getpid(), unrelated_children, clock.monotonic_ns)
    collector.follow(COMMAND, tree.identities)
    return collectors


def task_stacks(mode: StacksMode, clock: Clock, log: Log) -> StackCollector:
    """The monitor's collector of the batches' stacks."""
    access = _stack_access(lambda docker_id: still_running_identities(pids_of(docker_id)), _IN_TASK)
    return StackCollector(access, mode, clock, log)


def _stack_access(
    find_processes: Callable[[str], Iterable[Identity]],
    advice: StackAdvice,
    vcpu: float | None = None,
) -> StackAccess:
    return StackAccess(
        reader=PySpy(
            find_py_spy(os.environ.get("PATH"), sys.executable) or "",
            os.environ.get("LD_LIBRARY_PATH"),
        ),
        find_processes=find_processes,
        own_cpu_ns=time.thread_time_ns,
        advice=advice,
        vcpu=vcpu,
    )
