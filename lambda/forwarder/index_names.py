"""The names of the indices: one index for each kind of document and each month, or each day."""

from datetime import datetime
from typing import Literal, TypeAlias

IndexKind: TypeAlias = Literal["reports", "checkpoints", "logs", "notices"]
IndexPeriod: TypeAlias = Literal["month", "day"]

_DATE_FORMATS: dict[IndexPeriod, str] = {"month": "%Y.%m", "day": "%Y.%m.%d"}


def index_name(kind: IndexKind, moment: datetime, *, prefix: str, period: IndexPeriod) -> str:
    """Return the name of the index for a document of this kind and moment (UTC): ``task-reports-2026.03``."""
    return f"{prefix}-{kind}-{moment.strftime(_DATE_FORMATS[period])}"
