"""``task-profiler monitor``: builds the sidecar."""

import os
import sys
from collections.abc import Iterator, Sequence

from profiler.cli.wiring.build_collectors import accelerator_collectors, batch_processes, requested_tags
from profiler.cli.wiring.task_endpoint import metadata_source
from profiler.collectors.collector import Collector
from profiler.core.clock import SystemClock, Ticker
from profiler.core.deadline_writer import Output, standard_outputs
from profiler.core.errors import TaskProfilerError
from profiler.core.log import JsonLog
from profiler.core.signals import SignalHandler
from profiler.core.threads import BackgroundCall
from profiler.core.timestamps import NS_PER_SECOND
from profiler.monitor.loop import Exporter, MonitorLoop, Runtime
from profiler.monitor.observation import Observation
from profiler.monitor.report_delivery import Delivery
from profiler.monitor.reporter import Reporter, SwapTracker
from profiler.readers.linux.host import Host, read_host, read_instance, read_own_usage, read_swap_counters
from profiler.settings import MonitorSettings, read_settings
from profiler.sinks.cloudwatch_logs import CloudWatchLogsSink, connect
from profiler.sinks.stdout import StdoutSink


def run_monitor(stop: SignalHandler) -> int:
    """Monitor the task this process runs in.

    The exit code is 0 in every foreseen case. It is 1 if the monitor itself failed, so that a restart policy of the
    container restarts it. ECS ignores the exit code of a container that is not essential.
    """
    try:
        settings = read_settings(os.environ)
    except TaskProfilerError as error:
        sys.stderr.write(f"task-profiler: {error}\n")
        return error.exit_code
    clock = SystemClock()
    interval_ns = round(settings.interval_seconds * NS_PER_SECOND)
    stdout, stderr = standard_outputs()
    log = JsonLog(stderr)
    source = metadata_source(
        settings.endpoint_address, settings.endpoint_version, settings.interval_seconds, clock, stop
    )
    processes = batch_processes(settings.process_arguments, clock, interval_ns, settings.series_points)
    accelerators = accelerator_collectors(settings, os.environ, clock, log)
    collectors = (processes, *accelerators, *requested_tags(settings, clock))
    host = read_host()
    observation = Observation(
        source,
        clock,
        log,
        interval_ns,
        processes.on_sample,
        series_points=settings.series_points,
        host=host,
        devices=accelerators,
    )
    runtime = Runtime(clock=clock, ticker=Ticker(clock.monotonic_ns(), interval_ns), stop=stop, log=log)
    swap = SwapTracker(read_swap_counters)
    swap.start()
    reporter = Reporter(
        settings,
        observation,
        ticker=runtime.ticker,
        clock=clock,
        host=host,
        read_own_usage=read_own_usage,
        collectors=collectors,
        notes=lambda task: (*swap.notes(task), *_output_notes(stdout, stderr)),
    )
    delivery = _delivery(stdout, clock, log)
    loop = MonitorLoop(
        settings,
        observation,
        reporter,
        delivery,
        runtime,
        collectors=collectors,
        exporter=_exporter(settings, observation, accelerators, runtime, host),
    )
    is_done = loop.run()
    stop_ns = clock.monotonic_ns() if stop.requested_ns is None else stop.requested_ns
    for output in (stdout, stderr):
        output.drain(settings.stop_seconds - (clock.monotonic_ns() - stop_ns) / NS_PER_SECOND)
    return 0 if is_done else 1


def _delivery(stdout: Output, clock: SystemClock, log: JsonLog) -> Delivery:
    return Delivery(
        CloudWatchLogsSink(connect, clock),
        StdoutSink(stdout),
        log,
        lambda seconds, put: BackgroundCall(put, clock, seconds),
    )


def _output_notes(stdout: Output, stderr: Output) -> Iterator[str]:
    """Sentences about lines that were dropped."""
    named = {stdout: "standard output"} | ({} if stderr is stdout else {stderr: "standard error"})
    for output, name in named.items():
        if output.dropped:
            lines = "1 line was" if output.dropped == 1 else f"{output.dropped} lines were"
            yield f"The monitor's {name} was not read for a while (a log driver that hangs?): {lines} dropped."


def _exporter(
    settings: MonitorSettings, observation: Observation, accelerators: Sequence[Collector], runtime: Runtime, host: Host
) -> Exporter | None:
    """The exporter of live metrics; None if it is off, and then its modules are not imported."""
    if settings.prometheus_port is None:
        return None
    from profiler.prometheus.exporter import PrometheusExporter  # only where it is enabled
    from profiler.prometheus.snapshot import SnapshotBuilder, hold_ns

    interval_ns = round(settings.interval_seconds * NS_PER_SECOND)
    builder = SnapshotBuilder(
        observation,
        accelerators,
        ticker=runtime.ticker,
        clock=runtime.clock,
        host=host,
        read_own_usage=read_own_usage,
        read_instance=read_instance,
        interval_ns=interval_ns,
    )
    return PrometheusExporter(
        settings.prometheus_port, builder, runtime.clock, runtime.log, hold_ns=hold_ns(interval_ns)
    )
