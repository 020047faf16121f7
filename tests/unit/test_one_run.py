"""One run, one set of numbers and sentences: all screens print the same digits with the same marks,
and what one screen says in words, no other says in others.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from profiler.cli.compare_command import comparison_document
from profiler.cli.terminal.comparison_tables import number_text
from profiler.cli.terminal.end_page import EndView, end_page_lines
from profiler.cli.terminal.stacks_page import stacks_lines
from profiler.forwarder.document_updates import Document
from profiler.forwarder.function_settings import ForwarderSettings
from profiler.forwarder.notifications.value_formats import recommended_size_words
from profiler.forwarder.run_documents import report_document
from profiler.record.cpu_wait import MIN_CPU_WAIT_PERCENT, long_cpu_wait
from profiler.record.fact_list import (
    COST,
    CPU_TIME,
    DURATION,
    MEMORY_PEAK,
    NUMBERS,
    VCPU_SIZE,
    NumberRow,
    number_fact,
)
from profiler.record.held_huge_pages import huge_pages_text
from profiler.record.mapped_files import mapped_files_text
from profiler.record.measured import UNKNOWN, measured_from
from profiler.record.mention_limits import is_cpu_partial, whole_cpu_seconds
from profiler.record.record_model import (
    NO_RECOMMENDATION,
    NOT_MEASURED,
    Metrics,
    Recommendation,
    Report,
    encode,
)
from profiler.record.units import (
    APPROXIMATELY,
    format_memory,
    format_percent,
    format_value,
    format_vcpu,
    saving_words,
)
from profiler.runs.comparison.compared_metrics import COMPARED_METRICS, compare_metrics
from profiler.runs.comparison.run_sets import RunSet
from profiler.runs.past_runs.run_moments import find_moments
from profiler.runs.past_runs.verdict_sentence import verdict_of
from profiler.sizing.advice import advise_on_size
from profiler.sizing.choose_size import SizePolicy
from profiler.sizing.prices import PriceOverrides
from tests import screens, shown_runs
from tests.awkward_runs import (
    RUNS,
    child_killed,
    lonely_wait,
    missed_peak,
    recommended,
    shared_cpu,
    unseen_limits,
)
from tests.cases import each_case
from tests.gpu_runs import gpu_run
from tests.random_runs import random_runs
from tests.report_page import content
from tests.report_page import run_of as page_run_of
from tests.runs import evidence_of
from tests.shown_runs import waiting_stacks
from tests.terminals import texts as texts_of
from tests.values import present

every_run = pytest.mark.parametrize("report", RUNS.values(), ids=RUNS, indirect=True)
_recommended_once = cache(recommended)


@pytest.fixture
def report(request: pytest.FixtureRequest) -> Report:
    """One of the runs. Only the process that tests it makes it."""
    return _recommended_once(request.param)


def each_run(test: Callable[[Report], None]) -> Callable[..., None]:
    """Each of the runs in one test."""

    def of_run(made: Report) -> None:
        test(_recommended_once(made))

    return each_case("made", RUNS.values(), ids=RUNS)(of_run)


class DrawnScreens(Mapping[str, str]):
    """What each screen shows of a run, drawn when it is first read; nothing is recommended for a run
    without a measurement.
    """

    def __init__(self, report: Report) -> None:
        self.report = report
        self._drawn: dict[str, str] = {}
        self._names = tuple(
            name
            for name in screens.SCREENS
            if name != "recommend" or report.record.metrics.max_memory_used_mb is not None
        )

    def __getitem__(self, name: str) -> str:
        if name not in self._names:
            raise KeyError(name)
        if name not in self._drawn:
            self._drawn[name] = screens.SCREENS[name](self.report)
        return self._drawn[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


_DRAWN: dict[int, DrawnScreens] = {}


def shown(report: Report) -> Mapping[str, str]:
    """The screens of this very report, which is frozen; a screen is drawn once in a process."""
    return _DRAWN.setdefault(id(report), DrawnScreens(report))


def sizes_of(metrics: Metrics) -> set[str]:
    """The texts of sizes, which are no measurements."""
    sizes = set()
    if metrics.memory_size_mb is not None:
        sizes.add(format_memory(metrics.memory_size_mb))
    if metrics.vcpu_size is not None:
        sizes.add(format_vcpu(metrics.vcpu_size))
    return sizes


@each_run
def test_the_cpu_numbers_of_a_run_agree(report: Report) -> None:
    """Else its screens contradict each other whatever they do."""
    record = report.record
    metrics = record.metrics
    seconds, average = metrics.cpu_seconds, metrics.vcpu_used.avg
    if seconds is None or average is None:
        return
    covered = (record.sampling.cpu_covered_percent or 100) / 100
    measured_seconds = average * covered * present(metrics.duration_ms) / 1000
    assert measured_seconds == pytest.approx(seconds, rel=0.02, abs=0.1)
    assert sum(process.cpu_seconds or 0 for process in record.processes) <= seconds
    used_all = metrics.vcpu_saturated_percent or 0
    assert average >= used_all / 100 * (metrics.vcpu_size or 0) * 0.95


def differently_marked(report: Report) -> Mapping[str, Mapping[bool, Sequence[str]]]:
    """The numbers that are lower bounds on some screens, which are named, and exact on others."""
    sizes = sizes_of(report.record.metrics)
    marks: dict[str, dict[bool, list[str]]] = {}
    for name, text in shown(report).items():
        rows = text.splitlines()
        if name == "compare" and is_cpu_partial(report.record):
            # An estimate for the whole run, where the others have a bound.
            rows = [row for row in rows if not row.startswith(CPU_TIME.name)]
        for number in screens.numbers_in("\n".join(rows)):
            marks.setdefault(number.text, {}).setdefault(number.is_least, []).append(name)
    return {text: found for text, found in marks.items() if len(found) > 1 and text not in sizes}


@each_run
def test_a_number_has_its_mark_on_all_screens_or_on_none(report: Report) -> None:
    assert differently_marked(report) == {}


# The screens that have room for a number of the list.
SHOWN_ON: Mapping[NumberRow, Sequence[str]] = {
    DURATION: ("show", "end", "history", "page", "slack", "event", "mail", "teams", "compare"),
    COST: ("show", "page", "slack", "event", "mail", "teams", "compare", "morning"),
    MEMORY_PEAK: tuple(name for name in screens.SCREENS if name != "morning"),
    CPU_TIME: ("end", "page", "compare"),
    VCPU_SIZE: ("show", "page", "slack", "event", "mail", "teams"),
}


# How the sentence of a night counts the outcomes.
GROUPS = {"success": "succeeded", "failure": "failed", "out of memory": "killed for memory"}
OF_NOTICES = ("slack", "event", "mail", "teams")


def has_cpu(report: Report) -> bool:
    return report.record.metrics.vcpu_used != NOT_MEASURED


def screens_without(number: NumberRow, report: Report) -> Iterator[str]:
    """The screens that have room for a number, and say it otherwise or not at all."""
    fact = number_fact(number, report.record)
    if fact.number is UNKNOWN:
        return
    in_words = screens.numbers_in(fact.text)
    shown_texts = shown(report)
    for name in SHOWN_ON[number]:
        if number is VCPU_SIZE and name in OF_NOTICES and not has_cpu(report):
            continue  # they say the size beside its use
        text = shown_texts[name]
        if number is CPU_TIME and name == "compare" and is_cpu_partial(report.record):
            # The measured part's average over the whole duration.
            whole = format_value(present(whole_cpu_seconds(report.record)), number.unit)
            if f"{APPROXIMATELY}{whole}" not in text:
                yield name
            continue
        if fact.text not in text and not in_words & screens.numbers_in(text):
            yield name


@pytest.mark.diagonal
@every_run
@pytest.mark.parametrize("number", SHOWN_ON, ids=lambda number: number.name)
def test_a_number_of_the_list_has_the_same_text_on_each_screen(
    report: Report, number: NumberRow
) -> None:
    assert [*screens_without(number, report)] == []


@given(random_runs())
@settings(max_examples=20)
def test_a_random_run_has_one_set_of_numbers_and_one_verdict(report: Report) -> None:
    assert differently_marked(report) == {}
    for number in SHOWN_ON:
        assert [*screens_without(number, report)] == [], number.name
    assert screens_without_verdict(report) == []


@each_run
def test_programs_read_the_numbers_that_people_do(report: Report) -> None:
    """A line of ``history --json`` is the report's, without a change."""
    line = screens.history_json(report)
    assert line["record"] == json.loads(encode(report))["record"]


