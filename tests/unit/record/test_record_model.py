"""The lines of a run: the report, which stays below its limit, and the call stacks; damaged and
impossible values.
"""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from msgspec.structs import replace

from profiler.record import record_model as record_module
from profiler.record.activity_model import (
    ProcessSeries,
    StackFunction,
    StackMoment,
    Stacks,
    TimeBreakdown,
    WaitTarget,
)
from profiler.record.bounded_json_line import (
    MAX_ARGUMENTS_LENGTH,
    MAX_TEXT_LENGTH,
    MAX_WARNING_CHARACTERS,
    MAX_WARNING_LENGTH,
    encode_line,
)
from profiler.record.model_base import MAX_LINE_BYTES
from profiler.record.record_model import (
    NO_NEURON,
    NOT_SAMPLED,
    UNKNOWN_SIZE,
    Container,
    Distribution,
    Gpu,
    GpuIdle,
    MemoryKills,
    Metrics,
    Monitor,
    Neuron,
    NeuronCore,
    OtherContainer,
    Process,
    Record,
    Report,
    Series,
    decode,
    encode,
    json_schema,
    known_peak_source,
    known_status,
)
from profiler.record.stacks_line import STACKS_BEGINNING, decode_stacks_line, is_stacks_line
from profiler.settings import MAX_SERIES_POINTS
from tests.cases import each_case
from tests.shown_runs import waiting, waiting_stacks
from tests.values import present

SCHEMA_FILE = Path(record_module.__file__).parents[1] / "schema" / "task-report.v1.json"
FULL = Distribution(avg=1.125, p50=2.25, p95=3.5, p99=4.75, max=123456.789)
LINE = msgspec.json.encode(waiting_stacks())


def report(**fields: object) -> Report:
    record = msgspec.structs.replace(
        Record(task_id="t", container=Container(name="batch"), status="success"), **fields
    )
    return Report(time="2026-11-20T03:12:45.123Z", type="task.report", record=record)


def test_the_committed_schema_is_the_models_and_its_lists_come_last() -> None:
    """Logs Insights reads the first 200 fields of a line, and each container or GPU has thirty."""
    assert json.loads(SCHEMA_FILE.read_text()) == json.loads(json.dumps(json_schema())), (
        "run: make schema"
    )
    names = list(json_schema()["$defs"]["Record"]["properties"])
    lists = ["processes", "containers", "gpus", "neuron", "series"]
    others = ["metrics", "taskSize", "cost", "recommendation", "status"]
    assert min(map(names.index, lists)) > max(map(names.index, others))


def test_readers_ignore_unknown_fields_and_bear_missing_ones_but_no_other_lines() -> None:
    container, metrics = {"name": "batch", "color": "red"}, {"durationMs": 12.5, "quarks": 3}
    line = line_of(container=container, status="failure", metrics=metrics, monitor={}, nonsense=[1])
    decoded = decode(line.replace('"1.0"', '"1.7"'))
    expected = report(status="failure", metrics=Metrics(duration_ms=12.5), monitor=Monitor()).record
    assert decoded.schema_version == "1.7"
    assert decoded.record == expected
    other = '{"time":"x","type":"task.report","record":{"taskId":5}}'
    for line in ("no json", "[]", '{"type": "platform.report"}', other):
        with pytest.raises(msgspec.DecodeError):
            decode(line)


def line_of(**record: Any) -> str:
    """A line of schema 1.0."""
    fields = {"taskId": "t", "container": {"name": "batch"}, **record}
    return json.dumps(
        {"time": "x", "type": "task.report", "schemaVersion": "1.0", "record": fields}
    )


def test_words_that_are_not_known_are_kept_and_count_as_unknown() -> None:
    for status, known in (
        ("success", "success"),
        ("stopped", "stopped"),
        ("paused", "unknown"),
        ("", "unknown"),
    ):
        decoded = decode(line_of(status=status))
        assert decoded.record.status == status
        assert known_status(decoded.record) == known
        assert json.loads(encode(decoded))["record"]["status"] == status
    record = decode(
        line_of(outOfMemoryEvidence="psychic", metrics={"memoryPeakSource": "guessed"})
    ).record
    assert record.out_of_memory_evidence == "psychic"
    assert record.metrics.memory_peak_source == "guessed"
    assert known_peak_source(record.metrics) is known_peak_source(Metrics()) is None
    assert known_peak_source(Metrics(memory_peak_source="kernel")) == "kernel"


