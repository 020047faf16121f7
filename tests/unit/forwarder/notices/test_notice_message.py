"""The Slack messages of notices of running tasks and of schedules. Slack accepts the message for any content."""

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from forwarder.notices.slack_blocks import SlackMessage
from forwarder.notices.slack_channel import message_of
from profiler.record.notice_model import (
    Notice,
    NoticedSchedule,
    NoticeEvidence,
    NoticeLine,
    ScheduleNotice,
    ScheduleNoticeLine,
)
from tests.shown_runs import missed_notice, stuck_notice
from tests.unit.forwarder.notices.test_slack_message import (
    ANY_FLOAT,
    ANY_RECORD,
    ANY_TEXT,
    MAYBE_TEXT,
    assert_accepted_and_escaped,
    texts,
    urls,
)

KIBANA = "https://kibana.example.com"
ANY_EVIDENCE = st.none() | st.builds(NoticeEvidence, minutes=ANY_FLOAT, used_mb=ANY_FLOAT, waiting_for=MAYBE_TEXT)
RUN_NOTICES = st.builds(
    NoticeLine,
    time=ANY_TEXT,
    notice=st.builds(
        Notice,
        kind=st.sampled_from(["stuck", "overdue"]) | ANY_TEXT,
        message=ANY_TEXT,
        since=MAYBE_TEXT,
        evidence=ANY_EVIDENCE,
    ),
    record=ANY_RECORD.flatmap(
        lambda record: st.builds(
            lambda arn, family, region, group: replace(
                record, task_arn=arn, family=family, revision=family, region=region, log_group=group, log_stream=group
            ),
            *(MAYBE_TEXT,) * 2,
            MAYBE_TEXT | st.just("eu-west-1"),
            MAYBE_TEXT,
        )
    ),
)
SCHEDULE_NOTICES = st.builds(
    ScheduleNoticeLine,
    time=ANY_TEXT,
    notice=st.builds(
        ScheduleNotice,
        kind=st.just("missed") | ANY_TEXT,
        message=ANY_TEXT,
        due_at=MAYBE_TEXT,
        reason=MAYBE_TEXT,
        task_id=MAYBE_TEXT,
    ),
    schedule=st.builds(
        NoticedSchedule,
        kind=ANY_TEXT,
        name=ANY_TEXT,
        group=MAYBE_TEXT,
        expression=MAYBE_TEXT,
        time_zone=MAYBE_TEXT,
    ),
    cluster=MAYBE_TEXT,
    family=MAYBE_TEXT,
    region=MAYBE_TEXT | st.just("eu-west-1"),
    account_id=MAYBE_TEXT,
)


def shown(message: SlackMessage) -> str:
    return "\n".join(texts(message.blocks))


def test_a_stuck_run_is_described_with_what_it_used_so_far() -> None:
    message = message_of(stuck_notice(), kibana_url=KIBANA)
    text = shown(message)
    assert message.blocks[0]["text"]["text"] == "⚠️ nightly-etl:26 has been stuck for 30 minutes"
    assert "it has waited mostly for network 10.0.3.9:5432." in text
    assert "*Running for*" in text
    assert "*CPU*" in text
    assert "*Memory*" in text
    assert set(urls(message)) == {"log_stream", "ecs_task", "kibana"}
    assert message.text.startswith("⚠️ nightly-etl:26 has been stuck for 30 minutes: The run used less than 0.01 vCPU")


def test_a_missed_run_is_described_with_its_reason_once() -> None:
    text = shown(message_of(missed_notice(), kibana_url=KIBANA))
    assert "⚠️ nightly-etl did not run" in text
    assert text.count("the capacity is unavailable") == 1
    assert "schedule default/nightly-etl" in text
    assert "*Due*\n2026-11-20 03:00:00 UTC" in text
    assert "cron(0 3 * * ? *) UTC" in text


def test_a_notice_with_a_task_links_to_it() -> None:
    line = missed_notice()
    late = replace(line, notice=replace(line.notice, kind="late", task_id="0123", reason="The cluster was full."))
    message = message_of(late, kibana_url=None)
    assert set(urls(message)) == {"ecs_task"}
    assert "Reason: The cluster was full." in shown(message)


def test_an_unknown_kind_is_announced_with_its_message() -> None:
    line = stuck_notice()
    message = message_of(replace(line, notice=Notice(kind="<!channel>", message="Look & see <@U1>.")), kibana_url=None)
    text = shown(message)
    assert "nightly-etl:26 has a notice of kind &lt;!channel&gt;" in text
    assert "Look &amp; see &lt;@U1&gt;." in text


@settings(deadline=None)
@given(RUN_NOTICES | SCHEDULE_NOTICES, MAYBE_TEXT | ANY_TEXT.map(lambda text: f"https://{text}"))
def test_any_notice_becomes_a_valid_slack_message(
    line: NoticeLine | ScheduleNoticeLine, kibana_url: str | None
) -> None:
    assert_accepted_and_escaped(message_of(line, kibana_url=kibana_url))
