"""The prices of the environment, for the commands that calculate costs."""

from collections.abc import Mapping

from profiler.cli.output import warn
from profiler.settings import problems_message, read_price_settings
from profiler.sizing.prices import PriceOverrides


def price_overrides(environment: Mapping[str, str]) -> PriceOverrides:
    """Read the prices that replace those of the table. Problems with them are printed on standard error."""
    prices, problems = read_price_settings(environment)
    if problems:
        warn(problems_message(problems))
    return prices
