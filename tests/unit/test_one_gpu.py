"""One GPU: a run has the same numbers and sentences on each screen, and never those of another
program.

The runs are those of a real GPU's tapes. What each screen has to show follows from the record alone.
"""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import mean
from typing import Any

import msgspec
import pytest
from msgspec import Struct
from msgspec.structs import replace

from profiler.cli.terminal.run_curves import run_curves
from profiler.collectors.nvidia.gpu_usage import LiveGpus
from profiler.collectors.nvidia.visible_gpus import GpuLimits
from profiler.core.optional_math import known_values
from profiler.forwarder.document_updates import Document
from profiler.forwarder.function_settings import ForwarderSettings
from profiler.forwarder.notifications.event_details import ended_run_detail
from profiler.forwarder.run_documents import report_document
from profiler.local_run.run_budgets import gpu_use
from profiler.monitor.prometheus.prometheus_metrics import metrics_text
from profiler.monitor.prometheus.snapshot import Snapshot
from profiler.otlp.run_signals import ExportedRun, signals_of
from profiler.readers.linux.host import OwnUsage
from profiler.record.device_totals import gpu_totals
from profiler.record.gpu_sentences import (
    gpu_idle_sentence,
    instance_sentence,
    sharing_sentence,
)
from profiler.record.record_model import (
    NOT_MEASURED,
    Record,
    Report,
    Series,
    decode,
    encode,
)
from profiler.record.report_text_and_emf import EMF_METRICS, emf_members, report_text
from profiler.record.run_usage import run_usage_of
from profiler.record.stop_causes import outcome_of
from profiler.record.units import format_memory, format_percent
from profiler.runs.comparison.change_interval import NOT_COMPARABLE
from profiler.runs.comparison.compared_metrics import COMPARED_METRICS, compare_metrics
from profiler.runs.past_runs.past_run import PastRun
from profiler.runs.past_runs.verdict_sentence import verdict_of
from profiler.sizing.advice import advise_on_size
from profiler.sizing.advice_document import advice_document
from profiler.sizing.choose_size import SizePolicy
from profiler.sizing.prices import PriceOverrides
from tests.cases import each_case
from tests.gpu_cases import CASES, played_case
from tests.gpu_runs import advice_on, gpu_run, report_of
from tests.otlp_schema import attributes_of
from tests.played_tapes import PlayedTape
from tests.runs import evidence_of
from tests.screens import (
    end,
    end_with_curves,
    ended,
    event,
    history,
    now_ns,
    page,
    page_row,
    show,
    slack,
)
from tests.values import present

# An idle notebook, data that comes too late, copies, training, a neighbour on the same GPU, out of
# memory, an error of the driver, and a program without a GPU beside another with one.
TAPES = ("grow", "starved", "copies", "two", "beside", "oom", "illegal", "neighbour")
ON_GPU = TAPES[:-1]
on_gpu = pytest.mark.parametrize("tape", ON_GPU)
SUCCEEDED = ("grow", "starved", "copies", "two")


@pytest.mark.parametrize("tape", ["beside", "neighbour", "grow"])
def test_a_curve_of_a_shared_gpu_says_whose_work_it_is(tape: str) -> None:
    record = gpu_run(tape).record
    is_shared = any(gpu.shared for gpu in record.gpus)
    assert is_shared == (tape == "beside")
    series = Series(
        started_at=gpu_run(tape).time, step_ms=1000, gpu_utilization_percent=(90.0, 40.0)
    )
    tops = [
        curve.limit_text
        for curve in run_curves(run_usage_of(record), series)
        if curve.label == "GPU"
    ]
    assert tops == ["▔ 100 %, of all programs" if is_shared else "▔ 100 %"]


def test_a_curve_of_the_whole_instance_says_so() -> None:
    record = played_case("unseen").report.record
    series = Series(started_at="", step_ms=1000, gpu_utilization_percent=(90.0, 40.0))
    (top,) = [
        curve.limit_text
        for curve in run_curves(run_usage_of(record), series)
        if curve.label == "GPU"
    ]
    assert top == "▔ 100 %, of all programs"


