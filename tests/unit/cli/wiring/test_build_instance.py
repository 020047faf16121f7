"""What the monitor of an instance is built from."""

from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock, patch

import pytest

from profiler.cli.wiring import build_instance, monitor_process
from profiler.cli.wiring.monitor_process import MonitorProcess
from profiler.collectors.collector_kinds import Collector
from profiler.monitor.task_sampler import SwapWarning
from profiler.settings import AcceleratorSettings, Processes
from tests.fakes import FakeClock, monitor_settings


@pytest.mark.parametrize(
    ("processes", "expected"),
    [
        ("off", ["GpuCollector", "UnseenGpus"]),
        ("on", ["ProcessDiscovery", "GpuCollector", "UnseenGpus", "StackCollector"]),
    ],
)
def test_processes_and_stacks_are_collected_only_if_they_are_enabled_and_neuron_devices_never(
    processes: Processes, expected: list[str]
) -> None:
    settings = monitor_settings(
        accelerators=AcceleratorSettings(gpu="on", neuron="on", gpu_uuids=()),
        processes=processes,
        stacks="on",
        scope="instance",
    )
    found = MonitorProcess(settings, Mock()).make_collectors(None, gpus_of=lambda _: None)
    assert [type(collector).__name__ for collector in found] == [
        "SwapWarning",
        "OutputWarning",
        *expected,
    ]


def test_bad_settings_are_logged_at_the_start() -> None:
    settings = monitor_settings(problems=("GPU='x' is not auto",))
    with patch.object(monitor_process, "JsonLog") as log:
        process = MonitorProcess(settings, Mock())
    assert [call.args for call in log.return_value.warning.call_args_list] == [process.problems]


def test_collectors_that_take_long_to_import_cost_no_tick() -> None:
    process = MonitorProcess(monitor_settings(), Mock())
    clock = FakeClock()

    def imported() -> Iterator[Collector]:
        clock.advance(3)
        yield SwapWarning(lambda: None)

    with patch.object(process, "clock", clock):
        ticker = process.make_shared_parts(imported()).ticker
    assert ticker.seconds_to_next(clock.monotonic_ns()) == 1
    assert ticker.missed == 0


def test_uploads_share_one_client_of_a_region_for_ten_minutes() -> None:
    clock, made = FakeClock(), Mock(side_effect=lambda *_: object())
    with patch.object(build_instance, "connect_logs_client", made):
        connect = build_instance._share_clients(clock)
        clients: list[Any] = [connect(region, print) for region in ("eu-west-1", "eu-west-1", None)]
        clock.advance(601)
        clients.append(connect("eu-west-1", print))
    assert clients[0] is clients[1]
    assert len(set(map(id, clients))) == made.call_count == 3
