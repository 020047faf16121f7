"""The evidence for a size recommendation, by family, from any source of past runs."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from profiler.record.units import format_count
from profiler.runs.source import CHECKPOINT, PastRun, RunFilter, RunPlace, RunSource, family_of
from profiler.sizing.evidence import Evidence, Family
from profiler.sizing.requirements import facts_of

_WILDCARDS = frozenset("*?[")


class FamilyEvidence(Struct, frozen=True, kw_only=True):
    """A family and the evidence of its last runs; None if none of them was measured."""

    name: str
    evidence: Evidence | None


class FamilySource(RunPlace, Protocol):
    """A source of past runs that knows the evidence of each family."""

    def families(self, wanted: RunFilter, last: int) -> Sequence[FamilyEvidence]:
        """The families of the matching runs by name, each with the evidence of its ``last`` newest matching runs.

        Raises TaskProfilerError if the source cannot be read.
        """
        ...


class RunFamilies:
    """The families of a source's runs, whose evidence is calculated here."""

    def __init__(self, source: RunSource) -> None:
        self._source = source
        self._unfinished = 0
        self.place = source.place
        self.remedy = source.remedy

    @property
    def notes(self) -> Sequence[str]:
        """The source's notes, and how many runs have no report."""
        unfinished = f"{self.place}: {format_count(self._unfinished, 'run')} with checkpoints but no report left out."
        return (*self._source.notes, *([unfinished] if self._unfinished else ()))

    def families(self, wanted: RunFilter, last: int) -> Sequence[FamilyEvidence]:
        """See FamilySource. Reading stops early if all runs of the only family were read."""
        found: dict[str, Family] = {}
        is_one_family = len(wanted.families) == 1 and not is_pattern(wanted.families[0])
        count, oldest_ns = 0, 0
        for run in self._source.runs(wanted):
            if is_one_family and count >= last and run.started_ns < oldest_ns:
                break
            if run.report.type == CHECKPOINT:
                self._unfinished += 1
                continue
            facts = facts_of(run.report)
            found.setdefault(facts.family, Family(facts.family, last)).add(facts)
            count, oldest_ns = count + 1, run.started_ns if count < last else oldest_ns
        return [FamilyEvidence(name=name, evidence=found[name].evidence()) for name in sorted(found)]


def is_pattern(family: str) -> bool:
    """Whether the name has wildcards."""
    return bool(_WILDCARDS & set(family))


def pattern_of(family: str) -> str:
    """The pattern that matches this family alone: a family's name may have the characters of wildcards."""
    return "".join(f"[{char}]" if char in _WILDCARDS else char for char in family)


def last_success(run: PastRun, source: RunSource) -> PastRun | None:
    """The newest success of the run's family that started before the run."""
    pattern = pattern_of(family_of(run.report))
    wanted = RunFilter(families=(pattern,), statuses=("success",), until_ns=run.started_ns)
    return next(source.runs(wanted), None)