@pytest.mark.parametrize("tape", ["beside", "grow"])
def test_the_top_of_a_gpus_curve_is_no_use_of_it(tape: str) -> None:
    """Of a shared GPU no average follows, and 100 % alone read as its use."""
    run = gpu_run(tape)
    series = Series(started_at=run.time, step_ms=1000, gpu_utilization_percent=(95.0, 40.0))
    busy = replace(run, record=replace(run.record, series=series))
    (curve,) = (row for row in end_with_curves(busy).splitlines() if row.startswith("  GPU "))
    assert "▔ limit 100 %, " in curve


SCREENS: Mapping[str, Callable[[Report], str]] = {
    "show": show,
    "end": end,
    "history": history,
    "page": page,
    "slack": slack,
    "event": event,
}
on_each_screen = each_case("screen", SCREENS.values(), ids=SCREENS)


def document(report: Report) -> Mapping[str, Any]:
    made = report_document(report, encode(report).decode(), ForwarderSettings())
    assert isinstance(made, Document)
    return made.fields


def field(fields: Mapping[str, Any], path: str) -> Any:
    value: Any = fields
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def gauges(report: Report) -> dict[str, float]:
    run = ExportedRun(record=report.record, observed_ns=now_ns(report))
    (scope,) = signals_of(run)["metrics"]["resourceMetrics"][0]["scopeMetrics"]
    found = {}
    for metric in scope["metrics"]:
        (point,) = metric["gauge"]["dataPoints"][:1]
        found[metric["name"]] = float(point.get("asDouble", point.get("asInt")))
    return found


@pytest.mark.diagonal
@on_gpu
@on_each_screen
def test_use_and_memory_are_the_same_on_each_screen(
    tape: str, screen: Callable[[Report], str]
) -> None:
    report = gpu_run(tape)
    (gpu,) = report.record.gpus
    shown = screen(report)
    assert gpu.memory_used_mb != NOT_MEASURED
    assert gpu.utilization_percent != NOT_MEASURED
    assert f"≥{format_memory(gpu.memory_used_mb.max or 0)}" in shown
    if gpu.shared:
        assert "shared" in shown or "another program used this GPU" in shown
    else:
        assert format_percent(gpu.utilization_percent.avg or 0) in shown


@on_gpu
def test_all_numbers_for_programs_are_the_records(tape: str) -> None:
    report = gpu_run(tape)
    record = report.record
    (gpu,) = record.gpus
    memory, use = gpu.memory_used_mb, gpu.utilization_percent
    assert memory != NOT_MEASURED
    assert use != NOT_MEASURED
    own = None if gpu.shared else use.avg
    idle = record.gpu_idle
    fields = document(report)
    row = page_row(report)
    emf = emf_members(report, EMF_METRICS)
    otlp = gauges(report)
    compared = {metric.name: metric.read(record) for metric in COMPARED_METRICS}
    places = (
        (own, "usage.gpu.percent.avg", "gpu", "gpuUtilizationPercent", "gpu.utilization.avg"),
        (memory.max, "usage.gpu.memory_mb.max", "gpuPeak", "maxGpuMemoryUsedMB", "gpu.memory.peak"),
        (idle and idle.percent, "usage.gpu.idle.percent", "gpuIdle", "gpuIdlePercent", "gpu.idle"),
    )
    units = {"gpu.utilization.avg": 100, "gpu.idle": 100, "gpu.memory.peak": 1 / 2**20}
    for value, path, on_page, name, gauge in places:
        expected = pytest.approx(value, rel=1e-3) if value is not None else None
        assert field(fields, path) == expected
        assert row.get(on_page) == (None if value is None else pytest.approx(value, rel=0.01))
        assert emf.get(name) == expected
        assert compared[name] == expected
        found = otlp.get(f"task_profiler.run.{gauge}")
        assert (found and found * units[gauge]) == expected


def partly_seen(report: Report, percent: float) -> Report:
    """The run, had its GPU been seen for so much of its time."""
    gpus = [replace(gpu, utilization_covered_percent=percent) for gpu in report.record.gpus]
    return replace(report, record=replace(report.record, gpus=tuple(gpus)))