def test_every_written_line_is_valid_by_the_schema_and_reads_back() -> None:
    full = report(
        metrics=Metrics(duration_ms=5, vcpu_used=FULL, memory_peak_source="sampled"),
        containers=(
            OtherContainer(name="task-monitor", status="RUNNING", metrics=Metrics(cpu_seconds=1.5)),
        ),
        gpus=(Gpu(uuid="GPU-1", throttle_reasons={"swPowerCap": 12.0}, xids=(79,)),),
        neuron=Neuron(cores=(NeuronCore(index=0, utilization_percent=FULL),)),
        processes=(Process(name="python3", count=1, cpu_seconds=1.5, max_memory_used_mb=10),),
        likely_out_of_memory=True,
        out_of_memory_evidence="kernel-counter",
        memory_kills=MemoryKills(count=1, processes=(Process(name="worker"),)),
        monitor=Monitor(version="1", warnings=("careful",)),
        tags={"team": "data", "empty": ""},
        series=Series(
            started_at="2026-03-01T00:00:00.000Z",
            step_ms=1000,
            vcpu_used=(0.5, None),
            memory_used_mb=(1.0,),
        ),
    )
    line = encode_line(full)
    Draft202012Validator(json_schema()).validate(json.loads(line))
    assert decode(line) == full


_COLUMNS: Any = dict.fromkeys(
    ("vcpu_used", "memory_used_mb", "gpu_utilization_percent", "neuron_utilization_percent"),
    (1.23e-12,) * (2 * MAX_SERIES_POINTS),
)
MAX_SERIES = Series(started_at="2026-03-01T00:00:00.000Z", step_ms=1048576000.125, **_COLUMNS)


def with_commands(series: Series, rows: int, command: str) -> Series:
    row = ProcessSeries(
        command=command, vcpu_used=series.vcpu_used, memory_used_mb=series.memory_used_mb
    )
    return replace(series, processes=(row,) * rows)


def test_the_series_of_commands_goes_first() -> None:
    long = with_commands(MAX_SERIES, 9, "python3 export.py")
    stacks = Stacks(
        source="py-spy 0.4.3", moments=(StackMoment(kind="idle", stack=("main (job.py:1)",)),)
    )
    record = decode(encode_line(report(series=long, stacks=stacks))).record
    assert record == report(series=MAX_SERIES, stacks=stacks, truncated=True).record
    frames = tuple(
        f"f{number} (job.py:1)" for number in range(60)
    )  # of a long stack, the innermost ones are kept
    stacks = Stacks(source="py-spy 0.4.3", moments=(StackMoment(kind="idle", stack=frames),))
    record = decode(encode_line(report(stacks=stacks))).record
    assert present(record.stacks).moments[0].stack == frames[10:]
    assert record.truncated is True


