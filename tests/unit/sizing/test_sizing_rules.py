"""The one table of sizing rules: each row decides in an example, each thing that a row asks of an
account is said by one, and what ``recommend`` says of a family is what ``resize`` says, unless an
act needs more.
"""

import ast
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

import profiler
from profiler.core.ecs_terms import EC2, FARGATE
from profiler.record.record_model import CONTAINER_INSIGHTS, Report, Sampling, TaskSize
from profiler.sizing.advice import Advice, advise_on_size
from profiler.sizing.choose_size import SizePolicy
from profiler.sizing.evidence import evidence_of_runs
from profiler.sizing.prices import PriceOverrides
from profiler.sizing.resize_case import ResizeCase
from profiler.sizing.resize_limits import ResizePolicy
from profiler.sizing.size_candidates import ChosenSize, resize_case
from profiler.sizing.sized_revision import (
    FamilyCircumstances,
    SizeBefore,
    SizedRevision,
    TargetOverride,
)
from profiler.sizing.sizing_rules import (
    RULES,
    Precondition,
    Rule,
    advice_verdict,
    is_decided_by_others,
)
from profiler.sizing.window_advice import WindowAdvice
from tests.fakes import START_NS
from tests.family_windows import NOWHERE, window_of
from tests.runs import report, reported_facts
from tests.values import present

OLD, NEW = TaskSize(vcpu=1, memory_mb=2048), TaskSize(vcpu=0.25, memory_mb=512)
LARGEST = TaskSize(vcpu=32, memory_mb=249_856)
FIRST = SizedRevision(revision="1", size=OLD)
SMALL = SizedRevision(revision="1", size=NEW)
RESIZED = SizedRevision(revision="2", size=NEW, resized_from=SizeBefore(revision="1", size=OLD))
KILLED: dict[str, Any] = {"likely_out_of_memory": True, "status": "failure", "exit_code": 137}
FAILED: dict[str, Any] = {"status": "failure", "exit_code": 1}

ADVISING = [rule for rule in RULES if isinstance(rule, Rule) and rule.verdict is not None]


def runs(
    count: int, revision: int = 1, *, start: int = 0, size: TaskSize = OLD, **more: Any
) -> list[Report]:
    """Runs of days that follow each other."""
    given: Any = (size.vcpu, size.memory_mb)
    return [
        report(start + number, revision=str(revision), size=given, **more)
        for number in range(count)
    ]


class Example:
    """A family on whose size a row decides."""

    def __init__(
        self,
        reports: Iterable[Report],
        revision: SizedRevision = FIRST,
        circumstances: FamilyCircumstances = NOWHERE,
        *,
        contradicted: int = 0,
        **policy: Any,
    ) -> None:
        self.reports = list(reports)
        self._revision = revision
        self._circumstances = circumstances
        self._contradicted = contradicted
        self._policy = policy

    @cached_property
    def case(self) -> ResizeCase:
        launch_type = EC2 if self._circumstances.is_job else FARGATE
        window = window_of(self.reports, launch_type=launch_type)
        window.contradicted = self._contradicted
        advised = WindowAdvice(window, ResizePolicy(**self._policy), PriceOverrides())
        return resize_case(advised, self._revision, self._circumstances)

    @property
    def act(self) -> Precondition | Rule:
        """The row by which ``resize`` decides."""
        return next(rule for rule in RULES if rule.reason_to_act(self.case) is not None)

    @property
    def advice(self) -> Advice:
        """``recommend``'s."""
        facts = [reported_facts(made) for made in self.reports]
        evidence = evidence_of_runs(facts[-1].family, facts)
        return advise_on_size(present(evidence), SizePolicy(), PriceOverrides())

    @property
    def advising(self) -> Rule:
        """The row by which ``recommend`` decides."""
        advice = self.advice
        return next(rule for rule in ADVISING if rule.advice(advice))


def growing(count: int) -> list[Report]:
    """Runs of which each needs more than the last one, and none nearly all."""
    made: list[Report] = []
    for number in range(count):
        made += runs(1, start=number, peak_mb=1200 + 15 * number, p95=0.9)
    return made


