"""The channels of notifications: Slack and an EventBridge bus.

slack_sdk's retry handlers are not used: they sleep without knowing when the invocation ends.
Failures that may be temporary are retried here. Slack may have accepted a request that timed out,
so a notice can be posted twice, but it is never lost.

slack_sdk writes tokens to its log and its errors: its log is disabled, and no text of its errors is
passed on. It is slow to import, so the first message of a bot does so.
"""

import logging
import re
from collections.abc import Callable, Mapping
from http.client import HTTPException, InvalidURL
from typing import Any

import msgspec
from msgspec import Struct, defstruct
from msgspec.structs import asdict

from profiler.core.aws_clients import AwsClient
from profiler.core.aws_error_codes import error_code, is_throttled
from profiler.core.aws_lost_answers import has_surely_changed_nothing
from profiler.core.http_statuses import TOO_MANY_REQUESTS, retry_after_seconds
from profiler.core.json_fields import mapping_or_empty
from profiler.core.json_levels import within_levels
from profiler.core.notice_channels import EVENT_BUS, KINDS, SENDERS, SLACK, ChannelKind
from profiler.core.optional_math import known_members
from profiler.forwarder.function_settings import (
    FetchSecret,
    NoticeSettings,
    call_with_secret,
    fetch_secret,
    read_secret,
)
from profiler.forwarder.invocation import InvocationTime, NoticeError, RetryBackoff, SettingsError
from profiler.forwarder.notifications.event_details import bus_event
from profiler.forwarder.notifications.notification import NoticeChannel, Notification
from profiler.forwarder.notifications.slack_messages import SlackMessage, slack_message_of

SOURCE = "task-profiler"

_NO_PREVIEWS: Mapping[str, Any] = {"unfurl_links": False, "unfurl_media": False}
_OK = 200
_SUCCESSES = range(200, 300)
_MAX_ANSWER_BYTES = 64 * 1024
_SERVER_ERRORS = range(500, 600)
# chat.postMessage has two codes for its limits.
_LIMIT_CODES = frozenset({"ratelimited", "rate_limited"})
_RETRYABLE_CODES = frozenset(
    {"internal_error", "fatal_error", "service_unavailable", "request_timeout"}
)
# Of an entry of PutEvents that EventBridge has not taken, in an answer with HTTP 200.
_BUS_FAULTS = frozenset({"InternalFailure", "InternalException"})
# Slack's error codes. Any other text is not shown, because it may quote the request.
_ERROR_CODE = re.compile(r"[a-z][a-z_]{1,60}", re.ASCII)
# XML of a queue or a topic behind API Gateway, or of a program of telephony; its errors have
# another root.
_XML_ANSWER = re.compile(r"(?:<\?xml[^>]*>\s*)?<(?!Error)[A-Z]?\w*Response[\s/>]", re.ASCII)
_SUCCESS_WORDS = frozenset({"ok", "success", "accepted"})
_NO_ERRORS = frozenset({"", "0", "false", "no", "no error", "none", "null"}) | _SUCCESS_WORDS

_WEBHOOK_HINT = (
    "check that {setting} is the address of an incoming webhook whose channel exists, or "
    "create a new one"
)
_BOT_HINT = (
    "check SLACK_BOT_TOKEN, its scope chat:write, SLACK_BASE_URL, and that {setting} is the id "
    "of a channel to which the bot is invited"
)


class SlackTarget(Struct, frozen=True, kw_only=True):
    """A webhook, or with ``channel`` a bot at ``base_url`` (None: Slack's).

    ``setting`` is the variable of either.
    """

    setting: str
    secret: str
    channel: str | None = None
    base_url: str | None = None

    def __repr__(self) -> str:
        """The setting alone."""
        return f"SlackTarget({self.setting})"


_Secret = defstruct("_Secret", [(name.lower(), str | None, None) for name in SLACK.in_secret])


