"""The data of the report page: JSON, compressed by gzip, as base64. The time series are a separate text.

What the processes did is a text for each run, of the newest runs as far as there is room.

The page must stay below 8 MB. If the data does not fit, details of runs and time series are left out first, then
the oldest runs.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from msgspec import Struct

from profiler.core.ecs_terms import cluster_name
from profiler.core.timestamps import NS_PER_MS, parse_ns
from profiler.html_report.limited_gzip import LimitedGzip, to_json
from profiler.html_report.page_activity import StacksOf, activity_texts, no_stacks
from profiler.html_report.page_runs import Run
from profiler.html_report.page_series import digits_of_values, series_columns
from profiler.html_report.page_sizes import size_rows
from profiler.html_report.run_fields import run_details, run_fields, without_none
from profiler.past_runs.schedule_notices import due_ns, family_of_notice
from profiler.record.family_identity import FamilyKey, family_key, family_labels
from profiler.record.notice_model import ScheduleNoticeLine
from profiler.sizing.on_fargate import cost_on_fargate
from profiler.sizing.prices import PriceOverrides

# The plotly library, the page's own scripts and its styles take another 1.7 MB.
MAX_BYTES = 6_300_000
_SIZING_SHARE = 0.1
_NOTICES_SHARE = 0.05
# The time series get the other half of the space that the runs leave.
_DETAILS_SHARE = 0.5
# The counts of what was left out, and names.
_END_BYTES = 200


class PageData(Struct, frozen=True, kw_only=True):
    """The texts, the number of runs in them, and how many of these lack details such as labels and processes."""

    text: str
    series: str
    activity: str
    runs: int
    without_details: int


def build_page_data(
    runs: Sequence[Run],
    *,
    generated_at: str,
    version: str,
    only_one: bool = False,
    price_overrides: PriceOverrides | None = None,
    on_fargate: str | None = None,
    stacks_of: StacksOf = no_stacks,
    notices: Sequence[ScheduleNoticeLine] = (),
    max_bytes: int = MAX_BYTES,
) -> PageData:
    """Build the data of the page.

    Args:
        runs: The runs, newest first.
        generated_at: Time of the page, ISO 8601.
        version: Version of the profiler.
        only_one: Whether the page shows the first run alone; the others are only for comparison.
        price_overrides: Prices from the settings.
        on_fargate: The Region in which runs outside Fargate count as if they had run on Fargate; None: they do not.
        stacks_of: Reads the call stacks of a run.
        notices: Notices about due times of schedules, newest first.
        max_bytes: Limit on the length of all texts.
    """
    now_ns = parse_ns(generated_at) or 0
    overrides = price_overrides or PriceOverrides()
    keys = [family_key(run.record) for run in runs]
    noticed = _families_of(notices, dict.fromkeys(keys))
    labels = family_labels([*keys, *noticed])
    about = {"version": version, "generatedAt": generated_at, "onlyOne": only_one, "onFargate": on_fargate}
    sizing = size_rows(runs[:1] if only_one else runs, labels, overrides, on_fargate)
    fields = (
        run_fields(run, labels[key], cost_on_fargate(run.record, on_fargate, overrides))
        for run, key in zip(runs, keys, strict=True)
    )
    data = LimitedGzip(max_bytes - _END_BYTES)
    data.write(f'{to_json(about)[:-1]},"sizing":')
    data.write_array(sizing, share=_SIZING_SHARE)
    data.write(',"notices":')
    data.write_array(map(_notice_fields, notices, (labels[key] for key in noticed)), share=_NOTICES_SHARE)
    data.write(',"runs":')
    shown = runs[: data.write_array(fields, at_least=1)]
    data.write(',"details":')
    details = data.write_array((run_details(run, now_ns) for run in shown), share=_DETAILS_SHARE, has_gaps=True)
    left_out = {"runs": len(runs) - len(shown), "details": len(shown) - details}
    data.write(f',"leftOut":{to_json(left_out)}}}')
    text = data.finish()
    series = LimitedGzip(max_bytes - len(text))
    digits = digits_of_values(len(shown))
    series.write_array((series_columns(run.steps, digits) or None for run in shown), has_gaps=True)
    packed = series.finish()
    opened = [run.past.report for run in (shown[:1] if only_one else shown)]
    return PageData(
        text=text,
        series=packed,
        activity=activity_texts(opened, stacks_of, max_bytes - len(text) - len(packed)),
        runs=len(shown),
        without_details=len(shown) - details,
    )


def _families_of(notices: Iterable[ScheduleNoticeLine], known: Collection[FamilyKey]) -> list[FamilyKey]:
    """The families of the notices. A run that does not know its account or Region is of the same family."""
    return [_family_among(known, family_of_notice(line)) for line in notices]


def _family_among(known: Collection[FamilyKey], family: FamilyKey) -> FamilyKey:
    wanted = (family.account_id, family.region)
    agreeing = (
        key
        for key in known
        if key.name == family.name
        and all(None in pair or pair[0] == pair[1] for pair in zip(wanted, (key.account_id, key.region), strict=True))
    )
    return family if family in known else next(agreeing, family)


def _notice_fields(line: ScheduleNoticeLine, family: str) -> dict[str, Any]:
    """The fields that select notices have the names of those of runs."""
    at_ns = due_ns(line)
    return without_none(
        {
            "family": family,
            "account": line.account_id,
            "region": line.region,
            "cluster": cluster_name(line.cluster),
            "outcome": line.notice.kind,
            "began": None if at_ns is None else at_ns // NS_PER_MS,
            "text": line.notice.message,
        }
    )