@each_run
def test_compare_json_has_the_numbers_and_marks_of_its_table(report: Report) -> None:
    sets = [RunSet(text=name, reports=(report,)) for name in ("a", "b")]
    document = comparison_document(sets, compare_metrics(sets[0].records, sets[1].records))
    table = screens.compare(report)
    for metric in COMPARED_METRICS:
        if metric.name not in document.metrics:
            continue
        value = document.metrics[metric.name].a
        is_least = metric.name in document.a.at_least
        is_estimate = metric.name in document.a.estimated
        shown = measured_from(value, is_least=is_least, is_estimate=is_estimate)
        assert number_text(shown, metric.row.unit) in table, metric.name


# The field of a document with each number, of which the dashboards draw some.
FIELDS: Mapping[NumberRow, str] = {
    DURATION: "usage.duration_ms",
    COST: "cost.usd",
    MEMORY_PEAK: "usage.memory.used_mb.max",
    CPU_TIME: "usage.cpu.seconds",
    VCPU_SIZE: "usage.cpu.size",
}


@each_run
def test_a_document_has_the_numbers_and_marks_of_the_screens(report: Report) -> None:
    """What the dashboards draw of it: ``tests/search/test_one_run_drawn.py``."""
    made = report_document(report, encode(report).decode(), ForwarderSettings())
    assert isinstance(made, Document)
    for number, path in FIELDS.items():
        fact = number_fact(number, report.record)
        value: Any = made.fields
        for name in path.split("."):
            value = (value or {}).get(name)
        is_least = path in made.fields["usage"].get("at_least", ())
        shown = measured_from(value or None if is_least else value, is_least=is_least)
        assert shown == fact.number, number.name


