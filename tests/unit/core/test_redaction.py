"""Secrets in command lines and log lines are masked, and what is none can be read."""

import json
import re
import shlex
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from profiler.core.redaction import redact, redact_line, without_credentials
from tests.cases import each_case

DATA = Path(__file__).parents[2] / "data"
# A secret is between these marks in the file.
MARKED = r"«(.*?)»"


def lines_of(name: str) -> list[str]:
    return (DATA / name).read_text(encoding="utf-8").splitlines()


def as_written(text: str) -> Iterator[tuple[str, str]]:
    """A text as each place shows it, and what stands there if it has no secret: as a line of a
    log, as a shell's text, in words, and as the words of a command.
    """
    on_one_line = " ".join(text.split())
    yield redact_line(text), text
    yield redact([text]), on_one_line
    yield redact(text.split()), on_one_line
    if text[:1].islower():
        try:
            words = shlex.split(text)
        except ValueError:
            return
        yield redact(words), " ".join(" ".join(word.split()) for word in words)


@each_case("line", lines_of("secrets.txt"))
def test_a_secret_of_a_command_or_a_log_is_shown_nowhere(line: str) -> None:
    secrets = [secret.strip('"') for secret in re.findall(MARKED, line)]
    others = re.sub(MARKED, "", line)
    assert secrets
    for shown, _ in as_written(re.sub(MARKED, r"\1", line)):
        for secret in secrets:
            assert shown.count(secret) <= others.count(secret), shown


@each_case("line", lines_of("no_secrets.txt"))
def test_what_only_looks_like_a_secret_can_be_read(line: str) -> None:
    for shown, whole in as_written(line):
        assert shown == whole


