"""What the sidecar and the monitor of an instance have in common: the parts of their process."""

from collections.abc import Iterable

from profiler.collectors.collector import Collector, Collectors
from profiler.core.clock import Clock, Ticker
from profiler.core.deadline_writer import Output
from profiler.core.log import Log
from profiler.core.stop_request import SignalHandler
from profiler.core.threads import BackgroundCall
from profiler.core.timestamps import NS_PER_SECOND
from profiler.monitor.report_delivery import Delivery
from profiler.monitor.shared_parts import ReportedBatches, SharedParts
from profiler.readers.linux.host import read_own_usage
from profiler.settings import MonitorSettings
from profiler.sinks.report_upload import CloudWatchLogsSink, Connect, connect


def shared_parts(
    settings: MonitorSettings,
    stop: SignalHandler,
    *,
    clock: Clock,
    stdout: Output,
    log: Log,
    collectors: Iterable[Collector],
    connect_logs: Connect = connect,
    reported: ReportedBatches | None = None,
) -> SharedParts:
    """The parts of a monitor's process. The sidecar has no ``reported`` batches."""
    return SharedParts(
        clock=clock,
        ticker=Ticker(clock.monotonic_ns(), round(settings.interval_seconds * NS_PER_SECOND)),
        stop=stop,
        stop_seconds=settings.stop_seconds,
        log=log,
        collectors=Collectors(*collectors),
        delivery=Delivery(
            CloudWatchLogsSink(connect_logs, clock),
            stdout,
            log,
            lambda seconds, put: BackgroundCall(put, clock, seconds),
        ),
        read_own_usage=read_own_usage,
        is_in_task=reported is None,
        reported=reported or ReportedBatches(),
    )


def drain_outputs(settings: MonitorSettings, stop: SignalHandler, clock: Clock, outputs: Iterable[Output]) -> None:
    """Write what the outputs have kept, within the rest of the stop budget."""
    stop_ns = clock.monotonic_ns() if stop.requested_ns is None else stop.requested_ns
    for output in outputs:
        output.drain(settings.stop_seconds - (clock.monotonic_ns() - stop_ns) / NS_PER_SECOND)
