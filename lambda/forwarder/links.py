"""Addresses that a notice leads to: the AWS console and Kibana. None where one cannot be made. Pure."""

import re
from datetime import UTC, datetime, timedelta
from urllib.parse import quote, urlsplit
from uuid import NAMESPACE_URL, uuid5

from forwarder.slack_text import sanitize

TASK_RUN_DASHBOARD_ID = uuid5(NAMESPACE_URL, "task-profiler/dashboard/task-run")
"""The saved object of the dashboard "Task run"; issue 7 makes it under this id."""

_REGION = re.compile(r"[a-z]{2,4}(-[a-z]+)+-\d{1,2}", re.ASCII)
# AWS's partitions with a console on the public internet; the isolated ones (iso) have none.
_CONSOLE_DOMAINS = {
    "cn-": "console.amazonaws.cn",
    "us-gov-": "console.amazonaws-us-gov.com",
    "eusc-": "console.amazonaws-eusc.eu",
}
_ISOLATED = re.compile(r"-iso[a-z]?-", re.ASCII)
_URL_SAFE_CHARACTERS = ":/?#[]@!$&'()*+,;=%~"
_MARGIN_BEFORE_START = timedelta(hours=1)


def log_stream(region: str | None, group: str | None, stream: str | None) -> str | None:
    """The stream in CloudWatch's console."""
    console = _console_url(region)
    if console is None or not group or not stream:
        return None
    place = f"log-groups/log-group/{_encoded_twice(group)}/log-events/{_encoded_twice(stream)}"
    return f"{console}/cloudwatch/home?region={region}#logsV2:{place}"


def ecs_task(region: str | None, cluster: str | None, task_id: str) -> str | None:
    """The task in the console of ECS, which shows it for about an hour after its end."""
    console = _console_url(region)
    if console is None or not cluster or not task_id:
        return None
    task = f"clusters/{_encoded_once(cluster)}/tasks/{_encoded_once(task_id)}"
    return f"{console}/ecs/v2/{task}/configuration?region={region}"


def kibana_task(kibana_url: str | None, task_id: str, started: datetime | None) -> str | None:
    """The dashboard "Task run" of one task.

    Without a time a dashboard shows the last minutes only, so the address says from when: an hour
    before the start for the pull of the image, or thirty days if the start is not known.
    """
    base = _valid_url(kibana_url)
    if base is None or not task_id:
        return None
    start = "now-30d" if started is None else f"{_margin_before(started):%Y-%m-%dT%H:%M:%S.000Z}"
    query = f"task.id:{_kql(task_id)}"
    period = f"_g=(time:(from:{_rison(start)},to:now))"
    filtered = f"_a=(query:(language:kuery,query:{_rison(query)}))"
    return f"{base}/app/dashboards#/view/{TASK_RUN_DASHBOARD_ID}?{period}&{filtered}"


def _margin_before(started: datetime) -> datetime:
    try:
        return started.astimezone(UTC) - _MARGIN_BEFORE_START
    except OverflowError:  # at the beginning of the calendar
        return started.replace(tzinfo=UTC)


def _console_url(region: str | None) -> str | None:
    if region is None or not _REGION.fullmatch(region) or _ISOLATED.search(region):
        return None
    domains = (domain for prefix, domain in _CONSOLE_DOMAINS.items() if region.startswith(prefix))
    return f"https://{region}.{next(domains, 'console.aws.amazon.com')}"


def _encoded_once(text: str) -> str:
    return quote(sanitize(text), safe="")


def _encoded_twice(text: str) -> str:
    """As CloudWatch's console writes names after the ``#``: percent-encoded twice, with ``$`` for ``%``."""
    return quote(_encoded_once(text), safe="").replace("%", "$")


def _kql(text: str) -> str:
    """A phrase of Kibana's query language."""
    escaped = sanitize(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _rison(text: str) -> str:
    """A string of Rison, the notation of Kibana's addresses, percent-encoded."""
    escaped = text.replace("!", "!!").replace("'", "!'")
    return f"'{quote(escaped, safe='!:')}'".replace("%27", "'")


def _valid_url(text: str | None) -> str | None:
    """``text`` if it is an address that Slack takes for a button."""
    address = quote(sanitize(text or "").strip(), safe=_URL_SAFE_CHARACTERS).rstrip("/")
    try:
        parts = urlsplit(address)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname)
    except ValueError:
        return None
    return address if usable else None
