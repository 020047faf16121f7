"""Secrets that their own form shows: users in addresses, tokens, private keys, statements of SQL.

Each pattern is bounded, or reads each character once.
"""

import binascii
import re
from collections.abc import Iterator

from profiler.core.redaction.secret_names import SecretKind, listed_words
from profiler.core.redaction.secret_stems import SIGNS_OF_HOOKS
from profiler.core.redaction.secret_values import is_harmless, value_span

_USER_IN_ADDRESS = r"""(?<=\w://)[^/\s"'<>?#]{1,1000}@"""
# A password with a character that an address must encode; no port before a query.
_USER_IN_BROKEN_ADDRESS = (
    r"""(?<=\w://)[^/\s"'<>?#:@]{1,100}:(?!\d{1,5}[?#])[^/\s"'<>?#]{0,100}[?#][^/\s"'<>]{0,100}@"""
)
_WEB = ("http://", "https://")
_PLAIN_USER = r"[A-Za-z][\w.-]{0,23}@"
_PLAIN_USER_OF_WEB = r"[a-z]{1,12}@"
_USER_BEFORE_PORT = (
    r"""(?<![\w/.:@-])(?=\d{0,63}[A-Za-z])[\w.+-]{1,64}:[^\s/@:"']{1,256}@(?!sha256:)"""
    r"(?=(?:[\w.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}(?:%\w{1,15})?\]):\d|(?:tcp|udp|unix)\()"
)
_ORACLE = r"jdbc:oracle:[a-z]{1,8}:[\w$#]{1,30}/([^\s@\"']{1,100})@"
_BEARER = r"\b[Bb]earer\s{1,4}(?=[\w.~+/=\\\"'-])"
_ABOUT_BEARERS = listed_words(
    "token tokens auth authentication authorization scheme realm credentials format header type"
    " key only error challenge"
)
_BASIC = r"\b[Bb]asic\s{1,4}([A-Za-z0-9+/]{6,400}={0,2})"
_PRIVATE_KEY = r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
_WEB_TEXT = r"\beyJ[\w-]{10,}+\.[\w-]{10,}+(?:\.[\w-]*+)?"
_HOOK = (
    r"(?:hooks\.slack\.com/(?:services|workflows|triggers)/|/api/webhooks/\d{1,30}/"
    r"|webhook\.office\.com/|/webhookb2/|api\.telegram\.org/bot|hooks\.zapier\.com/|/bot/v2/hook/"
    r"|events\.pagerduty\.com/integration/|\.datadoghq\.\w{2,3}/(?:api/)?v1/input/"
    r"|\.sentry\.io/api/\d{1,20}/cron/[\w-]{1,80}/|hc-ping\.com/|nosnch\.in/|cronitor\.link/p/"
    r"|maker\.ifttt\.com/trigger/[\w-]{1,80}/(?:json/)?with/key/|\.loggly\.com/(?:inputs|bulk)/"
    r"|\.sumologic\.com/receiver/v1/http/"
    r"|\.victorops\.com/integrations/generic/\d{1,20}/alert/)([^\s\"'<>]+)"
)
_KNOWN = (
    r"(?<![\w-])(?:gh[pousr]_|github_pat_|glpat-|xox[abeoprs]-|hf_|sk-|npm_|pypi-|dckr_pat_|SG\."
    r"|AIza|ya29\.|hvs\.|[rs]k_(?:live|test)_|whsec_|nvapi-|gsk_|AGE-SECRET-KEY-|xapp-"
    r"|gl(?:rt|dt|ptt|soat|cbt|agent)-"
    r"|ATATT|PMAK-|lin_api_|rubygems_|r8_|pplx-|xkeysib-|dapi(?=[0-9a-f]{32})|shp(?:at|ca|pa|ss)_"
    r"|do[opr]_v1_|sq[apu]_|sbp_)([\w.-]{10,}+)"
)
_IDENTIFIED = (
    r"(?i)\bidentified(?:\s{1,4}with\s{1,4}[\w'\"]{1,40})?\s{1,4}(?:by|as)"
    r"(?:\s{1,4}(?:password|values))?\s{1,4}"
)
_CHANGED = r"(?i)\bset\s{1,4}password\s{1,4}for\s[^=\n]{1,120}=\s{0,4}(?:password\()?(?=[\"'])"
_KEY_OF_SQLITE = r"(?i)\bpragma\s{1,4}(?:\w{1,40}\.)?(?:hex)?(?:re)?key\s{0,4}[=(]\s{0,4}(?=[\"'])"
_LOGON = r"(?i)(?<![\w.])\.logon\s{1,4}[^\s,]{1,100},\s{0,4}"  # of Teradata
# As clients of FTP, POP3 and IMAP log what they send.
_OF_FTP = (
    r"(?m)(?:^(?:-{0,4}>{1,2} |\* |C: |\*cmd\* [b'\"]{1,2}|[^\n]{0,60}\bftp\S{0,20}: )"
    r"|^USER \S{1,64}\s{1,4})PASS (?=\S)"
)
# Alone in its line, PASS is a test's word, too: no name of a test has such a word behind it.
_ALONE = (
    r"(?m)^PASS (?=\S{0,60}\d)(?=\S{0,60}[A-Za-z])(?![Tt]est|[\w-]{0,60}[./:(\[_-])(?=\S{1,60}$)"
)
_GENERATED = (
    r"(?i)\bpassword\s{1,4}(?:(?:is|was|has been)\s{1,4})?(?:generated|set|reset|changed|updated)"
    r"[^:\n]{0,60}:\s{1,4}(?=\S)"
)
_OF_ORACLE = r"\bparams=\{\{[\w$#]{1,60}\s{1,4}(?=\S)"  # as godror prints its settings
_OTHER_SIGN_IN = (  # to another server of Redis, or with another protocol
    r"(?i)\b(?:HELLO\s{1,4}\d\s{1,4}AUTH\s{1,4}\S{1,80}"
    r"|MIGRATE\s[^\n]{1,200}?\sAUTH(?:2\s{1,4}\S{1,80})?)\s{1,4}(?=\S)"
)
_LEADERS = (
    r"(?i)(?:password|passwd|passphrase|secret|token|api[ _-]?key)\s{0,2}\.{4,60}\s{0,2}:?"
    r"\s{0,4}(?=[^\s.:])"
)
# What a step that leaders follow has come to.
_RESULTS = listed_words("ok [ok] done [done] fail skipped set valid passed none n/a created")
_ECHO = r"\b(?:echo|printf)\s{1,4}(?:-\w{1,3}\s{1,4}|['\"]?%s[\w\\]{0,4}['\"]?\s{1,4}){0,3}"
# What reads a secret from its input.
_READER = (
    r"(?:--password-stdin|password_stdin|--stdin|--token-stdin|--with-token|passphrase-fd"
    r"|-pass(?:in|out)?\s{1,4}stdin|sudo\s{1,4}(?:-\w{1,3}\s{1,4}){0,3}-S|chpasswd|cryptsetup"
    r"|\b(?:login|kinit|passwd|htpasswd)\b(?!\.)|\bop\s{1,4}signin\b|\bbw\s{1,4}unlock\b"
    r"|\bsecrets?\s{1,4}(?:create|versions\s{1,4}add)\s[^\n|;<]{0,100}"
    r"(?:--data-file[= ]-|\s-(?!\S))"
    r"|\bpass\s{1,4}insert\b|\bsecret-tool\s{1,4}store\b|\bkeepassxc-cli\b)"
)
_PIPED = rf"{_ECHO}([^\n|]{{1,300}}?)\s{{0,4}}\|(?=[^\n|;]{{0,160}}{_READER})"
_HERE = (
    rf"{_READER}[^\n|;<]{{0,100}}<<<\s{{0,4}}"
    r"|\b[lt]?n?c?ftp\b[^\n|;<]{0,160}<<<\s{0,4}[\"']?user\s{1,4}\S{1,64}\s{1,4}"
)
# restic --password-command 'echo X'
_COMMAND = rf"(?i)pass(?:word|phrase|wd)?[-_]?(?:command|cmd|eval)[\"']?[\s=:]{{1,4}}[\"']?{_ECHO}"
# With what a text in lower case has if one is in it.
_STATEMENTS = (
    ("identified", _IDENTIFIED),
    ("password", _CHANGED),
    ("password", _GENERATED),
    ("pragma", _KEY_OF_SQLITE),
    (".logon", _LOGON),
    ("pass ", _OF_FTP),
    ("pass ", _ALONE),
    ("params={{", _OF_ORACLE),
    (" auth", _OTHER_SIGN_IN),
    ("....", _LEADERS),
    ("echo ", _COMMAND),
    ("printf ", _COMMAND),
)
_TEXT = r"""\\{0,8}["'][^"'\\]{0,200}\\{0,8}["']\s{0,8},\s{0,8}"""
# A user and a password are the last two: smtp.login("joe", "x"), DBI->connect("dbi:…", "joe", "x").
_CALL = (
    rf"(?i)(?:\b(?:login|authenticate|HTTPBasicAuth|basic_?auth|auth\s?=\s?|db\.auth"
    rf"|changeUserPassword)\((?=\\{{0,8}}[\"'])"
    rf"|\b(?:connect|getConnection|PDO|mysqli(?:_connect)?)\(\s{{0,8}}"
    rf"(?:{_TEXT}|[\w$.]{{1,60}},\s{{0,8}})"
    rf"|\bCredentials\((?:[^(),]{{1,80}},\s{{0,8}}){{1,2}}){_TEXT}(?=\\{{0,8}}[\"'])"
)
_IN_OPTIONS = r"(?<!\S)-u\s{1,4}[\"']?[A-Za-z][\w.@-]{0,63}[\"']?\s{1,4}-p\s{1,4}(?=\S)"
_OTHER_VALUE = r"\d[\d:.-]*|[./~-].*|\w+=.*"
# Where -p is no password's, or asks for it.
_WITH_PORTS = (
    r"\b(?:docker|podman|nerdctl|ssh|compose|conda|useradd|mysql\w{0,9}|mariadb[\w-]{0,9})\b"
)
_USER_OF_REDIS = r"(?i)\bsetuser\s{1,4}[^\n]{1,300}"
_OF_REDIS = r"(?<=[\s\"'])[><](?=\S)"
_SIGN_IN = r"(?m)(?:^|[>\"'`:]\s{0,4})AUTH\s{1,4}(?=\S)"
_STEPS_OF_SIGN_IN = r"(?:LOGIN|PLAIN|CRAM-MD5|XOAUTH2|NTLM|GSSAPI|OAUTHBEARER)(?:\s{1,4}|$)"
_LONG = r"[A-Za-z0-9+_=-]{24,}+"
_ENCODED = r"^(?:25)?[0-9A-F]{2}"
_ID = r"(?i:[0-9a-f]{32}|[0-9a-f]{40}|[0-9a-f]{56}|[0-9a-f]{64}|[0-9a-f]{96}|[0-9a-f]{128})"
_UUID = r"(?i)[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"
_PIECE = r"[A-Za-z0-9]+"
_CHANGES = (
    r"(?<=[a-z])(?=[A-Z0-9])|(?<=[A-Z])(?=[0-9])|(?<=[0-9])(?=[A-Za-z])|(?<=[A-Z]{2})(?=[a-z])"
)
_WORD_OF_NAME = r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+"
_MIN_MEAN_LENGTH = 4
_MAX_PLAIN_LENGTH = 16
_MAX_CHANGES = 3
_HEXADECIMAL = r"[0-9a-f]{1,17}"
_KEY_OF_AWS = r"(?<![\w/+=.:-])[A-Za-z0-9/+]{40}(?![\w/+=.:-])"


