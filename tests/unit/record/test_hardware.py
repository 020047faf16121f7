"""The names of processors, the difference of two runs' processors, and what a program sees of the machine."""

from typing import Any

import pytest
from msgspec.structs import replace

from profiler.record.hardware import (
    processor_difference,
    short_processor_name,
    visible_cpus_advice,
    visible_memory_advice,
)
from profiler.record.record_model import Container, Metrics, Processor, Record, TaskSize, Visible


def run_on(model: str | None) -> Record:
    return Record(
        task_id="a",
        container=Container(name="app"),
        processor=None if model is None else Processor(model=model, count=4),
    )


@pytest.mark.parametrize(
    ("model", "short"),
    [
        ("Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz", "Xeon 8259CL"),
        ("Intel(R) Xeon(R) CPU E5-2686 v4 @ 2.30GHz", "Xeon E5-2686 v4"),
        ("Intel(R) Xeon(R) Processor @ 2.90GHz", "Xeon @ 2.90GHz"),
        ("13th Gen Intel(R) Core(TM) i7-1360P", "13th Gen Core i7-1360P"),
        ("AMD EPYC 7763 64-Core Processor", "EPYC 7763"),
        ("Neoverse-N1", "Neoverse-N1"),
        ("Processor", "Processor"),
    ],
)
def test_the_short_name_has_only_what_tells_models_apart(model: str, short: str) -> None:
    assert short_processor_name(model) == short


def test_a_difference_names_a_common_brand_once() -> None:
    one, two = "Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz", "Intel(R) Xeon(R) Platinum 8375C CPU @ 2.90GHz"
    assert processor_difference(run_on(one), run_on(two), "the last success") == (
        "ran on Xeon 8259CL, the last success on 8375C"
    )
    assert processor_difference(run_on(one), run_on("AMD EPYC 7R13 Processor")) == (
        "ran on Xeon 8259CL, the other run on EPYC 7R13"
    )
    assert processor_difference(run_on("Neoverse-N1"), run_on("Neoverse-V1")) == (
        "ran on Neoverse-N1, the other run on Neoverse-V1"
    )


# A Java batch on Fargate with 0.5 vCPU and 2 GB, whose heap is a part of the 7.8 GB that it sees: killed.
JAVA = Record(
    task_id="a",
    container=Container(name="batch"),
    likely_out_of_memory=True,
    metrics=Metrics(duration_ms=90_000, memory_size_mb=2048, max_memory_used_mb=1600),
    task_size=TaskSize(vcpu=0.5, memory_mb=2048),
    visible=Visible(memory_mb=7987.2, cpus=2),
)


@pytest.mark.parametrize(
    ("seen_mb", "task_mb", "container_mb", "words"),
    [
        (7987.2, 2048, 2048, "7.8 GB and may use 2"),
        (3900, 512, 512, "3.8 GB and may use 512 MB"),
        (7987.2, 2048, 1024, None),  # programs see the container's own limit
        (7987.2, 2048, None, None),
        (7987.2, None, 2048, None),  # on EC2, the task has no memory of its own
        (2457.6, 2048, 2048, None),  # 1.2 times the limit
        (None, 2048, 2048, None),
    ],
)
def test_a_killed_program_that_saw_more_memory_gets_the_remedy(
    seen_mb: float | None, task_mb: float | None, container_mb: float | None, words: str | None
) -> None:
    record = replace(
        JAVA,
        visible=Visible(memory_mb=seen_mb),
        task_size=TaskSize(memory_mb=task_mb),
        metrics=Metrics(memory_size_mb=container_mb),
    )
    remedy = "set the container's `memory`, or -Xmx/max_old_space_size/workers."
    assert visible_memory_advice(record) == (words and f"the program sees {words}: {remedy}")


# A worker for each of the 8 CPUs that it sees; the task has 2.
WORKERS = replace(
    JAVA,
    metrics=Metrics(duration_ms=100_000, cpu_seconds=190, cpu_wait_seconds=500, vcpu_saturated_percent=96, max_pids=9),
    task_size=TaskSize(vcpu=2, memory_mb=4096),
    visible=Visible(cpus=8),
)


@pytest.mark.parametrize(
    ("cpus", "vcpu", "words"),
    [
        (8, 2, "8 CPUs and may use 2"),
        (2, 0.25, "2 CPUs and may use 0.25"),
        (2, 2, None),
        (None, 2, None),
        (8, None, None),
    ],
)
def test_a_saturated_run_with_too_many_workers_gets_the_remedy(
    cpus: int | None, vcpu: float | None, words: str | None
) -> None:
    record = replace(WORKERS, visible=Visible(cpus=cpus), task_size=TaskSize(vcpu=vcpu))
    assert visible_cpus_advice(record) == (words and f"it sees {words}: set the number of workers.")
    assert visible_cpus_advice(replace(record, task_size=None)) is None
    for changes in ({"visible": None}, {"task_size": None, "launch_type": "LOCAL"}):  # an older report, a local run
        assert visible_memory_advice(replace(JAVA, **changes), is_out_of_memory=True) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"cpu_wait_seconds": 210},  # on average, twice as many threads as vCPUs could run
        {"cpu_wait_seconds": 10, "max_pids": 400},  # threads that sleep
        {"cpu_wait_seconds": None, "max_pids": 400},
        {"cpu_seconds": None},
        {"duration_ms": 0},
        {"vcpu_saturated_percent": 4.9},
        {"vcpu_saturated_percent": None},
    ],
)
def test_no_advice_on_workers_without_saturation_by_threads_that_could_run(changes: dict[str, Any]) -> None:
    assert visible_cpus_advice(replace(WORKERS, metrics=replace(WORKERS.metrics, **changes))) is None


@pytest.mark.parametrize(
    ("peak_mb", "is_out_of_memory", "has_advice"),
    [(1844, False, True), (1843.2, False, False), (None, False, False), (600, True, True)],
)
def test_a_run_without_evidence_of_a_kill_needs_a_high_peak_or_the_word_of_ecs(
    peak_mb: float | None, *, is_out_of_memory: bool, has_advice: bool
) -> None:
    record = replace(JAVA, likely_out_of_memory=False, metrics=replace(JAVA.metrics, max_memory_used_mb=peak_mb))
    assert (visible_memory_advice(record, is_out_of_memory=is_out_of_memory) is not None) is has_advice
