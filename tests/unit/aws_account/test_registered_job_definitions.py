"""The account's job definitions: few calls of Batch, and not too many at once."""

import json
from collections.abc import Iterator

import pytest

from profiler.aws_account.registered_job_definitions import JobDefinitions
from profiler.core.errors import TaskProfilerError
from profiler.core.json_fields import mapping_or_empty
from profiler.core.timestamps import NS_PER_SECOND
from profiler.task_definitions.job_as_task_definition import described_form
from tests.fake_batch import FakeBatch
from tests.fakes import FakeClock


@pytest.fixture
def batch() -> Iterator[FakeBatch]:
    with FakeBatch() as fake:
        yield fake


def definitions(batch: FakeBatch, clock: FakeClock) -> JobDefinitions:
    return JobDefinitions(lambda _service: batch.client(), clock)


def test_one_list_answers_for_many_names_and_has_the_newest_active_revision(
    batch: FakeBatch,
) -> None:
    for number in range(150):
        batch.define(f"job-{number}")
        batch.define(f"job-{number}", 2, 4096)
    batch.client().deregister_job_definition(jobDefinition="job-7:2")
    batch.calls.clear()
    jobs = definitions(batch, FakeClock())
    names = jobs.families("job-*")
    assert len(names) == 150
    arns = {
        name: json.loads(jobs.describe(name))["taskDefinition"]["taskDefinitionArn"]
        for name in names
    }
    assert len(batch.calls) == 3, "pages of 100"
    assert arns["job-7"].endswith(":1")
    assert arns["job-8"].endswith(":2")


def test_after_a_few_calls_there_are_three_a_second(batch: FakeBatch) -> None:
    for number in range(25):
        batch.define(f"job-{number}")
    clock = FakeClock()
    jobs = definitions(batch, clock)
    began_ns = clock.monotonic_ns()
    for number in range(10):
        jobs.describe(f"job-{number}")
    assert clock.monotonic_ns() == began_ns
    for number in range(10, 25):
        jobs.describe(f"job-{number}")
    seconds = (clock.monotonic_ns() - began_ns) / NS_PER_SECOND
    assert 14 / 3 - 0.01 <= seconds <= 5


def test_what_is_gone_is_a_sentence(batch: FakeBatch) -> None:
    batch.define("nightly")
    batch.client().deregister_job_definition(jobDefinition="nightly:1")
    jobs = definitions(batch, FakeClock())
    assert json.loads(jobs.describe("nightly:1"))["taskDefinition"]["status"] == "INACTIVE"
    for name in ("nightly", "nightly:2", "other"):
        with pytest.raises(TaskProfilerError, match="not active, or was deleted"):
            jobs.describe(name)
    assert jobs.newest_withdrawn("nightly") == 1


def test_a_field_that_boto3_does_not_know_is_refused_in_words(batch: FakeBatch) -> None:
    batch.define("nightly")
    newer = described_form({**batch.definitions[0], "somethingNew": 1})["taskDefinition"]
    with pytest.raises(TaskProfilerError, match="upgrade boto3"):
        definitions(batch, FakeClock()).register(mapping_or_empty(newer))
    assert len(batch.definitions) == 1
