"""The data of the report page, below 8 MB: details and time series are left out first, then the
oldest runs.
"""

from bisect import bisect_right
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import Struct

from profiler.core.commands_to_copy import NameArgument, command_line
from profiler.core.ecs_terms import cluster_name
from profiler.core.optional_math import known, known_members
from profiler.core.timestamps import parse_ns
from profiler.record.fact_list import NUMBERS
from profiler.record.family_identity import FamilyKey, family_key, family_labels
from profiler.record.family_statistics import MonthlyTasks
from profiler.record.mention_limits import NEAR_LIMIT_SHARE
from profiler.record.notice_model import ScheduleNoticeLine
from profiler.record.record_model import Record, Report
from profiler.record.sparkline import LEAST_MB, LEAST_VCPU, MIN_SHARE_OF_LIMIT
from profiler.record.task_needs import is_job
from profiler.record.usual_numbers import EarlierNumbers, UsualOf
from profiler.report_page.older_runs import OlderRuns
from profiler.report_page.page_activity import CallStacksOf, activity_texts
from profiler.report_page.page_changes import duration_changes
from profiler.report_page.page_night import night_of_page
from profiler.report_page.page_rows import PageNight, PageNotice, PageRun
from profiler.report_page.page_run import (
    family_text,
    page_run,
    priced_run,
    run_details,
    whole_ms,
)
from profiler.report_page.page_series import (
    Run,
    compressed_base64,
    finite_or_none,
    series_columns,
    to_json,
)
from profiler.runs.past_runs.family_evidence import evidence_of_past_runs
from profiler.runs.past_runs.schedule_notices import due_ns_of_notice, family_of_notice
from profiler.runs.past_runs.stack_functions import MIN_SAMPLES
from profiler.sizing.advice import advise_on_size
from profiler.sizing.advice_document import advice_as_json
from profiler.sizing.choose_size import SizePolicy
from profiler.sizing.evidence import Evidence
from profiler.sizing.prices import PriceOverrides
from profiler.sizing.sizing_rules import advice_verdict, size_words_without_saving

# The plotly library, the page's own scripts and its styles take another 1.5 MB.
MAX_BYTES = 6_200_000
_SCALE = {
    "drawnLimit": MIN_SHARE_OF_LIMIT,
    "nearLimit": NEAR_LIMIT_SHARE,
    "vcpu": LEAST_VCPU,
    "mb": LEAST_MB,
    "minSamples": MIN_SAMPLES,
}
# The numbers of the run view: name, field, unit, and whether two runs are compared by it.
_NUMBERS = [
    (row.name, row.page_field, row.unit, row.compared_on_page) for row in NUMBERS if row.page_field
]
_CONSTANTS = {"scale": _SCALE, "numbers": _NUMBERS}
# The successes that show what is usual, as for ``show``.
_MAX_EARLIER = 50
# The counts of omitted items, and names.
_END_BYTES = 200


class PageData(Struct, frozen=True, kw_only=True):
    """The texts, the number of runs in them, and how many of these lack details such as labels
    and processes.
    """

    text: str
    series: str
    activity: str
    runs: int
    without_details: int


def _no_call_stacks(_report: Report) -> None:
    return None


class PageRequest(Struct, frozen=True, kw_only=True):
    """What the page is made from beside the runs.

    ``only_one``: the other runs are for comparison. ``evidence`` is the families' for their sizes;
    None: the runs'. ``months`` are estimates for families whose runs do not show a month.
    ``notices`` are the newest first. ``max_bytes`` limits all texts together.
    """

    generated_at: str
    version: str
    only_one: bool = False
    price_overrides: PriceOverrides = PriceOverrides()
    on_fargate: str | None = None
    evidence: Sequence[Evidence | None] | None = None
    months: Mapping[FamilyKey, MonthlyTasks] = {}
    stacks_of: CallStacksOf = _no_call_stacks
    notices: Sequence[ScheduleNoticeLine] = ()
    max_bytes: int = MAX_BYTES


