"""Wires what watches the batch's processes; where they are not visible, little of it is imported."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from profiler.clock import Clock
from profiler.processes.process_sighting import LazyProcessCollector, SampleComparingCollector
from profiler.settings import Arguments
from profiler.sources.container_processes import pids_of

if TYPE_CHECKING:
    from profiler.sources.process_tree import ProcessReading


def batch_processes(arguments: Arguments, clock: Clock, interval_ns: int) -> LazyProcessCollector:
    """The processes of the task's batch, watched from when they are seen."""
    return LazyProcessCollector(
        is_visible=lambda docker_id: any(True for _ in pids_of(docker_id)),
        make_collector=lambda: _make_collector(arguments, clock, interval_ns),
    )


def _make_collector(arguments: Arguments, clock: Clock, interval_ns: int) -> SampleComparingCollector:
    from profiler.processes.process_watch import ProcessAccess, ProcessCollector  # noqa: PLC0415  see the module's docstring
    from profiler.sources.container_cgroup import find_container_cgroup, machine_oom_kills  # noqa: PLC0415
    from profiler.sources.exit_alarm import ProcessExitWaiter  # noqa: PLC0415
    from profiler.sources.processes import ContainerProcesses  # noqa: PLC0415

    machine = ProcessAccess(
        open_processes=lambda docker_id: ContainerProcesses(
            docker_id, clock.monotonic_ns, with_arguments=arguments != "off"
        ),
        open_cgroup=find_container_cgroup,
        oom_kills=machine_oom_kills,
        own_cpu_ns=time.thread_time_ns,
        exit_waiter=ProcessExitWaiter(),
    )
    return ProcessCollector(machine, clock, interval_ns, _argument_formatter(arguments))


def _argument_formatter(arguments: Arguments) -> "Callable[[ProcessReading], str | None]":
    if arguments == "off":
        return lambda _: None
    from profiler.processes.arguments import redact  # noqa: PLC0415  most do not ask for them

    show = redact if arguments == "redacted" else " ".join
    return lambda process: show(process.arguments) or None
