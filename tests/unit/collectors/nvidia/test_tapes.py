"""The record of known programs on a real GPU, whose driver is played back from tapes.

The truth comes from GPM's spans of 0.2 s on the tape, which the collector does not read that often,
from what the program printed, and from the tape's 20 readings of the memory a second.
"""

import re
from collections.abc import Sequence
from itertools import pairwise

import pynvml
import pytest

from profiler.aggregation.statistics import DeviceReadings, UseWindow
from profiler.collectors.nvidia.visible_gpus import GpuLimits, GpuScope, parse_limits
from profiler.record.device_totals import gpu_totals
from profiler.record.fact_list import GPU_IDLE, number_fact
from profiler.record.gpu_facts import gpu_error_text, gpu_idle_text, gpu_memory_evidence_text
from profiler.record.gpu_sentences import (
    gpu_idle_sentence,
    gpu_idle_texts,
)
from profiler.record.record_model import NO_RECOMMENDATION, NOT_MEASURED, Record, Report
from profiler.runs.past_runs.past_run import PastRun
from profiler.runs.past_runs.verdict_sentence import VerdictSentences, verdict_of
from tests.cases import each_case
from tests.fakes import seconds
from tests.gpu_cases import played_until, samples_until
from tests.gpu_runs import advice_on, gpu_run
from tests.nvml_tape import Tape
from tests.played_tapes import PlayedTape, gpu_of
from tests.tape_driver import UUID
from tests.values import present

ALONE = (
    *("bursts", "short", "grow", "oom", "illegal", "burn-half", "one-block", "two", "starved"),
    "copies",
)
OPENINGS = (0.05, 0.17, 0.35, 0.6, 0.85, 1.1)


def verdict(record: Record) -> VerdictSentences:
    report = Report(time="2026-11-20T03:12:45.123Z", type="task.report", record=record)
    return verdict_of(PastRun(report=report), 0)


def used_seconds(record: Record) -> float:
    gpu = gpu_of(record)
    return present(record.metrics.duration_ms) / 1000 - present(gpu.idle_seconds)


@pytest.mark.diagonal
@pytest.mark.parametrize("opening", OPENINGS)
@pytest.mark.parametrize("name", [name for name in ALONE if name not in ("copies", "illegal")])
def test_the_time_without_a_kernel_is_true_at_any_phase(name: str, opening: float) -> None:
    """Illegal is left out: the driver stops the GPU for 0.25 s, of which GPM sees half."""
    played = PlayedTape(name, opening=opening)
    record = played.play()
    truth = played.tape.kernel_seconds
    # The last 0.26 s of a run cannot be read at its end: they are taken as the window before.
    assert used_seconds(record) == pytest.approx(truth, abs=0.2, rel=0.03)
    assert gpu_of(record).utilization_source == "driver-samples"
    average = present(present(gpu_of(record).utilization_percent).avg)
    duration = present(record.metrics.duration_ms) / 1000
    assert average * duration / 100 == pytest.approx(truth, abs=0.21, rel=0.03)


@pytest.mark.diagonal
@pytest.mark.parametrize("opening", [4.0, 9.0, 13.5])
@pytest.mark.parametrize("name", ["two", "starved"])
def test_work_before_a_driver_is_open_is_the_runs(name: str, opening: float) -> None:
    """A driver without persistence mode takes seconds to open; its samples begin before. The energy
    of most of the run is no energy of the run.
    """
    usual = gpu_of(PlayedTape(name).play())
    late = PlayedTape(name, opening=opening)
    gpu = gpu_of(late.play())
    assert gpu.utilization_percent == usual.utilization_percent
    assert gpu.idle_before_seconds == usual.idle_before_seconds
    assert (gpu.energy_joules is None) == (opening > late.tape.seconds / 2)
    assert present(gpu.memory_used_mb.max) <= late.tape.own_peak_mb + 20  # of the driver


