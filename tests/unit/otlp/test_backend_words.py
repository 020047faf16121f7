"""A backend's own words about a request, and the secrets that they must not repeat."""

from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from profiler.otlp.backend_words import quoted_words, words_of_error, words_of_rejection
from profiler.otlp.otlp_settings import ExportTarget, read_targets

PROTOBUF = "application/x-protobuf"
JSON = "application/json; charset=utf-8"
BASIC = b64encode(b"elastic:hunter2-password").decode()


def target(headers: str, url: str = "http://backend:4318") -> ExportTarget:
    return read_targets({"OTLP_ENDPOINT": url, "OTLP_HEADERS": headers})["traces"]


def sent(one: ExportTarget) -> dict[str, str]:
    return {name.lower(): value for name, value in one.headers}


@pytest.mark.parametrize(
    ("body", "content_type", "words"),
    [
        (b"\x08\x10\x12\x09bad token", PROTOBUF, "bad token"),
        (b'{"code":16,"message":"bad token"}', JSON, "bad token"),
        (b'{"error":"unauthorized"}', JSON, "unauthorized"),
        (b'{"error":{"message":"no such project"}}', JSON, "no such project"),
        (b"no such page", "text/plain", "no such page"),
        (b"<html>no such page</html>", "text/html", ""),
        (b"[1]", JSON, ""),
    ],
)
def test_the_words_of_an_error_are_read(body: bytes, content_type: str, words: str) -> None:
    assert words_of_error(body, content_type) == words


def test_the_words_of_a_partial_success_are_read_from_protobuf() -> None:
    response = ExportTraceServiceResponse()
    response.partial_success.rejected_spans = 300
    response.partial_success.error_message = "too old"
    assert words_of_rejection(response.SerializeToString(), PROTOBUF) == "too old"


def test_the_words_of_a_partial_success_are_read_from_json() -> None:
    body = b'{"partialSuccess":{"rejectedSpans":"2","errorMessage":"too old"}}'
    assert words_of_rejection(body, JSON) == "too old"


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ("x-key=hunter2", "no key hunter2"),
        ("x-key=hunter2%2Fkey", "no key hunter2/key nor hunter2%2Fkey"),
        ("authorization=Bearer%20hunter2", "Bearer hunter2 is no token"),
        ("authorization=Bearer%20hunter2", "no token 'hunter2'"),
        (f"authorization=Basic%20{BASIC}", f"no user of {BASIC}"),
        (f"authorization=Basic%20{BASIC}", "no user elastic with hunter2-password"),
    ],
)
def test_what_a_backend_repeats_of_a_header_is_hidden(headers: str, said: str) -> None:
    one = target(headers)
    assert "hunter2" not in quoted_words(said, one, sent(one))


def test_what_a_backend_repeats_of_the_query_of_the_address_is_hidden() -> None:
    one = target("x-key=other", "http://backend:4318?token=hunter2")
    assert "hunter2" not in quoted_words(f"no token in {one.url}", one, sent(one))


def test_what_a_backend_repeats_of_the_signature_is_hidden() -> None:
    one = target("x-key=other")
    signed = {
        **sent(one),
        "Authorization": "AWS4 Signature=hunter2",
        "X-Amz-Security-Token": "hunter3",
    }
    assert "hunter" not in quoted_words("canonical: hunter2, hunter3", one, signed)


def test_the_scheme_of_a_sign_in_is_no_secret() -> None:
    one = target("authorization=Bearer%20hunter2")
    assert quoted_words("Bearer token expired", one, sent(one)) == ": Bearer token expired"


def test_the_words_are_one_line_and_short() -> None:
    one = target("x-key=hunter2")
    shown = quoted_words("too\nold " + "x" * 1000, one, sent(one))
    assert shown.startswith(": too old x")
    assert len(shown) <= 202


def test_a_secret_at_the_limit_of_the_length_is_hidden() -> None:
    one = target("x-key=hunter2")
    assert "hunt" not in quoted_words("x" * 196 + "hunter2", one, sent(one))


@given(st.binary(), st.sampled_from([PROTOBUF, JSON, "text/plain", ""]))
def test_any_body_is_read(body: bytes, content_type: str) -> None:
    words_of_error(body, content_type)
    words_of_rejection(body, content_type)
