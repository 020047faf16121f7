"""The Slack messages of ended tasks and of notices. Slack accepts them for any content."""

import html
import json
import re
import shlex
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from profiler.core.commands_to_copy import command_line
from profiler.forwarder.ended_run import EndedRun, FamilyComparison, UnusualMeasure
from profiler.forwarder.notifications import value_formats
from profiler.forwarder.notifications.embedded_texts import embeddable_text
from profiler.forwarder.notifications.event_details import (
    ended_run_detail,
    night_summary_detail,
    run_notice_detail,
)
from profiler.forwarder.notifications.notification import NightSummary, Notification, SummaryLine
from profiler.forwarder.notifications.slack_messages import (
    SlackMessage,
    escape_text,
    slack_message_of,
)
from profiler.record import record_model as model
from profiler.record.activity_model import NO_BREAKDOWN, TimeBreakdown, WaitTarget
from profiler.record.batch_job import BatchJob
from profiler.record.notice_model import Notice, NoticeLine
from profiler.record.record_model import UNKNOWN_SIZE
from profiler.record.spot_price import cost_on_provider
from profiler.record.stop_causes import EventEnd
from profiler.record.stopped_task import StoppedTask
from profiler.sinks import LogTarget
from tests.cases import each_case
from tests.ended_runs import (
    ANY_CHARACTER,
    ANY_TEXT,
    KIBANA,
    MAYBE_TEXT,
    NOTICE,
    NOTICES,
    OOM,
    RECORD,
    RUN_NOTICES,
    SCHEDULE_NOTICES,
    changed,
    ended,
    in_task,
    objects,
    recorded,
    report_line,
    run_of,
    text_of,
    texts,
)
from tests.fake_slack import length, violations
from tests.runs import reported_story
from tests.shown_runs import missed_notice, stuck_notice

UNUSUAL = (
    UnusualMeasure(metric="durationMs", value=3000, usual=2_470_000),
    UnusualMeasure(metric="blockReadBytes", value=0, usual=2_254_857_830),
)
DID_NOTHING = replace(NOTICE, comparison=FamilyComparison(text="8.0× shorter.", unusual=UNUSUAL))
UNKNOWN_KIND = replace(
    stuck_notice(), notice=Notice(kind="<!channel>", message="Look & see <@U1>.")
)


def urls(sent: SlackMessage) -> dict[str, str]:
    elements = [
        one for block in sent.blocks if block["type"] == "actions" for one in block["elements"]
    ]
    return {element["action_id"]: element["url"] for element in elements}


@pytest.mark.parametrize("launch_type", ["EC2", "EXTERNAL", "MANAGED_INSTANCES"])
def test_a_task_on_an_instance_is_not_billed(launch_type: str) -> None:
    """AWS bills the instance; the task has a cost by a price of the settings."""
    priced = recorded(NOTICE, launch_type=launch_type)
    for notice, fields in (
        (priced, ["*Cost*\n$0.012"]),
        (recorded(priced, cost=model.UNKNOWN_COST), []),
    ):
        sent = texts(slack_message_of(notice, kibana_url=KIBANA).blocks)
        assert [text for text in sent if text.startswith(("*Billed*", "*Cost*"))] == fields
        assert "Billed" not in ended_run_detail(notice, kibana_url=None).text


def test_the_message_of_a_success_has_the_usage() -> None:
    sent = slack_message_of(NOTICE, kibana_url=KIBANA)
    assert sent.text == "✅ Success after 2h 13m · etl_daily:7, exit code 0"
    cpu = "*CPU*  ▰▰▰▰▱▱▱▱▱▱  42 % avg, peak 97 % of 0.5 vCPU"
    assert texts(sent.blocks) == [
        "✅ Success after 2h 13m · etl_daily:7",
        "cluster jobs  ·  eu-west-1  ·  task 0123  ·  container batch",
        "*Duration*\n2h 13m",
        "*Billed*\n2h 14m, $0.012",
        "*Exit code*\n0",
        "*Started*\n<!date^1772359203^{date_num} {time_secs}|2026-03-01 10:00:03 UTC>",
        f"{cpu}\n*Memory*  ▰▰▰▰▰▰▱▱▱▱  61 % avg, peak 97 % (≥993 MB) of 1 GB",
        *("Log stream", "ECS task", "Kibana"),
    ]


