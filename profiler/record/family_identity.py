"""A family is account, Region and the task definition's family."""

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from msgspec import Struct

from profiler.record.record_model import Record

if TYPE_CHECKING:
    from profiler.record.report_head import RecordHead

# The family of ``task-profiler setup proof``, whose runs fail on purpose: no retry, advice or alert
# is about it.
PROOF_FAMILY = "task-profiler-proof"


class FamilyKey(Struct, frozen=True):
    """The identity of a family.

    An unknown account or Region agrees only with another unknown one.
    """

    name: str
    account_id: str | None = None
    region: str | None = None

    @property
    def sort_key(self) -> tuple[str, str, str]:
        return self.name, self.account_id or "", self.region or ""

    @property
    def distinguishing_text(self) -> str:
        """What tells it from others of its name in the same place, if there can be any."""
        return ""


# The title of a column, and how to read its value from a family.
PlaceColumn = tuple[str, Callable[[FamilyKey], str | None]]
_UNKNOWN = {"Account": "unknown account", "Region": "unknown Region"}


def matches_any(family: str, patterns: Collection[str]) -> bool:
    """Whether a shell pattern matches the name of a family; without a pattern, every family
    matches.
    """
    from fnmatch import fnmatchcase  # not for `run`

    return not patterns or any(fnmatchcase(family, pattern) for pattern in patterns)


def family_key(record: "Record | RecordHead") -> FamilyKey:
    """The family of a run; its name is the container's if the run has no family."""
    return FamilyKey(
        record.family or record.container.name, record.account_id or None, record.region or None
    )


def family_labels(keys: Collection[FamilyKey]) -> Mapping[FamilyKey, str]:
    """Name each family.

    Account or Region follow the name only where families of the same name differ in it.
    """
    labels = {}
    for name, namesakes in groupby(
        sorted(keys, key=lambda key: key.sort_key), key=lambda key: key.name
    ):
        same = list(namesakes)
        columns = place_columns(same)
        for key in same:
            places = [get(key) or _UNKNOWN[title] for title, get in columns]
            places += filter(None, (key.distinguishing_text,))
            labels[key] = f"{name} ({', '.join(places)})" if places else name
    return labels


def place_columns(keys: Sequence[FamilyKey]) -> list[PlaceColumn]:
    """The table columns "Account" and "Region", each only where the families differ in it."""
    columns: tuple[PlaceColumn, ...] = (
        ("Account", lambda key: key.account_id),
        ("Region", lambda key: key.region),
    )
    return [(title, get) for title, get in columns if len({get(key) for key in keys}) > 1]
