"""One saving, one amount: ``recommend``, the report page, ``resize``, its JSON and the morning
message say it with the same digits and the same mark.
"""

import re
from collections.abc import Callable, Mapping
from functools import partial

import pytest

from profiler.aws_account.planned_family import PlannedFamily, planned_size_decisions
from profiler.cli.recommend_command import _recommendation_lines
from profiler.cli.resize_rows import _family_document, print_plan
from profiler.forwarder.morning_digest import DigestPlace, NightSaving, _cheaper_sizes_line
from profiler.record.record_model import Cost, Report, TaskSize
from profiler.record.units import format_usd_a_month
from profiler.report_page.page_data import family_size_rows
from profiler.sizing.advice import advise_on_size
from profiler.sizing.choose_size import SizePolicy
from profiler.sizing.prices import PriceOverrides
from profiler.sizing.resize_limits import ResizeDecision
from profiler.sizing.sized_revision import SizedRevision
from tests.family_windows import decision_on, window_of
from tests.runs import evidence_of, report
from tests.terminals import texts
from tests.values import present

RUNS = 30
SIZE = TaskSize(vcpu=16, memory_mb=65_536)
SPOT = Cost(usd=0.002, price_basis="at least, on FARGATE_SPOT: 30% of the on-demand price")


def nightly_runs(**more: object) -> list[Report]:
    size = (SIZE.vcpu, SIZE.memory_mb)
    return [report(number, revision="1", size=size, **more) for number in range(RUNS)]  # type: ignore[arg-type]


# The runs, the mark of their amounts, and what JSON names as a lower bound. By runs of a few days,
# of which amounts are estimates, too, no size is changed.
FAMILIES: Mapping[str, tuple[Callable[[], list[Report]], str, tuple[str, ...]]] = {
    "on demand": (nightly_runs, "", ()),
    "Spot": (partial(nightly_runs, cost=SPOT), "≈ ", ("savingUsdPerMonth",)),
}


def planned(decision: ResizeDecision) -> PlannedFamily:
    return PlannedFamily(family="nightly", action=decision.action, resize=decision)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_saving_has_the_same_digits_and_mark_on_each_screen(
    name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    make, mark, at_least = FAMILIES[name]
    reports = make()
    evidence = evidence_of(reports)
    advice = advise_on_size(evidence, SizePolicy(), PriceOverrides())
    decision = decision_on(window_of(reports), SizedRevision(revision="1", size=SIZE))
    assert decision.action == "resize"
    amount = format_usd_a_month(present(advice.saving_usd_per_month), mark)
    assert amount.startswith(f"{mark}$")

    recommended = "\n".join(texts(_recommendation_lines([advice], [advice], 200, with_sizes=False)))
    assert re.search(rf"(?<!≈ ){re.escape(amount)}\n", recommended)

    (row,) = family_size_rows([evidence], {}, PriceOverrides())
    assert format_usd_a_month(row["savingUsdPerMonth"], row.get("mark", "")) == amount

    plan = [planned(decision)]
    print_plan(plan, plan, hint="")
    printed = capfd.readouterr().out
    assert len(re.findall(rf"(?<!≈ ){re.escape(amount)}\b", printed)) == 2  # and total
    assert ("≈ is an estimate: " in printed) == bool(mark)
    assert [text for text in recommended.splitlines() if text.startswith("≈ is")] == [
        text for text in printed.splitlines() if text.startswith("≈ is")
    ]
    assert set(at_least) <= {*_family_document(plan[0]).at_least}
    assert ("savingUsdPerMonth" in _family_document(plan[0]).at_least) == bool(at_least)

    (change,) = planned_size_decisions(plan)
    saving = NightSaving(
        asked=1,
        families=("nightly",),
        usd_per_month=present(change.saving_usd_per_month),
        mark=change.monthly_amount_mark,
    )
    place = DigestPlace(source="https://search:9200")
    (line,) = _cheaper_sizes_line(["nightly"], saving, place)
    assert f"would save {amount} a month" in line.text
