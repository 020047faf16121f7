"""No event is lost: each one is indexed, raises for a retry, or is named in the log. Each notice is sent or raises.

Each run has valid signals to export.
"""

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.forwarder.invocation import DeliveryError, ForwarderError, SearchClusterError
from profiler.forwarder.run_export import exported_run
from profiler.forwarder.search_cluster.document_delivery import Failure
from profiler.forwarder.search_cluster.interface import bulk_lines
from profiler.record.task_end import parse_stopped_task
from tests.notices import fake_channel
from tests.unit.forwarder.test_task_event import EVENT
from tests.unit.forwarder.test_task_stopped import BATCH_STREAM, World, report
from tests.unit.otlp.test_run_signals import check

TIMES = st.sampled_from(
    [
        None,
        "2026-03-01T10:11:29.1Z",
        "0001-01-01T00:00:00+14:00",
        "0001-01-01T00:00:00Z",
        "9999-12-31T23:59:59.999-14:00",
        "10000-01-01T00:00:00Z",
        "1969-12-31T23:59:59Z",
    ]
)
TEXTS = st.none() | st.text(st.characters(codec=None), max_size=20) | st.sampled_from(["\ud800", "x" * 600, ""])
EXIT_CODES = st.none() | st.integers() | st.sampled_from([0, 1, 137, 2**31, 2**70, -(2**70), True, 1.5, "1"])
ANYTHING = (
    TEXTS | EXIT_CODES | TIMES | st.lists(TEXTS, max_size=2) | st.dictionaries(st.text(max_size=3), TEXTS, max_size=2)
)
CONTAINERS = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from(["batch", "task-monitor", "proxy", "\udcff"]) | ANYTHING})
    | st.fixed_dictionaries({"name": st.just("batch"), "exitCode": EXIT_CODES, "reason": TEXTS}),
    max_size=3,
)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(
        ("createdAt", "pullStartedAt", "pullStoppedAt", "startedAt", "executionStoppedAt", "stoppedAt"),
        TIMES | ANYTHING,
    ),
    **dict.fromkeys(("stopCode", "stoppedReason", "startedBy", "group", "launchType", "clusterArn"), TEXTS | ANYTHING),
    "containers": CONTAINERS | ANYTHING,
    "lastStatus": st.sampled_from(["STOPPED", "STOPPED", "STOPPED", "RUNNING"]) | ANYTHING,
}
EVENTS = st.fixed_dictionaries({}, optional=FIELDS).map(
    lambda detail: {**EVENT, "detail": {**EVENT["detail"], **detail}}
)
FAILURES = st.sampled_from(["", "cluster", "refused", "slack", "other", "cluster and slack"])


@settings(deadline=None)
@given(event=EVENTS, failing=FAILURES, is_described=st.booleans(), has_report=st.booleans())
def test_every_event_is_indexed_raises_or_is_named_in_a_warning(
    event: dict[str, Any], failing: str, *, is_described: bool, has_report: bool
) -> None:
    task = parse_stopped_task(event)
    if task is None:
        assert event["detail"]["lastStatus"] != "STOPPED"
        return
    world, other = World({BATCH_STREAM: [report()]} if has_report else {}), fake_channel("other")
    world.other_channels = [other]
    world.described = world.described if is_described else None
    errors = {"cluster": SearchClusterError("away", status=None), "slack": DeliveryError("Slack is away.")}
    world.errors = {name: error for name, error in errors.items() if name in failing}
    world.rejected = (Failure({}, "bad mapping"),) if failing == "refused" else ()
    other.error = DeliveryError("The bus is away.") if failing == "other" else None
    raised = ""
    indexed = False
    try:
        indexed = world.handle(task, services=True, report_wait_seconds=0.0)["indexed"] is True
    except ForwarderError as error:
        raised = str(error)
    is_named = any(task.id in sentence for sentence in world.warnings)
    assert indexed or raised or is_named
    assert is_named or bool(world.documents) or "away" in raised
    assert bool(world.notices) != ("Slack is away." in raised)
    assert bool(other.posted) != ("The bus is away." in raised)
    ((ended, _),) = world.exported
    check(exported_run(ended, 1))
    msgspec.json.encode(bulk_lines(world.documents))  # valid JSON and UTF-8, whatever the event contained
    for document in world.documents:
        assert document.index.startswith("task-reports-20")
        task_fields = document.initial_fields["task"]
        assert -(2**31) <= task_fields.get("exit_code", 0) < 2**31
        assert task_fields["status"] in {"success", "failure", "stopped", "unknown"}
