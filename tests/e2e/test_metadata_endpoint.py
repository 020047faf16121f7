"""The metadata endpoint of these tests has the members that the real ECS agent gave in a night of `make real`."""

from typing import Any

import pytest

from tests.e2e.reports import Start, finished, wait_for_samples
from tests.e2e.specs import BATCH, batch_container
from tests.recorded_agent import are_complete, read_answers, recorded_answers, shape_of_answers
from tools.moto_server import FakeAws
from tools.waiting import wait_until

pytestmark = pytest.mark.e2e


def test_the_endpoint_answers_as_the_real_agent(start: Start, aws: FakeAws) -> None:
    task = start(batch_container("--memory-mib", "20", "--until-term"))
    address = task[BATCH].placement.environment["ECS_CONTAINER_METADATA_URI_V4"]
    wait_for_samples(task, 3)
    wait_until(lambda: are_complete(read_answers(address)), 60, "statistics of each container")
    assert _shape(read_answers(address)) == shape_of_answers(recorded_answers()["running"])
    task.stop()
    finished(aws, task)
    assert _shape(read_answers(address)) == shape_of_answers(recorded_answers()["ended"])


def _shape(answers: dict[str, Any]) -> dict[str, Any]:
    """Without the times of the image's pull: in that night the images were there."""
    pull = ("PullStartedAt", "PullStoppedAt")
    task = {name: value for name, value in answers["/task"].items() if name not in pull}
    return shape_of_answers({**answers, "/task": task})