def secret_forms(text: str) -> Iterator[tuple[int, int]]:
    """Start and end of each secret of a text that its own form shows."""
    if "@" in text:
        yield from _address_users(text)
    if "earer" in text:
        yield from _bearer_tokens(text)
    if "asic " in text:
        for found in re.finditer(_BASIC, text):
            if _is_user_and_password(found[1]):
                yield found.span(1)
    if "PRIVATE KEY" in text:
        yield from _private_keys(text)
    if "eyJ" in text:
        yield from (found.span() for found in re.finditer(_WEB_TEXT, text))
    yield from secret_hooks(text)
    yield from _statement_passwords(text)
    yield from _piped_secrets(text)
    yield from _users_and_passwords(text)
    if "AUTH" in text:
        yield from _auth_words(text)
    yield from _opaque_tokens(text)


def secret_hooks(text: str) -> Iterator[tuple[int, int]]:
    """Start and end of what is secret in each address of a webhook."""
    if any(sign in text for sign in SIGNS_OF_HOOKS):
        yield from (found.span(1) for found in re.finditer(_HOOK, text))


def _address_users(text: str) -> Iterator[tuple[int, int]]:
    """The users and the passwords of addresses."""
    for found in re.finditer(_USER_IN_ADDRESS, text):
        is_web = text.endswith(_WEB, max(0, found.start() - 8), found.start())
        plain = _PLAIN_USER_OF_WEB if is_web else _PLAIN_USER
        if not re.fullmatch(plain, found[0]):
            yield found.start(), found.end() - 1
    if "#" in text or "?" in text:
        for found in re.finditer(_USER_IN_BROKEN_ADDRESS, text):
            yield found.start(), found.end() - 1
    if "jdbc:oracle" in text:
        yield from (found.span(1) for found in re.finditer(_ORACLE, text))
    for found in re.finditer(_USER_BEFORE_PORT, text):
        yield found.start(), found.end() - 1