def test_files_in_memory_are_said_beside_the_memory_used() -> None:
    kept = model.AverageAndMaximum(avg=300, max=600)
    metrics = replace(NOTICE.record.metrics, memory_mapped_file_mb=kept)
    record = replace(NOTICE.record, metrics=metrics)
    words = value_formats.cpu_and_memory_words(reported_story(record))[1]
    assert words == (
        "61 % avg, peak 97 % (≥993 MB) of 1 GB; it also keeps up to 600 MB of its files in memory "
        "(with less memory it reads them again)"
    )


def test_more_cpu_than_a_job_asked_for_is_said_in_vcpus() -> None:
    metrics = replace(
        NOTICE.record.metrics,
        cpu_utilization_percent=model.Distribution(avg=91, max=100),
        vcpu_used=model.Distribution(avg=14.6, max=16),
        vcpu_size=16,
        vcpu_share=4,
    )
    job = replace(
        NOTICE.record,
        metrics=metrics,
        task_size=UNKNOWN_SIZE,
        launch_type="EC2",
        cluster="AWSBatch-spot-1",
    )
    assert value_formats.cpu_and_memory_words(reported_story(job))[0] == (
        "14.6 vCPU avg, peak 16 vCPU, asked for 4 vCPU"
    )
    task = replace(job, cluster="jobs")
    assert (
        value_formats.cpu_and_memory_words(reported_story(task))[0]
        == "91 % avg, peak 100 % of 16 vCPU"
    )


@pytest.mark.parametrize(
    ("notice", "begins"),
    [
        (
            ended(NOTICE, cause="oom", exit_code=1, out_of_memory=True),
            "❌ Out of memory after 2h 13m · etl_daily:7",
        ),
        (
            ended(NOTICE, cause="failure", exit_code=1),
            "❌ Exit code 1 after 2h 13m · etl_daily:7",
        ),
        (
            ended(NOTICE, cause="not-started", exit_code=None),
            "❌ Did not start after 2h 13m · etl_daily:7",
        ),
    ],
)
def test_the_header_is_the_reason(notice: EndedRun, begins: str) -> None:
    """A phone shows it alone, and a lock screen the text that begins with it."""
    sent = slack_message_of(notice, kibana_url=None)
    assert sent.blocks[0]["text"]["text"] == begins
    assert sent.text.startswith(begins)


# The only token of Slack's in a message: a time in the reader's zone, and the text where it has none.
SLACK_DATE = re.compile(r"<!date\^-?\d+\^\{date_num\} \{time_secs\}\|[\d-]+ [\d:]+ UTC>")


def log_text(*lines: str) -> str:
    """The content of the code block."""
    text = text_of(replace(NOTICE, log_lines=lines))
    _, _, after = text.partition("*Last lines of the log*\n```\n")
    return after.partition("\n```")[0]


def test_the_last_lines_of_the_log_are_escaped_and_indented() -> None:
    expected = ["Traceback:", "    line &lt;5&gt;", "", "''' &lt;!channel&gt;"]
    assert log_text("Traceback:", "\tline <5>", "", "``` <!channel>").split("\n") == expected


def test_the_last_lines_of_the_log_have_no_secrets() -> None:
    lines = ("Traceback:", '    connect("db", password="hunter2")', "curl -u joe:hunter2 https://h")
    text = log_text(*lines)
    assert "hunter2" not in text
    assert '    connect("db", password="…")' in text


def test_long_lines_are_truncated_and_the_newest_lines_are_shown() -> None:
    shown = log_text(*(f"{number} {'x' * 400}" for number in range(20))).split("\n")
    assert shown[-1].startswith("19 x")
    assert all(line.endswith("…") and len(line) == 300 for line in shown)
    assert len(shown) == 9


