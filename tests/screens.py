"""What people read of one run on each screen, as text: ``show``, the end of ``run``, ``history``,
``recommend``, ``compare``, the report page, Slack, the event of mails and templates, the mail, the
card of Teams, and the morning message.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from profiler.cli.history_command import _json_line, run_table_lines
from profiler.cli.recommend_command import _recommendation_lines
from profiler.cli.terminal.comparison_tables import comparison_lines
from profiler.cli.terminal.end_page import EndView, end_page_lines
from profiler.cli.terminal.page_parts import View
from profiler.cli.terminal.run_page import page_lines
from profiler.core.ecs_terms import is_of_aws_batch
from profiler.core.timestamps import NS_PER_DAY, NS_PER_MINUTE, NS_PER_MS, NS_PER_SECOND, parse_ns
from profiler.forwarder.ended_run import EndedRun
from profiler.forwarder.morning_digest import DigestPlace, summarize_night
from profiler.forwarder.night_period import NightPeriod, RememberedNight
from profiler.forwarder.night_runs import FamilyHistory, MissedTimes
from profiler.forwarder.notifications.event_details import bus_event, ended_line, ended_run_detail
from profiler.forwarder.notifications.notification import Notification
from profiler.record.fact_list import NUMBERS, NumberRow
from profiler.record.measured import measured_from
from profiler.record.record_model import Report, encode
from profiler.record.units import format_percent, format_value
from profiler.runs.comparison.compared_metrics import compare_metrics
from profiler.runs.comparison.run_sets import RunSet
from profiler.runs.past_runs.family_advice import find_advice
from profiler.runs.past_runs.past_run import PastRun
from profiler.sizing.advice import advise_on_size
from profiler.sizing.choose_size import SizePolicy
from profiler.sizing.prices import PriceOverrides
from profiler.sizing.size_summary import size_story
from tests.bus_events import mail_of
from tests.cloudformation import template
from tests.documentation import ROOT
from tests.ended_runs import report_line, run_of, text_of
from tests.printed_lines import runs_of_lines
from tests.report_page import content
from tests.report_page import run_of as page_run_of
from tests.runs import evidence_of
from tests.stopped_tasks import WITH_MONITOR, judged_task
from tests.task_events import task
from tests.terminals import texts

_UNITS = r"(?:%|ms|s|MB|GB|vCPU|CPUs|threads?|samples?|stacks?)"
_DURATION = r"\d+[dhm] \d+[hms]"
_VALUE = rf"(?:\$\d[\d,.]*)|{_DURATION}|(?:\d[\d,.]* {_UNITS}(?![\w/]))"
_NUMBER = re.compile(rf"(≥ ?|at least )?({_VALUE})( or more)?")


class ShownNumber(Struct, frozen=True):
    """A number with its unit as a screen has it; ``is_least``: with the mark of a lower bound, or its
    words within a sentence.
    """

    text: str
    is_least: bool


def ended(report: Report) -> EndedRun:
    """The run as a task on an instance, by its event and its report."""
    record = report.record
    of_batch = {}
    if is_of_aws_batch(record.cluster):
        of_batch = {"clusterArn": f"arn:aws:ecs:us-west-2:111122223333:cluster/{record.cluster}"}
    stopped = task(
        **of_batch,
        launchType="EC2",
        containers=[
            {"name": "batch", "exitCode": record.exit_code},
            *({"name": other.name, "exitCode": other.exit_code} for other in record.containers),
        ],
        startedAt=record.started_at,
        executionStoppedAt=record.finished_at,
        stoppedAt=record.finished_at or report.time,
    )
    of_event, batch = judged_task(stopped, WITH_MONITOR)
    record = replace(record, task_id=stopped.id, account_id=stopped.account_id)
    return run_of(stopped, of_event, batch, report_line(record))


def now_ns(report: Report) -> int:
    return (parse_ns(report.time) or 0) + NS_PER_SECOND


def past_run(report: Report) -> PastRun:
    """The run of which this is the report."""
    return PastRun(report=report, line=encode(report))


def show(report: Report) -> str:
    """Without advice, which is that of the family."""
    view = View(width=1000, now_ns=now_ns(report))
    return "\n".join(texts(page_lines(past_run(report), view)))


def show_with_advice(report: Report) -> str:
    view = View(width=1000, now_ns=now_ns(report))
    run = past_run(report)
    sizes = size_story(find_advice(run, None, PriceOverrides()), run.story.usage)
    return "\n".join(texts(page_lines(run, view, sizes=sizes)))


def end(report: Report) -> str:
    view = EndView(width=1000, now_ns=now_ns(report), max_lines=40)
    without = replace(report, record=replace(report.record, series=None))
    return "\n".join(texts(end_page_lines(without, (), view)))


def end_with_curves(report: Report) -> str:
    view = EndView(width=1000, now_ns=now_ns(report), max_lines=40)
    return "\n".join(texts(end_page_lines(report, (), view)))


def history(report: Report) -> str:
    return "\n".join(texts(run_table_lines([past_run(report)], None)))


def recommend(report: Report) -> str:
    advice = advise_on_size(evidence_of([report]), SizePolicy(), PriceOverrides())
    return "\n".join(texts(_recommendation_lines([advice], [advice], 1000, with_sizes=False)))


def page_row(report: Report) -> Mapping[str, Any]:
    (row,) = content([page_run_of(report)])["runs"]
    assert isinstance(row, dict)
    return row


def page(report: Report) -> str:
    """The sentences on the GPUs, and the verdict."""
    row = page_row(report)
    gpus = [gpu.get("memory", "") for gpu in row.get("gpus", ())]
    return "\n".join((row.get("deviceUse", ""), *row["verdict"], *row.get("gpuNotes", ()), *gpus))


def page_number(row: Mapping[str, Any], number: NumberRow) -> str:
    """A number of the page's row as its script formats it."""
    value = row.get(number.page_field)
    shown = measured_from(value, is_least=number.page_field in row.get("atLeast", ()))
    return shown.text(partial(format_value, unit=number.unit))