def build_page_data(
    runs: Sequence[Run], request: PageRequest, older: OlderRuns | None = None
) -> PageData:
    """Build the data of the page; the newest runs are first. ``older`` are the runs after
    ``runs``, which have no details.
    """
    older = older or OlderRuns(request.max_bytes)
    now_ns = parse_ns(request.generated_at) or 0
    keys = [family_key(run.record) for run in runs]
    labels = family_labels([*keys, *set(older.keys), *map(family_of_notice, request.notices)])
    runs = [priced_run(run, request.price_overrides, request.on_fargate) for run in runs]
    page_runs = []
    for run, key in zip(runs, keys, strict=True):
        page_runs.append(page_run(run, family_text(labels[key], counts=run.past.counts)))
    start = _json_before_runs(
        runs, [*page_runs, *older.rows_of_night(labels)], request, labels, older
    )
    room = request.max_bytes - _END_BYTES - len(compressed_base64(start))
    texts = [to_json(run.as_json()) for run in page_runs]
    texts += older.json_rows(labels)
    rows, room = texts_that_fit(texts, room, at_least=1)
    shown = runs[: len(rows)]
    # The time series get the other half of the space that the runs leave.
    usual_before = _usual_before(runs, keys)
    details, _ = first_that_fit(
        (run_details(run, now_ns, usual_before(row)).as_json() for row, run in enumerate(shown)),
        room,
        share=0.5,
    )
    all_runs = len(runs) + older.count
    left_out = to_json({"runs": all_runs - len(rows), "details": len(rows) - len(details)})
    text = compressed_base64(
        f'{start},"runs":{json_array(rows)},"details":{json_array(details, len(rows))},'
        f'"leftOut":{left_out}}}'
    )
    series = (series_columns(run.steps) or None for run in shown)
    columns, _ = first_that_fit(series, request.max_bytes - len(text) - _END_BYTES)
    packed = compressed_base64(json_array(columns, len(rows)))
    opened = [run.past.report for run in shown]
    if request.only_one:
        opened = opened[:1]
    room = request.max_bytes - len(text) - len(packed)
    return PageData(
        text=text,
        series=packed,
        activity=activity_texts(opened, request.stacks_of, room),
        runs=len(rows),
        without_details=len(rows) - len(details),
    )


def _json_before_runs(
    runs: Sequence[Run],
    page_runs: Sequence[PageRun],
    request: PageRequest,
    labels: Mapping[FamilyKey, str],
    older: OlderRuns,
) -> str:
    """The page's JSON before the runs, without the closing brace."""
    notices = _notice_rows(request.notices, labels)
    night = None
    if not request.only_one:
        decided = {run.record.task_id for run in runs if run.past.has_end_of_event}
        left_out = {
            row
            for row, run in enumerate(runs)
            if not run.past.counts
            # The end of the task is the batch's.
            or (run.record.task_id in decided and not run.past.has_end_of_event)
        }
        left_out.update(len(runs) + row for row in older.left_out)
        night = night_of_page(
            page_runs,
            notices,
            parse_ns(request.generated_at) or 0,
            left_out=left_out,
            are_others_local=older.are_local,
        )
    evidence: Iterable[Evidence | None] | None = request.evidence
    if evidence is None:
        evidence = evidence_of_past_runs((run.past for run in runs), request.on_fargate)
    document = {
        **_CONSTANTS,
        "version": request.version,
        "generatedAt": request.generated_at,
        "onlyOne": request.only_one,
        "onFargate": request.on_fargate,
        "sizing": [*family_size_rows(evidence, labels, request.price_overrides, request.months)],
        "changes": {} if request.only_one else duration_changes(page_runs),
        "notices": [notice.as_json() for notice in notices],
        "lastNight": known(PageNight.as_json, night),
    }
    return to_json(document).removesuffix("}")


def _usual_before(runs: Sequence[Run], keys: Sequence[FamilyKey]) -> Callable[[int], UsualOf]:
    """What is usual by the newest successes of the same family before the run in a row; the newest
    run is first.
    """
    rows_of: dict[FamilyKey, list[int]] = {}
    records_of: dict[FamilyKey, list[Record]] = {}
    for row, run in enumerate(runs):
        if run.past.outcome.cause == "success" and run.past.counts:
            rows_of.setdefault(keys[row], []).append(row)
            records_of.setdefault(keys[row], []).append(run.record)
    numbers_of = {key: EarlierNumbers(records) for key, records in records_of.items()}
    without_successes = EarlierNumbers(())

    def usual_before(row: int) -> UsualOf:
        first = bisect_right(rows_of.get(keys[row], ()), row)
        numbers = numbers_of.get(keys[row], without_successes)
        return partial(numbers.usual_number, first=first, most=_MAX_EARLIER)

    return usual_before