def test_the_command_of_a_resize_reads_the_log_group_of_the_run() -> None:
    log = LogTarget(group="/ecs/etl", stream="ecs/batch/0123", region="us-west-2")
    advised = replace(recorded(NOTICE, recommendation=HALF), report_log=log)
    shown = "\n".join(texts(slack_message_of(advised, kibana_url=None).blocks))
    assert "resize etl_daily --from logs:/ecs/etl --region us-west-2" in shown


JOB = BatchJob(job_id="d7a1a3ba-4a5b-4b3e-9c8e-0a6a2a1f4c55", attempt=1)


def test_a_run_that_did_not_succeed_has_the_command_that_shows_it() -> None:
    """Alone in a code block. A success has none; of a run that left nothing to show, doctor says
    why it has no report.
    """
    log = LogTarget(group="/ecs/etl; #", stream="ecs/batch/0123")
    failed = changed(ended(NOTICE, cause="failure", exit_code=1), report_log=log)
    command = "```task-profiler show 0123 --from 'logs:/ecs/etl; #' --region eu-west-1```"
    assert command in texts(slack_message_of(failed, kibana_url=None).blocks)
    assert "task-profiler" not in text_of(changed(NOTICE, report_log=log))
    doctor = "```task-profiler doctor etl_daily --region eu-west-1```"
    for unreported in (
        replace(failed, report_line=None),
        replace(failed, report_log=None),
        replace(failed, report_line=None, task=replace(failed.task, started_by="events-rule/etl")),
    ):
        shown = texts(slack_message_of(unreported, kibana_url=None).blocks)
        assert [text for text in shown if "task-profiler" in text] == [doctor]
    unreported = changed(
        failed, report_line=None, task=replace(failed.task, batch=JOB, cluster="AWSBatch-spot-1")
    )
    assert f"```task-profiler doctor {JOB.job_id} --region eu-west-1```" in text_of(unreported)


BARE = run_of(
    task=StoppedTask(arn="1", definition_arn="f"),
    end=EventEnd(cause="unknown"),
)


def test_unknown_values_are_left_out() -> None:
    sent = slack_message_of(BARE, kibana_url=None)
    assert sent.text == "❔ Outcome unknown · f"
    assert texts(sent.blocks) == [
        "❔ Outcome unknown · f",
        "task 1",
        "```task-profiler doctor f```",
    ]


EXITED = ended(NOTICE, cause="failure", exit_code=1, reason=None)


@pytest.mark.parametrize(
    ("lines", "ending"),
    [
        (
            ("Traceback:", "  ValueError: no  table <orders>", " "),
            ": ValueError: no table &lt;orders&gt;",
        ),
        (("login failed, password=hunter2",), ": login failed, password=…"),
        (("<!channel> " + "x" * 4000,), "…"),
        (("", "\t"), ""),
        ((), ""),
    ],
)
def test_the_lock_screen_shows_the_last_line_of_a_batch_that_exited(
    lines: tuple[str, ...], ending: str
) -> None:
    """Without secrets: everybody can read it there."""
    sent = slack_message_of(replace(EXITED, log_lines=lines), kibana_url=None)
    begins = "❌ Exit code 1 after 2h 13m · etl_daily:7"
    assert sent.text.startswith(begins)
    assert sent.text.endswith(ending)
    assert ending or sent.text == begins
    assert "hunter2" not in sent.text
    assert "<!" not in sent.text
    assert len(sent.text) < len(begins) + 160


def test_of_another_end_the_last_line_is_not_the_reason() -> None:
    for other in (OOM, ended(EXITED, cause="user")):
        sent = slack_message_of(replace(other, log_lines=("done",)), kibana_url=None)
        assert "done" not in sent.text