def test_idle_time_that_may_have_been_more_is_no_bare_number() -> None:
    whole = gpu_run("starved")
    least = partly_seen(whole, 80)
    idle = present(whole.record.gpu_idle)
    marked = ("usage.gpu.memory_mb.max", "usage.gpu.idle.percent", "usage.gpu.idle.hours")
    for report, fields in ((whole, {marked[0]}), (least, {*marked})):
        assert {*field(document(report), "usage.at_least")} == fields
        assert field(document(report), "usage.gpu.idle.percent") == idle.percent
        assert ("gpuIdle" in page_row(report)["atLeast"]) == (report is least)
    # CloudWatch averages a share, and sums hours.
    names = ("gpuIdlePercent", "gpuIdleHours")
    seen = [emf_members(report, EMF_METRICS) for report in (whole, least)]
    assert [[name in members for name in names] for members in seen] == [
        [True, True],
        [False, True],
    ]
    assert "gpuIdlePercent" not in json.dumps(seen[1])
    marks = {"task_profiler.run.gpu.memory.peak"}
    assert points_at_least(whole) == marks
    assert points_at_least(least) == {
        *marks,
        "task_profiler.run.gpu.idle",
        "task_profiler.run.gpu.idle.time",
    }


def estimated(report: Report) -> Report:
    """The run, had the driver only given a value each second."""
    gpus = [replace(gpu, utilization_source="once-a-second") for gpu in report.record.gpus]
    return replace(report, record=replace(report.record, gpus=tuple(gpus)))


@on_each_screen
def test_use_that_is_an_estimate_has_its_mark_on_each_screen(
    screen: Callable[[Report], str],
) -> None:
    report = gpu_run("starved")
    use = format_percent(present(report.record.gpus[0].utilization_percent).avg or 0)
    assert f"≈ {use}" not in screen(report)
    assert f"≈ {use}" in screen(estimated(report)).replace("\N{NO-BREAK SPACE}", " ")


def test_use_that_is_an_estimate_is_no_bare_number_for_programs() -> None:
    report = estimated(gpu_run("starved"))
    names = ("usage.gpu.percent.avg", "usage.gpu.percent.max")
    idle = ("usage.gpu.idle.percent", "usage.gpu.idle.hours")
    assert {*field(document(report), "usage.estimated")} == {*names, *idle}
    assert field(document(gpu_run("starved")), "usage.estimated") is None
    assert page_row(report)["estimated"] == ["gpu", "gpuIdle"]
    emf = emf_members(report, EMF_METRICS)
    assert not {"gpuUtilizationPercent", "gpuIdlePercent", "gpuIdleHours"} & {*emf}
    assert points_with(report, "task_profiler.estimated") == {
        f"task_profiler.run.gpu.{name}" for name in ("utilization.avg", "idle", "idle.time")
    }
    assert gpu_use(report.record).idle_percent(50) is None  # no budget is checked by it
    changes = compare_metrics([report.record] * 5, [report.record] * 5)
    verdicts = {change.metric.name: change.change.verdict for change in changes}
    assert verdicts["gpuUtilizationPercent"] == verdicts["gpuIdlePercent"] == NOT_COMPARABLE
    assert verdicts["maxGpuMemoryUsedMB"] != NOT_COMPARABLE


def old_report() -> Report:
    """A run with 0.4 s of kernels, as a version before ``utilizationSource`` recorded it: 0 %."""
    line = (Path(__file__).parent.parent / "data" / "gpu_run_1_3.json").read_bytes()
    return decode(line)


@on_each_screen
def test_the_use_in_older_records_is_an_estimate(screen: Callable[[Report], str]) -> None:
    """It is of one moment each second."""
    shown = screen(old_report()).replace("\N{NO-BREAK SPACE}", " ")
    assert "≈ 0 %" in shown
    assert not re.search(r"(?<![\d.])(?<!≈ )0 %, ≥", shown)
    assert not re.search(r"(?<![\d.])(?<!≈ )(?<!about )99\.7 %", shown)


