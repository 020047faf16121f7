"""The columns of accounts and Regions in a table, each only where there are several."""

from collections.abc import Callable, Sequence

from profiler.cli.printing import UNKNOWN
from profiler.record.family import FamilyKey

PlaceColumn = tuple[str, Callable[[FamilyKey], str]]


def place_columns(families: Sequence[FamilyKey]) -> list[PlaceColumn]:
    """Return the title of each column and how to read its value from a family."""
    columns: list[PlaceColumn] = []
    if len({family.account_id for family in families}) > 1:
        columns.append(("Account", lambda family: family.account_id or UNKNOWN))
    if len({family.region for family in families}) > 1:
        columns.append(("Region", lambda family: family.region or UNKNOWN))
    return columns
