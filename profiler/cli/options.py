"""Options and arguments that several commands share."""

import re
from collections.abc import Callable
from datetime import UTC, datetime

import click

from profiler.core.errors import UsageError

_RELATIVE_TIME = re.compile(r"(\d{1,5})([mhd])", re.ASCII)
_MS_PER_UNIT = {"m": 60_000, "h": 3_600_000, "d": 86_400_000}

Decorated = Callable[..., int | None]


def history_option(name: str, *, verb: str = "Read") -> Callable[[Decorated], Decorated]:
    """Add ``--history FILE``, which the function takes as ``name``."""
    return click.option(
        "--history",
        name,
        metavar="FILE",
        help=f"{verb} this history file (default: TASK_PROFILER_HISTORY, else task-profiler/history.sqlite3 in "
        "XDG_DATA_HOME).",
    )


def search_options(function: Decorated) -> Decorated:
    """Add ``--prefix``, ``--api-key`` and ``--user`` for Elasticsearch and OpenSearch."""
    from profiler.search.setup import DEFAULT_PREFIX  # not for `run`

    for option in reversed(
        (
            click.option(
                "--prefix", metavar="P", default=DEFAULT_PREFIX, show_default=True, help="Prefix of all index names."
            ),
            click.option(
                "--api-key", metavar="KEY", help="Sign in with an API key (default: the forwarder's variable)."
            ),
            click.option(
                "--user", metavar="NAME:PASSWORD", help="Sign in with a user name (default: the forwarder's variables)."
            ),
        )
    ):
        function = option(function)
    return function


def parse_time(text: str, now_ms: int) -> int:
    """Parse ``7d`` (that long ago) or an ISO 8601 time, which is in UTC if it has no zone.

    Returns:
        Milliseconds since 1970.

    Raises:
        UsageError: if the text is neither, or the time is before 1970.
    """
    relative = _RELATIVE_TIME.fullmatch(text)
    if relative is not None:
        return _check_after_1970(text, now_ms - int(relative[1]) * _MS_PER_UNIT[relative[2]])
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(
            f"{text!r} is not a time: write 30m, 12h, 7d, or an ISO time like 2026-11-20T00:00:00Z."
        ) from error
    return _check_after_1970(text, round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000))


def _check_after_1970(text: str, time_ms: int) -> int:
    if time_ms < 0:
        raise UsageError(f"{text!r} is before 1970, when no log group existed: write a later time.")
    return time_ms
