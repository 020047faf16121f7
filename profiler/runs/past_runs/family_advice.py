"""The recommended size of a run's family, from any source of past runs."""

from profiler.runs.past_runs.family_evidence import evidence_of_family
from profiler.runs.past_runs.past_run import PastRun
from profiler.runs.past_runs.run_source import RunSource
from profiler.sizing.advice import Advice, advise_on_size
from profiler.sizing.choose_size import SizePolicy
from profiler.sizing.prices import PriceOverrides


def find_advice(
    run: PastRun, source: RunSource | None, price_overrides: PriceOverrides
) -> Advice | None:
    """Recommend a size from the family's last 50 runs; without ``source``, from this run.

    None: none was measured.
    """
    evidence = evidence_of_family(run, source)
    if evidence is None:
        return None
    return advise_on_size(evidence, SizePolicy(), price_overrides)
