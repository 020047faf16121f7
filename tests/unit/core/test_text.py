"""Text from other programs, secrets, sizes and times as people write them, the text of a moment,
and the clock.
"""

import json
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.core.clock import Ticker
from profiler.core.quantities import parse_duration_ms, parse_memory_mb, parse_seconds
from profiler.core.redaction import redact, redact_line, without_credentials
from profiler.core.text import (
    did_you_mean,
    first_names,
    install_hint,
    listed,
    on_one_line,
    printable,
    without_surrogates,
)
from profiler.core.timestamps import (
    format_datetime,
    format_local,
    instant_of_local,
    local_zone,
    parse_datetime,
    parse_ns,
    subtract_ms,
    with_local_times,
)
from tests.fakes import seconds


def test_lone_surrogates_are_replaced_and_other_text_stays() -> None:
    assert without_surrogates("größer 🚀") == "größer 🚀"
    assert without_surrogates("a\udc80\ud800b") == "a??b"
    assert (
        without_surrogates("a\udc80b", "\N{REPLACEMENT CHARACTER}") == "a\N{REPLACEMENT CHARACTER}b"
    )


def test_control_characters_and_changes_of_direction_are_escaped_or_blank() -> None:
    text = "a\x1b[31m\tb\n\N{RIGHT-TO-LEFT OVERRIDE}c\udc80"
    assert printable(text) == r"a\x1b[31m\tb\n\u202ec\udc80"
    assert on_one_line(text) == "a [31m b  c?"
    assert [first_names("abcdef"[:count]) for count in (5, 6)] == [
        "a, b, c, d, e",
        "a, b, c, d, e, …",
    ]


@given(st.text(st.characters(categories=None)))
def test_any_text_can_be_printed_and_written(text: str) -> None:
    for clean in (printable(text), on_one_line(text)):
        assert clean.isprintable()
    assert without_surrogates(text).encode().decode() == without_surrogates(text)


@pytest.mark.parametrize(
    ("parse", "written"),
    [
        (
            parse_memory_mb,
            {"900MB": 900, "1.5GB": 1536, "900 MB": 900, "2gib": 2048, "0.5mib": 0.5},
        ),
        (parse_memory_mb, {"900m": 900, "0.5g": 512, "999999999GB": 1023999998976}),
        (
            parse_duration_ms,
            {"90s": 90_000, "10m": 600_000, "1.5h": 5_400_000, "0.2 S": 200, "1h30m": 5_400_000},
        ),
        (parse_duration_ms, {"1h 30m": 5_400_000, "100ms": 100, "10": 10_000, "2d": 172_800_000}),
        (parse_seconds, {"60": 60, "0.5": 0.5, "1m": 60}),
    ],
)
def test_quantities_are_written_with_their_units(
    parse: Callable[[str], float], written: dict[str, float]
) -> None:
    assert {text: parse(text) for text in written} == written


@pytest.mark.parametrize("parse", [parse_memory_mb, parse_duration_ms, parse_seconds])
@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "0",
            "0MB",
            "0.0s",
            "-1",
            "-1s",
            "-1MB",
            "nan",
            "inf",
            "1e9",
            "1e9s",
            "1_0s",
            "9" * 10,
            "9" * 400 + "MB",
        ),
        *(
            "MB",
            "1h30",
            "10w",
            "5KB",
            "5 m b",
            " 5s",
            "5s ",
            "0.0001MB",
            "0.0001",
            "٣s",
            "5s\n",
            "1.MB",
            ".5h",
        ),
    ],
)
def test_other_values_are_errors_that_say_what_to_write(parse: object, text: str) -> None:
    assert callable(parse)
    with pytest.raises(ValueError, match=r"^'.*' is not a .*: write .* as in .* or .*\.$"):
        parse(text)


def test_reads_rfc3339_with_any_fraction_and_nothing_else() -> None:
    times: dict[object, int | None] = {
        "2025-02-27T05:06:19.394790335Z": 1740632779394790335,
        "2025-02-27T05:06:19Z": 1740632779000000000,
        "2025-02-27T05:06:19.5Z": 1740632779500000000,
        "2025-02-27T06:06:19.5+01:00": 1740632779500000000,
        "2020-10-02T00:51:32.51467703Z": 1601599892514677030,
        "0001-01-01T00:00:00Z": None,
        "9999-12-31T23:59:59-01:00": None,
        "2025-13-01T00:00:00Z": None,
        "2025-02-27T05:06:19": None,
        None: None,
        5: None,
    }
    assert {text: parse_ns(text) for text in times} == times