def test_a_run_that_did_not_start_has_times_and_commands_and_no_link_to_a_log() -> None:
    created = datetime(2026, 3, 1, 3, 8, tzinfo=UTC)
    bare = changed(
        ended(EXITED, exit_code=None, cause="resources"),
        report_line=None,
        report_log=None,
        log=None,
        task=replace(
            NOTICE.task,
            started_at=None,
            created_at=created,
            stopped_at=created + timedelta(minutes=2),
            started_by="events-rule/etl",
        ),
    )
    text = text_of(bare)
    assert "*Created*\n<!date^1772334480^" in text
    assert "*Stopped*\n<!date^1772334600^" in text
    assert (
        "```task-profiler doctor etl_daily --region eu-west-1\n"
        "task-profiler schedules --cluster jobs --region eu-west-1```"
    ) in text
    assert "Log stream" not in text
    assert "There is no report" not in text


def test_the_numbers_without_a_report_have_their_source() -> None:
    checkpoint = changed(EXITED, report_line=report_line(RECORD, "task.checkpoint"))
    assert "the numbers are from the last checkpoint." in text_of(checkpoint)
    ended_at = replace(NOTICE.task, execution_stopped_at=datetime(2026, 3, 1, 10, 9, tzinfo=UTC))
    by_ecs = changed(EXITED, report_line=None, report_log=None, task=ended_at)
    assert "the duration is ECS's." in text_of(by_ecs)


def test_a_notice_has_the_commands_that_help() -> None:
    stuck = stuck_notice()
    place = f"--cluster jobs --task {stuck.record.task_id} --region {stuck.record.region}"
    assert f"\naws ecs stop-task {place}```" in text_of(stuck)
    assert f"```task-profiler watch {stuck.record.task_id} --cluster jobs" in text_of(stuck)
    line = missed_notice()
    missed = replace(line, notice=replace(line.notice, next_due_at="2026-03-02T03:00:00.000Z"))
    assert "*Next due*\n<!date^1772420400^" in text_of(missed)
    assert "```task-profiler schedules --cluster " in text_of(missed)


def test_a_missed_job_is_looked_at_in_its_queue() -> None:
    line = replace(missed_notice(), cluster=None, queue="nights", family="etl")
    message = text_of(line)
    commands = "task-profiler schedules etl --region us-west-2"
    assert f"```{commands}\ntask-profiler doctor --queue nights --region us-west-2```" in message
    assert "queue nights" in message
    assert "definition etl" in message
    assert "task-profiler schedules etl orders --region" in text_of(
        replace(line, family="etl, orders")
    )
    late = replace(line, notice=replace(line.notice, kind="late", task_id="4109"))
    assert "task-profiler watch --queue nights" in text_of(late)
    assert "job 4109" in text_of(late)


def commands_of(line: NoticeLine) -> dict[str, list[str]]:
    """The commands of a notice as each channel shows them."""
    shown = texts(slack_message_of(line, kibana_url=None).blocks)
    blocks = [text.strip("`") for text in shown if text.startswith("```")]
    steps = run_notice_detail(line, kibana_url=None).next_steps.split(" · To ")[1:]
    escaped = [command for block in blocks for command in block.splitlines()]
    return {
        "Slack": [html.unescape(command) for command in escaped],
        "mail": [step.partition(": ")[2] for step in steps],
    }


@pytest.mark.parametrize(
    "name", ["; $(reboot) &amp; !id", "_nightly", "nightly_", "-x", "=1+1", "a #b", "@all"]
)
def test_a_forged_name_stays_one_word_of_the_command(name: str) -> None:
    """A monitor's line can say anything of the task and the cluster."""
    line = stuck_notice()
    record = replace(line.record, task_id=name, cluster=name, region=None)
    for channel, commands in commands_of(replace(line, record=record)).items():
        assert [shlex.split(command) for command in commands] == [
            ["task-profiler", "watch", name, "--cluster", name],
            ["aws", "ecs", "stop-task", "--cluster", name, "--task", name],
        ], channel