def read_slack_targets(
    environment: Mapping[str, str], fetch: FetchSecret
) -> Mapping[ChannelKind, SlackTarget]:
    """The configured target of each kind of notice.

    The environment precedes the secret. Raises SettingsError.
    """
    values = {name: environment.get(name, "").strip() for name in SLACK.in_secret}
    secret_id = environment.get(SLACK.setting, "").strip()
    if secret_id:
        secret = asdict(
            read_secret(secret_id, _Secret, "a JSON object with Slack's settings", fetch)
        )
        values = {
            name: value or (secret[name.lower()] or "").strip() for name, value in values.items()
        }
    base_url = environment.get("SLACK_BASE_URL", "").strip() or None
    targets = {kind: _slack_target(kind, values, base_url) for kind in KINDS}
    return known_members(targets)


def _slack_target(
    kind: ChannelKind, values: Mapping[str, str], base_url: str | None
) -> SlackTarget | None:
    webhook, channel = SLACK.of_kind[kind]
    if values[webhook]:
        return SlackTarget(setting=webhook, secret=values[webhook])
    if values["SLACK_BOT_TOKEN"] and values[channel]:
        token = values["SLACK_BOT_TOKEN"]
        return SlackTarget(
            setting=channel, secret=token, channel=values[channel], base_url=base_url
        )
    if values[channel]:
        raise SettingsError(f"{channel} is set without SLACK_BOT_TOKEN: set both, or {webhook}.")
    return None


class _SlackFailure(Struct, frozen=True, kw_only=True):
    """Why Slack did not accept a message. ``status`` None: no response."""

    status: int | None = None
    code: str | None = None
    retry_after_seconds: float = 0.0

    @property
    def is_limit(self) -> bool:
        """Whether there were too many messages."""
        return self.status == TOO_MANY_REQUESTS or (
            self.status == _OK and self.code in _LIMIT_CODES
        )

    @property
    def is_retryable(self) -> bool:
        if self.status is None or self.is_limit or self.status in _SERVER_ERRORS:
            return True
        return self.status == _OK and self.code in _RETRYABLE_CODES

    def __str__(self) -> str:
        if self.status is None:
            return self.code or "no answer"
        if self.status == _OK and self.code:
            said = self.code
        else:
            said = f"HTTP {self.status} {self.code or ''}".rstrip()
        pause_seconds = self.retry_after_seconds
        return f"{said}, with a pause of {pause_seconds:g} s" if pause_seconds else said


def send_to_slack(target: SlackTarget, message: SlackMessage, budget: InvocationTime) -> None:
    """Send a message within the invocation's time.

    Raises NoticeError if Slack does not accept it.
    """
    backoff = RetryBackoff(budget, initial_seconds=0.5, max_seconds=8.0, max_request_seconds=10.0)
    while True:
        timeout_seconds = backoff.next_request_timeout_seconds()
        if timeout_seconds is None:
            raise NoticeError(
                f"The {budget.name} ran out of time before the notification was sent: "
                f"{budget.more_time}."
            )
        failure = _try_to_send(target, message, int(timeout_seconds))
        if failure is None:
            return
        if not failure.is_retryable:
            hint = (_BOT_HINT if target.channel else _WEBHOOK_HINT).format(setting=target.setting)
            refusal = NoticeError(
                f"Slack rejected the notification{f' ({failure})' if failure.status else ''}: "
                f"{hint}."
            )
            refusal.is_refusal = True
            raise refusal
        if not backoff.wait(min_seconds=failure.retry_after_seconds):
            remedy = f"if the error persists, {budget.last_remedy.format('Slack')}"
            if failure.is_limit:
                remedy = f"Slack takes about one message a second, so {budget.limit_remedy}"
            raise NoticeError(
                f"Slack accepted no notification through {target.setting} before the "
                f"{budget.name} ran out of time ({failure}): {budget.next_attempt}; {remedy}."
            )


def _try_to_send(
    target: SlackTarget, message: SlackMessage, timeout_seconds: int
) -> _SlackFailure | None:
    try:
        send_once = _send_by_bot if target.channel else _send_by_webhook
        return send_once(target, message, timeout_seconds)
    # urllib and slack_sdk, for an invalid address, token or response; the text may quote it.
    except Exception as error:  # noqa: BLE001
        # Errors of urllib and http.client.
        if isinstance(error, OSError | HTTPException) and not isinstance(error, InvalidURL):
            return _SlackFailure(code=f"no answer ({type(error).__name__})")
        return _SlackFailure(status=0)


