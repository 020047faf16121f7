"""The addresses of a run in the AWS console and in Kibana, one function for all outputs.

An unknown one is None.
"""

import re
from datetime import datetime, timedelta
from functools import lru_cache
from operator import attrgetter
from urllib.parse import quote, urlsplit
from uuid import NAMESPACE_URL, uuid5

from msgspec import Struct

from profiler.core.ecs_terms import cluster_name
from profiler.core.optional_math import known, known_members
from profiler.core.text import on_one_line
from profiler.core.timestamps import format_datetime, parse_datetime
from profiler.forwarder.merged_run import MergedRun
from profiler.record.batch_job_detail import JobDetail
from profiler.record.notice_model import NoticeLine, ScheduleNoticeLine
from profiler.record.record_model import Record, Report

TASK_RUN_DASHBOARD_ID = uuid5(NAMESPACE_URL, "task-profiler/dashboard/task-run")
"""The id of the dashboard "Task run" in Kibana."""

# Isolated ones have no such console.
_REGION = re.compile(r"(?!.*-iso[a-z]?-)[a-z]{2,4}(-[a-z]+)+-\d{1,2}", re.ASCII)
# The other partitions with a console on the public internet, by the beginning of their Regions.
_CONSOLE_DOMAINS = {
    "cn-": "console.amazonaws.cn",
    "us-gov-": "console.amazonaws-us-gov.com",
    "eusc-": "console.amazonaws-eusc.eu",
}
_MARGIN = timedelta(minutes=5)
# Characters that RFC 3986 leaves unreserved need no encoding.
_TO_ENCODE = re.compile(r"[^A-Za-z0-9_.~-]")


class RunLinks(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Addresses of the run: its log stream and its task in the AWS console, and its dashboard in
    Kibana.
    """

    log_stream: str | None = None
    ecs_task: str | None = None
    kibana: str | None = None

    def document_fields(self) -> dict[str, str]:
        """The known addresses by their names in a search document."""
        addresses = {"run": self.kibana, "logs": self.log_stream, "task": self.ecs_task}
        return known_members(addresses)


def links_of_line(line: Report | NoticeLine, kibana_url: str | None) -> RunLinks:
    """The addresses of the run of a checkpoint or a notice, which has not ended."""
    record = line.record
    started = parse_datetime(record.started_at) or parse_datetime(line.time)
    return _links_of_record(record, kibana_task_url(kibana_url, record.task_id, started))


def links_of_run(run: MergedRun, kibana_url: str | None) -> RunLinks:
    """The addresses of an ended run."""
    record = run.record
    ended = run.finished_at or run.written_at
    started = run.started_at
    if started is None and not run.is_complete:
        started = known(attrgetter("created_at"), run.event)
    return _links_of_record(
        record, kibana_task_url(kibana_url, record.task_id, started or ended, ended)
    )


def _links_of_record(record: Record, kibana: str | None) -> RunLinks:
    return RunLinks(
        log_stream=log_stream_url(
            record.log_region or record.region, record.log_group, record.log_stream
        ),
        ecs_task=ecs_task_url(record.region, cluster_name(record.cluster), record.task_id),
        kibana=kibana,
    )


def links_of_schedule_notice(line: ScheduleNoticeLine, kibana_url: str | None) -> RunLinks:
    """The addresses of the task that the notice is about.

    Only its id is known; there may be no task. That of a job is no task's.
    """
    if line.is_of_jobs:
        return RunLinks()
    task_id = line.notice.task_id or ""
    return RunLinks(
        ecs_task=ecs_task_url(line.region, cluster_name(line.cluster), task_id),
        kibana=kibana_task_url(kibana_url, task_id, parse_datetime(line.notice.due_at)),
    )


def links_of_job(job: JobDetail) -> RunLinks:
    """The address of the log of a job's newest attempt that has ended."""
    stream = job.attempts[-1].failed_log_stream if job.attempts else None
    return RunLinks(log_stream=log_stream_url(job.region, job.log_group, stream))


def log_stream_url(region: str | None, group: str | None, stream: str | None) -> str | None:
    """Return the address of a log stream in the CloudWatch console."""
    console = _console_url(region)
    if not (console and group and stream):
        return None
    place = f"log-groups/log-group/{_console_encoded(group)}/log-events/{_console_encoded(stream)}"
    return f"{console}/cloudwatch/home?region={region}#logsV2:{place}"


def ecs_task_url(region: str | None, cluster: str | None, task_id: str) -> str | None:
    """Return the address of the task in the ECS console, which shows a task for about an hour
    after it stopped.
    """
    console = _console_url(region)
    if not (console and cluster and task_id):
        return None
    task = f"clusters/{_percent_encoded(cluster)}/tasks/{_percent_encoded(task_id)}"
    return f"{console}/ecs/v2/{task}/configuration?region={region}"


def kibana_task_url(
    kibana_url: str | None, task_id: str, started: datetime | None, ended: datetime | None = None
) -> str | None:
    """Return the address of the dashboard "Task run" for one task, with the times of the run and
    a margin.
    """
    base = _url_for_button(kibana_url)
    if not (base and task_id):
        return None
    begin = _kibana_time(started, -_MARGIN) or _encoded_rison_string("now-30d")
    end = _kibana_time(ended, _MARGIN) or "now"
    period = f"_g=(time:(from:{begin},to:{end}))"
    phrase = on_one_line(task_id).replace("\\", "\\\\").replace('"', '\\"')
    query = _encoded_rison_string(f'task.id:"{phrase}"')
    filtered = f"_a=(query:(language:kuery,query:{query}))"
    return f"{base}/app/dashboards#/view/{TASK_RUN_DASHBOARD_ID}?{period}&{filtered}"


def _kibana_time(moment: datetime | None, margin: timedelta) -> str | None:
    if moment is None:
        return None
    return f"'{format_datetime(moment + margin)}'"


@lru_cache
def _console_url(region: str | None) -> str:
    """The console's address in a Region; empty without the name of a Region."""
    if not _REGION.fullmatch(region or ""):
        return ""
    prefixes = _CONSOLE_DOMAINS.items()
    domains = (domain for prefix, domain in prefixes if str(region).startswith(prefix))
    return f"https://{region}.{next(domains, 'console.aws.amazon.com')}"


@lru_cache  # the runs of an event share their clusters, and often their log group
def _percent_encoded(text: str) -> str:
    # Most characters of most names need no encoding, and a call encodes each on its own.
    return _TO_ENCODE.sub(lambda match: _encoded_character(match[0]), on_one_line(text))


@lru_cache
def _encoded_character(character: str) -> str:
    return quote(character, safe="")


def _console_encoded(text: str) -> str:
    """Encode a name as the CloudWatch console does after the ``#``: percent-encoded twice, with
    ``$`` for ``%``.
    """
    return _percent_encoded(text).replace("%", "$25")


def _encoded_rison_string(text: str) -> str:
    """Return a percent-encoded string of Rison, the notation of Kibana's addresses."""
    escaped = text.replace("!", "!!").replace("'", "!'")
    return f"'{quote(escaped, safe='!:')}'".replace("%27", "'")


@lru_cache
def _url_for_button(text: str | None) -> str:
    """Return the address, percent-encoded, if Slack accepts it for a button; else nothing."""
    address = quote(on_one_line(text or "").strip(), safe=":/?#[]@!$&'()*+,;=%~").rstrip("/")
    try:
        parts = urlsplit(address)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname)
    except ValueError:
        return ""
    return address if usable else ""