def page_texts(report: Report) -> str:
    """All that the page says of the run, and the reasons of its family's size."""
    sizings = content([page_run_of(report)])["sizing"]
    reasons = [reason for sizing in sizings for reason in sizing["reasons"]]
    return "\n".join((page_of_run(report), *reasons))


def page_of_run(report: Report) -> str:
    """All that the page says of the run alone."""
    row = page_row(report)
    shown = [page_number(row, number) for number in NUMBERS if number.page_field]
    shown += [row.get("files", ""), row.get("hugePages", ""), row.get("cpuWait", "")]
    shown += [text for _, _, _, text in row.get("moments", ())]
    shown += row.get("kills", ("",))[:1]
    shown += [*row.get("warnings", ()), row.get("job", ""), row.get("unmeasured", "")]
    shown += row.get("runAdvice", ())
    shown += _processes(row)
    shown += [
        f"{format_percent(percent)} {target}" for _, target, percent in row.get("targets", ())
    ]
    return "\n".join((page(report), *filter(None, shown)))


def _processes(row: Mapping[str, Any]) -> Iterator[str]:
    for name, _, _, seconds, memory_mb, _, is_cpu_least, is_memory_least in row.get(
        "processes", ()
    ):
        for value, unit, is_least in (
            (seconds, "s", is_cpu_least),
            (memory_mb, "MB", is_memory_least),
        ):
            if value is not None:
                yield f"{name} {'≥' if is_least else ''}{format_value(value, unit)}"


def slack(report: Report) -> str:
    return text_of(ended(report))


def event(report: Report) -> str:
    detail = ended_run_detail(ended(report), kibana_url=None)
    return f"{detail.text} {detail.summary}"


def _detail_of(notification: Notification) -> Any:
    _, detail = bus_event(notification, kibana_url=None)
    return msgspec.json.decode(msgspec.json.encode(detail))


def mail(report: Report) -> str:
    """As the template's rule makes it."""
    (target,) = template()["Resources"]["EmailRule"]["Properties"]["Targets"]
    return mail_of(target["InputTransformer"], _detail_of(ended(report)))


def teams(report: Report) -> str:
    (target,) = json.loads((ROOT / "examples" / "teams_target.json").read_text())
    card = json.loads(mail_of(target["InputTransformer"], _detail_of(ended(report))))
    return "\n".join(part["text"] for part in card["attachments"][0]["content"]["body"])


def compare(report: Report) -> str:
    """With itself."""
    sets = [RunSet(text=name, reports=(report,)) for name in ("a", "b")]
    changes = compare_metrics(sets[0].records, sets[1].records)
    return "\n".join(texts(comparison_lines(sets, changes, 1000)))


def morning(report: Report) -> str:
    """The message of the night in which it was the only run."""
    run = ended(report)
    line = ended_line(run, kibana_url=None, indexed=True, notified=None)
    end_ns = now_ns(report)
    last = RememberedNight(end_ns=end_ns - NS_PER_DAY, whole_ns=end_ns - NS_PER_DAY)
    period = NightPeriod(last=last, end_ns=end_ns, zone=UTC)
    written_ms = (end_ns - NS_PER_MINUTE) // NS_PER_MS
    runs = runs_of_lines([(written_ms, line)], period)
    place = DigestPlace(region=run.task.region)
    night = summarize_night(period, runs, MissedTimes(), FamilyHistory(), place)
    return str(_detail_of(night)["text"])


def history_json(report: Report) -> Mapping[str, Any]:
    """What a program reads."""
    line = json.loads(_json_line(past_run(report)))
    assert isinstance(line, dict)
    return line


def numbers_in(text: str) -> set[ShownNumber]:
    """The numbers with a unit in a text."""
    return {
        ShownNumber(found[2], bool(found[1] or found[3]))
        for found in _NUMBER.finditer(text.replace("\xa0", " "))
    }


SCREENS: Mapping[str, Callable[[Report], str]] = {
    "show": show_with_advice,
    "end": end,
    "end with curves": end_with_curves,
    "history": history,
    "recommend": recommend,
    "page": page_texts,
    "slack": slack,
    "event": event,
    "mail": mail,
    "teams": teams,
    "compare": compare,
    "morning": morning,
}