def test_the_use_in_older_records_is_no_bare_number_for_programs() -> None:
    report = old_report()
    estimated = {*field(document(report), "usage.estimated")}
    assert {"usage.gpu.percent.avg", "usage.gpu.idle.percent"} <= estimated
    assert not {"gpuUtilizationPercent", "gpuIdlePercent"} & {*emf_members(report, EMF_METRICS)}
    assert gpu_use(report.record).idle_percent(50) is None
    changes = compare_metrics([report.record] * 5, [report.record] * 5)
    verdicts = {change.metric.name: change.change.verdict for change in changes}
    assert verdicts["gpuUtilizationPercent"] == verdicts["gpuIdlePercent"] == NOT_COMPARABLE
    evidence = evidence_of([report, replace(report, record=replace(report.record, task_id="b"))])
    assert evidence.usage.gpu_text.startswith("GPU ≈ 0 % on average")
    assert evidence.usage.idle_gpu_hours.value is None


def test_what_may_be_another_programs_is_held_against_no_budget() -> None:
    record = gpu_run("starved").record
    assert gpu_use(record).memory_mb
    used = gpu_use(replace(record, gpu_scope="instance"))
    assert used.memory_mb is used.idle_percent(50) is None


def points_at_least(report: Report) -> set[str]:
    return points_with(report, "task_profiler.at_least")


def points_with(report: Report, mark: str) -> set[str]:
    run = ExportedRun(record=report.record, observed_ns=now_ns(report))
    (scope,) = signals_of(run)["metrics"]["resourceMetrics"][0]["scopeMetrics"]
    found = set()
    for metric in scope["metrics"]:
        for point in metric["gauge"]["dataPoints"]:
            if attributes_of(point).get(mark):
                found.add(metric["name"])
    return found


@each_case("tape", ["oom", "illegal"])
@on_each_screen
def test_the_cause_is_said_and_no_advice_beside_it(
    tape: str, screen: Callable[[Report], str]
) -> None:
    """Neither that the GPU was never used, nor that workers would help, nor when it was idle."""
    report = gpu_run(tape)
    shown = screen(report)
    if screen is history:
        assert outcome_of(report.record).cause in shown
    elif tape == "oom":
        assert (
            "probably ran out of GPU memory" in shown
            or "more GPU memory than it could get" in shown
        )
        assert "at least 76.6 GB of the GPU's 79.6 GB" in shown
        assert "se a smaller batch size" in shown
    else:
        assert "The GPU's driver reported Xid 31 during the run: a kernel or a copy" in shown
    for wrong in ("never used", "more workers", "was idle", "would have been enough"):
        assert wrong not in shown


@pytest.mark.parametrize("name", ["show", "end", "page", "slack", "event"])
def test_the_limit_of_mps_is_not_called_the_gpus(name: str) -> None:
    """The GPU has 1 GiB more; the run held 97 % of what MPS lets each of its processes have."""
    limits = GpuLimits(memory={"0": 79 << 30}, is_mps=True)
    shown = SCREENS[name](report_of(PlayedTape("oom", limits=limits).play(), "mps"))
    shown = shown.replace("\N{NO-BREAK SPACE}", " ")
    assert "of the 79 GB that MPS lets a process use" in shown
    assert "a higher memory limit of MPS" in shown
    assert name not in ("slack", "event") or "more GPU memory than MPS lets a process" in shown
    for wrong in ("than its GPU has", "GPU with more memory", "the GPU's 79"):
        assert wrong not in shown


@pytest.mark.parametrize("name", ["show", "end", "page", "slack", "event"])
def test_an_error_of_a_success_is_a_warning(name: str) -> None:
    made = gpu_run("two")
    gpus = tuple(replace(gpu, xids=(31,)) for gpu in made.record.gpus)
    report = replace(made, record=replace(made.record, gpus=gpus))
    assert SCREENS[name](report).count("The GPU's driver reported Xid 31 during the run: a") == 1
    assert verdict_of(PastRun(report=report), now_ns(report)).tone == "warning"
    notes = replace(report, record=replace(made.record, gpus=(replace(gpus[0], xids=(45,)),)))
    assert "Xid" not in SCREENS[name](notes)
    assert verdict_of(PastRun(report=notes), now_ns(report)).tone == "good"


@each_case("tape", SUCCEEDED)
@each_case("name", ["show", "page", "slack"])
def test_the_sentences_are_the_same_where_there_is_room(tape: str, name: str) -> None:
    report = gpu_run(tape)
    shown = SCREENS[name](report).casefold().replace("&gt;", ">")
    sentences = [gpu_idle_sentence(report.record), *advice_on(report.record)]
    for sentence in filter(None, sentences):
        assert sentence.casefold() in shown


