"""``task-profiler monitor``: builds the sidecar."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from profiler.cli.wiring.build_collectors import accelerator_collectors, batch_processes, metadata_source, tag_lookup
from profiler.collectors.collector import Collector, TaskTags
from profiler.core.clock import SystemClock, Ticker
from profiler.core.deadline_writer import standard_outputs
from profiler.core.log import JsonLog
from profiler.core.stop_request import SignalHandler
from profiler.core.threads import BackgroundCall
from profiler.core.timestamps import NS_PER_SECOND
from profiler.monitor.loop import MonitorLoop
from profiler.monitor.report_delivery import Delivery
from profiler.monitor.reporter import Reporter
from profiler.monitor.task_sampler import OutputWarning, SwapWarning, TaskSampler
from profiler.readers.container_sample import ContainerSample
from profiler.readers.ecs.endpoint_client import check_address
from profiler.readers.linux.host import read_host, read_instance, read_own_usage, read_swap_counters, with_processor
from profiler.settings import read_settings
from profiler.sinks.report_upload import CloudWatchLogsSink, connect

if TYPE_CHECKING:
    from profiler.monitor.prometheus.exporter import PrometheusExporter


def run_monitor(stop: SignalHandler) -> None:
    """Monitor the task this process runs in. Raises UsageError if the process has no metadata endpoint."""
    settings = read_settings(os.environ)
    check_address(settings.endpoint_address)
    clock = SystemClock()
    interval_ns = round(settings.interval_seconds * NS_PER_SECOND)
    stdout, stderr = standard_outputs()
    log = JsonLog(stderr)
    source = metadata_source(
        settings.endpoint_address, settings.endpoint_version, settings.interval_seconds, clock, stop
    )
    accelerators = accelerator_collectors(
        settings.accelerators,
        os.environ,
        clock,
        log,
        settings.interval_seconds,
        hour_usd=None if settings.prices is None else settings.prices.hour_usd,
    )
    processes = batch_processes(settings, clock, interval_ns, accelerators, lambda: sampler.is_batch_alone)
    warnings = (SwapWarning(read_swap_counters), OutputWarning(stdout, stderr))
    host = with_processor(read_host())
    stacks: tuple[Collector, ...] = ()
    if settings.stacks != "off":
        from profiler.cli.wiring.build_stacks import task_stacks  # only where it is enabled

        stacks = (task_stacks(settings.stacks, clock, log, host, lambda: sampler),)
    read_tags = tag_lookup(settings.endpoint_address, settings.endpoint_version, clock)
    tags = (TaskTags(BackgroundCall(read_tags, clock, seconds=0)),) if settings.tags else ()
    collectors = (*warnings, processes, *accelerators, *stacks, *tags)
    sampled: tuple[Collector, ...] = (processes, *stacks)

    def on_sample(name: str, sample: ContainerSample) -> None:
        for collector in sampled:
            collector.on_sample(name, sample)

    sampler = TaskSampler(
        source,
        clock,
        log,
        interval_ns,
        on_sample,
        series_points=settings.series_points,
        host=host,
        devices=accelerators,
    )
    ticker = Ticker(clock.monotonic_ns(), interval_ns)
    reporter = Reporter(settings, sampler, ticker, clock, read_own_usage, collectors)
    sink = CloudWatchLogsSink(connect, clock)
    delivery = Delivery(sink, stdout, log, lambda seconds, put: BackgroundCall(put, clock, seconds))
    MonitorLoop(reporter, delivery, stop, log, _exporter(reporter, accelerators, log)).run()
    stop_ns = clock.monotonic_ns() if stop.requested_ns is None else stop.requested_ns
    for output in (stdout, stderr):
        output.drain(settings.stop_seconds - (clock.monotonic_ns() - stop_ns) / NS_PER_SECOND)


def _exporter(reporter: Reporter, accelerators: Sequence[Collector], log: JsonLog) -> "PrometheusExporter | None":
    """The exporter of live metrics; None if it is off, and then its modules are not imported."""
    settings = reporter.settings
    if settings.prometheus_port is None:
        return None
    from profiler.monitor.prometheus.exporter import PrometheusExporter  # only where it is enabled
    from profiler.monitor.prometheus.snapshot import SnapshotBuilder

    builder = SnapshotBuilder(reporter, accelerators, read_instance)
    return PrometheusExporter(settings.prometheus_port, builder, log)
