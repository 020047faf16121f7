"""What the sidecar and the monitor of an instance have in common: the parts of their process."""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from profiler.cli.wiring.build_collectors import accelerator_collectors, process_discovery
from profiler.collectors.collector import Collectors, TagRequest, TaskTags
from profiler.core.background_call import BackgroundCall
from profiler.core.clock import SystemClock, Ticker
from profiler.core.deadline_writer import standard_outputs
from profiler.core.log import JsonLog
from profiler.core.signal_handler import SignalHandler
from profiler.core.timestamps import NS_PER_SECOND
from profiler.monitor.loop import MonitoredTask
from profiler.monitor.shared_parts import NONE_KEPT, ReportedBatches, SharedParts
from profiler.monitor.task_sampler import (
    MachineKills,
    OutputWarning,
    SwapWarning,
    TaskSampler,
    TaskSource,
)
from profiler.monitor.upload_or_print import ReportDelivery
from profiler.readers.cgroup.hierarchy import machine_oom_kills
from profiler.readers.linux.host import read_host, read_own_usage, with_processor
from profiler.readers.linux.instance import read_swap_counters
from profiler.settings import MonitorSettings, problems_message
from profiler.sinks.report_upload import CloudWatchLogsSink, Connect, connect_logs_client

if TYPE_CHECKING:
    from profiler.collectors.collector_kinds import Collector


class MonitorProcess:
    """The process's clock, outputs and settings, and what is built of them."""

    def __init__(self, settings: MonitorSettings, stop: SignalHandler) -> None:
        self.settings = settings
        self.stop = stop
        self.clock = SystemClock()
        self._outputs = standard_outputs()
        self.log = JsonLog(self._outputs[1])
        self._interval_ns = round(settings.interval_seconds * NS_PER_SECOND)
        self.problems = (problems_message(settings.problems),) if settings.problems else ()
        for problem in self.problems:
            self.log.warning(problem)
        self._host = with_processor(read_host())

    def make_collectors(
        self,
        request_tags: Callable[[str], TagRequest] | None,
        is_alone: Callable[[], bool] = lambda: False,
        gpus_of: Callable[[str], str | None] | None = None,
        mps_of: Callable[[str], Mapping[str, str]] | None = None,
    ) -> "Iterator[Collector]":
        """All collectors.

        An instance's monitor has ``gpus_of`` and ``mps_of``, no Neuron devices, and processes
        only if enabled.
        """
        settings = self.settings
        clock = self.clock
        is_instance = gpus_of is not None
        chosen = settings.accelerators
        accelerators = accelerator_collectors(
            replace(chosen, neuron="off") if is_instance else chosen,
            clock,
            self.log,
            settings.interval_seconds,
            hour_usd=None if settings.task.prices is None else settings.task.prices.hour_usd,
            gpus_of=gpus_of,
            mps_of=mps_of,
        )
        yield SwapWarning(read_swap_counters)
        if not is_instance:  # an instance's monitor has the groups' own counts
            yield MachineKills(machine_oom_kills)
        yield OutputWarning(*self._outputs)
        has_processes = settings.processes != "off" or not is_instance
        if has_processes:
            yield process_discovery(settings, clock, self._interval_ns, accelerators, is_alone)
        yield from accelerators
        if has_processes and settings.stacks != "off":
            from profiler.cli.wiring.build_stacks import task_stacks  # only where it is enabled

            yield task_stacks(settings.stacks, clock, self.log)
        if request_tags is not None:
            yield TaskTags(request_tags)

    def make_shared_parts(
        self,
        collectors: "Iterator[Collector]",
        connect_logs: Connect = connect_logs_client,
        reported: ReportedBatches = NONE_KEPT,
    ) -> SharedParts:
        """What all tasks share. The sidecar has no ``reported`` batches."""
        # before the first tick: imports take long
        clock = self.clock
        in_use = Collectors(*collectors)
        return SharedParts(
            clock=clock,
            ticker=Ticker(clock.monotonic_ns(), self._interval_ns),
            stop=self.stop,
            stop_seconds=self.settings.stop_seconds,
            log=self.log,
            collectors=in_use,
            delivery=ReportDelivery(
                CloudWatchLogsSink(connect_logs, clock),
                self._outputs[0],
                self.log,
                lambda seconds, put: BackgroundCall(put, clock, seconds),
            ),
            read_own_usage=read_own_usage,
            reported=reported,
        )

    def make_sampler(self, source: TaskSource, shared: SharedParts) -> TaskSampler:
        points = self.settings.task.series_points
        return TaskSampler(
            source,
            self.clock,
            self.log,
            self._interval_ns,
            shared.collectors,
            series_points=points,
            host=self._host,
        )

    def make_task(
        self, sampler: TaskSampler, shared: SharedParts, warnings: tuple[str, ...] = ()
    ) -> MonitoredTask:
        return MonitoredTask(self.settings.task, sampler, shared, (*self.problems, *warnings))

    def drain_outputs(self) -> None:
        """Write what the outputs have kept, within the rest of the stop budget."""
        if self.stop.requested_ns is None:
            stop_ns = self.clock.monotonic_ns()
        else:
            stop_ns = self.stop.requested_ns
        for output in self._outputs:
            output.drain(
                self.settings.stop_seconds - (self.clock.monotonic_ns() - stop_ns) / NS_PER_SECOND
            )