@pytest.mark.parametrize("opening", OPENINGS)
def test_copies_are_work_of_the_gpu_and_are_named(opening: float) -> None:
    played = PlayedTape("copies", opening=opening)
    record = played.play()
    gpu = gpu_of(record)
    copied = played.tape.copied_seconds
    assert used_seconds(record) == pytest.approx(copied, abs=0.12)
    # Whole spans of a second.
    assert present(gpu.copy_seconds) == pytest.approx(copied, abs=1.0)
    assert present(gpu.copy_bytes_per_second) / 1e9 == pytest.approx(
        played.tape.copied_gigabytes_per_second, rel=0.12
    )
    advice, startup = advice_on(record)
    assert advice.startswith("It copied over PCIe at 5")
    assert "smaller GPU" not in advice
    assert startup.startswith("Its work on the GPU began after ")


@pytest.mark.parametrize(("name", "covered"), [("starved", 58), ("bursts", 68), ("two", 78)])
def test_where_samples_stop_the_idle_time_is_a_lower_bound(name: str, covered: float) -> None:
    record = samples_until(11)(PlayedTape(name))
    gpu = gpu_of(record)
    assert present(gpu.utilization_covered_percent) == pytest.approx(covered, abs=1)
    idle_seconds = present(record.metrics.duration_ms) / 1000 - Tape(name).kernel_seconds
    assert 0.4 * idle_seconds < present(gpu.idle_seconds) <= idle_seconds
    # It may have worked in the rest of the run.
    assert gpu.first_used_seconds is gpu.last_used_seconds is gpu.idle_after_seconds is None
    sentence, hours = gpu_idle_texts(record)
    assert sentence.startswith("the GPU was idle at least ")
    assert sentence.endswith("of the run")
    assert hours.startswith("≥0.00")
    assert number_fact(GPU_IDLE, record).text.startswith("≥")
    assert gpu_idle_text(gpu).startswith("≥")
    (warning,) = present(record.monitor).warnings
    assert warning == (
        f"The work of GPU 0 is known for {covered} % of the run: the idle time is a lower bound."
    )
    assert advice_on(record) == []


@pytest.mark.parametrize("name", ["starved", "bursts", "two", "short"])
def test_of_a_gpu_whose_work_is_hardly_known_nothing_is_said(name: str) -> None:
    record = samples_until(3)(PlayedTape(name))
    gpu = gpu_of(record)
    assert gpu.utilization_percent == NOT_MEASURED
    assert gpu.idle_seconds is None
    assert record.gpu_idle is None
    assert gpu_totals(record).text.startswith("GPU use unknown, ≥")
    (warning,) = present(record.monitor).warnings
    assert warning.endswith("of the run: use and idle time are missing.")
    assert not any("ever used" in text for text in advice_on(record))


NO_DATA = (
    pynvml.NVML_ERROR_NO_PERMISSION,
    pynvml.NVML_ERROR_NOT_FOUND,
    pynvml.NVML_ERROR_UNKNOWN,
)


@pytest.mark.diagonal
@pytest.mark.parametrize("error", NO_DATA)
@pytest.mark.parametrize("name", ["bursts", "two", "starved"])
def test_a_driver_that_never_gives_a_sample_leaves_the_work_to_gpm(name: str, error: int) -> None:
    played = PlayedTape(name)
    played.driver.nvml.fail("nvmlDeviceGetSamples", error, always=True)
    record = played.play()
    assert gpu_of(record).utilization_source == "gpm"
    assert used_seconds(record) == pytest.approx(played.tape.kernel_seconds, abs=0.25)
    assert present(record.monitor).warnings == ()