@each_case(
    "name",
    [
        "a'b; reboot; 'c",
        'a"b',
        "a\\b",
        "`id`",
        "<!channel>",
        "~root",
        "[a]",
        "a|b",
        "a  b",
        "x" * 3000,
    ],
)
def test_a_command_that_a_channel_would_change_is_shown_by_none(name: str) -> None:
    """A quotation mark, which JSON would need an escape for, quotes the shell's: replaced, what
    follows it would be a command of its own.
    """
    line = stuck_notice()
    for record in (
        replace(line.record, task_id=name),
        replace(line.record, cluster=name),
        replace(line.record, region=name),
    ):
        assert commands_of(replace(line, record=record)) == {"Slack": [], "mail": []}


@pytest.mark.parametrize("name", ["a'b; reboot; 'c", "a`b", "x" * 3000])
def test_the_morning_message_has_no_command_that_a_channel_would_change(name: str) -> None:
    changed_command = command_line("taskdef", "resize", name)
    for command in (changed_command, command_line("taskdef", "resize", "_etl")):
        line = SummaryLine(text="Look:", command=command)
        night = NightSummary(
            night="2026-03-01", since="", title="x", sentence="x: y", lines=(line,)
        )
        detail = night_summary_detail(night)
        in_slack = "".join(texts(slack_message_of(night, kibana_url=None).blocks))
        for shown in (in_slack, detail.text, detail.markdown, *detail.lines):
            assert (command in shown) == (command != changed_command)
            assert ("resize" in shown) == (command != changed_command)


USED = model.Distribution(avg=41, max=99)


@pytest.mark.parametrize(
    ("count", "utilization", "peak_mb", "line"),
    [
        (2, USED, 12_000, "*2 GPUs*  ▰▰▰▰▱▱▱▱▱▱  41 % avg, peak 99 %; peak memory ≥11.7 GB"),
        (1, model.Distribution(avg=0, max=0), 5, "*1 GPU*  ▱▱▱▱▱▱▱▱▱▱  never used: "),
        (1, model.NOT_MEASURED, None, "*1 GPU*  use unknown"),
    ],
)
def test_gpus(
    count: int, utilization: model.Distribution, peak_mb: float | None, line: str
) -> None:
    memory = model.Distribution(max=peak_mb)
    gpus = tuple(
        model.Gpu(
            uuid=str(n),
            utilization_percent=utilization,
            utilization_source="driver-samples",
            memory_used_mb=memory,
        )
        for n in range(count)
    )
    assert line in text_of(recorded(NOTICE, gpus=gpus))
    cores = tuple(model.NeuronCore(index=n, utilization_percent=utilization) for n in range(count))
    neuron = model.Neuron(cores=cores, device_memory_used_mb=memory)
    of_cores = line.replace("GPU", "NeuronCore").replace("≥", "")
    of_cores = of_cores.replace("never used", "idle throughout")
    assert of_cores in text_of(recorded(NOTICE, neuron=neuron))


SERIES = model.Series(
    started_at="2026-03-01T10:00:03Z",
    step_ms=1000,
    vcpu_used=(0.0, None, 0.5, 0.25),
    memory_used_mb=(None, 512.0, 1024.0, 2048.0, None),
)
TAR = WaitTarget(kind="disk", target="/data/<train>.tar", percent=48.0)
MEANWHILE = TimeBreakdown(disk_percent=48.0, on_cpu_percent=31.0, waiting_for=(TAR,))


@each_case("status", ["failure", "success", "stopped", "unknown"])
@each_case("exit_code", [0, 1, 139])
def test_the_error_of_a_gpu_is_said_once_with_its_number(status: str, exit_code: int) -> None:
    gpus = (model.Gpu(uuid="GPU-a", xids=(31,)),)
    cause = "success" if exit_code == 0 else "gpu-error"
    reported = recorded(NOTICE, gpus=gpus, status=status, exit_code=exit_code)
    notice = ended(reported, cause=cause, exit_code=exit_code)
    detail = ended_run_detail(notice, kibana_url=KIBANA)
    for said in (text_of(notice), f"{detail.text} {detail.summary}"):
        assert said.count("Xid 31") == said.count("The GPU's driver reported") == 1


