"""GPUs as the real Python binding reads them, from a driver library that was made for the test."""

import json
import os
import sqlite3
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from profiler.record.activity_model import NO_BREAKDOWN
from profiler.record.record_model import NOT_MEASURED, Record
from profiler.runs.step_series import decode_steps
from tests.fake_nvml import compile_driver
from tests.integration.profiled import lacks_advice, profiled
from tests.integration.sidecar import NO_AWS, Sidecar
from tests.values import present, without_caused_by_others
from tools.waiting import LIMIT_SECONDS

LOAD = Path(__file__).parents[2] / "examples" / "gpu_burn" / "gpu_burn.py"
BUSY, IDLE = (f"GPU-0000000{index}-aaaa-bbbb-cccc-dddddddddddd" for index in (0, 1))


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """What a process needs in its environment to find the library, and no Neuron of the machine."""
    folder = compile_driver(tmp_path_factory.mktemp("driver"))
    return {"LD_LIBRARY_PATH": str(folder), "TASK_PROFILER_NEURON": "off"}


def is_whole(record: Record) -> bool:
    """Whether its GPUs were read often enough, until its end."""
    return bool(record.gpus) and not any(gpu.is_use_partial for gpu in record.gpus)


def sleep_until(
    is_seen: Callable[[Record], bool], driver: Mapping[str, str], **settings: str
) -> Record:
    """The record of a command that sleeps longer and longer: a busy machine begins to read the
    driver seconds after the command.
    """
    for seconds in (3, 8, 16, 32, 64):
        record, before = profiled(driver, "sleep", str(seconds), **settings)
        assert before == []
        if is_seen(record):
            return record
    raise AssertionError(record)


def test_run_reports_the_gpus_of_the_command_and_keeps_their_series(
    driver: Mapping[str, str], history_file: Path
) -> None:
    record = sleep_until(is_whole, driver)
    assert [gpu.uuid for gpu in record.gpus] == [BUSY, IDLE]
    busy, idle = record.gpus
    assert busy.utilization_percent != NOT_MEASURED
    assert busy.utilization_percent.avg == 75
    assert busy.utilization_percent.max == 75
    assert present(busy.memory_used_mb).max == 2048
    assert busy.memory_size_mb == 16384
    assert present(busy.power_watts).avg == 150
    assert present(busy.sm_clock_mhz).max == 1410
    assert busy.throttle_reasons == {"swPowerCap": 100}
    assert busy.xids == (31,)
    assert busy.ecc_uncorrected is None
    # Read at the start and at the end, and each reading of this library adds 1 J.
    assert busy.energy_joules == 1
    assert present(idle.utilization_percent).max == 0
    assert idle.throttle_reasons == {}
    assert idle.xids == ()
    # GPM: fixed rates, and no NVLink. What was active when the run ended counts as its own.
    assert present(busy.sm_active_percent).avg == pytest.approx(40, rel=0.1)
    assert present(busy.sm_occupancy_percent).avg == pytest.approx(30, rel=0.1)
    assert present(busy.tensor_active_percent).avg == pytest.approx(20, rel=0.1)
    assert present(busy.dram_active_percent).avg == pytest.approx(10, rel=0.1)
    assert present(busy.pcie_rx_bytes) == pytest.approx(2 * present(busy.pcie_tx_bytes), abs=100)
    assert busy.nvlink_tx_bytes is None
    assert busy.nvlink_rx_bytes is None
    # A GPU that works for 75 % of its time is idle for the rest of the run.
    assert busy.idle_percent == pytest.approx(25, abs=10)
    assert present(busy.idle_seconds) > 0
    assert present(idle.idle_seconds) > 0
    gpu_idle = present(record.gpu_idle)
    idle_percents = [present(one.idle_percent) for one in record.gpus]
    assert gpu_idle.percent == pytest.approx(sum(idle_percents) / 2, abs=0.001)
    assert gpu_idle.usd is None
    assert record.gpu_scope == "instance"
    assert present(record.sampling).sources[-1] == "nvml"
    with closing(sqlite3.connect(history_file)) as history:
        ((text,),) = history.execute("SELECT points FROM run WHERE task_id = ?", (record.task_id,))
    steps = decode_steps(text)
    # Of the two GPUs one is idle: the mean is half of the other's 75 %.
    assert {*steps.gpu_percent} - {None} == {37.5}
    assert {*steps.gpu_memory_mb} - {None} == {2048}


