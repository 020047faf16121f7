"""Verifies that a report is a run's: how its log stream and its account are judged against ECS's
event of the run.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

from profiler.core.ecs_terms import EC2
from profiler.core.json_fields import mapping_or_empty, text_or_none

# What vouches for a report whose log stream is not its container's: a ``Voucher`` of
# profiler.record.line_trust.
CONTAINER_ID = "container-id"
MONITOR_STREAM = "monitor-stream"
INSTANCE_MONITOR = "instance-monitor"
# Streams of which ECS does not say that they are an instance monitor's.
_UNPROVEN_MONITORS = frozenset({"defined-monitor", "unproven-monitor"})


class LogStreamClaim(Struct, frozen=True, kw_only=True):
    """The log stream of a report that is not its container's; OWN_STREAM of one that is.

    ``voucher``: the task's event vouches for ``container-id`` if it has this id, for
    ``monitor-stream`` because it names the container, and for ``instance-monitor`` on EC2; any
    other word, such as ``trusted-group``, stays unconfirmed.
    """

    voucher: str
    stream: str

    @property
    def is_own(self) -> bool:
        """Whether the stream names the task, so that nothing needs to vouch for it."""
        return not self.voucher

    @property
    def is_of_task(self) -> bool:
        """Whether the stream is the task's, or that of the monitor of the task's instance: it ends
        the task's notices, and holds its one document.
        """
        return self.is_own or self.voucher in (MONITOR_STREAM, INSTANCE_MONITOR)


OWN_STREAM: Final = LogStreamClaim(voucher="", stream="")
# What an event says of a report: the run's, perhaps the run's, or another run's.
Verdict: TypeAlias = Literal["confirmed", "unconfirmed", "refuted"]


def verdict_on_report(
    claim: LogStreamClaim,
    *,
    runtime_ids: Collection[str],
    launch_type: str | None,
    is_identified: bool,
    is_of_other_account: bool,
) -> Verdict:
    """Whether a report is the run's, by its log stream and the account of its log group.

    The rest is what the event says of the run (:class:`~profiler.forwarder.run_event.RunEvent`).

    ``refuted``: the report is of another container or account. Its stream is named by a container
    id that is not one of the task's, or is an instance monitor's, and the task was not on EC2; or
    its log group is not in the task's account. A stream that only may be an instance monitor's
    takes nothing from the run that ECS knows. ``confirmed`` needs the task's identity, too.
    """
    if is_of_other_account or claim.voucher in _UNPROVEN_MONITORS:
        return "refuted"
    is_of_run: bool | None = None
    if claim.is_own or claim.voucher == MONITOR_STREAM:
        is_of_run = True
    elif claim.voucher == INSTANCE_MONITOR:
        is_of_run = None if launch_type is None else launch_type == EC2
    elif claim.stream in runtime_ids:
        is_of_run = True
    elif claim.voucher == CONTAINER_ID and runtime_ids:
        is_of_run = False
    if is_of_run is False:
        return "refuted"
    return "confirmed" if is_of_run and is_identified else "unconfirmed"


# What ``claim_of_document`` needs of a document.
CLAIM_FIELDS = ("task.voucher", "task.voucher_stream")


def claim_of_document(fields: Mapping[str, Any]) -> LogStreamClaim:
    """The log stream of the report in a document."""
    task = mapping_or_empty(fields.get("task"))
    voucher = text_or_none(task.get("voucher"))
    stream = text_or_none(task.get("voucher_stream"))
    return LogStreamClaim(voucher=voucher, stream=stream) if voucher and stream else OWN_STREAM