@given(
    containers=st.integers(0, 300), gpus=st.integers(0, 70), cores=st.integers(0, 400), warnings=st.integers(0, 60),
    long=st.integers(0, 100_000), processes=st.integers(0, 10), series=st.sampled_from([None, MAX_SERIES]),
    activity=st.integers(0, 9),
)  # fmt: skip
def test_a_line_stays_below_its_limit_whatever_the_task(
    containers: int, gpus: int, cores: int, warnings: int, long: int, processes: int, series: Series | None,
    activity: int,
) -> None:  # fmt: skip
    used: Any = {"utilization_percent": FULL, "memory_used_mb": FULL}
    metrics = Metrics(
        vcpu_used=FULL,
        memory_used_mb=FULL,
        cpu_utilization_percent=FULL,
        memory_utilization_percent=FULL,
    )
    breakdown = TimeBreakdown(
        waiting_for=(WaitTarget(kind="disk", target="\x01" * long, percent=1.0),) * activity
    )
    huge = report(
        metrics=metrics,
        containers=tuple(
            OtherContainer(name=f"c{index}", metrics=metrics) for index in range(containers)
        ),
        gpus=tuple(
            Gpu(uuid=f"GPU-{index}", power_watts=FULL, sm_clock_mhz=FULL, **used)
            for index in range(gpus)
        ),
        neuron=Neuron(cores=tuple(NeuronCore(index=index, **used) for index in range(cores))),
        monitor=Monitor(warnings=tuple("é" * long for _ in range(warnings))),
        processes=tuple(
            Process(name=f"p{index}", arguments="\x01" * long) for index in range(processes)
        ),
        time_breakdown=breakdown,
        gpu_idle=GpuIdle(percent=50, gpu_hours=1, waiting_for=breakdown),
        stacks=Stacks(
            source="é" * long,
            top=(StackFunction(function="\x01" * long, file="\x01" * long, line=1),) * activity,
            moments=(StackMoment(kind="idle", stack=("\x01" * long,) * activity),) * activity,
        ),
        series=series and with_commands(series, activity, "python3"),
    )
    line = encode_line(huge)
    assert len(line) < MAX_LINE_BYTES
    assert b"\n" not in line
    record = decode(line).record
    assert record.metrics == metrics
    lists_are_cut = containers > 20 or gpus > 32 or cores > 128 or warnings > 20
    warnings_are_cut = warnings and (
        long > MAX_WARNING_LENGTH or warnings * long > MAX_WARNING_CHARACTERS
    )
    assert record.truncated or record.series == huge.record.series
    cut = (
        lists_are_cut
        or warnings_are_cut
        or (processes and long > MAX_ARGUMENTS_LENGTH)
        or activity > 5
    )
    cut = cut or (activity > 0 and long > MAX_TEXT_LENGTH)
    assert record.truncated or not cut


IMPOSSIBLE: dict[str, dict[str, Any]] = {
    "negative": {"metrics": {"durationMs": -5, "vcpuUsed": {"p95": -0.1, "max": 2}}},
    "beyond any machine": {
        "metrics": {"maxMemoryUsedMB": 1e15, "vcpuUsed": {"p95": 1e9, "max": 2}}
    },
    "beyond any number": {
        "metrics": {"networkRxBytes": 10**19, "vcpuUsed": {"p95": 1e19, "max": 2}}
    },
    "years": {
        "startedAt": "0001-01-01T00:00:00Z",
        "finishedAt": "9999-12-31T00:00:00Z",
        "metrics": {"maxMemoryUsedAt": "yesterday", "vcpuUsed": {"max": 2}},
    },
    "parts that need a number": {
        "memoryKills": {"count": -1},
        "neuron": {"cores": [{"index": -1}]},
        "series": {"startedAt": "2026-11-20T03:12:45Z", "stepMs": 0, "vcpuUsed": [1]},
        "metrics": {"vcpuUsed": {"max": 2}},
    },
}


def test_impossible_values_count_as_missing() -> None:
    """And what is possible next to them is kept."""
    metrics = Metrics(vcpu_used=Distribution(max=2))
    for name, fields in IMPOSSIBLE.items():
        neuron = Neuron() if "neuron" in fields else NO_NEURON
        expected = Record(
            task_id="t",
            container=Container(name="batch"),
            exit_code=-1,
            metrics=metrics,
            neuron=neuron,
        )
        assert decode(line_of(exitCode=-1, **fields)).record == expected, name
    # In a series it is a step without a measurement.
    series = {"startedAt": "2026-11-20T03:12:45Z", "stepMs": 1000, "vcpuUsed": [1, None, -1, 1e9]}
    found = present(decode(line_of(series=series)).record.series)
    assert found.vcpu_used == (1, None, None, None)