def _send_by_webhook(
    target: SlackTarget, message: SlackMessage, timeout_seconds: int
) -> _SlackFailure | None:
    answer = _post_json(target.secret, {**asdict(message), **_NO_PREVIEWS}, timeout_seconds)
    if answer.status not in _SUCCESSES:
        return _slack_failure(answer.status, answer.body, answer.headers)
    said = _decode_webhook_answer(answer.body)
    # A page of HTML is from a sign-in or a proxy.
    is_page = answer.body.startswith("<") and not _XML_ANSWER.match(answer.body)
    if is_page or said.is_refusal:
        return _slack_failure(answer.status, said.error, answer.headers)
    return None


class _HttpAnswer(Struct, frozen=True, kw_only=True):
    """The answer to a message."""

    status: int
    body: str
    headers: Mapping[str, str]


def _post_json(url: str, message: Mapping[str, Any], timeout_seconds: int) -> _HttpAnswer:
    """Post a message, and follow no redirection: the request after one has no body, and any page
    answers it with a success, as slack_sdk's WebhookClient does not see.

    Raises OSError and HTTPException without an answer, ValueError for an invalid address.
    """
    # Slow to import, see the module's docstring.
    from urllib.error import HTTPError
    from urllib.request import HTTPRedirectHandler, Request, build_opener

    class NoRedirectHandler(HTTPRedirectHandler):
        def redirect_request(self, *_: object) -> None: ...

    if not url.lower().startswith(("http://", "https://")):
        raise ValueError("The address of the webhook is none of HTTP.")
    request = Request(  # noqa: S310  checked above
        url,
        data=msgspec.json.encode(message),
        headers={"Content-Type": "application/json;charset=utf-8", "User-Agent": SOURCE},
    )
    try:
        response = build_opener(NoRedirectHandler).open(request, timeout=timeout_seconds)
    except HTTPError as error:
        response = error
    with response:
        body = response.read(_MAX_ANSWER_BYTES).decode("utf-8-sig", errors="replace").strip()
        return _HttpAnswer(status=response.status, body=body, headers=dict(response.headers))


class _WebhookAnswer(Struct, frozen=True, kw_only=True):
    """What Slack and programs with webhooks like Slack's put into an answer of JSON."""

    ok: object = None
    success: object = None
    error: object = None
    result: object = None
    status: object = None
    errcode: object = None

    @property
    def is_refusal(self) -> bool:
        """Whether it says no, as Slack, Rocket.Chat, Zulip, DingTalk or WeCom do; or names an
        error, and no success: a message that was taken would be posted again.
        """
        if self.ok is False or self.success is False or self.result == "error":
            return True
        if type(self.errcode) is int and self.errcode != 0:
            return True
        words = {
            _lowercase_word(self.ok),
            _lowercase_word(self.success),
            _lowercase_word(self.result),
            _lowercase_word(self.status),
        }
        is_success = not words.isdisjoint({"true", *_SUCCESS_WORDS})
        is_error = isinstance(self.error, str) and _lowercase_word(self.error) not in _NO_ERRORS
        return is_error and not is_success


def _lowercase_word(value: object) -> str:
    """A value of JSON in small letters."""
    return str(value).strip().casefold()


def _decode_webhook_answer(body: str) -> _WebhookAnswer:
    """The answer; one without a word about success for any other text, such as Slack's "ok"."""
    try:
        return msgspec.json.decode(within_levels(body), type=_WebhookAnswer)
    except (msgspec.DecodeError, UnicodeError):
        return _WebhookAnswer()


def _send_by_bot(
    target: SlackTarget, message: SlackMessage, timeout_seconds: int
) -> _SlackFailure | None:
    from slack_sdk.errors import SlackApiError  # see the module's docstring
    from slack_sdk.web import WebClient

    base_url = target.base_url or WebClient.BASE_URL
    client = WebClient(target.secret, base_url=base_url, **_slack_client_options(timeout_seconds))
    try:
        client.chat_postMessage(channel=target.channel or "", **asdict(message), **_NO_PREVIEWS)
    except SlackApiError as error:
        response = error.response
        code = mapping_or_empty(response.data).get("error")  # a proxy's answer may be any JSON
        return _slack_failure(response.status_code, code, response.headers)
    return None


