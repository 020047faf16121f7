"""The rows that outputs tell of a run beside its numbers."""

from typing import Any

from msgspec.structs import replace

from profiler.record.record_model import (
    AverageAndMaximum,
    Container,
    Distribution,
    Gpu,
    MemoryKills,
    Metrics,
    Monitor,
    Neuron,
    NeuronCore,
    Record,
)
from profiler.record.run_summary import BESIDE_MEMORY, StoryRow, story_of
from profiler.record.run_usage import run_usage_of
from profiler.record.stop_causes import EventEnd, outcome_of
from tests.awkward_runs import RUNS
from tests.runs import reported_story

RECORD = Record(task_id="a", container=Container(name="batch"))


def test_what_the_memory_used_lacks_has_a_row_each() -> None:
    metrics = Metrics(
        max_memory_used_mb=300,
        memory_mapped_file_mb=AverageAndMaximum(max=900),
        memory_huge_pages_mb=AverageAndMaximum(max=64),
    )
    files, huge = reported_story(replace(RECORD, metrics=metrics)).rows_named(*BESIDE_MEMORY)
    assert (files.name, huge.name) == ("files", "huge")
    assert "900 MB" in files.text
    assert huge.sentence == (
        "It also holds up to 64 MB of huge pages, which the memory used lacks."
    )


def test_a_run_that_lacks_nothing_has_no_row() -> None:
    assert reported_story(RECORD).rows == ()
    assert (
        reported_story(RECORD).first_text_named("files"),
        reported_story(RECORD).first_sentence_named("files"),
    ) == (
        "",
        "",
    )
    assert StoryRow("files", "it kept a file").sentence == "It kept a file."


def test_a_row_may_have_another_sentence_and_a_name_several_rows() -> None:
    record = replace(
        RECORD, memory_kills=MemoryKills(count=2), monitor=Monitor(warnings=("One.", "Two."))
    )
    killed, *warnings = reported_story(record).rows
    assert killed.text == "2 processes by the kernel, for lack of memory"
    assert killed.sentence == "The kernel killed 2 processes for lack of memory."
    assert [row.text for row in warnings] == ["One.", "Two."]


def test_errors_of_device_memory_are_said_whatever_else_is_known() -> None:
    """They were in the record alone. Without an error of the driver, a success looked good."""
    none = Gpu(uuid="b", index=1, ecc_uncorrected=0)
    gpus = (
        Gpu(uuid="a", index=0, ecc_uncorrected=3),
        none,
        Gpu(uuid="c", index=5, ecc_uncorrected=1),
    )
    for status in ("success", "failure", "stopped", "running"):
        record = replace(
            RECORD, status=status, gpus=gpus, neuron=Neuron(ecc_uncorrected=1, restarts=0)
        )
        gpu, neuron = reported_story(record).rows_named("ECC")
        assert gpu.sentence == (
            "GPUs 0 and 5 counted 4 memory errors that cannot be corrected (ECC) during the run: "
            "its results may be wrong, and the machine may be at fault."
        )
        assert neuron.sentence.startswith("The Neuron devices counted 1 memory error that")
    assert reported_story(replace(RECORD, gpus=(none,))).rows_named("ECC") == []
    unnumbered = replace(RECORD, gpus=(Gpu(uuid="a", ecc_uncorrected=3), none))
    assert (
        reported_story(unnumbered)
        .first_text_named("ECC")
        .startswith("1 GPU counted 3 memory errors that")
    )


def test_no_row_of_an_awkward_run_is_empty() -> None:
    names = set()
    for make in RUNS.values():
        for row in reported_story(make().record).rows:
            assert row.text
            assert row.sentence.endswith((".", ")"))
            names.add(row.name)
    assert names >= {"CPU wait", "GPU use", "Neuron use", "I/O", "killed", "largest"}


def test_the_rows_of_gpus_ask_how_the_run_ended() -> None:
    """A stop that only ECS knows takes precedence over what the report supposes: its verdict says
    neither a lack of memory nor the driver's error.
    """
    record = replace(RECORD, status="failure", exit_code=1, likely_out_of_gpu_memory=True)
    stopped = outcome_of(record, EventEnd(cause="user"))
    assert (outcome_of(record).cause, stopped.cause) == ("gpu-oom", "user")
    assert len(reported_story(record).rows_named("GPU remedy")) == 1
    assert story_of(record, stopped).rows_named("GPU remedy") == []

    record = replace(RECORD, status="failure", exit_code=1, gpus=(Gpu(uuid="a", xids=(79,)),))
    stopped = outcome_of(record, EventEnd(cause="user"))
    assert (outcome_of(record).cause, stopped.status) == ("gpu-error", "stopped")
    assert reported_story(record).rows_named("GPU error") == []
    assert "79" in story_of(record, stopped).first_text_named("GPU error")

    unused = Gpu(
        uuid="a",
        utilization_percent=Distribution(avg=0, max=0),
        utilization_source="driver-samples",
        memory_used_mb=Distribution(max=0),
    )
    record = replace(RECORD, status="running", gpus=(unused,))  # the last checkpoint
    stopped = outcome_of(record, EventEnd(cause="user"))
    assert "No GPU was ever used" in reported_story(record).first_text_named("GPU advice")
    assert story_of(record, stopped).rows_named("GPU advice") == []


def test_a_size_leaves_out_the_accelerators_in_use_of_either_kind() -> None:
    def beside(**devices: Any) -> str:
        return run_usage_of(replace(RECORD, **devices)).beside_text

    used = NeuronCore(index=0, utilization_percent=Distribution(avg=40, max=90))
    idle = NeuronCore(index=1, utilization_percent=Distribution(avg=0, max=0))
    unread = NeuronCore(index=2)
    gpu = Gpu(uuid="a", index=0, utilization_percent=Distribution(avg=40, max=90))
    assert beside() == ""
    assert beside(neuron=Neuron(cores=(used, idle))) == " beside 2 NeuronCores"
    assert beside(neuron=Neuron(cores=(used,))) == " beside 1 NeuronCore"
    assert beside(neuron=Neuron(cores=(used, unread))) == " beside 2 NeuronCores"
    assert beside(neuron=Neuron(cores=(idle,))) == ""
    assert beside(neuron=Neuron(cores=())) == ""
    assert beside(gpus=(gpu,)) == " beside 1 GPU"
    both = beside(gpus=(gpu,), neuron=Neuron(cores=(used, idle)))
    assert both == " beside 1 GPU and 2 NeuronCores"


def test_neuron_cores_have_their_parts_in_one_line() -> None:
    used = NeuronCore(index=0, utilization_percent=Distribution(avg=40, max=90))
    memory = Distribution(avg=900, max=1000)
    neuron = Neuron(cores=(used,), device_memory_used_mb=memory, device_memory_size_mb=16_384)
    totals = run_usage_of(replace(RECORD, neuron=neuron)).neuron
    assert totals.part_texts == ["1 NeuronCore 40 %", "1,000 MB of 16 GB"]
    assert totals.text == ", ".join(totals.part_texts)