def test_a_time_needs_a_zone() -> None:
    moments = {
        "2026-03-01T10:00:03+01:00": datetime(2026, 3, 1, 9, 0, 3, tzinfo=UTC),
        "2026-03-01T10:00:03.123456789Z": datetime(2026, 3, 1, 10, 0, 3, 123456, tzinfo=UTC),
        "1970-01-01T00:00:00Z": datetime(1970, 1, 1, tzinfo=UTC),
        "1969-12-31T23:59:59Z": None,
        "9999-12-31T23:59:59-01:00": None,
        "2026-03-01": None,
        None: None,
    }
    assert {text: parse_datetime(text) for text in moments} == moments
    first = datetime(1970, 1, 1, tzinfo=UTC)  # what is outside the calendar is not subtracted
    assert subtract_ms(first, 1) == first
    assert subtract_ms(datetime(2026, 1, 1, tzinfo=UTC), None) == datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.usefixtures("los_angeles")
def test_a_person_gets_the_times_of_this_machine() -> None:
    text = "A run was due at 2026-11-20T01:00:06.000Z; the one of 9999-01-01T00:00:00Z was not."
    assert with_local_times(text) == (
        "A run was due at 2026-11-19 17:00; the one of 9999-01-01T00:00:00Z was not."
    )
    assert local_zone() == "PST/PDT"
    assert format_local(parse_ns("2026-11-20T14:00:00Z")) == "2026-11-20 06:00"
    assert format_local(None) is None


def test_a_zone_that_cannot_be_is_utc(set_zone: Callable[[str], None]) -> None:
    moment_ns = parse_ns("2026-11-20T14:00:00Z")
    for zone in ("XYZ-25:30", "XYZ25"):
        set_zone(zone)
        assert (format_local(moment_ns), local_zone()) == ("2026-11-20 14:00", "UTC")
    set_zone("XYZ-23:30")
    assert (format_local(moment_ns), local_zone()) == ("2026-11-21 13:30", "XYZ")


@pytest.mark.usefixtures("los_angeles")
def test_a_local_time_is_an_instant() -> None:
    instants = {
        "2026-11-20T06:00:00": "2026-11-20T14:00:00.000Z",
        "2026-07-20T06:00:00": "2026-07-20T13:00:00.000Z",
        "2026-11-01T01:30:00": "2026-11-01T08:30:00.000Z",  # comes twice: the first
        "2026-03-08T02:00:00": "2026-03-08T10:00:00.000Z",  # does not exist: the end of the gap
        "2026-03-08T02:30:00.250": "2026-03-08T10:00:00.000Z",
        "2026-03-08T01:59:59.999": "2026-03-08T09:59:59.999Z",
    }
    assert {
        local: format_datetime(instant_of_local(datetime.fromisoformat(local)))
        for local in instants
    } == instants


