"""The prices of the environment, for the commands that calculate costs."""

from collections.abc import Mapping

from profiler.cli.printing import warn
from profiler.core.errors import UsageError
from profiler.settings import SettingsReader, problems_message
from profiler.sizing.prices import PriceOverrides, is_priced


def price_overrides(environment: Mapping[str, str], on_fargate: str | None = None) -> PriceOverrides:
    """Read the prices that replace those of the table.

    Problems with them are printed on standard error, and that the Region ``on_fargate`` has no known price.

    Raises:
        UsageError: if ``on_fargate`` is empty.
    """
    if on_fargate == "":
        raise UsageError("--on-fargate is empty: name a Region or omit the option.")
    reader = SettingsReader(environment)
    prices = reader.prices() or PriceOverrides()
    if reader.problems:
        warn(problems_message(reader.problems))
    if on_fargate is not None and not is_priced(on_fargate, prices):
        warn(
            f"Fargate's prices in {on_fargate} are unknown: check the Region's name, or set "
            "TASK_PROFILER_PRICE_VCPU_HOUR and TASK_PROFILER_PRICE_GB_HOUR."
        )
    return prices