def test_the_idle_time_between_the_work_of_a_gpu_is_divided(driver: Mapping[str, str]) -> None:
    def is_divided(record: Record) -> bool:
        idle = record.gpu_idle
        return idle is not None and idle.waiting_for != NO_BREAKDOWN

    record = sleep_until(is_divided, driver, GPU_UUIDS=BUSY)
    assert present(present(record.gpu_idle).waiting_for.sleep_percent) > 80


def test_the_setting_selects_the_gpus_and_idle_ones_are_reported(driver: Mapping[str, str]) -> None:
    def is_advised(record: Record) -> bool:
        reasons = record.recommendation.reasons
        return any("ever used" in text for text in reasons) or lacks_advice(record)

    record = sleep_until(
        lambda record: is_whole(record) and is_advised(record), driver, GPU_UUIDS=IDLE
    )
    assert [gpu.uuid for gpu in record.gpus] == [IDLE]
    assert record.gpu_scope is None
    assert present(record.gpu_idle).percent == pytest.approx(95, abs=20)


def test_run_names_the_package_that_reads_the_driver_in_one_line_of_its_end(
    driver: Mapping[str, str], tmp_path: Path
) -> None:
    (tmp_path / "pynvml.py").write_text("raise ImportError")
    words = [sys.executable, "-m", "profiler", "run", "--", "sleep", "0.3"]
    environment = {**os.environ, **driver, "PYTHONPATH": str(tmp_path)}

    def end(**more: str) -> str:
        return subprocess.run(
            words, env={**environment, **more}, capture_output=True, check=True, text=True
        ).stderr

    install = "The GPU is not read: pipx inject task-profiler nvidia-ml-py (or pip)."
    assert [line for line in end().splitlines() if line.endswith(install)]
    assert "GPU" not in end(LD_LIBRARY_PATH=""), "without a driver, nothing is said"
    asked = end(LD_LIBRARY_PATH="", TASK_PROFILER_GPU="on")
    assert "no GPU can be read (no NVIDIA driver was found)" in asked
    assert "nvidia-ml-py" not in asked


@pytest.mark.parametrize(
    ("value", "uuids", "scope"), [("1", [IDLE], None), ("none", [BUSY, IDLE], "instance")]
)
def test_the_commands_gpus_are_those_that_its_environment_names(
    driver: Mapping[str, str], value: str, uuids: list[str], scope: str | None
) -> None:
    record, _ = profiled({**driver, "NVIDIA_VISIBLE_DEVICES": value}, "sleep", "1")
    assert [gpu.uuid for gpu in record.gpus] == uuids
    assert record.gpu_scope == scope


def test_off_means_that_no_device_is_searched(driver: Mapping[str, str]) -> None:
    record, before = profiled(driver, "sleep", "0.5", GPU="off")
    assert record.gpus == ()
    assert before == []
    assert "nvml" not in present(record.sampling).sources


@pytest.mark.parametrize("words", [("sleep", "1"), ("true",)], ids=["later", "at once"])
def test_on_without_a_gpu_is_one_warning_on_stderr_and_one_in_the_record(
    words: tuple[str, ...],
) -> None:
    """Whether the binding was imported by the end of the command or not."""
    record, before = profiled({"LD_LIBRARY_PATH": ""}, *words, GPU="on", NEURON="off")
    (warning,) = without_caused_by_others(present(record.monitor).warnings)
    assert before == [f"task-profiler: {warning}"]
    assert warning.startswith("TASK_PROFILER_GPU=on, but no GPU ")


