"""Where the value of a named secret ends, and which values are no secrets.

Each pattern is bounded, or reads each character once.
"""

import re

from profiler.core.redaction.secret_names import SecretKind, listed_words

_MAX_HARMLESS_LENGTH = 300
# A type may stand before the quotes, of Rust and of PHP.
_OPENING = r"""(?:Some\(|string\(\d{1,6}\)\s)?[bBfFrRuU$@]{0,2}(\\{0,8})(["'`])"""
_IN_QUOTES = {
    '"': r'(?s)(?:\\.|[^"\\])*+(")?',
    "'": r"(?s)(?:\\.|[^'\\])*+(')?",
    "`": r"[^`]*+(`)?",
}
_NEXT_NAME = r"""\\{0,8}["']?[\w.-]{1,64}\\{0,8}["']?\s{0,4}[=:]"""
_CUT = (
    rf"""\s|[,;&](?=\s|$|{_NEXT_NAME})|\\{{1,8}}["']|\\[nrt](?=[\w.-]{{1,64}}[=:])|</"""
    r"""|["'`](?=[\s,)\]}:;&|>]|$)"""
)
_CUT_IN_ADDRESS = rf"[&#]|{_CUT}"
_CLOSERS = {")": "(", "]": "[", "}": "{", ">": "<"}
_CONTAINER = r"""[\[\]{}]|"(?:\\.|[^"\\])*+"|'(?:\\.|[^'\\])*+'"""

_WORDS = listed_words(
    "null none nil true false undefined void yes no on off required optional prompt ask stdin"
    " redacted [redacted] (redacted) <redacted> [filtered] hidden <hidden> <nil> (null) (none)"
    " (hidden) masked [masked] (sensitive [hidden]"
)
# In the usage of a program: --password PASSWORD.
PLACES_OF_VALUES = listed_words(
    "API_KEY FILE KEY NAME PASS PASSWD PASSWORD PATH SECRET STRING TEXT TOKEN VALUE"
)
_TYPES = listed_words(
    "str string text bytes int integer varchar char bool boolean secretstr any object number"
    " optional[str] bytea"
)
# A value that goes on as a sentence: "password: must have 12 characters".
_OF_A_SENTENCE = listed_words(
    "a accepted all an and any are at authentication been can cannot changed contains could denied"
    " did do does empty enter error exists expired failed failure for found from has have"
    " in incorrect invalid is it length may minimum missing must need needs not of ok"
    " or please provided rejected should success successful successfully supplied that the this to"
    " too unable unknown unset updated was were when will with without wrong you your"
)
_NO_KEYS_OF_AUTH = listed_words(
    "anonymous aoss aws awsv4 es azure basic bearer cert certificate client default digest disabled"
    " failed false gssapi iam interactive jwt kerberos ldap login logout md5 mtls mutual negotiate"
    " enabled none ntlm oauth oauth2 oidc ok optional password peer pam pending plain required saml"
    " scram scram-sha-256 sigv4 skip sso start success tls token trust x509 ident iam_user"
    " service-account application-default"
)
_VARIABLE = (
    r"\$\{[^}]*\}|\$\([^)]*\)|\$[A-Z_][A-Z0-9_]*|\$\d"
    r"|\$[a-z_]*(?:pass(?:word|wd)?|token|secret|key|pwd)"
    r"|%\w+%|\{\{.*\}\}|\$env:\w+|\{\w*\}|%s|%\(\w+\)s|\{resolve:.*|<%.*|!(?:Ref|Sub)|\?|[*•…]+"
    r"|<[\w .|/-]{1,40}>|\[[A-Z]{2,8}\]"
)
_CALL = (
    r"[A-Za-z_][\w.]*[(\[].*|(?:self|this|config|cfg|conf|settings|args|opts|options|params|env|os"
    r"|process|request|ctx|var|local|module|data|each|secrets|github)\.[\w.]+"
)
_REFERENCE = (
    r"arn:aws[\w-]*:.*|projects/.*|op://.*|(?:vault|ssm|secretsmanager|env|file|keyring|ref\+\w+):"
    r"[\w./:#-]+|alias/.*|fileb?://.*"
)
_ROOTED = (
    r"(?:/(?:run|etc|var|opt|home|root|tmp|mnt|usr|proc|dev|srv|data|app|secrets|workspace)/"
    r"|\.{1,2}/|~/|[A-Za-z]:\\|@)[^\s]*"
)
_NO_VALUE = rf"(?:{_VARIABLE})(?::(?:{_VARIABLE}))?|{_REFERENCE}|{_ROOTED}"
_FILE = (
    r"[\w./~$-]*\.(?:pem|key|crt|cer|json|ya?ml|toml|txt|ini|cfg|env|p12|pfx|jks|pub|enc|gpg|py|sh"
    r"|conf|csv|log)"
)
_ADDRESS = r"(?:https?|s3|gs|file|abfss?|hdfs)://.*"
_MOUNTED = r"(?:id|type|source|src|name)=.*"  # of an image's build
# Of an identifier that is a key: a name has other letters, a number none.
_DIGITS_OF_KEY = r"(?=[0-9]*[a-f])(?=[a-f]*[0-9])[0-9a-f]{16,}"
_UUID = r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"
_NUMBER = r"[\d.,_]+[kKmMbBsS%]?"
_FORMS_OF_NO_SECRETS = {
    SecretKind.TOKENS: _NUMBER,
    SecretKind.ID: rf"(?is)(?!{_DIGITS_OF_KEY}$).*",
    SecretKind.SECRET_ID: rf"(?is)(?!(?:{_DIGITS_OF_KEY}|{_UUID})$).*",
}


