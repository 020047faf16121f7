"""One saving, one amount: ``recommend``, the report page, ``resize``, its JSON, the morning message
and the dashboards say it with the same digits and the same mark.
"""

import json
import re
from collections.abc import Callable, Mapping
from functools import partial

import pytest
from msgspec.structs import replace

from kibana.cost_drawings import SAVINGS
from kibana.vega_parts import usd_a_month_text
from profiler.aws_account.planned_family import PlannedFamily, planned_size_decisions
from profiler.cli.recommend_command import _recommendation_lines
from profiler.cli.resize_rows import _family_document, print_plan
from profiler.forwarder.document_updates import Document, with_runs_per_month
from profiler.forwarder.function_settings import ForwarderSettings
from profiler.forwarder.morning_digest import DigestPlace, NightSaving, _cheaper_sizes_line
from profiler.forwarder.run_documents import report_document
from profiler.record.record_model import Cost, Report, TaskSize, encode
from profiler.record.units import format_usd_a_month
from profiler.report_page.page_data import family_size_rows
from profiler.sizing.advice import advise_on_size, with_recommendation
from profiler.sizing.choose_size import SizePolicy
from profiler.sizing.prices import PriceOverrides
from profiler.sizing.resize_limits import ResizeDecision
from profiler.sizing.sized_revision import SizedRevision
from tests import screens
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

    if not mark:
        assert drawn_on_dashboard(reports[-1], evidence.usage.runs_per_month) == amount


def drawn_on_dashboard(newest: Report, runs_per_month: float | None) -> str:
    """The text of the saving by the document of the newest run. It has the record's own share, of
    three digits, so that a large amount is near the others alone.
    """
    record = with_recommendation(newest.record, None, time=newest.time)
    text = encode(replace(newest, record=record)).decode()
    made = report_document(replace(newest, record=record), text, ForwarderSettings())
    assert isinstance(made, Document)
    fields = with_runs_per_month(made, present(runs_per_month)).fields
    drawing = json.dumps(SAVINGS.spec)
    assert "datum.run.recommendation.saving_usd_per_month" in drawing
    # Beside the bar, and in the tooltip: an estimate, because single runs recommended it.
    assert drawing.count(json.dumps(f" : '≈ ') + {usd_a_month_text('datum.usd')}")[1:-1]) == 2
    return format_usd_a_month(fields["recommendation"]["saving_usd_per_month"])


def test_the_cost_of_a_run_has_the_same_digits_and_mark_on_each_screen() -> None:
    """The notice, the morning message, ``compare`` and the others; for ``compare --json`` and the
    documents, see ``test_one_run.py``.
    """
    for cost, amount in (
        (Cost(usd=845.0769, price_basis="list price"), "$845.08"),
        (Cost(usd=0.067_512, price_basis="list price"), "$0.068"),
        (replace(SPOT, usd=645.5), "≥ $645.50"),
    ):
        made = replace(report(0), record=replace(report(0).record, cost=cost))
        for name, draw in screens.SCREENS.items():
            if name in ("show", "page", "slack", "event", "mail", "teams", "compare", "morning"):
                shown = draw(made).replace("\xa0", " ").replace("at least ", "≥ ")
                assert amount in shown, name