def _slack_client_options(timeout_seconds: int) -> dict[str, Any]:
    """The options of the client.

    Its logger is outside the hierarchy: no handler of Lambda receives its lines.
    """
    logger = logging.Logger("slack", level=logging.CRITICAL + 1)  # noqa: LOG001  see above
    return {"timeout": timeout_seconds, "logger": logger, "retry_handlers": []}


def _slack_failure(status: int, code: object, headers: Mapping[str, Any]) -> _SlackFailure:
    shown = None
    if isinstance(code, str) and _ERROR_CODE.fullmatch(code):
        shown = code
    after = next(
        (str(value) for name, value in headers.items() if name.lower() == "retry-after"), ""
    )
    pause_seconds = retry_after_seconds(after) if after else 0.0
    return _SlackFailure(status=status, code=shown, retry_after_seconds=pause_seconds)


def event_bus_channel(bus: str, client: Callable[[], Any], kibana_url: str | None) -> NoticeChannel:
    """Put one event on an EventBridge bus (a name or an ARN) for each notification: the rules on
    the bus select.
    """

    def post(notification: Notification, _kind: ChannelKind) -> None:
        # Slow to import, and not always needed.
        from botocore.exceptions import BotoCoreError, ClientError

        detail_type, detail = bus_event(notification, kibana_url=kibana_url)
        task_arn = getattr(detail, "task_arn", None)
        entry = {
            "Source": SOURCE,
            "DetailType": detail_type,
            "Detail": msgspec.json.encode(detail).decode(),
            "EventBusName": bus,
            "Resources": [task_arn] if task_arn else [],
        }
        try:
            code = client().put_events(Entries=[entry])["Entries"][0].get("ErrorCode")
        except (ClientError, BotoCoreError) as error:
            code = error_code(error)
            if not has_surely_changed_nothing(error):
                raise NoticeError(
                    f"The event bus {bus} did not answer ({code}), so it may have the event: sent "
                    "again, the event may arrive twice."
                ) from None
        if code:
            raise NoticeError(_bus_refusal_sentence(bus, str(code)[:100]))

    return NoticeChannel(EVENT_BUS.name, post)


def _bus_refusal_sentence(bus: str, code: str) -> str:
    refusal = f"The event bus {bus} did not accept the event ({code})"
    if is_throttled(code):
        return f"{refusal}, because there are too many calls: send it again in a minute."
    if code in _BUS_FAULTS:
        return f"{refusal}, because of a fault of EventBridge's own: send it again in a minute."
    return (
        f"{refusal}: check EVENT_BUS_NAME and that the function's role has the permission "
        "events:PutEvents on the bus."
    )


def configured_channels(
    settings: NoticeSettings,
    environment: Mapping[str, str],
    budget: InvocationTime,
    events_client: Callable[[], AwsClient],
) -> list[NoticeChannel]:
    """Return the channels that can send: Slack's, which accepts no notice without a target, and
    the bus if the settings name one.
    """

    def post_to_slack(notification: Notification, kind: ChannelKind) -> None:
        message = slack_message_of(notification, kibana_url=settings.kibana_url)

        def send_with(fetch: FetchSecret) -> None:
            target = read_slack_targets(environment, fetch).get(kind)
            if target is not None:  # a secret that was changed may have none
                send_to_slack(target, message, budget)

        call_with_secret(send_with)

    senders = {
        SLACK.name: NoticeChannel(
            SLACK.name,
            post_to_slack,
            lambda kind: kind in read_slack_targets(environment, fetch_secret),
        )
    }
    if settings.event_bus_name:
        senders[EVENT_BUS.name] = event_bus_channel(
            settings.event_bus_name, events_client, settings.kibana_url
        )
    return [senders[channel.name] for channel in SENDERS if channel.name in senders]
