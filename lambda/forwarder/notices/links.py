"""The addresses of a run: its log stream and task in the AWS console, and its dashboard. An unknown address is None."""

import re
from datetime import UTC, datetime, timedelta
from urllib.parse import quote, urlsplit
from uuid import NAMESPACE_URL, uuid5

from forwarder.notices.ended_task import EndedTask
from profiler.core.ecs_terms import cluster_name
from profiler.core.text import on_one_line
from profiler.core.timestamps import parse_datetime
from profiler.record.record_model import Record

TASK_RUN_DASHBOARD_ID = uuid5(NAMESPACE_URL, "task-profiler/dashboard/task-run")
"""The id of the dashboard "Task run" in Kibana."""

_REGION = re.compile(r"[a-z]{2,4}(-[a-z]+)+-\d{1,2}", re.ASCII)
# The AWS partitions with a console on the public internet. Isolated partitions (iso) do not have one.
_CONSOLE_DOMAINS = {
    "cn-": "console.amazonaws.cn",
    "us-gov-": "console.amazonaws-us-gov.com",
    "eusc-": "console.amazonaws-eusc.eu",
}
_ISOLATED = re.compile(r"-iso[a-z]?-", re.ASCII)
_URL_SAFE_CHARACTERS = ":/?#[]@!$&'()*+,;=%~"
_MARGIN_BEFORE_START = timedelta(hours=1)
_MARGIN_AFTER_END = timedelta(minutes=5)


def links_of(notice: EndedTask, kibana_url: str | None) -> dict[str, str | None]:
    """Return the addresses of the log stream, the ECS task, and the dashboard "Task run"; None where unknown."""
    task, log = notice.task, notice.log
    return {
        "log_stream": None if log is None else log_stream(task.region, log.group, log.stream),
        "ecs_task": ecs_task(task.region, task.cluster, task.id),
        "kibana": kibana_task(kibana_url, task.id, task.started_at, notice.duration_ms),
    }


def links_of_record(record: Record, kibana_url: str | None) -> dict[str, str | None]:
    """Return the same addresses of a run in progress."""
    return {
        "log_stream": log_stream(record.region, record.log_group, record.log_stream),
        "ecs_task": ecs_task(record.region, cluster_name(record.cluster), record.task_id),
        "kibana": kibana_task(kibana_url, record.task_id, parse_datetime(record.started_at)),
    }


def links_of_task(
    region: str | None, cluster: str | None, task_id: str, kibana_url: str | None
) -> dict[str, str | None]:
    """Return the addresses of a task of which only the id is known."""
    return {
        "ecs_task": ecs_task(region, cluster_name(cluster), task_id),
        "kibana": kibana_task(kibana_url, task_id, None),
    }


def log_stream(region: str | None, group: str | None, stream: str | None) -> str | None:
    """Return the address of a log stream in the CloudWatch console."""
    console = _console_url(region)
    if console is None or not group or not stream:
        return None
    place = f"log-groups/log-group/{_encoded_twice(group)}/log-events/{_encoded_twice(stream)}"
    return f"{console}/cloudwatch/home?region={region}#logsV2:{place}"


def ecs_task(region: str | None, cluster: str | None, task_id: str) -> str | None:
    """Return the address of the task in the ECS console, which shows a task for about an hour after it stopped."""
    console = _console_url(region)
    if console is None or not cluster or not task_id:
        return None
    task = f"clusters/{_encoded_once(cluster)}/tasks/{_encoded_once(task_id)}"
    return f"{console}/ecs/v2/{task}/configuration?region={region}"


def kibana_task(
    kibana_url: str | None, task_id: str, started: datetime | None, duration_ms: float | None = None
) -> str | None:
    """Return the address of the dashboard "Task run" for one task.

    The address contains a time range. It starts an hour before the task, which includes the image pull, or 30 days ago
    if the start is unknown. It ends a few minutes after the task, so that the run fills the charts, or now if the end
    is unknown.
    """
    base = _valid_url(kibana_url)
    if base is None or not task_id:
        return None
    start = "now-30d" if started is None else f"{_margin_before(started):%Y-%m-%dT%H:%M:%S.000Z}"
    query = f"task.id:{_kql(task_id)}"
    end = _end_with_margin(started, duration_ms)
    period = f"_g=(time:(from:{_rison(start)},to:{end}))"
    filtered = f"_a=(query:(language:kuery,query:{_rison(query)}))"
    return f"{base}/app/dashboards#/view/{TASK_RUN_DASHBOARD_ID}?{period}&{filtered}"


def _margin_before(started: datetime) -> datetime:
    try:
        return started.astimezone(UTC) - _MARGIN_BEFORE_START
    except OverflowError:  # in year 1
        return started.replace(tzinfo=UTC)


def _end_with_margin(started: datetime | None, duration_ms: float | None) -> str:
    if started is None or duration_ms is None:
        return "now"
    try:
        ended = started.astimezone(UTC) + timedelta(milliseconds=duration_ms) + _MARGIN_AFTER_END
    except (OverflowError, ValueError):  # after year 9999, or not a number
        return "now"
    return _rison(f"{ended:%Y-%m-%dT%H:%M:%S.000Z}")


def _console_url(region: str | None) -> str | None:
    if region is None or not _REGION.fullmatch(region) or _ISOLATED.search(region):
        return None
    domains = (domain for prefix, domain in _CONSOLE_DOMAINS.items() if region.startswith(prefix))
    return f"https://{region}.{next(domains, 'console.aws.amazon.com')}"


def _encoded_once(text: str) -> str:
    return quote(on_one_line(text), safe="")


def _encoded_twice(text: str) -> str:
    """Encode a name as the CloudWatch console does after the ``#``: percent-encoded twice, with ``$`` for ``%``."""
    return quote(_encoded_once(text), safe="").replace("%", "$")


def _kql(text: str) -> str:
    """Return a phrase of Kibana's query language."""
    escaped = on_one_line(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _rison(text: str) -> str:
    """Return a percent-encoded string of Rison, the notation of Kibana's addresses."""
    escaped = text.replace("!", "!!").replace("'", "!'")
    return f"'{quote(escaped, safe='!:')}'".replace("%27", "'")


def _valid_url(text: str | None) -> str | None:
    """Return the address, percent-encoded, if Slack accepts it for a button; else None."""
    address = quote(on_one_line(text or "").strip(), safe=_URL_SAFE_CHARACTERS).rstrip("/")
    try:
        parts = urlsplit(address)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname)
    except ValueError:
        return None
    return address if usable else None
