"""The names of the indices: one index for each kind of document and each month, or each day."""

from collections.abc import Mapping
from datetime import datetime
from typing import Literal, TypeAlias

IndexKind: TypeAlias = Literal["reports", "checkpoints", "logs", "notices"]
IndexPeriod: TypeAlias = Literal["month", "day"]

DEFAULT_PREFIX = "task"
# The periods, and how the name of an index writes the time.
INDEX_PERIODS: Mapping[str, str] = {"month": "%Y.%m", "day": "%Y.%m.%d"}


def index_name(kind: IndexKind, moment: datetime, *, prefix: str, period: str) -> str:
    """Return the name of the index for a document of this kind and moment (UTC):
    ``task-reports-2026.03``.
    """
    return f"{prefix}-{kind}-{moment.strftime(INDEX_PERIODS[period])}"