def _bearer_tokens(text: str) -> Iterator[tuple[int, int]]:
    for found in re.finditer(_BEARER, text):
        start, end, is_quoted = value_span(text, found.end())
        value = text[start:end]
        name = value[:80].partition("=")[0].partition(":")[0].lower().rstrip(".,;:!?")
        if name in _ABOUT_BEARERS or is_harmless(
            value, SecretKind.HEADER, is_quoted=is_quoted, is_prose=True
        ):
            continue
        yield start, end


def _is_user_and_password(word: str) -> bool:
    try:
        return b":" in binascii.a2b_base64(word)
    except binascii.Error:
        return False


def _private_keys(text: str) -> Iterator[tuple[int, int]]:
    place = 0
    pattern = re.compile(_PRIVATE_KEY)
    while found := pattern.search(text, place):
        end = text.find("-----END", found.end())
        place = len(text) if end < 0 else end
        yield found.end(), place


def _statement_passwords(text: str) -> Iterator[tuple[int, int]]:
    """The passwords of statements of SQL, of Redis, and of a server's log."""
    lower = text.lower()
    for pattern in (pattern for sign, pattern in _STATEMENTS if sign in lower):
        for found in re.finditer(pattern, text):
            start, end, is_quoted = value_span(text, found.end())
            value = text[start:end]
            if value.isdigit() and "...." in found[0]:
                continue  # a count
            if value.lower() not in _RESULTS and not is_harmless(
                value, SecretKind.PASSWORD, is_quoted=is_quoted, is_prose=True
            ):
                yield start, end
    if "setuser" in lower:
        for user in re.finditer(_USER_OF_REDIS, text):
            for found in re.compile(_OF_REDIS).finditer(text, user.start(), user.end()):
                start, end, _ = value_span(text, found.end())
                yield start, end