@on_each_screen
def test_whose_the_numbers_are_is_said(screen: Callable[[Report], str]) -> None:
    """100 % and 10.5 GB are another program's."""
    report = gpu_run("beside")
    (gpu,) = report.record.gpus
    shown = screen(report)
    assert (sharing_sentence(gpu) or "")[1:] in shown or screen in (history, end)
    assert "100 %" not in shown or screen is show
    assert "10.5 GB" not in shown
    assert "11.3 GB" not in shown


@on_each_screen
def test_a_neighbours_gpu_is_not_this_runs(screen: Callable[[Report], str]) -> None:
    assert "GPU" not in screen(gpu_run("neighbour"))


def test_a_neighbours_gpu_is_in_no_number() -> None:
    report = gpu_run("neighbour")
    made = json.dumps((document(report)["usage"], gauges(report), emf_members(report, EMF_METRICS)))
    assert "gpu" not in made.casefold()
    assert "GPU" not in report_text(report)


def test_errors_are_fields_of_documents_and_metrics() -> None:
    found = {tape: document(gpu_run(tape)) for tape in ("oom", "illegal", "two")}
    assert field(found["illegal"], "task.gpu_error") == 31
    assert field(found["oom"], "usage.gpu.out_of_memory") is True
    for path in ("task.gpu_error", "usage.gpu.out_of_memory"):
        assert field(found["two"], path) is None
    values = {tape: emf_members(gpu_run(tape), EMF_METRICS) for tape in TAPES}
    assert [tape for tape in TAPES if values[tape].get("outOfGpuMemory") == 1] == ["oom"]
    assert [tape for tape in TAPES if values[tape].get("gpuError") == 1] == ["illegal"]
    assert "outOfGpuMemory" not in values["neighbour"]


def test_the_report_line_marks_the_peak_and_names_the_errors() -> None:
    lines = {tape: report_text(gpu_run(tape)) for tape in ("oom", "illegal", "two")}
    assert "\tMax GPU Memory Used: ≥2820 MB\t" in lines["two"]
    assert "\tLikely Out Of GPU Memory: true\t" in lines["oom"]
    assert "\tGPU Error (Xid): 31\t" in lines["illegal"]
    assert "GPU Error" not in lines["two"]


def test_the_event_says_it_in_templates() -> None:
    detail = msgspec.to_builtins(ended_run_detail(ended(gpu_run("oom")), kibana_url=None))
    assert detail["outcome"] == "gpu-oom"
    assert "GPU 0.06 %, ≥76.6 GB of 79.6 GB." in detail["summary"]


# All cases in all places: what a place has to say follows from the record alone.

every_case = pytest.mark.parametrize("name", CASES)
in_each_case = each_case("name", CASES)
# Of memory that is no process's, it is known 15 s later whose it may be.
KNOWN_LATE = ("other container", "no memory of processes", "error beside another container")


class Expected(Struct, frozen=True, kw_only=True):
    """What may be said of a run's GPUs as numbers of its own; None: nothing."""

    use: float | None
    idle: float | None
    peak_mb: float | None
    is_estimate: bool
    is_partial: bool
    scope: str | None

    @property
    def is_about(self) -> bool:
        """Whether the use of the whole run may be another one."""
        return self.use is not None and (self.is_estimate or self.is_partial)


def expected(record: Record) -> Expected:
    of_all = record.gpu_scope == "instance"
    own = [] if of_all else [gpu for gpu in record.gpus if not gpu.shared]
    uses = [gpu.utilization_percent.avg for gpu in own]
    peaks = [gpu.memory_used_mb.max for gpu in record.gpus if not of_all]
    shared = "shared" if any(gpu.shared for gpu in record.gpus) else None
    percent = record.gpu_idle.percent if record.gpu_idle and not of_all else None
    return Expected(
        use=mean(known_values(uses)) if uses and None not in uses else None,
        idle=percent,
        peak_mb=max(filter(None, peaks), default=None),
        is_estimate=any(gpu.utilization_source == "once-a-second" for gpu in record.gpus),
        is_partial=any((gpu.utilization_covered_percent or 100) < 95 for gpu in record.gpus),
        scope=record.gpu_scope or shared,
    )