def test_ticks_lie_on_a_grid_and_lateness_does_not_accumulate() -> None:
    ticker = Ticker(seconds(100), seconds(1))
    assert ticker.seconds_to_next(seconds(100)) == 1
    assert ticker.seconds_to_next(seconds(101.25)) == 0.75
    assert ticker.missed == 0
    assert ticker.seconds_to_next(seconds(104.5)) == 0.5
    assert ticker.missed == 2
    assert ticker.seconds_to_next(seconds(104.5)) == 1.5


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["job.py", "--day", "2026-11-20", "-v"], "job.py --day 2026-11-20 -v"),
        (["--password", "hunter2", "--user", "me"], "--password … --user me"),
        (["--db-password=hunter2", "API_KEY=abc", "token:xyz"], "--db-password=… API_KEY=… token:…"),
        (["--api-key", "--verbose"], "--api-key --verbose"),
        (["postgres://me:hunter2@db:5432/x"], "postgres://…@db:5432/x"),
        (["AKIAIOSFODNN7EXAMPLE1234"], "…"),
        (["--key-column", "id", "s3://bucket/input/part-00001.parquet"], "--key-column id s3://bucket/input/part-00001.parquet"),
        (["--query", "select 1", ""], "--query select 1 "),
        (["sh", "-c", "cd /x\nTOKEN=abc psql --password hunter2 -v"], "sh -c cd /x TOKEN=… psql --password … -v"),
    ],
)  # fmt: skip
def test_what_looks_like_a_secret_is_not_shown(words: list[str], shown: str) -> None:
    assert redact(words) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('curl -d {"password":"x"}', 'curl -d {"password":"…"}'),
        ('{"password": "x y", "user": "joe"}', '{"password": "…", "user": "joe"}'),
        (r'{"client_secret":"a\"b","n":1}', '{"client_secret":"…","n":1}'),
        (r'"{\"apiKey\": \"x\", \"n\": 1}"', r'"{\"apiKey\": \"…\", \"n\": 1}"'),
        ("{'token': 'x', 'n': 2}", "{'token': '…', 'n': 2}"),
        ('{"token":123,"n":4}', '{"token":…,"n":4}'),
        ('{"token":null,"auth":{"n":4}}', '{"token":null,"auth":{"n":4}}'),
        ('{"password":"cut o', '{"password":"…"'),
        ("curl https://h/a?token=x&n=1", "curl https://h/a?token=…&n=1"),
        ("curl https://h/a#access_token=x&n=1", "curl https://h/a#access_token=…&n=1"),
        ("curl https://h/a?sp=r&sig=x", "curl https://h/a?sp=r&sig=…"),
        ("get https://h/a?n=1&X-Signature=x#top", "get https://h/a?n=1&X-Signature=…#top"),
        ("Server=db;Password=x;Port=1", "Server=db;Password=…;Port=1"),
        ('python -c connect(password="x")', 'python -c connect(password="…")'),
        (
            "python -c connect(\"h\", api_key = 'x y', n=1)",
            "python -c connect(\"h\", api_key = '…', n=1)",
        ),
        ("Settings(user=joe,token=x,n=1)", "Settings(user=joe,token=…,n=1)"),
        ('secret = "cut o', 'secret = "…"'),
        ("curl -u joe:x https://h", "curl -u … https://h"),
        ("curl -sSfu joe:x https://h", "curl -sSfu … https://h"),
        ("sudo /usr/bin/curl -ujoe:x https://h", "sudo /usr/bin/curl -u… https://h"),
        ("curl --user joe:x https://h", "curl --user … https://h"),
        ("curl -u joe https://h", "curl -u joe https://h"),
        ("mysql -h db -px sales", "mysql -h db -p… sales"),
        ("timeout 5 mysqldump -p x sales", "timeout 5 mysqldump -p … sales"),
        ("sh -c mysql -px ; mkdir -p x", "sh -c mysql -p… ; mkdir -p x"),
        ("sshpass -p x ssh -p 22 h", "sshpass -p … ssh -p … h"),
        ("docker login -u joe -p x", "docker login -u joe -p …"),
        ("redis-cli -a x ping", "redis-cli -a … ping"),
        ("isql -U sa -P x", "isql -U sa -P …"),
        ("curl -H 'Authorization: Bearer x' h", "curl -H 'Authorization: Bearer … h"),
        ('curl -H"X-Api-Key: x" h', 'curl -H"X-Api-Key: … h'),
        ("wget --header=Authorization: Basic x", "wget --header=Authorization: Basic …"),
        (r"sh -c \"curl -H \"Cookie: x\" h\"", r"sh -c \"curl -H \"Cookie: … h\""),
        ('{"apiKeys":["x", "y"],"n":[1]}', '{"apiKeys":[…],"n":[1]}'),
        ('{"tokens":["cut o', '{"tokens":[…]'),
        ('{"passwords":["x", "y"],"n":[1]}', '{"passwords":[…],"n":[1]}'),
        ("db_password = x", "db_password = …"),
        ("DB.PASSWORD = x # set", "DB.PASSWORD = … # set"),
        ("aws configure set aws_secret_access_key x", "aws configure set aws_secret_access_key …"),
        ("npm config set //h/:_authToken x", "npm config set //h/:_authToken …"),
        ("npm publish --//h/:_authToken=x", "npm publish --//h/:_authToken=…"),
        ("twine upload -u joe -p x dist", "twine upload -u joe -p … dist"),
        ("openssl enc -aes-256-cbc -k x -in f", "openssl enc -aes-256-cbc -k … -in f"),
        ("openssl rsa -passin pass:x -in f", "openssl rsa -passin … -in f"),
        ("lftp -u joe,x h", "lftp -u … h"),
        ("smbclient -U joe%x //h/s", "smbclient -U … //h/s"),
        ('connect(password=b"x")', 'connect(password=b"…")'),
        ("cannot reach joe:x@h:9200", "cannot reach …@h:9200"),
        # Ordinary arguments.
        ("mkdir -p x", "mkdir -p x"),
        ("ssh -p 22 -u h", "ssh -p 22 -u h"),
        ("docker run -p 80:80 -u 1000:1000 --name mysql -p 3306:3306 db", None),
        ("docker run -d mysql -p 3306:3306", None),
        ("python3 -u job.py a:b", None),
        ("git push -u origin main:main", None),
        ("cp -p a b", None),
        ("curl https://h/a?page=2&sort=name", None),
        ('{"table":"passengers","n":1}', None),
        ('connect(password=None, table="token")', None),
        ('token == "x"', None),
        ("password = ask(prompt)", None),
        ("password = None", None),
        ("cannot set password for joe", None),
        ("max_tokens = 512", None),
        ("password_file = /run/x", None),
        ("openssl req -key k.pem -keyout f", None),
        ("git config set user.name joe", None),
        ("scp joe@h:f .", None),
        ("pull h:5000/etl:26@sha256:0123", None),
        ("at 12:30@h:80", None),
        ("team:job@26", None),
    ],
)
def test_secrets_of_other_notations_are_masked_and_ordinary_arguments_are_not(
    text: str, shown: str | None
) -> None:
    for words in ([text], text.split()):
        assert redact(words) == (text if shown is None else shown)


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("    x =  1  # no secret", "    x =  1  # no secret"),
        ("  Settings(token=x,  n=1)", "  Settings(token=…,  n=1)"),
        ("  --password x   and  more", "  --password … and more"),
        ('  login with password="x y"  failed', '  login with password="…"  failed'),
        ("\tPASSWORD=x", "\tPASSWORD=…"),
        ("  db_password: x", "  db_password: …"),
        ("Authorization: Bearer x", "Authorization: Bearer …"),
        ("> X-Api-Key: x", "> X-Api-Key: …"),
        ("Cookie: session=x; n=1", "Cookie: … n=1"),
        ("error: unexpected token: x", "error: unexpected token: x"),
        ("Basic usage: x", "Basic usage: x"),
        ("+ curl -H 'Authorization: Bearer x' h", "+ curl -H 'Authorization: Bearer … h"),
        ("curl -v h password: x", "curl -v h password: …"),
        ("", ""),
    ],
)
def test_a_line_of_a_log_keeps_its_form_without_its_secrets(line: str, shown: str) -> None:
    assert redact_line(line) == shown