def _piped_secrets(text: str) -> Iterator[tuple[int, int]]:
    """What a shell's text writes to the input of a program that reads a secret there."""
    if "|" in text and ("echo" in text or "printf" in text):
        for found in re.finditer(_PIPED, text):
            start, end, is_quoted = value_span(found[1], 0)
            if _is_password(found[1][start:end], is_quoted=is_quoted):
                yield found.start(1) + start, found.start(1) + end
    if "<<<" in text:
        for found in re.finditer(_HERE, text):
            start, end, is_quoted = value_span(text, found.end())
            if _is_password(text[start:end], is_quoted=is_quoted):
                yield start, end


def _users_and_passwords(text: str) -> Iterator[tuple[int, int]]:
    """The password after a user, in a call or in the options -u and -p of any program."""
    if "(" in text:
        for found in re.finditer(_CALL, text):
            start, end, is_quoted = value_span(text, found.end())
            if _is_password(text[start:end], is_quoted=is_quoted):
                yield start, end
    if "-u" in text and "-p" in text:
        for found in re.finditer(_IN_OPTIONS, text):
            start, end, is_quoted = value_span(text, found.end())
            before = text[max(0, found.start() - 300) : found.start()]
            is_other = re.fullmatch(_OTHER_VALUE, text[start:end][:200])
            if is_other or re.search(_WITH_PORTS, before):
                continue
            if _is_password(text[start:end], is_quoted=is_quoted):
                yield start, end