@each_run
def test_the_morning_message_has_the_reason_of_the_others(report: Report) -> None:
    run = screens.ended(report)
    text = screens.morning(report)
    failed = run.outcome.count_group in ("failure", "out of memory")
    assert (run.outcome.sentence or "") in text or not failed
    assert f"1 run, 1 {GROUPS.get(run.outcome.count_group, run.outcome.count_group)}" in text


def test_the_page_of_many_runs_has_the_numbers_and_the_verdict_of_the_page_of_one() -> None:
    reports = [_recommended_once(make) for make in RUNS.values()]
    rows = content([page_run_of(one) for one in reports])["runs"]
    alone = [screens.page_row(one) for one in reports]
    for row, own in zip(rows, alone, strict=True):
        assert (row["id"], row["verdict"]) == (own["id"], own["verdict"])
        for number in NUMBERS:
            if number.page_field:
                assert screens.page_number(row, number) == screens.page_number(own, number)


@each_run
def test_a_mail_and_a_card_say_what_the_event_says(report: Report) -> None:
    shown_texts = shown(report)
    for name in ("mail", "teams"):
        text = shown_texts[name]
        assert screens.numbers_in(shown_texts["event"]) <= screens.numbers_in(text), name


# What only that sentence says.
WORDS_ON_THE_WAIT_FOR_A_CPU = ("short bursts", "other programs used", "total for a cpu", "shared 2")


@each_run
def test_the_wait_for_a_cpu_is_one_sentence(report: Report) -> None:
    """Why it waited is said in the same words, and its share is another number nowhere."""
    wait = long_cpu_wait(report.record)
    percent = report.record.metrics.cpu_wait_percent
    for name, text in shown(report).items():
        if any(words in text.casefold() for words in WORDS_ON_THE_WAIT_FOR_A_CPU):
            assert wait.why, name
            assert wait.why.casefold() in text.casefold(), name
            assert wait.sentence.casefold() in text.casefold() or name == "show", name
        if percent is not None and percent >= MIN_CPU_WAIT_PERCENT:
            assert format_percent(percent) not in text, name