@pytest.mark.parametrize(
    ("sentence", "shown"),
    [
        ("--from u:PASSWORD@h:9200: no file", "--from …@h:9200: no file"),
        ("'u:P@SS@h:9200' is no file", "'…@h:9200' is no file"),
        ("see https://u:PASSWORD@h/x", "see https://…@h/x"),
        ("see redis://:PASSWORD@h/x", "see redis://…@h/x"),
    ],
)
def test_addresses_in_sentences_have_no_credentials(sentence: str, shown: str) -> None:
    assert without_credentials(sentence) == shown


@pytest.mark.parametrize(
    "sentence",
    [
        "User: arn:aws:sts::111122223333:assumed-role/Admin/joe@example.com is not authorized",
        "the image etl:26@sha256:0123 is missing",
        "nightly@26 and nightly@27 are the same 5 runs: name two sets.",
        "mail joe@example.com",
    ],
)
def test_what_are_no_credentials_stays(sentence: str) -> None:
    assert without_credentials(sentence) == sentence


def is_linear(read: Callable[[int], None], length: int) -> bool:
    """Whether a text that is eight times as long takes eight times the CPU time: with quadratic
    time it takes 64 times. The shortest time of a few is independent of other processes.
    """
    short, long = [], []
    for _ in range(8):
        short.append(cpu_ns(read, length))
        long.append(cpu_ns(read, 8 * length))
        if min(long) < 24 * min(short):
            return True
    return False


