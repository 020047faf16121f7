"""Neuron devices in the records of ``run`` and of the monitor, with a program that plays neuron-monitor."""

import os
from pathlib import Path

import pytest

from profiler.collectors.neuron import neuron_devices
from tests.aws import fake_aws
from tests.fake_neuron_monitor import install, starts
from tests.integration.profiled import profiled
from tests.integration.sidecar import Sidecar
from tests.neuron_documents import report, runtime
from tests.values import present
from tests.waiting import wait_until

BUSY = {"line": report(runtime({0: 75.0, 1: 0}, {0: 10, 1: 0}))}
STAY = {"stay": True}


def in_path(program: Path) -> dict[str, str]:
    return {"PATH": f"{program.parent}:{os.environ['PATH']}"}


def waiting_command(folder: Path) -> tuple[tuple[str, str], dict[str, str]]:
    """A command that ends, however slow the machine is, once the program has played the step beside it."""
    fifo = folder / "until-reported"
    os.mkfifo(fifo)
    return ("cat", str(fifo)), {"let_go": str(fifo)}


def test_run_reports_the_cores_and_neuron_monitor_is_no_part_of_the_command(tmp_path: Path) -> None:
    """neuron-monitor ends and is started anew while the command runs: neither life is counted as the command's."""
    burn = {"burn_seconds": 0.2}
    command, let_go = waiting_command(tmp_path)
    program = install(tmp_path, [burn, BUSY, {"exit": 1}], [BUSY, let_go, STAY])
    record, before = profiled(in_path(program), *command, NEURON="on")
    assert before == []
    assert record.neuron is not None
    assert present(record.neuron.cores[0].utilization_percent).max == 75
    assert record.neuron.restarts == 1
    # On a busy machine, the run may end before the report of the second life is read: a warning names the outage then.
    is_out = any("Neuron values" in warning for warning in present(record.monitor).warnings)
    assert ("neuron-monitor" in present(record.sampling).sources) is not is_out
    assert len(starts(program)) == 2
    # The fake is a Python program of 10 MiB.
    assert present(record.metrics.cpu_seconds) < burn["burn_seconds"]
    assert present(record.metrics.max_memory_used_mb) < 8
    assert record.metrics.max_pids == 1


def test_nothing_of_it_is_left_after_the_run(tmp_path: Path) -> None:
    command, let_go = waiting_command(tmp_path)
    program = install(tmp_path, [{"ignore_sigterm": True}, BUSY, let_go, STAY])
    profiled(in_path(program), *command, NEURON="on")
    (start,) = starts(program)
    assert not Path(f"/proc/{start['pid']}").exists()


def test_on_without_neuron_monitor_is_one_warning_on_each_side(tmp_path: Path) -> None:
    record, before = profiled(in_path(tmp_path / "nothing"), "true", NEURON="on")
    (warning,) = present(record.monitor).warnings
    assert before == [f"task-profiler: {warning}"]


@pytest.mark.skipif(bool(neuron_devices()), reason="this machine has Neuron devices")
@pytest.mark.parametrize("settings", [{}, {"NEURON": "off"}])
def test_a_program_with_the_name_is_no_device_and_off_starts_nothing(tmp_path: Path, settings: dict[str, str]) -> None:
    program = install(tmp_path, [BUSY, STAY])
    record, before = profiled(in_path(program), "sleep", "0.5", **settings)
    assert record.neuron is None
    assert starts(program) == []
    assert before == []


def test_the_monitor_reports_them_too(tmp_path: Path) -> None:
    program = install(tmp_path, [BUSY, BUSY, STAY])
    with fake_aws() as aws:
        environment = {**aws.environment(), **in_path(program)}
        # A log group that is nowhere, so that the report comes to stdout.
        with Sidecar(environment, LOG_GROUP="/nowhere", LOG_STREAM="x") as sidecar:
            # neuron-monitor is started beside the sampling.
            wait_until(lambda: starts(program), 60, "neuron-monitor")
            lines, _ = sidecar.watch(20)
    (found,) = [line for line in lines if line["type"] == "task.report"]
    assert found["record"]["neuron"]["cores"][0]["utilizationPercent"]["avg"] == 75
    assert found["record"]["sampling"]["sources"] == ["task-metadata-v4", "neuron-monitor"]
    assert not Path(f"/proc/{starts(program)[0]['pid']}").exists()