def _due_time_key(line: ScheduleNoticeLine) -> tuple[object, ...]:
    return (
        line.schedule,
        line.account_id,
        line.region,
        line.cluster,
        line.family,
        line.notice.due_at,
    )


def _notice_rows(
    notices: Sequence[ScheduleNoticeLine], labels: Mapping[FamilyKey, str]
) -> list[PageNotice]:
    late = set()
    for line in notices:
        if line.notice.kind == "late":
            late.add(_due_time_key(line))
    return [_notice_row(line, labels[family_of_notice(line)], late) for line in notices]


def _notice_row(line: ScheduleNoticeLine, family: str, late: Container[object]) -> PageNotice:
    return PageNotice(
        family=family,
        account=line.account_id,
        region=line.region,
        cluster=cluster_name(line.cluster),
        outcome=line.notice.kind,
        began=known(whole_ms, due_ns_of_notice(line)),
        came_late=(line.notice.kind == "missed" and _due_time_key(line) in late) or None,
        text=line.notice.message,
    )


def family_size_rows(
    evidences: Iterable[Evidence | None],
    labels: Mapping[FamilyKey, str],
    price_overrides: PriceOverrides,
    months: Mapping[FamilyKey, MonthlyTasks] | None = None,
) -> Iterator[dict[str, Any]]:
    """The object of ``recommend --json`` for each family, and what the page says of it; the most
    runs first. Amounts are not rounded, so that their sum is that of ``recommend``.
    """
    months = months or {}
    measured = [*filter(None, evidences)]
    measured.sort(key=lambda evidence: (-evidence.outcomes.runs, evidence.family.sort_key))
    for evidence in measured:
        advice = advise_on_size(
            evidence, SizePolicy(), price_overrides, month=months.get(evidence.family)
        )
        choice = advice.choice
        advised = advice_as_json(advice)
        sizes = []
        for size, option in zip(advised["sizes"], choice.options, strict=True):
            sizes.append(size | {"holdsMemory": option.holds_memory})
        resize = None
        family = evidence.family
        is_resized = not evidence.is_moved and not is_job(evidence.latest)
        if choice.is_other_size_better and choice.is_fargate and is_resized:
            resize = command_line(
                "taskdef",
                "resize",
                NameArgument(family.name),
                region=family.region,
                for_others=True,
            )
        yield known_members(
            {
                "current": advised["current"],
                "savingPercent": advised["savingPercent"],
                "savingUsdPerMonth": finite_or_none(advice.saving_usd_per_month),
                "usdPerMonth": finite_or_none(advice.usd_per_month),
                "mark": advice.monthly_amount_mark or None,
                "verdict": advice_verdict(advice),
                "word": size_words_without_saving(advice) or None,
                "reasons": advised["reasons"],
                "recommended": advised["recommended"] or {},
                "family": labels.get(family) or family_labels([family])[family],
                "changes": choice.is_other_size_better,
                "fits": choice.is_current_size_right and not advice.risk_sentence,
                "onlyFailures": not evidence.outcomes.has_success or None,
                "resize": resize,
                "risk": advice.risk_sentence or None,
                "spot": evidence.usage.on_spot or None,
                "runsPerMonth": None if advice.month is None else finite_or_none(advice.month.runs),
                "sizes": sizes,
            }
        )


def first_that_fit(
    values: Iterable[object], room: int, *, share: float = 1, at_least: int = 0
) -> tuple[list[str], int]:
    """The first values as JSON that fit into a share of ``room``, in compressed characters, and
    the room they leave.
    """
    return texts_that_fit(list(map(to_json, values)), room, share=share, at_least=at_least)


def texts_that_fit(
    texts: Sequence[str], room: int, *, share: float = 1, at_least: int = 0
) -> tuple[list[str], int]:
    """The first texts that fit into a share of ``room``, and the room they leave: values that are
    JSON already.
    """

    def length(count: int) -> int:
        return len(compressed_base64(json_array(texts[:count])))

    count = len(texts)
    if length(count) > share * room:
        count = max(
            bisect_right(range(count), share * room, key=length) - 1, min(at_least, count), 0
        )
    return list(texts[:count]), max(room - length(count), 0)


def json_array(texts: Sequence[str], count: int = 0) -> str:
    """The array of JSON texts, filled up with null to ``count`` elements."""
    return f"[{','.join((*texts, *('null',) * (count - len(texts))))}]"