def _is_password(value: str, *, is_quoted: bool) -> bool:
    return not is_harmless(value, SecretKind.PASSWORD, is_quoted=is_quoted, is_prose=False)


def _auth_words(text: str) -> Iterator[tuple[int, int]]:
    """The words after AUTH, of Redis and of SMTP."""
    for found in re.finditer(_SIGN_IN, text):
        step = re.compile(_STEPS_OF_SIGN_IN).match(text, found.end())
        place = step.end() if step else found.end()
        for _ in range(1 if step else 2):
            start, end, is_quoted = value_span(text, place)
            if start == end or is_harmless(
                text[start:end], SecretKind.AUTH, is_quoted=is_quoted, is_prose=True
            ):
                break
            yield start, end
            following = re.compile(r"[ \t]{1,4}(?=\S)").match(text, end)
            if following is None:
                break
            place = following.end()


def _opaque_tokens(text: str) -> Iterator[tuple[int, int]]:
    """Long words without a meaning, and those that begin as the tokens of a known service."""
    for found in re.finditer(_LONG, text):
        word = found[0]
        if text.startswith(("%", "$"), max(0, found.start() - 1)):  # of an address: %2F
            word = re.sub(_ENCODED, "", word)
        if is_opaque(word):
            yield found.span()
    for found in re.finditer(_KEY_OF_AWS, text):
        if is_opaque(found[0].replace("/", "").replace("+", "")) and not found[0].startswith("/"):
            yield found.span()
    for found in re.finditer(_KNOWN, text):
        piece = re.search(r"[A-Za-z0-9]{16,}+", found[1])
        if piece and (re.search(r"\d", found[1]) or not _is_plain(piece[0])):
            yield found.span()


def is_opaque(word: str) -> bool:
    """Whether a word of letters and digits is a key's or a token's: it is no identifier of
    hexadecimal digits, and does not consist of short readable pieces.
    """
    if not re.search(r"\d", word) or not re.search(r"[A-Za-z]", word):
        return False
    if re.fullmatch(_ID, word.rpartition("=")[2]) or re.search(_UUID, word):
        return False
    return not all(_is_plain(piece) for piece in re.findall(_PIECE, word))


def _is_plain(piece: str) -> bool:
    if piece.isalpha() or piece.isdigit():
        return (
            piece.isdigit()
            or piece[1:].islower()
            or piece.isupper()
            or len(re.findall(_CHANGES, piece)) <= len(piece) // 5
        )
    words = re.findall(_WORD_OF_NAME, piece)
    if not piece.islower() and not piece.isupper() and len(piece) >= _MIN_MEAN_LENGTH * len(words):
        return True  # AmazonEC2ContainerServiceRole
    if re.fullmatch(_HEXADECIMAL, piece) or re.fullmatch(_ID, piece):
        return True
    return len(piece) <= _MAX_PLAIN_LENGTH and len(re.findall(_CHANGES, piece)) <= _MAX_CHANGES
