"""``task-profiler monitor``: wires the sidecar."""

import os
import sys
from collections.abc import Sequence
from typing import BinaryIO, TextIO

from profiler.cli.wiring.collectors import batch_processes, task_collectors
from profiler.cli.wiring.ecs import metadata_source
from profiler.collectors.base import Collector
from profiler.core.background import run_with_timeout
from profiler.core.clock import Clock, SystemClock, Ticker
from profiler.core.errors import TaskProfilerError
from profiler.core.log import JsonLog, Log
from profiler.core.signals import StopSignals
from profiler.core.timestamps import NS_PER_SECOND
from profiler.monitor.delivery import Delivery
from profiler.monitor.loop import Exporter, MonitorLoop
from profiler.monitor.observation import Observation
from profiler.monitor.reporter import Reporter, SwapTracker
from profiler.settings import MonitorSettings, read_settings
from profiler.sinks.cloudwatch_logs import CloudWatchLogsSink, connect
from profiler.sinks.stdout import StreamSink
from profiler.sources.linux.host import Host, read_host, read_instance, read_own_usage, read_swap_counters


def run_monitor(stop: StopSignals) -> int:
    """Monitor the task this process runs in; the exit code is 0 in every foreseen case."""
    try:
        settings = read_settings(os.environ)
    except TaskProfilerError as error:
        sys.stderr.write(f"task-profiler: {error}\n")
        return error.exit_code
    log = JsonLog(_unbuffered(sys.stderr))
    clock = SystemClock()
    interval_ns = round(settings.interval_seconds * NS_PER_SECOND)
    source = metadata_source(
        settings.endpoint_address, settings.endpoint_version, settings.interval_seconds, clock, stop
    )
    processes = batch_processes(settings.process_arguments, clock, interval_ns)
    observation = Observation(source, clock, log, interval_ns, processes.on_sample)
    ticker = Ticker(clock.monotonic_ns(), interval_ns)
    accelerators = (processes, *task_collectors(settings.accelerators, os.environ, clock, log, interval_ns))
    host = read_host()
    swap = SwapTracker(read_swap_counters)
    swap.start()
    reporter = Reporter(
        settings,
        observation,
        ticker=ticker,
        clock=clock,
        host=host,
        read_own_usage=read_own_usage,
        collectors=accelerators,
        notes=swap.notes,
    )
    delivery = Delivery(CloudWatchLogsSink(connect, clock), StreamSink(_unbuffered(sys.stdout)), log, run_with_timeout)
    monitor = MonitorLoop(
        settings,
        observation,
        reporter,
        delivery,
        ticker=ticker,
        clock=clock,
        stop=stop,
        log=log,
        collectors=accelerators,
        exporter=_exporter(settings, observation, accelerators, ticker, clock, host, log),
    )
    monitor.run()
    return 0


def _exporter(
    settings: MonitorSettings,
    observation: Observation,
    accelerators: Sequence[Collector],
    ticker: Ticker,
    clock: Clock,
    host: Host,
    log: Log,
) -> Exporter | None:
    """Live metrics; where they are off, nothing of them is imported."""
    if settings.prometheus_port is None:
        return None
    from profiler.prometheus.exporter import PrometheusExporter  # see above
    from profiler.prometheus.snapshot import SnapshotBuilder, hold_ns

    interval_ns = round(settings.interval_seconds * NS_PER_SECOND)
    builder = SnapshotBuilder(
        observation,
        accelerators,
        ticker=ticker,
        clock=clock,
        host=host,
        read_own_usage=read_own_usage,
        read_instance=read_instance,
        interval_ns=interval_ns,
    )
    return PrometheusExporter(settings.prometheus_port, builder, clock, log, hold_ns=hold_ns(interval_ns))


def _unbuffered(stream: TextIO) -> BinaryIO:
    return open(stream.fileno(), "wb", buffering=0, closefd=False)