def test_each_screen_says_why_a_run_waited_for_a_cpu() -> None:
    report = recommended(shared_cpu)
    reason = "other programs used 1.78 of the machine's 2 CPUs"
    for name in ("show", "end", "recommend", "page"):
        assert reason in shown(report)[name], name
        assert "≥12m 40s in total" in shown(report)[name], name


def screens_without_verdict(report: Report) -> Sequence[str]:
    """The screens that say the verdict or its evidence otherwise, or not at all."""
    verdict = verdict_of(screens.past_run(report), screens.now_ns(report))
    shown_texts = shown(report)
    said = [(name, verdict.text.removesuffix(".")) for name in ("show", "end", "page")]
    said += [(name, verdict.evidence) for name in ("show", "page")]
    return [name for name, text in said if text not in shown_texts[name]]


@each_run
def test_the_verdict_is_one_sentence(report: Report) -> None:
    assert screens_without_verdict(report) == []


@each_run
def test_show_and_page_have_the_same_moments_and_sentences(report: Report) -> None:
    record = report.record
    sentences = [moment.text for moment in find_moments(record)]
    sentences += [mapped_files_text(record.metrics), huge_pages_text(record.metrics)]
    for name in ("show", "page"):
        text = shown(report)[name].casefold()
        for sentence in filter(None, sentences):
            assert sentence.casefold() in text


@each_run
def test_slack_page_and_show_give_the_reasons_of_recommend(report: Report) -> None:
    advice = report.record.recommendation
    if advice == NO_RECOMMENDATION or report.record.metrics.max_memory_used_mb is None:
        return
    shown_texts = shown(report)
    for sentence in advise_on_size(evidence_of([report]), SizePolicy(), PriceOverrides()).reasons:
        assert sentence in shown_texts["recommend"]
        assert sentence in shown_texts["page"]
    said = shown_texts["page"].casefold()
    for reason in advice.reasons:
        # Only they have the options of recommend.
        assert reason.casefold().removesuffix(".") in said.replace(" (--faster recommends it)", "")


def test_a_peak_that_no_sample_saw_is_said_beside_the_highest_sample() -> None:
    report = recommended(missed_peak)
    (moment, *_) = [one for one in find_moments(report.record) if one.kind == "memory-peak"]
    assert moment.text == (
        "memory peak ≥3.3 GB at an unknown time, 83 % of 4 GB; highest sample 3.2 GB at +19m 40s"
    )
    for name in ("show", "page"):
        assert "≥1.2 GB" in shown(report)[name], "the process's, which is also a lower bound"


def test_both_stretches_of_one_wait_have_its_function_and_address() -> None:
    vcpu = (1.0,) * 10 + (0.0,) * 8 + (1.0,) * 10 + (0.0,) * 8 + (1.0,) * 10
    made = shown_runs.waiting().record
    stacks = present(made.stacks)
    idle = replace(stacks.moments[0], from_at=shown_runs.at(100), to_at=shown_runs.at(360))
    without = replace(stacks, moments=())
    record = replace(
        recommended(lonely_wait).record,
        series=replace(
            present(made.series), vcpu_used=vcpu, memory_used_mb=(900.0,) * 46, cpu_wait=None
        ),
        stacks=replace(stacks, moments=(idle,)),
        metrics=replace(made.metrics, duration_ms=460_000, max_memory_used_mb=900),
    )
    waited = "load_orders → recv, waiting for 10.0.3.9:5432"
    texts = [one.text for one in find_moments(record) if one.kind == "idle"]
    assert texts == [f"idle from +1m 40s to +3m: {waited}", f"idle from +4m 40s to +6m: {waited}"]
    unsampled = find_moments(replace(record, stacks=without))
    assert [one.text for one in unsampled if one.kind == "idle"] == [
        "idle from +1m 40s to +3m, waiting for 10.0.3.9:5432",
        "idle from +4m 40s to +6m, waiting for 10.0.3.9:5432",
    ]