def cpu_ns(read: Callable[[int], None], length: int) -> int:
    begun = time.thread_time_ns()
    read(length)
    return time.thread_time_ns() - begun


@given(
    st.sampled_from(
        [
            *('"password":"', "'token': '", r"\"secret\":\"", '{"a":', "?token=", "&a=", "-p "),
            *('password="', "(token=", "a=", ",a=", "a = '"),
            *("mysql -p", "curl -u a:", "a:b@", "://", ":", "@", '"', "\\", ";Password="),
            *("-='", "password: ", "='authorization: bearer ", '"token": [', "=x:"),
        ]
    ),
    st.sampled_from(["", '"', "x", "@h", "\\", "@sha256:0", "/:b@h"]),
)
def test_a_long_text_of_any_notation_takes_linear_time(unit: str, end: str) -> None:
    def read(length: int) -> None:
        text = unit * (length // len(unit)) + end
        assert len(redact([text])) <= 2 * len(text)
        assert len(redact(text.split())) <= 2 * len(text)
        assert len(without_credentials(text)) <= 2 * len(text)

    assert is_linear(read, 2_000)


@given(st.lists(st.text()), st.text(min_size=8, alphabet="abcdefgh12345"))
def test_a_secret_in_json_is_never_shown(others: list[str], value: str) -> None:
    text = json.dumps({"n": 1, "dbPassword": value, "others": others})
    assert value not in redact([text]) or value in redact(others)
    assert value not in redact(text.split()) or value in redact(others)


SECRETS, NAMES = (
    st.text(min_size=8, alphabet="abcdefgh12345"),
    st.sampled_from(["password", "TOKEN", "client-secret"]),
)


@given(st.lists(st.text()), SECRETS, NAMES)
def test_the_value_of_a_secret_option_is_never_shown(
    others: list[str], value: str, name: str
) -> None:
    words = [*others, f"--{name}", value]
    assert value not in redact(words) or value in redact(others)
    assert value not in redact([f"{name}={value}"])


def _mask_by_definition(word: str) -> str:
    """Masks opaque tokens as the definition reads, in quadratic time."""
    word = " ".join(word.split())
    return re.sub(
        r"(?=\S*\d)(?=\S*[A-Za-z])[A-Za-z0-9+_=-]{24,}",
        "…",
        re.sub(r"(\w+://)[^/@\s]+@", r"\1…@", word),
    )


@given(st.text(alphabet="ab1 /@:+é\u0661") | st.text(alphabet="aB1/+ ", min_size=20, max_size=200))
def test_the_fast_form_masks_what_the_definition_masks(word: str) -> None:
    assert redact([word]) == _mask_by_definition(word)


@given(
    st.sampled_from(
        ["a", "1", "a/", "://", "a://", "a://b", "_=", "a ", "a@", "--a-", "key=", "a" * 23 + "/"]
    ),
    st.sampled_from(["", "1", "@", " 1a", "=", "://x@y"]),
)
def test_a_long_word_takes_linear_time(unit: str, end: str) -> None:
    def read(length: int) -> None:
        word = unit * (length // len(unit)) + end
        assert len(redact([word])) <= len(word)

    assert is_linear(read, 5_000)


def test_a_hint_to_install_a_package_is_right_under_pipx_too() -> None:
    assert (
        install_hint("ruamel.yaml")
        == "pip install ruamel.yaml (with pipx: pipx inject task-profiler ruamel.yaml)"
    )


def test_the_most_similar_names_are_suggested_once_each() -> None:
    known = ("nightly-etl", "nightly-load", "billing")
    names = ("nightly-elt", "nightly_etl", "biling")
    assert did_you_mean(names, known) == " Did you mean nightly-etl and billing?"


def test_a_name_without_a_similar_one_gets_no_suggestion() -> None:
    assert did_you_mean(("orders",), ("billing",)) == ""


@pytest.mark.parametrize(
    ("names", "text"),
    [((), ""), (("a",), "a"), (("a", "b"), "a or b"), (("a", "b", "c"), "a, b or c")],
)
def test_a_list_in_a_sentence(names: tuple[str, ...], text: str) -> None:
    """Commas separate all names but the last one."""
    assert listed(iter(names), "or") == text