GPU_IDLE = model.GpuIdle(percent=63.0, gpu_hours=0.5, usd=1.26, waiting_for=MEANWHILE)
ONE_GPU = recorded(NOTICE, gpus=(model.Gpu(uuid="a"),), gpu_idle=GPU_IDLE)
CHEAPER = model.Recommendation(vcpu=0.25, memory_mb=512, saving_percent=48.7)
HALF = model.Recommendation(
    vcpu=0.5, memory_mb=1024, saving_percent=50.0, reasons=("Half would do.",)
)
ONE_KILL = model.MemoryKills(count=1)
KILLS = model.MemoryKills(
    count=7, processes=tuple(model.Process(name=name) for name in ("sort", "sort", "<b>"))
)
# AWS changes the prices of Spot, and has no list of them.
ON_SPOT = cost_on_provider(
    "FARGATE_SPOT",
    model.Cost(usd=1, price_basis="us-east-1 FARGATE X86_64 2026-09 on-demand price"),
)
FAILURE = ended(NOTICE, cause="failure", exit_code=1, reason="why")
SIZE = model.TaskSize(vcpu=0.5, memory_mb=1024)
VISIBLE: dict[str, Any] = {"task_size": SIZE, "visible": model.Visible(memory_mb=3900, cpus=2)}
REMEDY = (
    "\nThe program sees 3.8 GB and may use 1: set the container's `memory`, or "
    "-Xmx/max_old_space_size/workers.\n"
)
BY_ECS = recorded(OOM, metrics=replace(RECORD.metrics, max_memory_used_mb=600))
DATABASE = WaitTarget(kind="network", target="10.0.3.9:5432", percent=48.3)
SLOW, AS_EVER = (
    FamilyComparison(text="3.1× longer.", is_slow=True),
    FamilyComparison(text="As long as ever."),
)


def waited(network_percent: float, *targets: WaitTarget) -> TimeBreakdown:
    return TimeBreakdown(
        on_cpu_percent=100 - network_percent,
        network_percent=network_percent,
        other_percent=0.0,
        waiting_for=targets,
    )


WAITED = recorded(
    NOTICE,
    time_breakdown=waited(71.4, WaitTarget(kind="disk", target="/data/a", percent=60), DATABASE),
)
FOR_NETWORK = "71 % of the time it waited for the network"
NO_TARGET = WaitTarget(kind="other", target="other", percent=71.4)
ASLEEP = TimeBreakdown(sleep_percent=50.4, network_percent=49.6)
NOT_WAITED = [
    NO_BREAKDOWN,
    TimeBreakdown(on_cpu_percent=1.0, disk_percent=0.0, other_percent=99.0),  # without SYS_PTRACE
    TimeBreakdown(network_percent=50.0, sleep_percent=50.0),
    TimeBreakdown(network_percent=71.4, covered_percent=12.0),
]
SMALLER = [
    model.Recommendation(memory_mb=memory_mb, reasons=("Half of it was used.",))
    for memory_mb in (512, 1024)
]


def test_an_empty_reason_of_an_advice_is_no_line() -> None:
    """The line can be anybody's."""
    shown = text_of(recorded(NOTICE, recommendation=replace(HALF, reasons=("", "Half would do."))))
    assert shown.count("• ") == 1