def value_span(
    text: str, place: int, *, in_address: bool = False, is_line: bool = False
) -> tuple[int, int, bool]:
    """Start and end of the value at a place, without its quotes, and whether it stood in quotes.
    ``in_address``: the value ends at the next parameter, too. ``is_line``: a value
    without quotes goes on to the end of the line.
    """
    opening = re.compile(_OPENING).match(text, place)
    if opening:
        start, escape, quote = opening.end(), opening[1], opening[2]
        if escape:
            end = text.find(escape + quote, start)
            return start, len(text) if end < 0 else end, True
        closing = re.compile(_IN_QUOTES[quote]).match(text, start)
        end = closing.end() - len(closing[1] or "") if closing else len(text)
        after = text[end + 1 : end + 3]
        if after and (after[0].isalnum() or after in (r"\'", r"\"")) and quote != "`":
            end = _end_of_word(text, end)  # pieces of a shell's word: 'it'\''s'
        return start, end, True
    if is_line:
        end = text.find("\n", place)
        end = len(text) if end < 0 else end
        quoted = re.compile(r"""[^\n"'`\\]*+""").match(text, place)
        if quoted and quoted.end() < end:
            end = quoted.end()
        return place, place + len(text[place:end].rstrip()), False
    cut = re.compile(_CUT_IN_ADDRESS if in_address else _CUT).search(text, place)
    end = cut.start() if cut else len(text)
    while end > place and (text[end - 1] in "\"'`,;:" or _is_unopened(text, place, end)):
        end -= 1
    return place, end, False


def container_end(text: str, place: int) -> int:
    """Where the list or the object that opens at a place ends; the text's end if it does not."""
    depth = 0
    for found in re.compile(_CONTAINER).finditer(text, place):
        if found[0] in "[{":
            depth += 1
        elif found[0] in "]}":
            depth -= 1
            if depth == 0:
                return found.end()
    return len(text)


def is_harmless(value: str, kind: SecretKind, *, is_quoted: bool, is_prose: bool) -> bool:
    """Whether the value of a name of a secret is none, such as a variable or a file.
    ``is_prose``: it follows ``": "``, as a sentence may.
    """
    value = value.strip()
    if len(value) > _MAX_HARMLESS_LENGTH:
        return False
    word = value.lower()
    if not value or word in _WORDS or value in PLACES_OF_VALUES or re.fullmatch(_NO_VALUE, value):
        return True
    if not is_quoted:
        is_sentence = is_prose and word.rstrip(".,;:!?") in _OF_A_SENTENCE | _TYPES
        if is_sentence or re.fullmatch(_CALL, value):
            return True
    return _is_harmless_of_kind(value, word, kind)


def _is_harmless_of_kind(value: str, word: str, kind: SecretKind) -> bool:
    pattern = _FORMS_OF_NO_SECRETS.get(kind)
    if pattern is not None:
        return bool(re.fullmatch(pattern, value))
    if kind in (SecretKind.AUTH, SecretKind.HEADER) and word in _NO_KEYS_OF_AUTH:
        return True
    if kind is SecretKind.PASS:
        return bool(re.fullmatch(r"\d{1,4}", value))
    if kind is SecretKind.SECRET and re.fullmatch(_MOUNTED, value):
        return True
    if kind in (SecretKind.PASSWORD, SecretKind.HEADER):
        return False
    return bool(re.fullmatch(_FILE, value) or re.fullmatch(_ADDRESS, value))


def _is_unopened(text: str, place: int, end: int) -> bool:
    """Whether the last character closes what the value has not opened."""
    opening = _CLOSERS.get(text[end - 1])
    return (
        opening is not None and opening not in text[place : min(end, place + _MAX_HARMLESS_LENGTH)]
    )


def _end_of_word(text: str, place: int) -> int:
    word = re.compile(r"\S*+").match(text, place)
    end = word.end() if word else place
    while end > place and text[end - 1] in "\"'`,;)]}":
        end -= 1
    return end