NEVER_STARTS = TargetOverride(target="the rule night", memory_mb=2048, least_memory_mb=3000)
LIMIT = "a run was killed at the limit of 450 MiB of the container 'batch'"
BY_MINUTE: dict[str, Any] = {
    "status": "unknown",
    "sampling": Sampling(interval_ms=60_000, samples=20, sources=(CONTAINER_INSIGHTS,)),
    "metrics": {"duration_ms": 1_200_000, "memory_peak_source": None},
}
AT_NEW: dict[str, Any] = {"start": 30, "size": NEW}
KILL_AT_NEW = runs(1, 2, **AT_NEW, **KILLED)
JOB: dict[str, Any] = {"launch_type": "EC2", "cluster": "AWSBatch-spot-1"}
LARGE = SizedRevision(revision="1", size=TaskSize(vcpu=4, memory_mb=7000))
ON_INSTANCES = runs(30, size=present(LARGE.size), **JOB)
ACTS: Mapping[str, Example] = {
    "_why_windows_is_left": Example(
        runs(30), FIRST, FamilyCircumstances(operating_system="WINDOWS_SERVER_2022")
    ),
    "_why_switched_off": Example(
        runs(30), FIRST, FamilyCircumstances(off_tag="task-profiler:resize")
    ),
    "_why_service_is_left": Example(runs(30), FIRST, FamilyCircumstances(is_service=True)),
    "_why_left_to_others": Example(runs(30), FIRST, FamilyCircumstances(left_to="it is on EKS")),
    "_why_stack_owns_it": Example(runs(30), FIRST, FamilyCircumstances(stack="jobs")),
    "_why_runs_are_missing": Example(
        runs(30), FIRST, FamilyCircumstances(missing_runs="half are missing")
    ),
    "_why_account_contradicts": Example(runs(30), contradicted=1),
    "_why_not_on_fargate": Example(runs(30, launch_type="EC2")),
    "_why_left_fargate": Example([*runs(20), *runs(10, start=20, launch_type="EC2")]),
    "_why_old_revision_stays": Example(
        runs(30, start=1), SizedRevision(revision="2", size=OLD, registered_ns=START_NS)
    ),
    "_why_no_run": Example(runs(30), SizedRevision(revision="2", size=OLD)),
    "_why_size_is_overridden": Example(
        [*ON_INSTANCES, *runs(40, start=30, **JOB)], LARGE, FamilyCircumstances(is_job=True)
    ),
    "_why_size_has_no_effect": Example(runs(30), SMALL),
    "_why_not_measured": Example(runs(30, peak_mb=None, p95=None)),
    "_why_insights_is_not_enough": Example(runs(30, **BY_MINUTE)),
    "_why_new_size_is_too_small": Example([*runs(30), *KILL_AT_NEW], RESIZED),
    "_why_too_few_successes": Example([*runs(30), *runs(3, 2, **AT_NEW)], RESIZED),
    "_why_change_was_withdrawn": Example(
        runs(30), SizedRevision(revision="1", size=OLD, withdrawn="nightly:2")
    ),
    "_why_change_was_overwritten": Example(
        runs(30), SizedRevision(revision="1", size=OLD, overwritten=NEW)
    ),
    "_why_reverted_recently": Example(
        [*runs(30), *runs(20, 3, start=31)],
        SizedRevision(revision="3", size=OLD, reverted_from=SizeBefore(revision="2", size=NEW)),
    ),
    "_risk_reason": Example(runs(30, size=NEW, peak_mb=500), SMALL),
    "_killed_at_limit_reason": Example(
        runs(19, size=NEW, peak_mb=440),
        SizedRevision(revision="1", size=NEW, killed_limit=LIMIT),
    ),
    "_killed_at_largest_reason": Example(
        [*runs(30, size=LARGEST), *runs(1, start=30, size=LARGEST, **KILLED)],
        SizedRevision(revision="1", size=LARGEST),
    ),
    "_why_larger_is_refused": Example(
        runs(30, peak_mb=2000),
        FIRST,
        FamilyCircumstances(overrides=(NEVER_STARTS,)),
    ),
    "_why_change_went_badly": Example(
        [*runs(30, size=NEW, peak_mb=300), *runs(10, 2, start=30, peak_mb=1950, **FAILED)],
        SizedRevision(revision="2", size=OLD, resized_from=SizeBefore(revision="1", size=NEW)),
        min_saving_percent=100,
    ),
    "_asks_for_less_reason": Example(ON_INSTANCES, LARGE, FamilyCircumstances(is_job=True)),
    "_saving_of_smaller_reason": Example(runs(30)),
    "_limit_too_small_reason": Example(
        runs(30, peak_mb=1700, p95=0.9), SizedRevision(revision="1", size=OLD, killed_limit=LIMIT)
    ),
    "_change_went_well_reason": Example([*runs(30), *runs(10, 2, **AT_NEW)], RESIZED),
    "_why_too_few_runs": Example(runs(19)),
    "_why_no_success": Example(runs(30, **FAILED)),
    "_why_too_small_soon": Example(growing(30)),
    "_fits_reason": Example(runs(30, peak_mb=1700, p95=0.9)),
    "_why_too_few_days": Example(runs(9), min_runs=5),
    "_why_smaller_is_refused": Example(
        runs(30), FIRST, FamilyCircumstances(overrides=(NEVER_STARTS,))
    ),
    "_why_size_failed_before": Example(
        runs(90, 3, start=31),
        SizedRevision(
            revision="3",
            size=OLD,
            reverted_from=SizeBefore(revision="2", size=NEW),
            registered_ns=START_NS,
        ),
    ),
    "_why_saving_is_small": Example(runs(30), min_saving_percent=80),
}
ADVICE: Mapping[str, Example] = {
    "_risk_reason": ACTS["_risk_reason"],
    "_beyond_fargate_reason": Example(runs(10, size=LARGEST, peak_mb=222_000)),
    "_growth_reason": ACTS["_why_too_small_soon"],
    "_reserves_too_much_reason": ACTS["_why_not_on_fargate"],
    "_saving_reason": ACTS["_saving_of_smaller_reason"],
    "_why_no_success": ACTS["_why_no_success"],
    "_why_size_is_unknown": Example([report(number, size=None) for number in range(30)]),
    "_fits_or_is_safer_reason": ACTS["_fits_reason"],
}


