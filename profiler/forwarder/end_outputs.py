"""Where the end of a task, or of a job of AWS Batch, goes: documents, a notice, and a line in the
function's log. Each is tried, whatever became of the others.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from profiler.core.notice_channels import ChannelKind
from profiler.forwarder.document_updates import Document
from profiler.forwarder.function_settings import ForwarderSettings, NoticeSettings
from profiler.forwarder.invocation import DeliveryError, ForwarderError, call_collecting_error
from profiler.forwarder.notifications.notification import (
    NoticeChannel,
    Notification,
    post_to_accepting_channels,
)
from profiler.forwarder.search_cluster.document_delivery import NOT_DELIVERED, DeliveryResult


class EndDocumentIndex(Protocol):
    """The search cluster."""

    @property
    def settings(self) -> ForwarderSettings: ...

    def deliver(self, documents: Sequence[Document]) -> DeliveryResult:
        """Write the documents. Raises ForwarderError."""


class EndOutputs(Protocol):
    """Where an end goes, and the settings of that."""

    def settings(self) -> NoticeSettings:
        """Raises SettingsError."""

    def channels(self, settings: NoticeSettings) -> Sequence[NoticeChannel]: ...

    def run_once(self, key: str, work: Callable[[], object]) -> object:
        """Do the work unless it was done for this key. Raises DeliveryError."""

    def print_line(self, line: str) -> None:
        """Print into the function's log, the list of all ended runs."""

    def warn(self, sentence: str) -> None: ...


def write_documents(
    index: EndDocumentIndex, documents: Sequence[Document], whose: str, errors: list[ForwarderError]
) -> bool:
    """Write the documents of a ``whose``, which is ``task`` or ``job``. Returns whether the cluster
    took one.
    """
    delivered = call_collecting_error(lambda: index.deliver(documents), errors) or NOT_DELIVERED
    if delivered.rejected:
        reason = delivered.rejected[0].reason
        errors.append(DeliveryError(f"The cluster refused the {whose}'s document: {reason}"))
    return delivered.indexed > 0


def post_notice(
    outputs: EndOutputs,
    notice: Notification,
    settings: NoticeSettings,
    errors: list[ForwarderError],
    *,
    is_success: bool,
) -> ChannelKind | None:
    """Post the notice. Returns its kind if every channel that accepts the kind has it."""
    kind: ChannelKind = "success" if is_success else "failure"
    refusals: list[ForwarderError] = []
    posted = post_to_accepting_channels(
        outputs.channels(settings), notice, kind, outputs.run_once, refusals
    )
    errors += refusals
    return kind if posted and not refusals else None


def print_once(line: str, key: str, outputs: EndOutputs, errors: Sequence[ForwarderError]) -> None:
    """Print a line: once if everything was done, else in each attempt, of which the last one
    counts. Without the table of keys, it is printed, too.
    """
    if errors:
        outputs.print_line(line)
        return
    try:
        outputs.run_once(key, lambda: outputs.print_line(line))
    except ForwarderError:
        outputs.print_line(line)