def near(value: float | None) -> Any:
    return None if value is None else pytest.approx(value, rel=1e-3)


@pytest.mark.slow
@in_each_case
def test_programs_get_the_numbers_that_are_the_runs_own(name: str) -> None:
    report = played_case(name).report
    record = report.record
    own = expected(record)
    row = page_row(report)
    assert row.get("gpu") == near(own.use)
    assert row.get("gpuIdle") == near(own.idle)
    assert (row.get("gpuPeak") or None) == near(own.peak_mb)
    compared = {metric.name: metric.read(record) for metric in COMPARED_METRICS}
    assert compared["gpuUtilizationPercent"] == near(own.use)
    assert compared["gpuIdlePercent"] == near(own.idle)
    assert (compared["maxGpuMemoryUsedMB"] or None) == near(own.peak_mb)
    emf = emf_members(report, EMF_METRICS)
    assert emf.get("gpuUtilizationPercent") == near(None if own.is_about else own.use)
    is_exact = not own.is_estimate and not own.is_partial
    assert emf.get("gpuIdlePercent") == near(own.idle if is_exact else None)
    assert (emf.get("maxGpuMemoryUsedMB") or None) == near(own.peak_mb)
    assert ("gpuError" in emf) == (bool(record.gpus) and own.scope != "instance")
    used = gpu_use(record)
    assert (used.memory_mb or None) == near(own.peak_mb)
    assert used.idle_percent(101) == near(own.idle if is_exact else None)


@in_each_case
def test_documents_and_telemetry_say_what_a_number_is(name: str) -> None:
    report = played_case(name).report
    own = expected(report.record)
    fields = document(report)
    assert field(fields, "usage.gpu.scope") == own.scope
    marks = {"usage.gpu.idle.percent", "usage.gpu.idle.hours"}
    estimates = {*(field(fields, "usage.estimated") or ())}
    least = {*(field(fields, "usage.at_least") or ())}
    assert bool(marks & estimates) == (own.is_estimate and own.idle is not None)
    assert ("usage.gpu.percent.avg" in estimates) == own.is_about
    if field(fields, "usage.gpu.memory_mb.max") is not None:
        assert "usage.gpu.memory_mb.max" in least
    if own.is_partial and field(fields, "usage.gpu.idle.percent") is not None:
        assert "usage.gpu.idle.percent" in least | estimates
    run = ExportedRun(record=report.record, observed_ns=now_ns(report))
    (scope,) = signals_of(run)["metrics"]["resourceMetrics"][0]["scopeMetrics"]
    for metric in scope["metrics"]:
        if ".gpu." in metric["name"]:
            (point,) = metric["gauge"]["dataPoints"]
            of_others = attributes_of(point).get("task_profiler.gpu.scope")
            assert of_others == (own.scope if own.scope == "instance" else None)
    text = report_text(report)
    assert ("\tGPU Scope: " in text) == (own.scope is not None)
    if own.is_about:
        assert "Avg GPU: ≈ " in text


@in_each_case
def test_what_is_live_is_of_the_records_gpus_and_says_whose_it_is(name: str) -> None:
    played = played_case(name)
    record = played.report.record
    uuids = {gpu.uuid: gpu for gpu in record.gpus}
    assert {one.sample.facts.uuid for one in played.live} <= {*uuids}
    own = expected(record)
    for live in played.live:
        if name not in KNOWN_LATE:
            assert live.scope == own.scope
        if live.scope is not None or own.is_estimate:
            assert live.idle_seconds is live.known_seconds is None
    snapshot = Snapshot(
        valid_until_ns=0,
        own_usage=OwnUsage(cpu_seconds=0),
        gpus=LiveGpus(readings=1, gpus=played.live),
    )
    text = metrics_text(snapshot).decode()
    scopes = re.findall(r'gpu_info{.*scope="(\w+)"', text)
    assert scopes == [live.scope or "batch" for live in played.live]