def name_of(function: Callable[..., object] | None) -> str:
    return getattr(function, "__name__", "")


def reason_of(rule: Precondition | Rule) -> Callable[..., str | None] | None:
    """Why a row acts: its own reason, or that of its advice."""
    if isinstance(rule, Rule) and rule.reason is None:
        return rule.advice
    return rule.reason


def test_each_row_that_acts_decides_in_an_example() -> None:
    names = [name_of(reason_of(rule)) for rule in RULES if rule.action is not None]
    assert names == list(dict.fromkeys(names))
    assert set(names) == set(ACTS)
    found = {}
    for name, example in ACTS.items():
        act = example.act
        found[name] = name_of(reason_of(act))
    assert found == {name: name for name in ACTS}


def test_only_a_row_about_others_leaves_the_schedules_alone_too() -> None:
    """Also where a later row decides, because it allows a revert."""
    for name, example in ACTS.items():
        act = example.act
        of_others = isinstance(act, Precondition) and act.is_decided_by_others
        assert is_decided_by_others(example.case) == of_others, name
    owned = Example([*runs(30), *KILL_AT_NEW], RESIZED, FamilyCircumstances(stack="jobs"))
    assert is_decided_by_others(owned.case)


def test_each_row_that_advises_decides_in_an_example() -> None:
    names = [name_of(rule.advice) for rule in ADVISING]
    assert set(names) == set(ADVICE)
    assert {name: name_of(example.advising.advice) for name, example in ADVICE.items()} == {
        name: name for name in ADVICE
    }


def test_a_row_acts_or_advises() -> None:
    for rule in RULES:
        if isinstance(rule, Precondition):
            continue
        assert (name_of(rule.advice) == "_no_advice") == (rule.verdict is None)
        assert rule.action is not None or rule.verdict is not None


@pytest.mark.parametrize("kind", [FamilyCircumstances, SizedRevision])
def test_what_a_row_asks_of_an_account_is_said_by_one(
    kind: type[FamilyCircumstances | SizedRevision],
) -> None:
    """A field that nothing sets is a row that never applies."""
    given = set[str]()
    for path in (Path(profiler.__file__).parent / "aws_account").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                given |= {keyword.arg or "" for keyword in node.keywords}
    assert set(kind.__struct_fields__) <= given


def test_resize_contradicts_no_advice_on_the_same_runs() -> None:
    for name, example in ACTS.items():
        action = example.act.action
        if action != "resize" or example.case.revision.killed_limit:
            continue
        verdicts = {"_risk_reason": "too small", "_asks_for_less_reason": "less is enough"}
        assert advice_verdict(example.advice) == verdicts.get(name, "saves"), name


def test_a_job_on_ec2_is_not_changed_for_little_that_becomes_free() -> None:
    """A reservation has no price, so what other jobs get decides."""
    job = FamilyCircumstances(is_job=True)
    little = Example(ON_INSTANCES, LARGE, job, min_saving_percent=95)
    assert name_of(reason_of(little.act)) == "_why_saving_is_small"
    said = "the recommended size asks for only 94 % less"
    assert little.act.reason_to_act(little.case) == said
    enough = Example(ON_INSTANCES, LARGE, job, min_saving_percent=90)
    assert enough.act.action == "resize"


def test_who_withdrew_a_size_sees_the_one_that_would_be_better() -> None:
    withdrawn = ACTS["_why_change_was_withdrawn"]
    shown = present(withdrawn.act.new_size(withdrawn.case))
    assert isinstance(shown, ChosenSize)
    assert shown.size == NEW
    revision = SizedRevision(revision="1", size=OLD, withdrawn="nightly:2")
    killed = Example([*runs(30), *runs(1, start=30, **KILLED)], revision)
    larger = present(killed.act.new_size(killed.case))
    assert isinstance(larger, ChosenSize)
    assert (larger.size.memory_mb or 0) > 2048
