"""``task-profiler monitor``: wires the sidecar."""

import os
import sys
from typing import BinaryIO, TextIO

import requests.adapters

from profiler.bounded import call_within
from profiler.cli.accelerators import task_accelerators
from profiler.clock import Grid, SystemClock
from profiler.delivery import Delivery
from profiler.errors import TaskProfilerError
from profiler.logs import JsonLog
from profiler.monitor import Monitor
from profiler.observation import Observation
from profiler.reporting import Reporter
from profiler.settings import read_settings
from profiler.sinks.cloudwatch_logs import CloudWatchLogsSink, connect
from profiler.sinks.stdout import StreamSink
from profiler.sources.endpoint import HttpEndpoint, Patience
from profiler.sources.host import host_facts
from profiler.sources.own_process import own_usage
from profiler.sources.task import TaskMetadataSource
from profiler.stop import StopSignals
from profiler.times import NS_PER_SECOND


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
    endpoint = HttpEndpoint(
        settings.endpoint_address,
        requests.adapters.HTTPAdapter(pool_connections=1, pool_maxsize=1, max_retries=0),
        Patience(settings.interval_seconds),
        clock,
    )
    source = TaskMetadataSource(endpoint, settings.endpoint_version)
    observation = Observation(source, clock, log, interval_ns)
    grid = Grid(clock.monotonic_ns(), interval_ns)
    accelerators = task_accelerators(settings.accelerators, os.environ, clock, log, interval_ns)
    reporter = Reporter(
        settings,
        observation,
        grid=grid,
        clock=clock,
        host=host_facts(),
        own_usage=own_usage,
        accelerators=accelerators,
    )
    delivery = Delivery(CloudWatchLogsSink(connect, clock), StreamSink(_unbuffered(sys.stdout)), log, call_within)
    monitor = Monitor(
        settings,
        observation,
        reporter,
        delivery,
        grid=grid,
        clock=clock,
        stop=stop,
        log=log,
        accelerators=accelerators,
    )
    monitor.run()
    return 0


def _unbuffered(stream: TextIO) -> BinaryIO:
    return open(stream.fileno(), "wb", buffering=0, closefd=False)
