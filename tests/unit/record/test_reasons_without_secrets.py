"""A reason of ECS or of AWS Batch has the command that cannot be started, with its secrets."""

import pytest

from profiler.core.json_fields import Json
from profiler.record.batch_job_detail import parse_job
from profiler.record.job_outcome import failed_child
from profiler.record.stopped_task import parse_stopped_task
from tests.fake_batch import FakeBatch
from tests.values import present

# https://docs.aws.amazon.com/AmazonECS/latest/developerguide/stopped-task-error-codes.html
REASON = (
    "CannotStartContainerError: Error response from daemon: failed to create task for container:"
    " failed to create shim task: OCI runtime create failed: runc create failed: unable to start"
    ' container process: error during container init: exec: "python load.py --password {}": stat'
    " python load.py --password {}: no such file or directory: unknown"
)
WRITTEN, SHOWN = REASON.replace("{}", "hunter2"), REASON.replace("{}", "…")
ORDINARY = (
    "ResourceInitializationError: unable to pull secrets or registry auth: execution resource"
    " retrieval failed: unable to retrieve secret from asm: service call has been retried 1"
    " time(s): failed to fetch secret arn:aws:secretsmanager:us-east-1:123456789012:secret:db-AbCdEf"
    " from secrets manager: AccessDeniedException"
)


def event(reason: str) -> Json:
    return {
        "detail": {
            "taskArn": "arn:aws:ecs:us-east-1:123456789012:task/default/3f2a9c1bd2e44f0e9c1b3f2a9c1bd2e4",
            "lastStatus": "STOPPED",
            "stopCode": "TaskFailedToStart",
            "stoppedReason": reason,
            "containers": [{"name": "batch", "reason": reason}],
        }
    }


@pytest.mark.parametrize(("written", "shown"), [(WRITTEN, SHOWN), (ORDINARY, ORDINARY)])
def test_a_stopped_tasks_reasons_have_no_secrets(written: str, shown: str) -> None:
    task = present(parse_stopped_task(event(written)))
    assert (task.stopped_reason, task.container_or_name_only("batch").reason) == (shown, shown)
    assert task.unusable == ()


@pytest.mark.parametrize(("written", "shown"), [(WRITTEN, SHOWN), (ORDINARY, ORDINARY)])
def test_a_jobs_reasons_have_no_secrets(written: str, shown: str) -> None:
    with FakeBatch() as batch:
        batch.add_queue("nightly", "spot")
        batch.define("load", 1, 4096)
        job = batch.submit("orders", "nightly", "load")
        batch.begin(job)
        batch.end(job, None, written)
    job["statusReason"] = written
    detail = present(parse_job(job))
    stated = present(detail.status_reason)
    assert len(stated) > 200
    assert shown.startswith(stated)
    assert "hunter2" not in str(detail)
    child = {"arrayProperties": {"index": 1}, "container": {"reason": written}, "startedAt": 5}
    assert "hunter2" not in str(failed_child(child, None))
