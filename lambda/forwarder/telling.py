"""Tells Slack of an ended task, each kind in its own channel."""

import random
from collections.abc import Callable, Mapping

from forwarder.delivery import TimeBudget
from forwarder.notice import Notice
from forwarder.slack_message import message
from forwarder.slack_sender import SlackSender
from forwarder.slack_target import SlackTarget

# Does the work at most once for a key: (key, work) -> what the work answers.
Idempotently = Callable[[str, Callable[[], bool]], bool]


class SlackNoticeChannel:
    """Sends notices. A kind without a target is off."""

    def __init__(
        self,
        targets: Mapping[str, SlackTarget],
        time: TimeBudget,
        idempotently: Idempotently,
        *,
        kibana_url: str | None = None,
    ) -> None:
        self._targets = targets
        self._time = time
        self._idempotently = idempotently
        self._kibana_url = kibana_url

    def post(self, notice: Notice, kind: str) -> bool:
        """Send it, unless its task has been told of already. Raises NoticeError."""
        target = self._targets.get(kind)
        if target is None:
            return False

        def send() -> bool:
            sender = SlackSender(target, self._time, random.random)
            sender.send(message(notice, kibana_url=self._kibana_url))
            return True

        return self._idempotently(notice.task_arn or notice.task_id, send)