@pytest.mark.parametrize("name", ["bursts", "two", "starved"])
def test_a_driver_whose_samples_cannot_be_leaves_the_work_to_gpm(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in the readings which had only such samples."""
    played = PlayedTape(name)
    gpu = played.driver.gpu
    keep = gpu.keep_samples

    def keep_broken(*samples: tuple[int, int]) -> None:
        keep(*((at, 2**32 - 1) for at, _ in samples))

    monkeypatch.setattr(gpu, "keep_samples", keep_broken)
    record = played.play()
    assert gpu_of(record).utilization_source == "gpm"
    assert gpu_of(record).utilization_covered_percent is None
    assert used_seconds(record) == pytest.approx(played.tape.kernel_seconds, abs=0.25)
    (warning,) = present(record.monitor).warnings
    assert warning.endswith(" values that cannot be: left out.")


def test_samples_that_come_late_replace_what_was_read_each_second() -> None:
    """A driver that was just loaded has none yet."""
    played = PlayedTape("bursts", has_gpm=False)
    played.driver.nvml.fail("nvmlDeviceGetSamples", pynvml.NVML_ERROR_NOT_FOUND)
    record = played.play()
    assert gpu_of(record).utilization_source == "driver-samples"
    assert gpu_of(record).utilization_covered_percent is None
    assert used_seconds(record) == pytest.approx(played.tape.kernel_seconds, abs=0.2)


def test_one_moment_of_a_second_is_no_work_that_gpm_saw() -> None:
    """GPM begins late, as the driver is replaced twice: a reading before has 99 % for 2 s, in which
    kernels ran for 0.3 s.
    """
    played = PlayedTape("short", has_samples=False)
    replaced_at = [0.75, 2.23]

    def replace_driver() -> None:
        if replaced_at and played.clock.now_ns > seconds(replaced_at[0]):
            replaced_at.pop(0)
            played.driver.nvml.fail("nvmlDeviceGetClockInfo", pynvml.NVML_ERROR_UNINITIALIZED)

    gpu = gpu_of(played.play(replace_driver))
    assert replaced_at == []
    assert gpu.utilization_source == "gpm"
    assert present(gpu.utilization_covered_percent) < 10
    assert gpu.utilization_percent == NOT_MEASURED


def test_without_samples_the_work_is_that_of_gpm_and_without_both_that_of_each_second() -> None:
    played = PlayedTape("bursts", has_samples=False)
    record = played.play()
    assert gpu_of(record).utilization_source == "gpm"
    assert used_seconds(record) == pytest.approx(played.tape.kernel_seconds, rel=0.1)
    record = PlayedTape("bursts", has_samples=False, has_gpm=False).play()
    assert gpu_of(record).utilization_source == "once-a-second"


@pytest.mark.diagonal
@pytest.mark.parametrize("opening", OPENINGS)
@pytest.mark.parametrize("name", ALONE)
def test_the_memory_peak_is_nearly_reached_and_never_passed(name: str, opening: float) -> None:
    played = PlayedTape(name, opening=opening)
    peak = present(present(gpu_of(played.play()).memory_used_mb).max)
    truth = played.tape.peak_mb
    # 10 readings a second; "oom" takes 4 GB in each 0.05 s.
    assert 0.94 * truth - 10 <= peak <= truth + 0.1


@pytest.mark.diagonal
@pytest.mark.parametrize("opening", OPENINGS[:4])
@pytest.mark.parametrize("name", ["starved", "two", "bursts"])
def test_the_parts_of_the_idle_time_are_the_whole(name: str, opening: float) -> None:
    """Also of GPM's spans, which lack the time before the first."""
    gpu = gpu_of(PlayedTape(name, opening=opening, has_samples=False).play())
    parts = (gpu.idle_before_seconds, gpu.idle_between_seconds, gpu.idle_after_seconds)
    assert sum(map(present, parts)) == pytest.approx(present(gpu.idle_seconds), abs=0.01)


@pytest.mark.parametrize("name", ["starved", "bursts"])
def test_one_moment_of_each_second_does_not_say_when_the_work_began(name: str) -> None:
    """A virtual GPU: of the pieces of work, it shows some, and others at another phase."""
    record = PlayedTape(name, has_samples=False, has_gpm=False).play()
    gpu = gpu_of(record)
    assert gpu.idle_seconds is not None
    assert gpu.first_used_seconds is gpu.last_used_seconds is gpu.idle_between_seconds is None
    sentence, hours = gpu_idle_texts(record)
    assert sentence.startswith("the GPU was idle about ")
    assert sentence.endswith("of the run")
    assert hours.startswith("≈ 0.00")
    assert gpu_totals(record).text.startswith("GPU ≈ ")
    assert advice_on(record) == []


@pytest.mark.parametrize("before", [0.63, 0.68, 0.73, 0.78, 0.83, 0.88])
def test_a_run_whose_work_is_in_one_span_of_gpm_was_not_idle(before: float) -> None:
    """It takes 1.1 s, and its processes leave in the span of a second in which it worked."""
    played = PlayedTape(
        "burn-half", has_samples=False, opening=0.6, as_batch=True, seconds_before=before
    )
    record = played.play()
    gpu = gpu_of(record)
    assert gpu.utilization_source == "gpm"
    assert present(gpu.utilization_percent.max) > 0
    assert used_seconds(record) == pytest.approx(played.tape.kernel_seconds, abs=0.25)


@pytest.mark.parametrize("name", ["short", "one-block"])
def test_of_a_moment_of_each_second_the_missing_time_is_not_bounded(name: str) -> None:
    """The first reading has no time before it: 0.6 s and a second of 4.4 s are missing."""
    record = PlayedTape(name, has_samples=False, has_gpm=False, opening=0.6).play()
    gpu = gpu_of(record)
    assert present(gpu.utilization_covered_percent) == pytest.approx(86, abs=1)
    assert gpu.utilization_percent.avg is not None
    assert gpu.idle_seconds is None
    (warning,) = present(record.monitor).warnings
    assert warning.endswith("of the run: the idle time is missing.")


@pytest.mark.parametrize("name", ["short", "starved", "two", "bursts"])
def test_the_first_and_last_work_limit_the_start_up(name: str) -> None:
    played = PlayedTape(name)
    gpu = gpu_of(played.play())
    first, last = played.tape.kernel_limits
    assert present(gpu.first_used_seconds) == pytest.approx(first, abs=0.45)
    assert present(gpu.last_used_seconds) == pytest.approx(last, abs=0.45)
    parts = (gpu.idle_before_seconds, gpu.idle_between_seconds, gpu.idle_after_seconds)
    assert sum(map(present, parts)) == pytest.approx(present(gpu.idle_seconds), abs=0.05)


def test_the_first_tensor_of_a_program_is_not_the_beginning_of_its_work() -> None:
    """It makes a tensor after 3.5 s, copies its weights after 4.7 s, and trains from 11.1 s on."""
    record = PlayedTape("starved").play()
    gpu = gpu_of(record)
    assert present(gpu.first_used_seconds) > 11
    # It is too short to judge its workers by.
    assert advice_on(record) == [
        "Its work on the GPU began after 11.1 s (60 % of the run): imports and loading."
    ]
    sentence = present(gpu_idle_sentence(record))
    assert sentence.startswith(
        "the GPU was idle 97 % of the run: 60 % before its work began (after"
    )


# Whose use it is


def test_a_gpu_that_only_others_use_is_not_the_runs() -> None:
    record = PlayedTape("neighbour").play()
    assert record.gpus == ()
    assert record.gpu_idle is None
    assert record.recommendation == NO_RECOMMENDATION or not any(
        "GPU" in reason for reason in record.recommendation.reasons
    )


@pytest.mark.parametrize("name", ["neighbour", "short"])
def test_what_nobody_looked_at_is_not_denied(name: str) -> None:
    """On a machine without a free CPU, the thread gets its first turn after the run."""
    record = PlayedTape(name, delay=6.0).play()
    assert record.gpu_scope == "instance"
    assert gpu_of(record).shared is None
    assert gpu_of(record).memory_used_mb == NOT_MEASURED
    assert advice_on(record) == []


def test_a_gpu_that_was_assigned_is_the_runs_even_if_only_others_use_it() -> None:
    scope = GpuScope(("GPU-11111111-2222-3333-4444-555555555555",))
    record = PlayedTape("neighbour", scope=scope).play()
    gpu = gpu_of(record)
    assert gpu.shared
    assert present(gpu.memory_used_mb).max == 0
    assert gpu.idle_seconds is None
    assert advice_on(record) == []


def test_beside_another_program_the_memory_is_the_runs_own() -> None:
    played = PlayedTape("beside")
    gpu = gpu_of(played.play())
    assert gpu.shared
    assert present(present(gpu.memory_used_mb).max) == pytest.approx(played.tape.own_peak_mb, abs=1)
    assert present(present(gpu.utilization_percent).avg) > 98  # of both
    assert gpu.idle_seconds is None


def test_the_memory_of_others_is_not_the_runs_where_its_processes_came_unseen() -> None:
    """The other program was there before; the lists fail before the run's own one comes."""
    lists = ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetComputeRunningProcesses_v2")
    record = played_until(PlayedTape("beside"), 3, pynvml.NVML_ERROR_UNKNOWN, *lists)
    gpu = gpu_of(record)
    assert gpu.shared
    assert gpu.memory_used_mb == NOT_MEASURED
    assert gpu_totals(record).text == "GPU shared with other programs"


_NOT_LISTED = (
    "The driver did not list the processes on the GPUs for the whole run: the numbers are of all "
    "programs on them."
)
_ALL_LISTS = tuple(
    f"nvmlDeviceGet{kind}RunningProcesses{version}"
    for kind in ("Compute", "MPSCompute", "Graphics")
    for version in ("", "_v2")
)


def test_after_the_lists_have_ended_the_numbers_are_the_devices() -> None:
    """A process of the run was listed before the others came."""
    played = PlayedTape("two")
    record = played_until(played, 5, pynvml.NVML_ERROR_UNKNOWN, *_ALL_LISTS)
    gpu = gpu_of(record)
    assert record.gpu_scope == "instance"
    assert gpu.shared is None
    assert present(record.monitor).warnings == (_NOT_LISTED,)
    assert used_seconds(record) == pytest.approx(played.tape.kernel_seconds, abs=0.2)
    assert present(present(gpu.memory_used_mb).max) == pytest.approx(played.tape.peak_mb, rel=0.01)


@pytest.mark.parametrize("as_batch", [False, True])
def test_a_driver_that_lists_no_processes_is_said(*, as_batch: bool) -> None:
    """WSL 2, and some virtual GPUs; a GPU that was assigned is the batch's all the same."""
    for scope in (None, GpuScope((UUID,))):
        played = PlayedTape("short", as_batch=as_batch, scope=scope)
        for function in _ALL_LISTS:
            played.driver.nvml.fail(function, pynvml.NVML_ERROR_NOT_SUPPORTED, always=True)
        record = played.play()
        assert record.gpu_scope == (None if scope else "instance")
        assert present(record.monitor).warnings == (() if scope else (_NOT_LISTED,))


def test_after_the_driver_has_ended_nothing_is_said_of_the_rest() -> None:
    record = played_until(PlayedTape("starved"), 6, 18, "nvmlDeviceGetUtilizationRates")
    gpu = gpu_of(record)
    assert record.gpu_scope == "instance"
    assert gpu.memory_used_mb == gpu.power_watts == gpu.temperature_celsius == NOT_MEASURED
    assert {gpu.energy_joules, gpu.pcie_rx_bytes} == {None}
    assert gpu.throttle_reasons is None


@pytest.mark.parametrize("share", [0.3, 0.7])
def test_what_was_read_for_less_than_half_of_a_run_is_no_number_of_it(share: float) -> None:
    played = PlayedTape("bursts")
    functions = (
        *("nvmlDeviceGetPowerUsage", "nvmlDeviceGetTotalEnergyConsumption"),
        *("nvmlDeviceGetClockInfo", "nvmlDeviceGetTemperature"),
        *("nvmlDeviceGetCurrentClocksThrottleReasons", "nvmlGpmMetricsGet"),
    )
    error = pynvml.NVML_ERROR_UNKNOWN
    gpu = gpu_of(played_until(played, share * played.tape.seconds, error, *functions))
    distributions = (gpu.power_watts, gpu.sm_clock_mhz, gpu.temperature_celsius)
    totals = (gpu.throttle_reasons, gpu.energy_joules, gpu.pcie_rx_bytes)
    is_known = share > 0.5
    assert [values != NOT_MEASURED for values in distributions] == [is_known] * 3
    assert [total is not None for total in totals] == [is_known] * 3


@pytest.mark.diagonal
@pytest.mark.parametrize("list_seconds", [0.006, 0.1])
@pytest.mark.parametrize("name", ["bursts", "starved", "two"])
def test_between_slow_lists_the_memory_is_as_before(name: str, list_seconds: float) -> None:
    usual = present(gpu_of(PlayedTape(name).play()).memory_used_mb.avg)
    slow = gpu_of(PlayedTape(name, list_seconds=list_seconds).play()).memory_used_mb
    assert slow.avg == pytest.approx(usual, rel=0.12)


def test_memory_that_is_read_more_often_later_counts_by_its_time() -> None:
    """Lists alone are read between the ticks until one has an id of nobody here."""
    usual = present(gpu_of(PlayedTape("oom").play()).memory_used_mb.avg)
    of_host = gpu_of(PlayedTape("oom", pids="host").play()).memory_used_mb
    assert of_host.avg == pytest.approx(usual, rel=0.15)


@pytest.mark.parametrize("pids", ["hidden", "host"])
def test_where_the_processes_cannot_be_seen_the_numbers_are_the_devices(pids: str) -> None:
    """A sidecar without a shared pid namespace (or with a driver that lists the host's ids)."""
    played = PlayedTape("short", as_batch=True, sees_batch=False, pids=pids, seconds_before=0.7)  # type: ignore[arg-type]
    record = played.play()
    gpu = gpu_of(record)
    assert record.gpu_scope == "instance"
    assert gpu.shared is None
    (warning,) = present(record.monitor).warnings
    assert warning.endswith("pidMode task shows whose use it is.")
    assert used_seconds(record) == pytest.approx(played.tape.kernel_seconds, abs=0.12)
    assert present(present(gpu.memory_used_mb).max) == pytest.approx(played.tape.peak_mb, rel=0.01)


def test_ids_of_the_host_are_nobodys() -> None:
    """A container's driver that lists the host's ids says nothing about whose use it is."""
    record = PlayedTape("neighbour", pids="host").play()
    assert record.gpu_scope == "instance"
    assert gpu_of(record).shared is None


def test_a_driver_that_says_no_memory_of_a_process_leaves_it_open() -> None:
    """The process is listed with 0 bytes, where no other container's is hidden."""
    played = PlayedTape("short", pids="no memory", sees_all=True)
    record = played.play()
    assert record.gpu_scope is None
    assert gpu_of(record).shared is False
    used = present(gpu_of(record).memory_used_mb).max
    assert used == pytest.approx(played.tape.peak_mb, rel=0.01)


@each_case("name", ["beside", "neighbour", "short"])
@each_case("seconds_before", [0.05, 0.4, 0.9])
def test_a_monitor_that_shares_the_pid_namespace_knows_the_batchs_processes(
    name: str, seconds_before: float
) -> None:
    played = PlayedTape(name, as_batch=True, seconds_before=seconds_before)
    record = played.play()
    if name == "neighbour":
        assert record.gpus == ()
        return
    gpu = gpu_of(record)
    assert record.gpu_scope is None
    assert gpu.shared is (name == "beside")
    assert present(present(gpu.memory_used_mb).max) == pytest.approx(
        played.tape.own_peak_mb, abs=10
    )


# Verdicts


@pytest.mark.parametrize("opening", OPENINGS)
def test_memory_that_grows_to_the_limit_before_a_failure_is_a_lack_of_it(opening: float) -> None:
    record = PlayedTape("oom", opening=opening).play()
    assert record.likely_out_of_gpu_memory
    seen = present(record.gpu_memory_evidence)
    assert present(seen.own_mb) > 0.9 * present(seen.limit_mb)
    said = verdict(record)
    assert said.text.startswith("oom probably ran out of GPU memory after")
    assert "of the GPU's 79.6 GB" in present(said.evidence)
    assert advice_on(record) == []


@each_case("name", [name for name in ALONE if name != "oom"])
def test_no_other_program_lacked_memory(name: str) -> None:
    assert not PlayedTape(name).play().likely_out_of_gpu_memory


def test_an_error_of_the_driver_is_the_reason_of_a_failure() -> None:
    record = PlayedTape("illegal").play()
    assert gpu_of(record).xids == (31,)
    evidence = present(verdict(record).evidence)
    assert evidence.startswith(
        "The GPU's driver reported Xid 31 during the run: a kernel or a copy"
    )
    assert "usually an error of the program itself" in evidence
    assert advice_on(record) == []


@pytest.mark.parametrize("name", ["bursts", "two", "copies"])
def test_a_series_has_the_work_at_its_own_time_and_once(name: str) -> None:
    """The driver's samples come up to 10 s late, and each step takes those that are new."""
    played = PlayedTape(name)
    windows: list[UseWindow] = []

    def take() -> None:
        readings = DeviceReadings()
        played.collector.take_readings(played.batch, readings)
        windows.extend(readings.gpu_windows or ())

    record = played.play(take)
    take()
    assert all(before.end_ns == after.start_ns for before, after in pairwise(windows))
    used = sum((one.end_ns - one.start_ns) * one.percent for one in windows) / 100 / 1e9
    assert used == pytest.approx(used_seconds(record), abs=0.3)
    first = next(one for one in windows if one.percent > 10)
    assert first.end_ns / 1e9 == pytest.approx(present(gpu_of(record).first_used_seconds), abs=0.3)


@pytest.mark.diagonal
@pytest.mark.parametrize("name", ALONE)
@pytest.mark.parametrize("opening", OPENINGS)
def test_no_used_gpu_was_never_used(name: str, opening: float) -> None:
    record = PlayedTape(name, opening=opening).play()
    assert not any("ever used" in text for text in advice_on(record))


# The phase


def words_of(record: Record) -> tuple[str, ...]:
    """All that is said of the GPUs of a run, without its numbers."""
    said = (
        *advice_on(record),
        *gpu_idle_texts(record),
        gpu_error_text(record),
        gpu_memory_evidence_text(record),
        *present(record.monitor).warnings,
    )
    return tuple(re.sub(r"[\d.]+( (ms|s))?", "#", text) for text in said)


@pytest.mark.slow
@each_case("name", [*ALONE, "beside", "neighbour"])
def test_no_sentence_of_a_run_depends_on_the_phase(name: str) -> None:
    plays = [PlayedTape(name, opening=opening).play() for opening in OPENINGS]
    assert len({words_of(record) for record in plays}) == 1


@pytest.mark.slow
@each_case("name", [*ALONE, "beside", "neighbour"])
def test_no_sentence_of_a_container_depends_on_the_phase(name: str) -> None:
    plays = [PlayedTape(name, as_batch=True, seconds_before=before).play() for before in OPENINGS]
    assert len({words_of(record) for record in plays}) == 1


@pytest.mark.parametrize("as_batch", [False, True], ids=["run", "container"])
def test_no_part_of_a_run_of_a_second_is_as_long_as_a_step_between_two_lists(
    *, as_batch: bool
) -> None:
    """The last list is up to 0.1 s old at the end: 9 % of the run, which is no "after its work"."""
    phases = [number / 20 for number in range(1, 23)]
    plays = [
        PlayedTape("burn-half", as_batch=True, seconds_before=phase).play()
        if as_batch
        else PlayedTape("burn-half", opening=phase).play()
        for phase in phases
    ]
    assert {gpu_of(record).idle_after_seconds for record in plays} == {0}
    assert len({words_of(record) for record in plays}) == 1


# MPS


def test_the_limits_of_mps_are_read_as_ecs_sets_them() -> None:
    limits = parse_limits(
        {
            "CUDA_MPS_PIPE_DIRECTORY": "/run/mps-ecs",
            "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=4096M",
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25",
        }
    )
    assert limits.memory_bytes(3) == 4 << 30
    assert limits.compute_percent == 25
    assert limits.is_mps
    assert parse_limits({"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=1G,1=512MB"}).memory == {
        "0": 1 << 30,
        "1": 512 << 20,
    }
    assert parse_limits({"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "lots"}) == GpuLimits()
    gpu = gpu_of(PlayedTape("short", limits=limits).play())
    assert gpu.memory_limit_mb == 4096
    assert gpu.shared
    assert gpu.idle_seconds is None


# Costs


@pytest.mark.diagonal
@pytest.mark.parametrize(
    "by", [-3600, -30, -8.1, -3, -1, -0.5, -0.3, 0.3, 0.5, 1, 3, 8.1, 30, 3600]
)
@pytest.mark.parametrize("when", [1.4, 4.03, 9.98, 10.01, 12.55])
@pytest.mark.parametrize("name", ["bursts", "two", "starved"])
def test_a_wall_clock_that_is_set_costs_no_use(name: str, when: float, by: float) -> None:
    """The driver stamps its samples by the wall clock: of those before and after, each once."""
    played = PlayedTape(name)
    clock = played.clock
    gpu = played.driver.gpus[0]

    def set_clock(seconds_passed: float) -> None:
        if seconds_passed > when and not gpu.wall_clock_set:
            gpu.wall_clock_set.append((when, by))
            clock.wall_offset_ns += seconds(by)

    record = played.play(lambda: set_clock(clock.now_ns / 1e9))
    undisturbed = gpu_run(name).record
    assert gpu.wall_clock_set
    assert used_seconds(record) == pytest.approx(used_seconds(undisturbed), abs=0.2)
    assert not gpu_of(record).is_use_partial
    began = present(gpu_of(undisturbed).first_used_seconds)
    assert gpu_of(record).first_used_seconds == pytest.approx(began, abs=0.21)


@pytest.mark.diagonal
@pytest.mark.parametrize(
    "settings",
    [
        [(0.6, -3.0), (5.9, 3.0), (7.4, 3600.0)],
        [(2.1, 7.0), (7.8, -7.0)],
        [(2.3, -3.0), (7.0, 60.0), (8.9, 3600.0)],
        [(4.6, 7.0), (7.4, -7.0), (8.5, -7.0)],
        [(10.2, 0.5), (11.7, 3600.0)],
        [(11.1, 3.0), (13.0, -60.0)],
        [(3.4, -1.0), (5.6, -3600.0), (7.3, -60.0), (9.4, 0.15)],
    ],
)
@pytest.mark.parametrize("opening", [0.17, 0.85])
@pytest.mark.parametrize("name", ["bursts", "two", "starved"])
def test_a_wall_clock_that_is_set_again_and_again_costs_no_use(
    name: str, opening: float, settings: Sequence[tuple[float, float]]
) -> None:
    """Two settings within the ten seconds between two readings cost up to 5 s, without a mark."""
    undisturbed = PlayedTape(name, opening=opening).play()
    played = PlayedTape(name, opening=opening)
    gpu = played.driver.gpus[0]
    left = [*settings]

    def set_clock() -> None:
        now = played.clock.now_ns / 1e9
        while left and now > left[0][0]:
            gpu.wall_clock_set.append((now, left[0][1]))
            played.clock.wall_offset_ns += seconds(left.pop(0)[1])

    record = played.play(set_clock)
    assert len(gpu.wall_clock_set) > 1
    assert used_seconds(record) == pytest.approx(used_seconds(undisturbed), abs=0.1)
    assert not gpu_of(record).is_use_partial
    assert advice_on(record) == advice_on(undisturbed)


def test_the_driver_is_asked_rarely_for_what_is_expensive() -> None:
    played = PlayedTape("starved")
    played.play()
    calls = played.driver.nvml.calls
    assert calls["nvmlDeviceGetSamples"] <= 2 * 3  # the binding calls it twice
    assert calls["nvmlDeviceGetTotalEnergyConsumption"] == 2
    assert calls["nvmlDeviceGetComputeRunningProcesses"] <= 2 * (10 * played.tape.seconds + 3)


def test_a_process_that_no_reading_of_the_run_missed_left_at_its_end() -> None:
    """The lists are too slow for readings between the ticks; the one after the run is not its."""
    played = PlayedTape("one-block", list_seconds=0.02, opening=0.26)
    assert used_seconds(played.play()) == pytest.approx(played.tape.kernel_seconds, abs=0.2)


def test_a_slow_list_is_rare_and_costs_no_use() -> None:
    """4.5 ms a call were seen with a 4090: others wait for the driver's lock meanwhile."""
    slow = PlayedTape("starved", list_seconds=0.0045)
    record = slow.play()
    assert slow.driver.nvml.calls["nvmlDeviceGetComputeRunningProcesses"] < 2 * 25
    assert used_seconds(record) == pytest.approx(slow.tape.kernel_seconds, abs=0.2)
    fast = PlayedTape("starved", list_seconds=0.0003)
    fast.play()
    assert fast.driver.nvml.calls["nvmlDeviceGetComputeRunningProcesses"] > 2 * 100
