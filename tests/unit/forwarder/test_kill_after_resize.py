"""What a notice says of a run that was killed after its family's memory had been reduced."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from profiler.forwarder.ended_run import EndedRun
from profiler.forwarder.function_settings import ForwarderSettings
from profiler.forwarder.kill_after_resize import (
    NOT_RESIZED,
    reduced_memory_sentence,
    size_change_of_definition,
)
from profiler.forwarder.notifications.event_details import ended_run_detail
from profiler.forwarder.notifications.slack_messages import ended_task_message
from profiler.forwarder.run_documents import event_documents
from profiler.record.stop_causes import EventEnd
from tests.ended_runs import changed, run_of
from tests.task_events import task

RESIZED = {
    "memory": "512",
    "registeredAt": datetime(2026, 11, 18, 3, 0, tzinfo=UTC),
    "tags": [{"key": "task-profiler:resized-from", "value": "4/1024/4096"}],
}
KILLED = EventEnd(cause="oom", out_of_memory=True, exit_code=137)
SENTENCE = (
    "Its memory was reduced from 4 GB to 512 MB on 18 November. This puts it back: "
    "task-profiler taskdef resize nightly --revert --register --update-schedules --region us-west-2"
)


def ended(end: EventEnd = KILLED, memory: str = "512") -> EndedRun:
    return run_of(task=task(memory=memory), end=end, container="batch")


def tagged(value: str) -> dict[str, Any]:
    return {**RESIZED, "tags": [{"key": "task-profiler:resized-from", "value": value}]}


def test_a_kill_at_a_reduced_size_names_the_change_and_the_command_that_undoes_it() -> None:
    assert reduced_memory_sentence(ended(), size_change_of_definition(RESIZED)) == SENTENCE


@pytest.mark.parametrize(
    "definition",
    [
        {},
        {"memory": "512"},
        {**RESIZED, "memory": "8192"},
        {**RESIZED, "memory": None},
        tagged("4/1024/512"),
        tagged("4/1024/x"),
        tagged("<!channel>/1/2"),
    ],
)
def test_a_definition_whose_memory_was_not_reduced_says_nothing(
    definition: dict[str, Any],
) -> None:
    assert reduced_memory_sentence(ended(), size_change_of_definition(definition)) is None


def test_the_runs_document_has_the_size_before_the_resize() -> None:
    resized = changed(ended(), resized_from=size_change_of_definition(RESIZED).tag)
    (document,) = event_documents(resized, ForwarderSettings())
    assert document.fields["task"]["resized_from"] == "4/1024/4096"


@pytest.mark.parametrize("definition", [{}, tagged("4/1024/x"), tagged("<!channel>/1/2")])
def test_a_tag_that_is_not_a_size_is_not_in_the_document(
    definition: dict[str, Any],
) -> None:
    assert size_change_of_definition(definition) == NOT_RESIZED


def test_another_failure_and_a_kill_at_another_size_say_nothing() -> None:
    failed = ended(EventEnd(cause="failure", exit_code=137))
    assert reduced_memory_sentence(failed, size_change_of_definition(RESIZED)) is None
    assert reduced_memory_sentence(ended(memory="1024"), size_change_of_definition(RESIZED)) is None


def test_an_unknown_day_is_left_out() -> None:
    assert "512 MB. This" in (
        reduced_memory_sentence(
            ended(), size_change_of_definition({**RESIZED, "registeredAt": None})
        )
        or ""
    )


def test_slack_and_the_event_bus_have_the_sentence() -> None:
    notice = replace(ended(), reduced_memory=SENTENCE)
    message = json.dumps(ended_task_message(notice, kibana_url=None), default=str)
    assert SENTENCE in message
    assert SENTENCE in ended_run_detail(notice, kibana_url=None).text
