"""One advice for one family: ``recommend``, ``resize``'s plan, ``show``, the page, Slack and the
documents give the same size and the same word.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec import Struct

from profiler.cli.recommend_command import _family_rows
from profiler.cli.styled_text import Span
from profiler.forwarder.document_fields import record_fields
from profiler.record.family_identity import family_labels
from profiler.record.record_model import NO_RECOMMENDATION, Gpu, Record, Report, Sampling, TaskSize
from profiler.report_page.page_data import family_size_rows
from profiler.sizing.advice import Advice, advise_on_size, with_recommendation
from profiler.sizing.advice_document import advice_as_json
from profiler.sizing.choose_size import SizePolicy
from profiler.sizing.evidence import Evidence
from profiler.sizing.prices import PriceOverrides
from profiler.sizing.size_summary import size_story
from profiler.sizing.sized_revision import SizedRevision
from profiler.sizing.sizing_rules import AdviceVerdict, advice_verdict
from tests.cases import each_case
from tests.ended_runs import NOTICE, changed, report_line, text_of
from tests.family_windows import decision_on, window_of
from tests.runs import evidence_of, report, reported_story

GB = 1024
RUNS = 30
NONE = PriceOverrides()
KILLED: Mapping[str, Any] = {
    "status": "failure",
    "exit_code": 137,
    "likely_out_of_memory": True,
}
EC2: Mapping[str, Any] = {"launch_type": "EC2"}
# Peaks of which it is not known how far they are exceeded, so that the margin is 20 %.
NEEDS: Mapping[str, Any] = {"peak_mb": 700, "p95": 0.4, "sampling": Sampling(samples=59)}


LESS: Mapping[str, Any] = {"verdict": "less is enough", "word": "less is enough"}


class Case(Struct, frozen=True, kw_only=True):
    """Equal runs, and what every output says: the recommended size, None for none, and a word."""

    runs: Mapping[str, Any]
    size: tuple[float, float] | None
    verdict: AdviceVerdict
    word: str = ""

    @property
    def reports(self) -> list[Report]:
        return [report(number, **self.runs) for number in range(RUNS)]

    @property
    def evidence(self) -> Evidence:
        return evidence_of(self.reports)

    @property
    def advice(self) -> Advice:
        return advise_on_size(self.evidence, SizePolicy(), NONE)

    @property
    def task_size(self) -> TaskSize:
        if self.size is None:
            return TaskSize()
        return TaskSize(vcpu=self.size[0], memory_mb=self.size[1])

    @property
    def recommended(self) -> Mapping[str, float] | None:
        if self.size is None:
            return None
        return {"vcpu": self.size[0], "memoryMB": self.size[1]}

    @property
    def record(self) -> Record:
        """The newest run's record, as the monitor writes it."""
        newest = self.reports[-1]
        return with_recommendation(newest.record, NONE, time=newest.time)


def waste(**place: Any) -> dict[str, Any]:
    return {**NEEDS, "size": (4, 16 * GB), **place}


CASES: Mapping[str, Case] = {
    "EC2, too much reserved": Case(runs=waste(**EC2), size=(0.5, 896), **LESS),
    "external, too much reserved": Case(
        runs=waste(launch_type="EXTERNAL"), size=(0.5, 896), **LESS
    ),
    "Managed Instances, too much reserved": Case(
        runs=waste(launch_type="MANAGED_INSTANCES"), size=(0.5, 896), **LESS
    ),
    "EC2 with a GPU, too much reserved": Case(
        runs=waste(**EC2, gpus=(Gpu(uuid="GPU-1"),)), size=(0.5, 896), **LESS
    ),
    "EC2, one part too large": Case(
        runs={**NEEDS, **EC2, "size": (0.5, 16 * GB)}, size=(0.5, 896), **LESS
    ),
    "EC2, right": Case(runs={**NEEDS, **EC2, "size": (0.5, 896)}, size=(0.5, 896), verdict="fits"),
    "EC2, less than a tenth too much": Case(
        runs={**NEEDS, **EC2, "size": (0.5, 960)}, size=(0.5, 960), verdict="fits"
    ),
    "EC2, too small": Case(
        runs={**NEEDS, **EC2, "size": (4, 768)}, size=(4, 896), verdict="too small"
    ),
    "EC2, killed": Case(
        runs={**NEEDS, **EC2, **KILLED, "size": (4, 768)}, size=(4, 896), verdict="too small"
    ),
    "EC2, only failures": Case(
        runs=waste(**EC2, status="failure", exit_code=1), size=(4, 16 * GB), verdict="not known"
    ),
    "Fargate, too large": Case(runs=waste(), size=(0.5, GB), verdict="saves"),
    "Fargate, without room for the margin": Case(
        runs={**NEEDS, "peak_mb": 1750, "size": (0.5, 2 * GB)},
        size=(0.5, 3 * GB),
        verdict="fits",
        word="more is safer",
    ),
    "Fargate, only failures": Case(
        runs=waste(status="failure", exit_code=1), size=(4, 16 * GB), verdict="not known"
    ),
    "Fargate, killed at its largest size": Case(
        runs={**KILLED, "p95": 20, "peak_mb": 244 * GB, "size": (32, 244 * GB)},
        size=None,
        verdict="too small",
    ),
}
every_case = each_case("case", CASES.values(), ids=CASES)
with_a_word = pytest.mark.parametrize(
    "case",
    [case for case in CASES.values() if case.word],
    ids=[name for name, case in CASES.items() if case.word],
)
reserved_too_much = pytest.mark.parametrize(
    "case",
    [case for case in CASES.values() if case.verdict == "less is enough"],
    ids=[name for name, case in CASES.items() if case.verdict == "less is enough"],
)