def test_the_monitor_reports_them_too(driver: Mapping[str, str]) -> None:
    # The driver is opened beside the sampling, which takes as long as its binding takes to import.
    for reads in (30, 120, 480):
        with Sidecar(
            {**NO_AWS, **driver}, GPU_UUIDS=BUSY, PRICE_HOUR="1", REPORT_STREAM="monitor"
        ) as sidecar:
            (report,), _ = sidecar.watch(reads)
        record = report["record"]
        if "gpuIdle" in record and "utilizationPercent" in record["gpus"][0]:
            break
    (gpu,) = record["gpus"]
    assert gpu["uuid"] == BUSY
    assert gpu["utilizationPercent"]["avg"] == 75
    idle = record["gpuIdle"]
    assert idle["percent"] == pytest.approx(25, abs=20)
    assert idle["usd"] == pytest.approx(idle["gpuHours"], rel=0.01)
    assert record["sampling"]["sources"] == ["task-metadata-v4", "nvml"]


def burned(driver: Mapping[str, str], *options: str) -> tuple[int, str, str]:
    """The exit code of examples/gpu_burn, and what it printed: from ctypes to C and back."""
    ran = subprocess.run(
        [sys.executable, str(LOAD), *options],
        env={**os.environ, **driver},
        capture_output=True,
        check=False,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    return ran.returncode, ran.stdout, ran.stderr


@pytest.mark.slow
def test_the_example_load_calls_the_driver_as_its_header_declares_it(
    driver: Mapping[str, str],
) -> None:
    for options in ((), ("--blocks", "1"), ("--work", "0.1", "--pause", "0.05")):
        assert burned(driver, "--gib", "4", "--seconds", "0.2", *options) == (0, "ready\n", "")


def test_the_known_programs_call_the_driver_as_its_header_declares_it(
    driver: Mapping[str, str], tmp_path: Path
) -> None:
    """One that takes memory until there is none, and fails."""
    words = [sys.executable, "-m", "tests.gpu.known_programs", "oom", "--truth", "truth"]
    environment = {**os.environ, **driver, "PYTHONPATH": str(LOAD.parents[2])}
    ended = subprocess.run(
        words, env=environment, cwd=tmp_path, capture_output=True, check=False, text=True
    )
    assert (ended.returncode, ended.stderr) == (1, "the program fails, as it was asked to\n")
    assert json.loads((tmp_path / "truth").read_text())["held_mb"] == pytest.approx(8192, rel=0.06)


@pytest.mark.slow
def test_all_checks_of_a_device_leave_what_they_found_in_one_folder(
    driver: Mapping[str, str], tmp_path: Path
) -> None:
    """The packages come from wheels, where there is no network."""
    with zipfile.ZipFile(tmp_path / "named-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("sitecustomize.py", f"open({str(tmp_path / 'imported')!r}, 'w').close()")
    found = tmp_path / "found"
    words = ["-m", "tests.gpu.on_device", "--into", str(found), "--wheels", str(tmp_path)]
    ended = subprocess.run(
        [sys.executable, *words, "--program", "burn-half", "machine", "programs"],
        env={**os.environ, **driver},
        cwd=LOAD.parents[2],
        capture_output=True,
        check=False,
        text=True,
    )
    files = {file.name: file.read_text() for file in found.iterdir()}
    assert set(files) == {"machine.json", "programs.txt", "programs.jsonl", "summary.txt"}
    machine = json.loads(files["machine.json"])
    assert [gpu["name"] for gpu in machine["gpus"]] == ["NVIDIA Test"] * 2
    assert (tmp_path / "imported").exists()
    # The numbers of this driver have nothing to do with those of the program.
    assert ended.returncode == 1
    first, second = files["summary.txt"].splitlines()
    assert first.startswith("machine: exit code 0 after ")
    assert second.startswith("programs: exit code 1 after ")
    alone, beside = map(json.loads, files["programs.jsonl"].splitlines())
    assert beside["asked"]["beside"] == "burn"
    assert alone["truth"]["held_mb"] == 64
    assert alone["record"]["gpus"]
    assert "burn-half beside burn" in files["programs.txt"]


def test_the_example_load_names_what_the_driver_refuses(driver: Mapping[str, str]) -> None:
    advice = "request less with --gib, or stop other programs on the GPU."
    said = f"The CUDA driver could not allocate 9 GiB (error 2): {advice}\n"
    assert burned(driver, "--gib", "9") == (1, "", said)
