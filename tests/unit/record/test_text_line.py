from msgspec.structs import replace

from profiler.record.record_model import (
    Container,
    Cost,
    Distribution,
    Gpu,
    Metrics,
    Neuron,
    NeuronCore,
    Recommendation,
    Record,
    Report,
)
from profiler.record.text_line import report_text

_METRICS = Metrics(
    duration_ms=612345,
    billed_duration_ms=631000,
    init_duration_ms=18000,
    vcpu_size=0.5,
    vcpu_used=Distribution(avg=0.39, max=0.5),
    cpu_utilization_percent=Distribution(avg=78.4),
    cpu_seconds=240.1,
    memory_size_mb=2048,
    memory_used_mb=Distribution(avg=300.25),
    max_memory_used_mb=512,
    memory_peak_source="sampled",
)
_RECORD = Record(
    task_id="158d1c80",
    family="nightly-etl",
    container=Container(name="batch"),
    status="success",
    exit_code=0,
    likely_out_of_memory=False,
    metrics=_METRICS,
)


def _text(record: Record) -> str:
    return report_text(Report(time="2026-11-20T03:12:45.123Z", type="task.report", record=record))


def test_a_whole_report() -> None:
    assert _text(_RECORD).split("\t") == [
        "REPORT TaskId: 158d1c80",
        "Duration: 612345.00 ms",
        "Billed Duration: 631000 ms",
        "vCPU Size: 0.5",
        "Max vCPU Used: 0.5",
        "Memory Size: 2048 MB",
        "Max Memory Used: 512 MB",
        "Memory Peak Source: sampled",
        "Init Duration: 18000.00 ms",
        "CPU Time: 240.1 s",
        "Avg vCPU Used: 0.39",
        "Avg CPU: 78.4 %",
        "Avg Memory Used: 300.25 MB",
        "Name: nightly-etl",
        "Status: success",
        "Exit Code: 0",
    ]


def test_what_is_not_known_is_left_out() -> None:
    bare = Record(task_id="1", container=Container(name="x"), status="unknown")
    assert _text(bare) == "REPORT TaskId: 1\tStatus: unknown"


def test_a_memory_kill_is_said() -> None:
    assert "Likely Out Of Memory: true" in _text(replace(_RECORD, exit_code=137, likely_out_of_memory=True))


def test_a_name_cannot_break_the_line() -> None:
    assert "Name: a b c\t" in _text(replace(_RECORD, family="a\tb\nc"))


def test_small_numbers_are_not_rounded_to_nothing() -> None:
    assert "CPU Time: 0.0008 s" in _text(replace(_RECORD, metrics=Metrics(cpu_seconds=0.000825)))


def test_gpus_are_summed_up_and_idle_ones_counted() -> None:
    gpus = (
        Gpu(
            uuid="a",
            utilization_percent=Distribution(avg=50, max=90),
            memory_used_mb=Distribution(max=2048),
            energy_joules=100.5,
        ),
        Gpu(uuid="b", utilization_percent=Distribution(avg=0, max=0), memory_used_mb=Distribution(max=10)),
    )
    text = _text(replace(_RECORD, gpus=gpus))
    assert "\tGPUs: 2\tIdle GPUs: 1\tAvg GPU: 25 %\tMax GPU Memory Used: 2048 MB\tGPU Energy: 100.5 J\t" in text


def test_of_gpus_that_told_nothing_only_their_number_is_known() -> None:
    text = _text(replace(_RECORD, gpus=(Gpu(uuid="a"),)))
    assert "\tGPUs: 1\tName: " in text


def test_neuron_cores_are_summed_up() -> None:
    cores = tuple(
        NeuronCore(index=index, utilization_percent=Distribution(avg=avg)) for index, avg in ((0, 20), (1, 40))
    )
    neuron = Neuron(cores=cores, device_memory_used_mb=Distribution(max=512))
    text = _text(replace(_RECORD, neuron=neuron))
    assert "\tNeuron Cores: 2\tAvg Neuron Core: 30 %\tMax Neuron Memory Used: 512 MB\t" in text


def test_cost_and_advice_come_last() -> None:
    advice = Recommendation(vcpu=0.25, memory_mb=1024, saving_percent=50.5, reasons=("One run\tused little.", "Few."))
    text = _text(replace(_RECORD, cost=Cost(usd=0.00822833), recommendation=advice))
    assert text.split("\t")[-5:] == [
        "Cost: 0.008228 USD",
        "Recommended vCPU: 0.25",
        "Recommended Memory: 1024 MB",
        "Saving: 50.5 %",
        "Advice: One run used little. Few.",
    ]
    assert "\tCost: 12.5000 USD" in _text(replace(_RECORD, cost=Cost(usd=12.5)))
    assert "\tCost: 0 USD" in _text(replace(_RECORD, cost=Cost(usd=0)))