def test_show_and_its_stacks_count_the_same_samples() -> None:
    report = shown_runs.waiting()
    title = "".join(span.text for span in stacks_lines(report.record, waiting_stacks(), 200)[0])
    assert "412 samples, 412 stacks by py-spy 0.4.3" in title
    assert "412 samples" in screens.show(report)


def test_a_saving_below_one_percent_is_said_by_show_and_slack() -> None:
    for percent, words in ((0.7, "saves 0.7 %"), (-0.7, "costs 0.7 % more"), (0.4, "")):
        advice = Recommendation(vcpu=1, memory_mb=2048, saving_percent=percent)
        assert saving_words(percent) == words
        assert recommended_size_words(advice, "") == (
            f"Recommended size: 1 vCPU, 2 GB ({words})."
            if words
            else "Recommended size: 1 vCPU, 2 GB."
        )


def test_slack_the_event_and_the_page_name_killed_processes_in_one_sentence() -> None:
    shown_texts = shown(recommended(child_killed))
    for name in ("slack", "event", "page"):
        assert "The kernel killed 3 processes for lack of memory: w." in shown_texts[name], name


def test_the_end_of_a_local_run_says_why_its_result_is_unknown() -> None:
    made = shown_runs.local().record
    record = replace(made, status="unknown", exit_code=None, memory_kills=None)
    report = replace(shown_runs.local(), record=replace(record, likely_out_of_memory=None))
    for name in ("show", "end", "page"):
        assert "The profiler did not see the end of the command." in shown(report)[name], name


def test_no_mark_is_lost_on_a_narrow_terminal() -> None:
    report = recommended(shown_runs.etl)
    shown_texts = {}
    for width in (40, 50, 60):
        view = EndView(width=width, now_ns=screens.now_ns(report))
        shown_texts[width] = "\n".join(texts_of(end_page_lines(report, (), view)))
    assert "▔ peak ≥81 %" in shown_texts[40]
    assert "▔ 4 GB, peak ≥81 %" in shown_texts[50]
    assert "▔ 4 GB, peak ≥3.2 GB (81 %)" in shown_texts[60]


def test_each_screen_says_the_limits_that_a_program_did_not_see() -> None:
    """Their sentences are in ``show``, which has them as advice, on the page and in mails; Slack has
    that of the memory.
    """
    shown_texts = {
        name: text.casefold() for name, text in shown(recommended(unseen_limits)).items()
    }
    memory = "the program sees 15.6 gb and may use 4: set the container's `memory`"
    for name in ("show", "page", "event", "slack"):
        text = shown_texts[name]
        told = memory.replace("`", "'") if name == "event" else memory  # no Markdown
        assert told in text, name
    for name in ("show", "page", "event"):
        assert "it sees 8 cpus and may use 2: set the number of workers." in shown_texts[name], name


def test_each_screen_says_why_a_run_has_no_numbers() -> None:
    told = "The run ended before its first sample: CPU and memory were not measured."
    shown_texts = shown(recommended(shown_runs.unmeasured))
    for name in ("show", "page", "event", "slack"):
        assert told in shown_texts[name], name


@each_run
def test_a_mail_names_the_devices_that_slack_names(report: Report) -> None:
    devices = {"GPU": report.record.gpus, "NeuronCore": report.record.neuron.cores}
    for name, found in devices.items():
        assert (f" {name}" in screens.slack(report)) is bool(found), name
        assert (name in screens.event(report)) is bool(found), name


def test_a_size_beside_accelerators_says_so_on_each_screen() -> None:
    """The size of a GPU's or a Neuron device's machine is not that of vCPU and memory alone."""
    neuron = shown_runs.neuron()
    advice = Recommendation(vcpu=1, memory_mb=4096)
    neuron = replace(neuron, record=replace(neuron.record, recommendation=advice))
    for report, beside in ((gpu_run("grow"), " beside 1 GPU"), (neuron, " beside 2 NeuronCores")):
        size = f"Recommended size: {report.record.recommendation.vcpu:g} vCPU, "
        for shown in (screens.slack(report), screens.event(report)):
            assert size in shown
            assert beside in shown
        assert screens.page_row(report)["beside"] == beside