@each_case(
    "said",
    [
        (
            recorded(NOTICE, series=SERIES),
            "of 0.5 vCPU\n`▁\u00a0█▅`\n*Memory*",
            "of 1 GB\n`\u00a0▅██\u00a0`",
        ),
        (
            OOM,
            "❌ Out of memory after 2h 13m · etl_daily:7",
            "*Exit code*\n137 (SIGKILL)",
            "Memory: measured peak ≥993 MB, limit 1 GB.",
        ),
        (OOM, "Reason from ECS: OutOfMemoryError: Container killed due to memory usage"),
        (OOM, "Recommended size: 2 GB (costs 20 % more).\n• Memory was short."),
        (ended(FAILURE, cause="spot"), "AWS reclaimed the Spot capacity."),
        (ended(FAILURE, cause="image"), "image could not be pulled"),
        (FAILURE, "exited with code 1."),
        (ended(FAILURE, cause="not-started"), "Reason from ECS: why"),
        (ended(NOTICE, cause="oom", out_of_memory=True), "because memory ran out, but"),
        (
            recorded(NOTICE, memory_kills=ONE_KILL),
            "The kernel killed 1 process for lack of memory.",
        ),
        (
            recorded(FAILURE, memory_kills=KILLS),
            "killed 7 processes for lack of memory: sort, &lt;b&gt;.",
        ),
        (recorded(OOM, **VISIBLE), REMEDY),
        (recorded(BY_ECS, **VISIBLE), REMEDY),
        (recorded(FAILURE, **VISIBLE), REMEDY),
        (
            ONE_GPU,
            (
                "The GPU was idle 63 % of the run; meanwhile the batch read files (48 %: "
                "/data/&lt;train&gt;.tar) "
            ),
        ),
        (ONE_GPU, ".tar) and used one CPU (31 %).\n0.5 idle GPU-hours ($1.26)."),
        (DID_NOTHING, "⚠️ Success, but unlike its family · etl_daily:7\n"),
        (
            DID_NOTHING,
            "unlike its family: took 3.0 s (usually 41m 10s), read 0 MB (usually 2.1 GB).",
        ),
        (replace(NOTICE, comparison=SLOW), "3.1× longer."),
        (
            recorded(NOTICE, recommendation=CHEAPER),
            "Recommended size: 0.25 vCPU, 512 MB (saves 49 %).",
        ),
        (
            recorded(NOTICE, recommendation=HALF),
            "Recommended size: 0.5 vCPU, 1 GB (saves 50 %).\n• Half would do.",
        ),
        (
            recorded(NOTICE, recommendation=HALF),
            "• Half would do.\ntask-profiler taskdef resize etl_daily --from logs:/ecs/jobs",
        ),
        (recorded(NOTICE, recommendation=HALF, task_size=SIZE), "• Half would do.\n"),
        (recorded(NOTICE, cost=ON_SPOT), "≥ $0.30 (Spot)"),
        (
            ended(WAITED, cause="failure", exit_code=1),
            f"\n{FOR_NETWORK}, 48 % for 10.0.3.9:5432.\n",
        ),
        (
            replace(WAITED, comparison=SLOW),
            f"3.1× longer.\n{FOR_NETWORK}, 48 % for 10.0.3.9:5432.\n",
        ),
        (recorded(FAILURE, time_breakdown=waited(71.4, NO_TARGET)), f"\n{FOR_NETWORK}.\n"),
        (recorded(FAILURE, time_breakdown=ASLEEP), "\n50 % of the time it slept.\n"),
        (
            stuck_notice(),
            "⚠️ nightly-etl:26 has been stuck for 30 minutes\n",
            "Log stream\nECS task\nKibana",
        ),
        (
            stuck_notice(),
            "it has waited mostly for the network (10.0.3.9:5432).",
            "*Running for*",
            "*CPU*",
            "*Memory*",
        ),
        (
            missed_notice(),
            "⚠️ nightly-etl did not run",
            "schedule default/nightly-etl",
            "cron(0 3 * * ? *) UTC",
        ),
        (
            missed_notice(),
            "*Due*\n<!date^1795143600^{date_num} {time_secs}|2026-11-20 03:00:00 UTC>",
            "the capacity is unavailable",
        ),
        (
            UNKNOWN_KIND,
            "nightly-etl:26 has a notification of kind &lt;!channel&gt;",
            "Look &amp; see &lt;@U1&gt;.",
        ),
    ],
)
def test_what_the_message_says(said: tuple[Any, ...]) -> None:
    notice, *words = said
    text = f"{text_of(notice)}\n"
    assert [word for word in words if word not in text] == []


