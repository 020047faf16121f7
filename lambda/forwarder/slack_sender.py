"""Sends a message to Slack within the time an invocation has left.

Requests are slack_sdk's, which takes the usual proxy variables; the retries are not, as its
handlers sleep on without knowing when the invocation ends. What may pass (429, 5xx, no
connection, no answer in time) is tried again; a request that timed out may still have arrived, so
that a notice can come twice and is never lost. What Slack refuses is a NoticeError that names the setting.

slack_sdk writes addresses with their secrets into its log and its errors: the log is switched off,
and no error's text is passed on.
"""

import logging
import re
from collections.abc import Callable, Mapping
from http.client import HTTPException, InvalidURL
from typing import Any

from msgspec import Struct
from slack_sdk.errors import SlackApiError
from slack_sdk.web import WebClient
from slack_sdk.webhook import WebhookClient

from forwarder.delivery import RESERVED_SECONDS, TimeBudget
from forwarder.errors import NoticeError
from forwarder.slack_message import SlackMessage
from forwarder.slack_target import SlackBot, SlackTarget, SlackWebhook

_MIN_REQUEST_SECONDS = 1.0
_MAX_REQUEST_SECONDS = 10.0
_INITIAL_BACKOFF_SECONDS = 0.5
_MAX_BACKOFF_SECONDS = 8.0
_OK = 200
_TOO_MANY_REQUESTS = 429
_SERVER_ERRORS = range(500, 600)
_RETRYABLE_CODES = {
    "ratelimited",
    "rate_limited",
    "internal_error",
    "fatal_error",
    "service_unavailable",
    "request_timeout",
}
# What Slack calls its refusals; anything else is not shown, it may quote what was sent.
_CODE = re.compile(r"[a-z][a-z_]{1,60}", re.ASCII)

_WEBHOOK_GONE = "make a new webhook and set {setting} to its address"
_WEBHOOK_HINTS = {
    "no_service": _WEBHOOK_GONE,
    "no_service_id": _WEBHOOK_GONE,
    "no_active_hooks": _WEBHOOK_GONE,
    "no_team": _WEBHOOK_GONE,
    "team_disabled": _WEBHOOK_GONE,
    "invalid_token": _WEBHOOK_GONE,
    "channel_is_archived": "its channel is archived; make a webhook for another channel and set {setting} to it",
    "channel_not_found": "its channel is gone; make a webhook for another channel and set {setting} to it",
    "action_prohibited": "the workspace's administrators forbid it; ask them, or set {setting} to another webhook",
    "posting_to_general_channel_denied": "it may not write to #general; set {setting} to another channel's webhook",
}
_BAD_TOKEN = "set {token} to the token of a bot that is installed (xoxb-…)"  # noqa: S105  no token
_BOT_HINTS = {
    "channel_not_found": "set {setting} to the id of a channel that the bot of {token} can see",
    "not_in_channel": "invite the bot of {token} into the channel of {setting}",
    "is_archived": "the channel of {setting} is archived; set it to another",
    "restricted_action": "the bot of {token} may not write to the channel of {setting}",
    "missing_scope": "give the bot of {token} the scope chat:write and install it again",
    "invalid_auth": _BAD_TOKEN,
    "not_authed": _BAD_TOKEN,
    "account_inactive": _BAD_TOKEN,
    "token_revoked": _BAD_TOKEN,
    "token_expired": _BAD_TOKEN,
    "not_allowed_token_type": _BAD_TOKEN,
}
_INVALID_MESSAGE_CODES = {"invalid_blocks", "invalid_blocks_format", "invalid_payload", "no_text", "msg_too_long"}
_BUG_HINT = "the notice itself is at fault and not {setting}; please report this as a bug of task-profiler"


class _Failure(Struct, frozen=True, kw_only=True):
    """Why a message was not taken; ``status`` None: no answer."""

    status: int | None = None
    code: str | None = None
    retry_after_seconds: float = 0.0

    @property
    def is_retryable(self) -> bool:
        """Whether the same request may work later."""
        if self.status is None or self.status == _TOO_MANY_REQUESTS or self.status in _SERVER_ERRORS:
            return True
        return self.status == _OK and self.code in _RETRYABLE_CODES

    def __str__(self) -> str:
        if self.status is None:
            return self.code or "no answer"
        return self.code if self.status == _OK and self.code else f"HTTP {self.status}{_in_words(self.code)}"


