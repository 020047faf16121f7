"""What messages say of a run that is an attempt of a job of AWS Batch."""

import json

import pytest
from msgspec.structs import replace

from profiler.forwarder.ended_run import EndedRun
from profiler.forwarder.job_notice import JobNotice
from profiler.forwarder.notifications.event_details import ended_run_detail, job_notice_detail
from profiler.forwarder.notifications.slack_messages import slack_message_of
from profiler.forwarder.run_links import log_stream_url
from profiler.record.batch_job import BatchJob
from profiler.record.batch_job_detail import parse_job
from profiler.record.record_model import Recommendation, TaskSize
from tests.batch_jobs import CLUSTER, end_without_attempt, job_id
from tests.ended_runs import NOTICE, in_task, recorded
from tests.fake_batch import FakeBatch
from tests.values import present

JOB = BatchJob(job_id=f"{job_id(1)}:17", queue="nightly", attempt=2, array_index=17)
SMALLER = {
    "task_size": TaskSize(vcpu=1, memory_mb=2048),
    "recommendation": Recommendation(vcpu=0.25, memory_mb=512, saving_percent=75),
}


def of_job(job: BatchJob = JOB) -> EndedRun:
    return in_task(NOTICE, cluster=CLUSTER, batch=job)


def blocks(notice: EndedRun | JobNotice) -> str:
    return json.dumps(slack_message_of(notice, kibana_url=None).blocks, ensure_ascii=False)


def test_a_message_says_job_attempt_and_queue() -> None:
    names = f"job {JOB.job_id}  ·  attempt 2  ·  queue nightly"
    assert names in blocks(of_job())
    assert "attempt" not in blocks(NOTICE)
    detail = ended_run_detail(of_job(), kibana_url=None)
    assert detail.batch == JOB
    assert detail.summary.startswith(f"Job: {JOB.job_id}, attempt 2, queue nightly. ")


def test_a_jobs_name_is_anybodys_words() -> None:
    hostile = replace(JOB, job_name='<!channel> \x1b[31m"orders\\\n' + "x" * 5_000)
    sent = blocks(of_job(hostile))
    assert "<!channel>" not in sent
    assert "\\u001b" not in sent
    assert len(sent) < 5_000
    summary = ended_run_detail(of_job(hostile), kibana_url=None).summary
    assert not {'"', "\\", "\x1b", "\n"} & set(summary)


def test_no_command_resizes_what_batch_registers() -> None:
    assert "taskdef resize" in blocks(recorded(NOTICE, **SMALLER))
    assert "taskdef resize" not in blocks(recorded(of_job(), **SMALLER))


@pytest.mark.parametrize("is_blocked", [False, True])
def test_of_a_job_that_does_not_start_the_next_command_is_doctor(*, is_blocked: bool) -> None:
    with FakeBatch() as batch:
        batch.add_queue("nightly", "spot")
        batch.define("etl")
        job = batch.submit("orders", "nightly", "etl")
        if not is_blocked:
            end_without_attempt(job, batch.now_ms, "Dependent Job failed")
        notice = JobNotice(job=present(parse_job(job)), is_blocked=is_blocked)
    sent = json.dumps(slack_message_of(notice, kibana_url=None).blocks)
    assert f"```task-profiler doctor {notice.job.id} --region us-west-2```" in sent


def test_of_an_array_the_next_command_shows_its_newest_child() -> None:
    """An array itself never has an attempt."""
    with FakeBatch() as batch:
        batch.add_queue("nightly", "spot")
        batch.define("etl")
        job = batch.submit("orders", "nightly", "etl", arrayProperties={"size": 2})
        end_without_attempt(job, batch.now_ms, "Array Child Job failed")
    notice = JobNotice(job=present(parse_job(job)))
    sent = json.dumps(slack_message_of(notice, kibana_url=None).blocks)
    command = f"task-profiler show {notice.job.id} --from logs:/aws/batch/job --region us-west-2"
    assert command in sent


def test_messages_of_a_job_lead_to_the_log_of_its_newest_attempt() -> None:
    with FakeBatch() as batch:
        batch.add_queue("nightly", "spot")
        batch.define("etl", retryStrategy={"attempts": 2})
        job = batch.submit("orders", "nightly", "etl")
        for _ in range(2):
            batch.begin(job)
            batch.end(job, 1)
        notice = JobNotice(job=present(parse_job(job)))
    region, group = notice.job.region, notice.job.log_group
    first, newest = (
        present(log_stream_url(region, group, attempt.failed_log_stream))
        for attempt in notice.job.attempts
    )
    assert first != newest
    for told in (job_notice_detail(notice).next_steps, blocks(notice)):
        assert newest in told
        assert first not in told
