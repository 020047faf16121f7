"""One run, one set of sentences: each row of a run's story is on every screen that has room for it,
in the same words, and the other screens do not say it in other words.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import get_args

import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from profiler.core.ecs_terms import is_of_aws_batch
from profiler.record.batch_job import job_text
from profiler.record.record_model import Record, Report
from profiler.record.run_summary import RowName, Story, StoryRow
from profiler.runs.past_runs.verdict_sentence import verdict_of
from tests import screens
from tests.awkward_runs import RUNS, recommended
from tests.cases import each_case
from tests.random_runs import told_runs

NOTICES = ("slack", "event", "mail", "teams")
MAILS = ("event", "mail", "teams")
# The screens that have room for a row.
SAID_ON: Mapping[RowName, Sequence[str]] = {
    "job": ("show", "page", *MAILS),
    "cost": ("show", *NOTICES),
    "unmeasured": ("show", "page", *NOTICES),
    "files": ("show", "end", "end with curves", "page", *NOTICES),
    "huge": ("show", "end", "end with curves", "page", *NOTICES),
    "CPU wait": ("show", "page"),
    "GPU use": ("page", *MAILS),
    "GPU idle": ("show", "page", *NOTICES),
    "GPU work": ("show", "page", "slack"),
    "GPU error": ("show", "page", "slack"),
    "GPU remedy": ("show", "page", "slack"),
    "GPU advice": ("show", "page"),
    "Neuron use": ("page", *MAILS),
    "ECC": ("show", "page", *NOTICES),
    "memory advice": ("show", "page"),
    "time advice": ("show", "page"),
    "memory limit": ("show", "page", *MAILS),
    "CPU limit": ("show", "page", *MAILS),
    "killed": ("show", "page", *NOTICES),
    "I/O": ("show",),
    "largest": ("show",),
    "warning": ("show", "page"),
}
# Why the other screens are without a row, or have it in some runs only.
ELSEWHERE: Mapping[RowName, str] = {
    "job": "Slack and history have its parts in columns; a local run is no job",
    "cost": "the page, compare and the morning message have it as a number",
    "unmeasured": "the end has no line of use then",
    "CPU wait": "the end has it as advice if it is the largest part, recommend and Slack as a reason",
    "GPU use": "show, Slack and the end with curves draw it",
    "GPU work": "a mail is one paragraph",
    "GPU error": "a mail is one paragraph",
    "GPU remedy": "the end has it as its advice; the event as the first reason",
    "GPU advice": "the end has one line of advice; Slack and mails have five reasons or one",
    "Neuron use": "show, Slack and the end with curves draw it",
    "memory advice": "the end has one line of advice; a notice advises on failures and sizes",
    "time advice": "the end has one line of advice; a notice advises on failures and sizes",
    "ECC": "the end has one line of warnings",
    "memory limit": "Slack has it of failures",
    "CPU limit": "no failure has it as its cause",
    "I/O": "the end has it from 1 MiB on; the page has a table of numbers",
    "largest": "the page has a table of all processes",
    "warning": "the end has one line of warnings; a warning is about the measurement",
}
# What only these rows say. A screen with one of the words has a row in its words.
WORDS: Mapping[str, Sequence[RowName]] = {
    r"the kernel killed": ("killed",),
    r"were not measured": ("unmeasured",),
    r"huge pages": ("huge",),
    r"mapped files|pages of files": ("files",),
    r"the program sees": ("memory limit",),
    r"it sees \d": ("CPU limit",),
    r"idle gpu-hours|(?:was|were) idle ≥?\d": ("GPU idle",),
    r"sm active|dram active|copies over pcie": ("GPU work",),
    r"a smaller batch size": ("GPU remedy", "GPU advice"),
    r"uncorrected|ecc": ("ECC",),
    r"received \d": ("I/O",),
    r"no answer for": ("warning",),
    r"in total for a cpu|short bursts|other programs used": ("CPU wait",),
    r"its work on the gpu began|use more workers": ("GPU advice",),
    r"memory was left": ("memory advice",),
    r"more cpu or memory would not|cpus busy|used all of its cpu": ("time advice",),
}
every_run = each_case("make", RUNS.values(), ids=RUNS)


def plain(text: str) -> str:
    """Without capitals, final stops, and Markdown, which is not the same on all screens."""
    return text.casefold().replace("`", "'").replace("\xa0", " ").rstrip(".")


def says(text: str, row: StoryRow) -> bool:
    """A reason for a size is about several runs: "a run" in place of "it"."""
    told = (plain(row.text), plain(row.sentence))
    return any(words.removeprefix("it ") in text for words in told)


def drawn(report: Report) -> Mapping[str, str]:
    has_sizes = report.record.metrics.max_memory_used_mb is not None
    return {
        name: plain(draw(report))
        for name, draw in {**screens.SCREENS, "page": screens.page_of_run}.items()
        if has_sizes or name != "recommend"
    }


def story(report: Report) -> Story:
    return screens.past_run(report).story


def of_notices(row: StoryRow, record: Record) -> StoryRow | None:
    """The row as a notice has it: a job is that of the task's event, which has no name of a job."""
    if row.name != "job":
        return row
    text = job_text(replace(record.batch, job_name=None))
    return StoryRow("job", text) if is_of_aws_batch(record.cluster) else None


def missing(report: Report, texts: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The screens that have room for a row of the run and lack it, and its text."""
    for row in story(report).rows:
        for name in SAID_ON[row.name]:
            told = of_notices(row, report.record) if name in NOTICES else row
            if told is not None and not says(texts[name], told):
                yield name, told.text


def in_other_words(report: Report, texts: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The screens that say something of a row, and have none of its words. The verdict, which is
    the same on all screens, has some of them.
    """
    evidence = plain(verdict_of(screens.past_run(report), screens.now_ns(report)).evidence)
    for name, shown in texts.items():
        text = shown.replace(evidence, "") if evidence else shown
        for words, rows in WORDS.items():
            told = [row for row in story(report).rows_named(*rows) if says(text, row)]
            if re.search(words, text) and not told:
                yield name, words


def check(report: Report) -> None:
    texts = drawn(report)
    assert [*missing(report, texts)] == []
    assert [*in_other_words(report, texts)] == []


@given(told_runs())
@settings(max_examples=20)
def test_a_random_run_has_one_set_of_sentences(report: Report) -> None:
    check(report)


@pytest.mark.slow
@every_run
def test_an_awkward_run_has_one_set_of_sentences(make: object) -> None:
    assert callable(make)
    check(recommended(make))


def test_each_row_has_its_screens_or_a_reason() -> None:
    names = {*get_args(RowName)}
    assert {*SAID_ON} == names
    without = {name for name, said in SAID_ON.items() if not {*NOTICES, "show", "page"} <= {*said}}
    assert without <= {*ELSEWHERE}


@every_run
def test_show_and_the_end_of_a_run_begin_with_the_same_advice(make: object) -> None:
    """The end has no more; without advice of the run's own, it is the size of the family."""
    assert callable(make)
    report = recommended(make)
    found = [
        [line.partition("advice")[2].strip() for line in text.splitlines() if " advice " in line]
        for text in (screens.end(report), screens.show_with_advice(report))
    ]
    for first, in_show in zip(*found, strict=False):
        size = re.match(
            r"(?:give it )?([\d.][\w. ]+?(?:, [\d.]+ [GM]B)?)(?: of memory| would)?[ ,]", first
        )
        assert plain(first) == plain(in_show) or (size and size[1] in in_show)
