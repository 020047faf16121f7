"""The data of the page: one JSON text that is safe inside a script element.

The page must stay below 8 MB. If the data does not fit, details of runs and time series are left out first, then
the oldest runs.
"""

from collections.abc import Sequence

from msgspec import Struct

from profiler.core.ecs_terms import FARGATE
from profiler.core.timestamps import parse_ns
from profiler.html_report.packed_runs import pack_runs
from profiler.html_report.packed_series import series_members
from profiler.html_report.page import to_script_json
from profiler.html_report.run_fields import SHARED_TEXTS, run_details, run_fields
from profiler.html_report.runs import Run
from profiler.html_report.size_rows import size_rows
from profiler.record.family import family_key, family_labels
from profiler.record.model import Cost, Record
from profiler.sizing.advice import cost_of
from profiler.sizing.on_fargate import record_on_fargate
from profiler.sizing.prices import PriceOverrides

# The plotly library, the page's own scripts and its styles take another 1.6 MB.
MAX_BYTES = 6_300_000
_SIZING_DIVISOR = 10
# Names and punctuation of the top-level object.
_KEYS_BYTES = 200


class PageData(Struct, frozen=True, kw_only=True):
    """The JSON text, the number of runs in it, and how many of these lack details such as labels and processes."""

    text: str
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
        max_bytes: Limit on the length of the text.
    """
    now_ns = parse_ns(generated_at) or 0
    overrides = price_overrides or PriceOverrides()
    keys = [family_key(run.record) for run in runs]
    labels = family_labels(keys)
    about = {
        "version": version,
        "generatedAt": generated_at,
        "onlyOne": only_one,
        "shared": sorted(SHARED_TEXTS),
        "onFargate": on_fargate,
        "sizing": size_rows(
            runs[:1] if only_one else runs, labels, overrides, max_bytes // _SIZING_DIVISOR, on_fargate
        ),
    }
    fields = [
        {**run_fields(run, labels[key], _cost(run.record, overrides, on_fargate)), **run_details(run, now_ns)}
        for run, key in zip(runs, keys, strict=True)
    ]
    packed = pack_runs(fields, max_bytes - len(to_script_json(about)) - _KEYS_BYTES)
    left_out = {"runs": len(runs) - len(packed.rows), "details": packed.without_details}
    content = {**about, "leftOut": left_out, "fields": packed.fields, "runs": packed.rows, "texts": packed.texts}
    without_series = to_script_json(content)
    left_bytes = max_bytes - len(without_series) - _KEYS_BYTES
    series = ",".join(series_members(runs[: len(packed.rows)], left_bytes))
    text = f'{without_series[:-1]},"series":{{{series}}}}}'
    return PageData(text=text, runs=len(packed.rows), without_details=packed.without_details)


def _cost(record: Record, price_overrides: PriceOverrides, on_fargate: str | None) -> Cost | None:
    """The run's cost; of a run outside Fargate, what it would have cost on Fargate if that was asked for."""
    if on_fargate is None or record.launch_type == FARGATE:
        return record.cost
    return cost_of(record_on_fargate(record, on_fargate), price_overrides)