@each_case(
    ("notice", "words"),
    [
        *(
            (recorded(OOM, recommendation=advice), word)
            for advice in SMALLER
            for word in ("Recommended size", "Half")
        ),
        (recorded(FAILURE, recommendation=CHEAPER), "Recommended size"),
        (ended(NOTICE, reason="Essential container in task exited"), "Reason from ECS"),
        (recorded(ended(NOTICE, cause="user"), **VISIBLE), "The program sees"),
        (recorded(NOTICE, **VISIBLE), "The program sees"),
        (
            recorded(OOM, task_size=SIZE, visible=model.Visible(memory_mb=1100, cpus=2)),
            "The program sees",
        ),
        (recorded(NOTICE, recommendation=HALF, task_size=SIZE), "Recommended size"),
        *(
            (replace(recorded(FAILURE, time_breakdown=one), comparison=SLOW), "of the time")
            for one in NOT_WAITED
        ),
        (WAITED, "of the time"),
        (replace(WAITED, comparison=AS_EVER), "of the time"),
        (ended(WAITED, cause="user"), "of the time"),
    ],
)
def test_what_the_message_does_not_say(notice: EndedRun, words: str) -> None:
    assert words not in text_of(notice)


def test_text_is_truncated_before_it_is_escaped() -> None:
    assert escape_text("a<!channel>&b", 100) == "a&lt;!channel&gt;&amp;b"
    assert escape_text("&" * 10, 16) == "&amp;" * 3 + "…"
    assert escape_text("&" * 3, 15) == "&amp;" * 3
    assert escape_text("e\u0301" * 10, 6) == "e\u0301" * 2 + "…"
    assert embeddable_text("e\u0301" * 10, 5) == "e\u0301" * 2
    assert embeddable_text("\u0301" * 10, 5) == "\u0301" * 5  # nothing is lost that is no letter
    assert escape_text("one\n two\t\x00three\ud800", 100) == "one two three?"


# Links


@pytest.mark.parametrize(
    "region", [None, "us-iso-east-1", "us-isob-east-1", "evil.com/", "eu-west-1\n"]
)
def test_a_region_without_a_console_has_no_link(region: str | None) -> None:
    assert urls(slack_message_of(in_task(NOTICE, region=region), kibana_url=None)) == {}


@pytest.mark.parametrize("url", [None, "kibana", "javascript:alert(1)", "http://[bad"])
def test_an_invalid_kibana_address_has_no_button(url: str | None) -> None:
    assert "kibana" not in urls(slack_message_of(NOTICE, kibana_url=url))


# Any notice


@settings(deadline=None)  # a text of 21,000 characters takes long on a busy machine
@given(
    NOTICES | RUN_NOTICES | SCHEDULE_NOTICES,
    MAYBE_TEXT | ANY_TEXT.map(lambda text: f"https://{text}"),
)
def test_any_notification_becomes_a_valid_slack_message(
    notification: Notification, kibana_url: str | None
) -> None:
    sent = slack_message_of(notification, kibana_url=kibana_url)
    as_sent = json.dumps(
        {"text": sent.text, "blocks": sent.blocks}, ensure_ascii=False, allow_nan=False
    ).encode()
    assert violations(json.loads(as_sent)) == []
    for with_dates in [sent.text, *texts(sent.blocks)]:
        text = SLACK_DATE.sub("", with_dates)
        assert "<" not in text
        assert ">" not in text
        assert re.search("&(?!amp;|lt;|gt;)", text) is None
    for each in objects(sent.blocks):
        assert each["emoji"] is False if each["type"] == "plain_text" else each["verbatim"] is True
    assert all(urlsplit(url).hostname for url in urls(sent).values())
    if isinstance(notification, EndedRun):
        ours = [each["text"] for each in objects(sent.blocks) if each["type"] == "mrkdwn"]
        assert [text for text in ours if re.search(r"\b(nan|inf|None)\b", text)] == []


@given(st.text(ANY_CHARACTER), st.integers(1, 40))
def test_escaped_text_is_never_too_long(text: str, longest: int) -> None:
    assert length(escape_text(text, longest)) <= longest
