"""What a backend says about a request that it refused or of which it rejected a part: its own
words, on one line, without the secrets of the request that they may repeat.
"""

import re
from base64 import b64decode
from collections.abc import Iterator, Mapping
from contextlib import suppress
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import msgspec

from profiler.core.json_fields import decoded_or_none, mapping_or_empty
from profiler.core.text import on_one_line
from profiler.otlp.otlp_settings import ExportTarget

_MAX_CHARACTERS = 200
_HIDDEN = "***"
# Shorter texts are not secrets, and may be a part of other words.
_MIN_SECRET_CHARACTERS = 4
_SIGNATURE_HEADERS = ("authorization", "x-amz-security-token")
_SCHEMES = ("bearer", "basic", "apikey")
_NUMBER = rb"[\x80-\xff]{0,9}[\x00-\x7f]"
# The start of a response: its field 1 is the partial success, which has the number of rejected
# items and a message: opentelemetry/proto/collector/trace/v1/trace_service.proto of
# https://github.com/open-telemetry/opentelemetry-proto.
_PARTIAL_SUCCESS = re.compile(
    rb"\x0a" + _NUMBER + rb"(?:\x08" + _NUMBER + rb")?\x12(?P<length>" + _NUMBER + rb")", re.DOTALL
)
# The start of a google.rpc.Status: its code and its message.
_STATUS = re.compile(rb"(?:\x08" + _NUMBER + rb")?\x12(?P<length>" + _NUMBER + rb")", re.DOTALL)


def words_of_error(body: bytes, content_type: str) -> str:
    """The message of a response that is an error: of a ``Status``, of JSON, or the text itself."""
    if "protobuf" in content_type:
        return _length_delimited_text(_STATUS.match(body))
    if content_type.startswith("text/plain"):
        return body.decode(errors="replace")
    document = _json_object(body)
    error = document.get("message") or document.get("error") or ""
    return str(mapping_or_empty(error).get("message") or error)


def words_of_rejection(body: bytes, content_type: str) -> str:
    """The message of a response that rejects a part of a request (a partial success)."""
    if "protobuf" in content_type:
        return _length_delimited_text(_PARTIAL_SUCCESS.match(body))
    partial = mapping_or_empty(_json_object(body).get("partialSuccess"))
    return str(partial.get("errorMessage") or "")


def quoted_words(words: str, target: ExportTarget, headers: Mapping[str, str]) -> str:
    """The words after a colon, without the secrets of the request; "" without words.

    ``headers``: those that were sent, with the signature.
    """
    for secret in _possible_secrets(target, headers):
        if len(secret) >= _MIN_SECRET_CHARACTERS:
            words = words.replace(secret, _HIDDEN)
    shown = on_one_line(words[:_MAX_CHARACTERS]).strip()
    return f": {shown}" if shown else ""


def _possible_secrets(target: ExportTarget, headers: Mapping[str, str]) -> list[str]:
    """What may be secret, the longest first: the values of the headers of the settings and of the
    signature, their words, and the query of the address; also percent-encoded.
    """
    query = urlsplit(target.url).query
    values = [query, *(value for _, value in parse_qsl(query))]
    own = {name.lower() for name, _ in target.headers}
    for name, value in headers.items():
        if name.lower() in own or name.lower() in _SIGNATURE_HEADERS:
            values += (value, *_base64_words(value))
    words: set[str] = set()
    for value in values:
        words |= {value, *re.split(r"[\s,;=:]+", value)}
    spellings = {quote(word, safe="") for word in words} | {unquote(word) for word in words}
    secrets = [word for word in words | spellings if word.lower() not in _SCHEMES]
    return sorted(secrets, key=len, reverse=True)


def _base64_words(value: str) -> Iterator[str]:
    """The texts that are words of a header in Base64: the user and the password of Basic."""
    for word in value.split():
        with suppress(ValueError):
            yield b64decode(word, validate=True).decode()


def _json_object(body: bytes) -> Mapping[str, object]:
    return mapping_or_empty(decoded_or_none(msgspec.json.decode, body))


def _length_delimited_text(match: re.Match[bytes] | None) -> str:
    """The text after a match, which has its length; "" without one."""
    if not match:
        return ""
    length = 0
    for position, byte in enumerate(match["length"]):
        length += (byte & 0x7F) << 7 * position
    return match.string[match.end() : match.end() + length].decode(errors="replace")