@each_case(
    ("absurd", "honest"),
    [
        ({"exitCode": 2**31}, {}),
        ({"exitCode": -(10**30)}, {}),
        ({"recommendation": {"savingPercent": -1e300}}, {"recommendation": {}}),
        (
            {"gpus": [{"uuid": "g", "xids": [10**30, 79, -1]}]},
            {"gpus": [{"uuid": "g", "xids": [79]}]},
        ),
        (
            {"gpus": [{"uuid": "g", "throttleReasons": {"power": -1}}]},
            {"gpus": [{"uuid": "g"}]},
        ),
        *(
            (
                {"gpus": [{"uuid": "g", name: {"avg": least, "max": most}}]},
                {"gpus": [{"uuid": "g", name: {"avg": least}}]},
            )
            for name, least, most in (
                ("temperatureCelsius", 60, 200),
                ("temperatureCelsius", 0, 1e300),
                ("temperatureCelsius", 199, -1),
                ("powerWatts", 5_000, 5_001),
                ("smClockMhz", 10_000, 2**32 - 1),
            )
        ),
        # A size that is left out would not be slower: without one of them none is known.
        (
            {
                "metrics": {
                    "slowdownAtVcpu": {"1": {"min": 1, "max": 2}, "2": {"min": 1, "max": -1}}
                }
            },
            {"metrics": {}},
        ),
        (
            {"metrics": {"slowdownAtVcpu": {"1": {"min": 1e300, "max": 1e300}}}},
            {"metrics": {}},
        ),
    ],
)
def test_what_no_index_can_hold_is_missing(
    absurd: dict[str, object], honest: dict[str, object]
) -> None:
    assert decode(line_of(**absurd)).record == decode(line_of(**honest)).record


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e400", "-1E+999"])
def test_nan_and_infinities_count_as_missing(number: str) -> None:
    line = line_of(container={"name": "NaN"}, metrics={"durationMs": "X", "cpuSeconds": 1}).replace(
        '"X"', number
    )
    for written in (line, line.encode()):
        record = decode(written).record
        assert record.container.name == "NaN"
        assert record.metrics == Metrics(cpu_seconds=1)
    with pytest.raises(msgspec.DecodeError):
        decode(line[:-1])


def test_the_line_of_stacks_is_recognized_and_decoded() -> None:
    assert LINE.startswith(STACKS_BEGINNING)
    assert decode_stacks_line(LINE) == waiting_stacks()
    for line in (LINE, LINE.replace(b'":', b'": '), b"  " + LINE, LINE[:500]):
        assert is_stacks_line(line)
    in_text = (
        b'"task.stacks"',
        b'a log line with {"type":"task.stacks"}',
        b'{"text":"\\"type\\":\\"task.stacks\\""}',
    )
    foreign = b'{"topic":"task.stacks","text":"of another program"}'
    for line in (encode(waiting()), b"", b"{}", *in_text, foreign):
        assert not is_stacks_line(line)
    # Steps with impossible times are left out.
    first, *others = waiting_stacks().steps
    line = msgspec.json.encode(
        replace(waiting_stacks(), steps=(replace(first, duration_ms=-1), *others))
    )
    assert decode_stacks_line(line) == replace(waiting_stacks(), steps=tuple(others))


@given(st.binary() | st.integers(0, len(LINE) - 1).map(lambda length: LINE[:length]))
def test_a_damaged_line_is_none(line: bytes) -> None:
    assert decode_stacks_line(line) is None
    assert is_stacks_line(line) in (True, False)


def test_parts_of_which_nothing_is_known_are_not_in_the_line() -> None:
    container = Container(name="batch")
    bare = Record(task_id="a", container=container, gpus=(Gpu(uuid="g"),), neuron=Neuron())
    line = encode(Report(time="", type="task.report", record=bare))
    assert b"{}" not in line.replace(b'"metrics":{}', b"")
    assert b"null" not in line
    assert decode(line).record == bare
    assert decode(line).record.sampling is NOT_SAMPLED


def test_a_part_that_another_program_wrote_as_null_is_absent() -> None:
    line = (
        b'{"time":"","type":"task.report","record":{"taskId":"a","container":{"name":"b"},'
        b'"sampling":null,"taskSize":null,"metrics":{"vcpuUsed":null,"durationMs":3}}}'
    )
    record = decode(line).record
    assert record.metrics == Metrics(duration_ms=3)
    assert record.task_size is UNKNOWN_SIZE