def shown_texts(case: Case) -> str:
    return "\n".join(size_story(case.advice, reported_story(case.record).usage).advice)


def page_row(case: Case) -> dict[str, Any]:
    (row,) = family_size_rows([case.evidence], family_labels([case.evidence.family]), NONE)
    return row


def slack_text(case: Case) -> str:
    return text_of(changed(NOTICE, report_line=report_line(case.record)))


def size_text(case: Case) -> str:
    memory_mb = case.task_size.memory_mb or 0
    memory = f"{memory_mb / GB:g} GB" if memory_mb >= GB else f"{memory_mb:g} MB"
    return f"{case.task_size.vcpu:g} vCPU, {memory}"


@every_case
def test_recommend_gives_the_size(case: Case) -> None:
    assert advice_as_json(case.advice)["recommended"] == case.recommended


@every_case
def test_recommend_gives_the_word(case: Case) -> None:
    assert advice_verdict(case.advice) == case.verdict


@every_case
def test_the_record_has_the_size(case: Case) -> None:
    found = case.record.recommendation
    assert TaskSize(vcpu=found.vcpu, memory_mb=found.memory_mb) == case.task_size


@every_case
def test_a_document_has_the_size(case: Case) -> None:
    fields = record_fields(case.record, "task_profiler.report", datetime(2026, 3, 1, tzinfo=UTC))
    found = fields.get("recommendation", {})
    expected = {"vcpu": case.task_size.vcpu, "memory_mb": case.task_size.memory_mb}
    assert {name: found.get(name) for name in expected} == expected


@every_case
def test_the_page_has_the_size(case: Case) -> None:
    assert page_row(case)["recommended"] == (case.recommended or {})


@every_case
def test_the_page_says_fits_only_where_recommend_does(case: Case) -> None:
    assert page_row(case)["fits"] is (case.verdict in ("fits", "not known") and not case.word)


@every_case
def test_show_gives_the_size(case: Case) -> None:
    if case.size is None:
        assert shown_texts(case).startswith("With 244 GB a run ran out of memory")
    else:
        assert size_text(case) in shown_texts(case)


@every_case
def test_slack_gives_the_size_that_differs(case: Case) -> None:
    if case.task_size in (TaskSize(), case.record.task_size):
        assert "Recommended size" not in slack_text(case)
    else:
        assert f"Recommended size: {size_text(case)}" in slack_text(case)


@every_case
def test_the_plan_of_resize_has_the_size_outside_fargate(case: Case) -> None:
    size = case.evidence.task_size
    found = decision_on(window_of(case.reports), SizedRevision(revision=None, size=size))
    if case.runs.get("launch_type") is not None:
        assert found.action == "none"
        assert found.size == (None if size == case.task_size else case.task_size)


@reserved_too_much
def test_the_word_is_in_the_plan_of_resize(case: Case) -> None:
    found = decision_on(
        window_of(case.reports), SizedRevision(revision=None, size=case.evidence.task_size)
    )
    assert found.reason.endswith(": less is enough")


@with_a_word
def test_the_word_is_in_show(case: Case) -> None:
    assert shown_texts(case).startswith(f"{size_text(case)}: {case.word} (based on 30 runs)")


@every_case
def test_the_word_is_in_the_row_of_the_page(case: Case) -> None:
    assert page_row(case).get("word", "") == case.word


@with_a_word
def test_the_word_is_in_the_row_of_recommend(case: Case) -> None:
    texts = [
        str(cell.text if isinstance(cell, Span) else cell)
        for cell in next(_family_rows([case.advice], ()))
    ]
    assert texts[-2] == case.word


@reserved_too_much
def test_the_word_is_in_the_reasons_of_record_page_and_slack(case: Case) -> None:
    reserved = "Less is enough than the reserved "
    assert case.record.recommendation != NO_RECOMMENDATION
    assert any(reason.startswith(reserved) for reason in case.record.recommendation.reasons)
    assert any(reason.startswith(reserved) for reason in page_row(case)["reasons"])
    assert f"• {reserved}" in slack_text(case)


@reserved_too_much
def test_the_page_has_a_change_without_a_command(case: Case) -> None:
    assert page_row(case)["changes"] is True
    assert "resize" not in page_row(case)


@reserved_too_much
def test_slack_has_no_command_that_would_do_nothing(case: Case) -> None:
    assert "taskdef resize" not in slack_text(case)


def test_slack_has_the_command_on_fargate() -> None:
    assert "taskdef resize" in slack_text(CASES["Fargate, too large"])


def test_the_plan_says_why_there_is_no_size_after_a_kill_at_the_largest() -> None:
    case = CASES["Fargate, killed at its largest size"]
    found = decision_on(
        window_of(case.reports), SizedRevision(revision=None, size=case.evidence.task_size)
    )
    assert found.action == "none"
    assert found.size is None
    assert found.reason == (
        "a run was killed at Fargate's largest memory: split its work, or run it on EC2"
    )


def test_a_local_run_has_no_reservation_to_compare_with() -> None:
    local = report(0, **NEEDS, size=None, launch_type="LOCAL")
    advice = advise_on_size(evidence_of([local]), SizePolicy(), NONE)
    assert advice_verdict(advice) == "without a size"
    assert advice.choice.size == TaskSize(vcpu=0.5, memory_mb=896)
    assert not any(reason.startswith("Less is enough") for reason in advice.reasons)