def test_the_command_of_most_runs_needs_no_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiling all patterns would take some milliseconds of a short run."""

    def refuse(*_: object) -> None:
        raise AssertionError

    commands = (["true"], ["python3", "-m", "etl.load", "--day", "2026-11-20"], ["make", "all"])
    with monkeypatch.context() as patch:
        patch.setattr(re, "_compile", refuse)
        shown = [redact(words) for words in commands]
        with pytest.raises(AssertionError):
            redact(["mysql", "-px"])
    assert shown == [" ".join(words) for words in commands]


@pytest.mark.diagonal(3)
@pytest.mark.parametrize("before", range(-24, 3))
def test_the_rest_of_an_endless_text_is_not_shown_nor_half_of_a_secret(before: int) -> None:
    length = 65_536
    start = "word " * (length // 5 - 10)
    start += "." * (length - len(start) + before - 1) + " "
    endless = start + "cannot reach postgres://joe:hunter2@db and " + "--password hunter3 " * 50_000
    for shown in (redact_line(endless), redact([endless]), redact(endless.split(" "))):
        assert shown.startswith(start[:length])
        assert shown.endswith("…")
        assert len(shown) <= length + 2
        assert not re.search("joe|hun", shown)


def test_a_letter_that_becomes_two_in_lower_case_moves_no_secret() -> None:
    assert redact_line("İİ PASSWORD=hunter2 of İ") == "İİ PASSWORD=… of İ"
    assert redact(["İ_TOKEN=x1y2z3", "İ"]) == "İ_TOKEN=… İ"


def test_a_long_text_is_shown_whole() -> None:
    text = "word " * 13_107 + "x"
    assert redact_line(text) == redact([text]) == text


@each_case(
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


@each_case(
    ("text", "shown"),
    [
        ('curl -d {"password":"x"}', 'curl -d {"password":"…"}'),
        ('{"password": "x y", "user": "joe"}', '{"password": "…", "user": "joe"}'),
        (r'{"client_secret":"a\"b","n":1}', '{"client_secret":"…","n":1}'),
        (r'"{\"apiKey\": \"x\", \"n\": 1}"', r'"{\"apiKey\": \"…\", \"n\": 1}"'),
        ("{'token': 'x', 'n': 2}", "{'token': '…', 'n': 2}"),
        ('{"token":123,"n":4}', '{"token":…,"n":4}'),
        ('{"token":null,"auth":{"n":4}}', '{"token":null,"auth":{"n":4}}'),
        ('{"password":"cut o', '{"password":"…'),
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
        ('secret = "cut o', 'secret = "…'),
        ("curl -u joe:x https://h", "curl -u … https://h"),
        ("curl -sSfu joe:x https://h", "curl -sSfu … https://h"),
        ("sudo /usr/bin/curl -ujoe:x https://h", "sudo /usr/bin/curl -u… https://h"),
        ("curl --user joe:x https://h", "curl --user … https://h"),
        ("curl -u joe https://h", "curl -u joe https://h"),
        ("mysql -h db -px sales", "mysql -h db -p… sales"),
        ("timeout 5 mysqldump -p x sales", None),
        ("sh -c mysql -px ; mkdir -p x", "sh -c mysql -p… ; mkdir -p x"),
        ("sshpass -p x ssh -p 22 h", "sshpass -p … ssh -p 22 h"),
        ("docker login -u joe -p x", "docker login -u joe -p …"),
        ("redis-cli -a x ping", "redis-cli -a … ping"),
        ("isql -U sa -P x", "isql -U sa -P …"),
        ("curl -H 'Authorization: Bearer x' h", "curl -H 'Authorization: Bearer …' h"),
        ('curl -H"X-Api-Key: x" h', 'curl -H"X-Api-Key: …" h'),
        ("wget --header=Authorization: Basic x", "wget --header=Authorization: Basic …"),
        (r"sh -c \"curl -H \"Cookie: x\" h\"", r"sh -c \"curl -H \"Cookie: …\" h\""),
        ('{"apiKeys":["x", "y"],"n":[1]}', '{"apiKeys":[…],"n":[1]}'),
        ('{"tokens":["cut o', '{"tokens":[…'),
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


@each_case(
    ("line", "shown"),
    [
        ("    x =  1  # no secret", "    x =  1  # no secret"),
        ("  Settings(token=x,  n=1)", "  Settings(token=…,  n=1)"),
        ("  --password x   and  more", "  --password …   and  more"),
        ('  login with password="x y"  failed', '  login with password="…"  failed'),
        ("\tPASSWORD=x", "\tPASSWORD=…"),
        ("  db_password: x", "  db_password: …"),
        ("Authorization: Bearer x", "Authorization: Bearer …"),
        ("> X-Api-Key: x", "> X-Api-Key: …"),
        ("Cookie: session=x; n=1", "Cookie: …"),
        ("error: unexpected token: x", "error: unexpected token: x"),
        ("Basic usage: x", "Basic usage: x"),
        ("+ curl -H 'Authorization: Bearer x' h", "+ curl -H 'Authorization: Bearer …' h"),
        ("curl -v h password: x", "curl -v h password: …"),
        ("", ""),
    ],
)
def test_a_line_of_a_log_keeps_its_form_without_its_secrets(line: str, shown: str) -> None:
    assert redact_line(line) == shown


@each_case(
    ("sentence", "shown"),
    [
        ("--from u:PASSWORD@h:9200: no file", "--from …@h:9200: no file"),
        ("'u:P@SS@h:9200' is no file", "'…@h:9200' is no file"),
        ("see https://u:PASSWORD@h/x", "see https://…@h/x"),
        ("see redis://:PASSWORD@h/x", "see redis://…@h/x"),
        ("https://u:PASSWORD@[::1]:9200 is no cluster", "https://…@[::1]:9200 is no cluster"),
        ("cannot reach u:PASSWORD@[::1]:9200", "cannot reach …@[::1]:9200"),
        ("'https://h/v1?api-key=x&n=1' answers 401", "'https://h/v1?api-key=…&n=1' answers 401"),
        ("https://h/cb#access_token=x is no page", "https://h/cb#access_token=… is no page"),
        (
            "https://hooks.slack.com/services/T0/B0/x answers 404",
            "https://hooks.slack.com/services/… answers 404",
        ),
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
        "set ELASTICSEARCH_PASSWORD=… or ELASTICSEARCH_API_KEY: none is set (see https://h/a?b=c)",
        "password: see https://h/app/dashboards#/view/a?_g=(time:(from:now-15m))",
        "https://h/cloudwatch/home?region=r#logsV2:log-groups/log-group/a/log-events/ecs$252Fb$252F0",
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
            *('password="', "(token=", "a=", ",a=", "a = '", "password={", '{"secrets":{"arn:":'),
            *("mysql -p", "curl -u a:", "a:b@", "://", ":", "@", '"', "\\", ";Password="),
            *("-='", "password: ", "='authorization: bearer ", '"token": [', "=x:", "key ", "a_"),
            *("<password>", "<password ", "Bearer ", "basic QQ", "eyJa", "echo a|", "setuser >a "),
            *("AUTH a ", "identified by ", "set password for ", "hooks.slack.com/services/"),
            *('value="a",name="', 'name="password" ', "password ", "password\n", "token=)", "pass"),
            *("$(", "password=${", "password=a(", "vault login ", "kubectl create secret a=b "),
            *("smbclient -U ", "sqlplus a/", "--secret ", "auth={", "[", "{", "password=a,b"),
            *("sudo -S<<<", "mysql\n", '("password", "', "Set-Cookie: a ", "the password is "),
            *(
                "login('",
                "connect('a','b',",
                "Credentials(a,",
                "-u a -p ",
                "-u a -p x ",
                "'a','b',",
            ),
            *('["mysql","-p","', "\nUSER a PASS ", "token: Some(", "string(1) "),
            *("pragma key='", "x://a:b#", "az --value ", "--name token --value ", ".logon a,"),
            *(
                "mysql 'a ",
                "mysql -e ';' ",
                'mysql "',
                "params={{a ",
                "password.....",
                "hello 3 auth ",
            ),
            *("migrate a ", "migrate auth2 a ", "op signin <<<", "ftp <<< user a ", "token 'a1"),
            *(
                "password-command echo ",
                "db.auth('a',",
                "openssl passwd ",
                "appid=a1",
                "token: 1 of",
            ),
            *("password for a ", "password of 'a' ", "token a1b2", "\nPASS a1", "ftp: PASS a "),
            *("with password a1", "secret create a ", "echo a|secret create ", "a.password b\n"),
            *("-----BEGIN PRIVATE KEY-----", "http://a:", "arn:aws:", "x" * 23 + " ", "login a "),
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


LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


@given(middle=st.text(LETTERS, min_size=22, max_size=80), is_lower=st.booleans())
def test_a_long_word_of_letters_and_digits_is_a_secret(middle: str, *, is_lower: bool) -> None:
    """A name of long words in mixed case is none: ``AmazonEC2ContainerServiceRole``."""
    word = f"g{middle}0"
    if is_lower:
        word = word.lower()
    else:
        assume(len(word) < 4 * len(re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+", word)))
    assert redact(["show", word]) == "show …"


@given(st.sampled_from([32, 40, 56, 64, 96, 128]), st.data())
def test_a_digest_and_the_identifier_of_a_commit_or_a_run_are_shown(
    length: int, data: st.DataObject
) -> None:
    digits = data.draw(st.text("0123456789abcdef", min_size=length, max_size=length))
    for word in (
        digits,
        digits.upper(),
        f"ecs$252Fbatch$252F{digits}",
        f"a%2F{digits}",
        f"sha256:{digits}",
        f"h/etl@sha256:{digits}",
        f"--rev={digits}",
    ):
        assert redact([word]) == redact_line(word) == word


@given(st.uuids())
def test_an_identifier_is_shown(value: object) -> None:
    assert redact(["task", f"run-{value}"]) == f"task run-{value}"


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