class SlackSender:
    """Sends to one target. ``jitter`` gives a number from 0 to 1 that spreads the pauses."""

    def __init__(self, target: SlackTarget, time: TimeBudget, jitter: Callable[[], float]) -> None:
        self._target = target
        self._time = time
        self._jitter = jitter

    def send(self, message: SlackMessage) -> None:
        """Send it. Raises NoticeError if Slack does not take it in the invocation's time."""
        attempts = 0
        while True:
            failure = self._attempt(message, self._request_seconds())
            if failure is None:
                return
            if not failure.is_retryable:
                raise NoticeError(_rejection_message(self._target, failure))
            attempts += 1
            self._back_off(attempts, failure)

    def _attempt(self, message: SlackMessage, timeout_seconds: int) -> _Failure | None:
        target = self._target
        try:
            if isinstance(target, SlackWebhook):
                return _send_by_webhook(target, message, timeout_seconds)
            return _send_by_bot(target, message, timeout_seconds)
        except InvalidURL:
            return _Failure(status=0)
        except (OSError, HTTPException) as error:  # urllib's and http.client's
            return _Failure(code=f"no answer ({type(error).__name__})")
        except Exception:  # noqa: BLE001  slack_sdk on an address, a token or an answer that is none; it may quote them
            return _Failure(status=0)

    def _request_seconds(self) -> int:
        left = self._time.remaining_seconds() - RESERVED_SECONDS
        if left < _MIN_REQUEST_SECONDS:
            raise NoticeError("The invocation's time is up before Slack was told: raise the function's timeout.")
        return int(min(left, _MAX_REQUEST_SECONDS))

    def _back_off(self, attempts: int, failure: _Failure) -> None:
        """As long as Slack asks for, at least longer each time; give up when no time for another request is left."""
        longest = min(_INITIAL_BACKOFF_SECONDS * 2.0 ** min(attempts, 10), _MAX_BACKOFF_SECONDS)
        pause = max(longest * (0.5 + self._jitter() / 2), failure.retry_after_seconds)
        if self._time.remaining_seconds() - RESERVED_SECONDS - pause < _MIN_REQUEST_SECONDS:
            raise NoticeError(
                f"Slack took no notice by {_setting(self._target)} to the end of the invocation's time ({failure}): "
                "Lambda tries again; if this stays, check the function's way to Slack and raise its timeout."
            )
        self._time.sleep(pause)


def _send_by_webhook(target: SlackWebhook, message: SlackMessage, timeout_seconds: int) -> _Failure | None:
    client = WebhookClient(target.url, timeout=timeout_seconds, logger=_null_logger(), retry_handlers=[])
    answer = client.send(text=message.text, blocks=message.blocks, unfurl_links=False, unfurl_media=False)
    body = answer.body.strip()
    if answer.status_code == _OK and body == "ok":
        return None
    return _failure(answer.status_code, body, answer.headers)


def _send_by_bot(target: SlackBot, message: SlackMessage, timeout_seconds: int) -> _Failure | None:
    client = WebClient(
        target.token,
        base_url=target.base_url or WebClient.BASE_URL,
        timeout=timeout_seconds,
        logger=_null_logger(),
        retry_handlers=[],
    )
    try:
        client.chat_postMessage(
            channel=target.channel, text=message.text, blocks=message.blocks, unfurl_links=False, unfurl_media=False
        )
    except SlackApiError as error:
        answer = error.response
        return _failure(answer.status_code, answer.data.get("error"), answer.headers)
    return None


def _null_logger() -> logging.Logger:
    """A logger of its own, outside the tree that Lambda and Powertools listen to."""
    return logging.Logger("slack", level=logging.CRITICAL + 1)  # noqa: LOG001  on purpose


def _failure(status: int, code: object, headers: Mapping[str, Any]) -> _Failure:
    shown = code if isinstance(code, str) and _CODE.fullmatch(code) else None
    return _Failure(status=status, code=shown, retry_after_seconds=_retry_after(headers))


def _retry_after(headers: Mapping[str, Any]) -> float:
    """Slack sends whole seconds; 0 if there are none."""
    values = [str(value) for name, value in headers.items() if name.lower() == "retry-after"]
    text = values[0].strip() if values else ""
    return float(text) if text.isdecimal() else 0.0


def _rejection_message(target: SlackTarget, failure: _Failure) -> str:
    """One sentence that says which setting to look at."""
    code = failure.code or ""
    if code in _INVALID_MESSAGE_CODES:
        hint = _BUG_HINT
    elif isinstance(target, SlackBot):
        hint = _BOT_HINTS.get(code, "check {token}, {setting} and SLACK_BASE_URL")
    else:
        hint = _WEBHOOK_HINTS.get(code, "check that {setting} is the address of an incoming webhook")
    token = target.token_setting if isinstance(target, SlackBot) else ""
    why = f" ({failure})" if failure.status else ""
    return f"Slack refuses the notice{why}: {hint.format(setting=_setting(target), token=token)}."


def _setting(target: SlackTarget) -> str:
    return target.channel_setting if isinstance(target, SlackBot) else target.setting


def _in_words(code: str | None) -> str:
    return f" {code}" if code else ""