@pytest.mark.slow
@in_each_case
def test_a_family_of_such_runs_gets_no_number_of_others(name: str) -> None:
    records = [
        replace(
            played_case(name).report, record=replace(played_case(name).report.record, task_id=n)
        )
        for n in ("a", "b")
    ]
    own = expected(records[0].record)
    evidence = evidence_of(records)
    text = evidence.usage.gpu_text
    assert bool(text) == any(value is not None for value in (own.use, own.peak_mb))
    assert ("GPU ≈ " in text) == own.is_about
    hours = evidence.usage.idle_gpu_hours
    is_known = own.idle is not None and not own.is_estimate
    assert (hours.value is not None) == is_known
    advice = advice_document(advise_on_size(evidence, SizePolicy(), PriceOverrides()))
    is_unused = name == "never used"
    assert any("never used" in reason for reason in advice.reasons) == is_unused
    changes = compare_metrics([one.record for one in records] * 3, [records[0].record] * 5)
    for change in changes:
        is_gpu = change.metric.row.path.startswith(("gpus.", "record.gpu_idle."))
        if is_gpu and own.scope == "instance":
            assert change.known_a == change.known_b == 0


@pytest.mark.diagonal
@every_case
@on_each_screen
def test_people_read_no_bare_number_of_others(name: str, screen: Callable[[Report], str]) -> None:
    report = played_case(name).report
    own = expected(report.record)
    shown = screen(report).replace("\N{NO-BREAK SPACE}", " ")
    if not report.record.gpus:
        assert "GPU" not in shown
        return
    for gpu in report.record.gpus:
        size_mb = gpu.memory_limit_mb or gpu.memory_size_mb
        if gpu.memory_used_mb.max and size_mb:
            held = f"{format_memory(gpu.memory_used_mb.max)} of {format_memory(size_mb)}"
            assert not re.search(rf"(?<![≥\d.])(?<!at least ){re.escape(held)}", shown)
    if own.is_about:
        use = format_percent(present(own.use))
        assert f"≈ {use}" in shown
        assert not re.search(rf"(?<![\d.])(?<!≈ )(?<!about ){re.escape(use)}", shown)
    if own.scope == "instance":
        assert re.search(r"of the instance|\binstance\b|all programs", shown)
        for wrong in ("was idle", "idle GPU-hours", "SM active", "its work on the GPU"):
            assert wrong not in shown
    if own.scope == "shared":
        assert re.search("shared|other program|another program|MPS", shown)
        assert "was idle" not in shown
    if name == "known in part":
        assert "was idle 5" not in shown


@pytest.mark.parametrize("name", ["known in part", "lost"])
def test_how_active_a_gpu_was_has_a_mark_where_a_part_of_the_run_is_missing(name: str) -> None:
    """SM active 6 % was that of a GPU until it was lost."""
    report = played_case(name).report
    active = present(gpu_totals(report.record).sm_active_percent.avg)
    shown = {
        screen: text(report).replace("\N{NO-BREAK SPACE}", " ") for screen, text in SCREENS.items()
    }
    for screen in ("show", "slack"):
        assert f"SM active ≈ {format_percent(active)}" in shown[screen]
    for text in shown.values():
        assert not re.search(r"(SM active|tensor cores) \d", text)
    path = "usage.gpu.sm_active.percent.avg"
    assert field(document(report), path) == near(active)
    assert path in field(document(report), "usage.estimated")
    assert "gpuSmActivePercent" not in emf_members(report, EMF_METRICS)
    assert "gpuTensorActivePercent" not in emf_members(report, EMF_METRICS)
    marks = points_with(report, "task_profiler.estimated")
    assert "task_profiler.run.gpu.sm_active.avg" in marks
    assert "gpuSm" in page_row(report)["estimated"]
    assert page_row(report)["gpus"][0]["sm"].startswith("≈")
    whole = played_case("starved").report
    assert field(document(whole), "usage.estimated") is None
    assert "SM active 2 %" in show(whole)


@pytest.mark.diagonal
@every_case
@pytest.mark.parametrize("screen", ["show", "page", "slack"])
def test_each_case_has_the_same_sentences_where_there_is_room(name: str, screen: str) -> None:
    report = played_case(name).report
    record = report.record
    shown = SCREENS[screen](report).casefold().replace("&gt;", ">")
    said = [gpu_idle_sentence(record)] if record.status == "success" else []
    said += [*advice_on(record), instance_sentence(record)]
    for sentence in filter(None, said):
        assert sentence.casefold() in shown
