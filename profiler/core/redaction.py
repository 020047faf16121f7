"""Masks what looks like a secret in a command line or a log line, in linear time.

Each pattern is compiled at its first use, as all would take 2 ms of a short run: most texts need
none, which a look at their characters shows.
"""

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

_MASK = "…"
# In names of options and variables. "key" alone would also match --key-column.
_SECRET_NAME = (
    r"(?i)pass(?:words?|wd|phrases?)?$|pwd|secret|token|api[-_]?key"  # noqa: S105  a pattern
    r"|access[-_]?key|private[-_]?key|credential|auth|signature|^sig$"
)
# At the end of a name whose value is a word of its own: "tokens = 512" is none.
_SECRET_END = (
    r"(?i)(?:pass(?:word|wd|phrase)|pwd|secret|token"  # noqa: S105  a pattern
    r"|api[-_]?key|access[-_]?key|private[-_]?key)$"
)
_NAME = r"[\w./:-]{1,128}"
_NAME_OF_PARTS = r".*[_./:-]"  # "set password" is a sentence's, too
_QUOTED = r"[bBfFrRuU]{0,2}[\"']"
_NAMED_VALUE = r"(?s)(-{0,2}[\w.-]+[=:])(.+)"
_OPTION = r"-{1,2}[\w.-]+"
_USER_IN_ADDRESS = r"(?<=\w://)[^/@\s]+@"
_USER_BEFORE_PORT = (
    r"""(?<![\w/.:-])[A-Za-z][\w.-]{0,63}:[^\s/@:"']{1,256}@(?!sha256:)(?=[\w.-]{1,253}:\d)"""
)
# A member of a JSON object, also in a text in quotes, whose own have a backslash. A value that does
# not end is masked to the end of the text. The counts keep the time linear.
_MEMBER = (
    r"""(?s)(\\{0,8}["'])([\w.-]{1,64})\1(\s{0,8}:\s{0,8})"""
    r"""("(?:\\.|[^"\\])*(?:"|\Z)|'(?:\\.|[^'\\])*(?:'|\Z)|(\\{1,8}["']).*?(?:\5|\Z)"""
    r"""|\[[^\[\]{}]*(?:\]|\Z)|[^\s,}\]\["'{\\]+)"""
)
_NO_SECRETS = frozenset({"null", "true", "false", "None", "True", "False"})
# In the query or the fragment of an address, in a connection string, or of a registry in .npmrc.
_PARAMETER = r"""([?&;#:]([\w.-]{1,64})=)([^\s&;#"'<>]+)"""
# In a program's text: an argument or a variable with a text in quotes, and an argument of a call
# without quotes.
_ASSIGNED = (
    r"""(?s)(?<![\w.-])([\w.-]{1,64})(\s{0,8}=\s{0,8}[bBfFrRuU]{0,2})"""
    r"""("(?:\\.|[^"\\])*(?:"|\Z)|'(?:\\.|[^'\\])*(?:'|\Z))"""
)
_ARGUMENT = r"""([(,]\s{0,8}([\w.-]{1,64})=)([^\s,()"'=]+)(?=[,)])"""
# Where an address has a user and a password, with or without a scheme: up to the colon, in the text
# of a word before its last "@". An image has its digest after one, and the name of a session may be
# a mail address. The counts keep the time linear.
_CREDENTIALS = r"""(?<![^'"(=,])(?!arn:)((?:[A-Za-z][\w+.-]{0,20}://)?)[^/@:'"]{0,1000}:(?=.)"""
_USER_END = r"@(?!sha256:)"
# A line of YAML or of a request's head, in quotes in a shell: the next word is the secret, perhaps
# after its scheme.
_HEAD = (
    r"""(?i)(?:[\w-]{0,64}[="'\\]{1,4})?[\w-]{0,64}(?:pass(?:word|wd|phrase)|api[-_]?key"""
    r"|access[-_]?(?:key|token)|authorization|cookie):"
)
_SCHEMES = frozenset({"basic", "bearer", "digest", "token"})
# Keys and tokens: long words of letters and digits that are neither a path nor a sentence.
_MIN_TOKEN_CHARS = 24
_OPAQUE_TOKEN = rf"[A-Za-z0-9+_=-]{{{_MIN_TOKEN_CHARS},}}"
_LAST_DIGIT = r"\S*\d"
_LAST_LETTER = r"\S*[A-Za-z]"


class _SecretOptions(Struct, frozen=True):
    """A program's options whose value is a secret; ``needs_colon``: if it is ``USER:PASSWORD``.
    ``is_joined``: the value may follow a letter without a space, as in ``-pX``.
    """

    names: tuple[str, ...]
    needs_colon: bool = False
    is_joined: bool = True


_NO_OPTIONS = _SecretOptions(())
_PASSWORD = _SecretOptions(("-p",))
# -p is a folder's or a port's for other programs.
_OPTIONS_OF_PROGRAMS: Mapping[str, _SecretOptions] = {
    "curl": _SecretOptions(("-u", "-U", "--user", "--proxy-user"), needs_colon=True),
    "http": _SecretOptions(("-a",), needs_colon=True),
    "lftp": _SecretOptions(("-u",)),
    "openssl": _SecretOptions(("-k", "-passin", "-passout"), is_joined=False),
    "rpcclient": _SecretOptions(("-U",)),
    "smbclient": _SecretOptions(("-U",)),
    "twine": _PASSWORD,
    "redis-cli": _SecretOptions(("-a",)),
    "zip": _SecretOptions(("-P",)),
    "unzip": _SecretOptions(("-P",)),
    **dict.fromkeys(("sqlcmd", "bcp", "isql", "tsql"), _SecretOptions(("-P",))),
    **dict.fromkeys(("mosquitto_pub", "mosquitto_sub"), _SecretOptions(("-P",))),
    **dict.fromkeys(("ldapsearch", "ldapadd", "ldapmodify"), _SecretOptions(("-w",))),
    **dict.fromkeys(("mysql", "mysqldump", "mysqladmin", "mysqlimport", "mysqlcheck"), _PASSWORD),
    **dict.fromkeys(("mariadb", "mariadb-dump", "mariadb-admin", "mycli"), _PASSWORD),
    **dict.fromkeys(("mongo", "mongosh", "mongodump", "mongorestore"), _PASSWORD),
    **dict.fromkeys(("mongoexport", "mongoimport", "cqlsh", "sshpass"), _PASSWORD),
    # Their options are other ones, until the word "login".
    **dict.fromkeys(("docker", "podman", "nerdctl", "helm", "skopeo", "az"), _NO_OPTIONS),
}
_LOGIN = "login"
_SET = "set"  # of a setting: "aws configure set NAME VALUE"
_SIGNS = frozenset({"=", ":="})
_SEPARATORS = frozenset({";", "|", "||", "&&", "&"})


def redact(words: Sequence[str]) -> str:
    """Join a command line, also a shell's text, and mask named secrets, users in addresses, and
    long opaque words.
    """
    shown: list[str] = []
    masks_next = False
    follows_head = False
    follows_name = False
    previous_is_option = False
    options = _NO_OPTIONS
    for word in words:
        is_option = word.startswith("-") and bool(re.fullmatch(_OPTION, word))
        attached = _attached(word, options)
        if follows_head and word.lower().lstrip("\"'\\") in _SCHEMES:
            shown.append(word)
            continue
        if (masks_next or follows_head) and not is_option:
            is_masked = follows_head or not options.needs_colon or ":" in word
            is_masked = is_masked or _is_named_option(shown)
            shown.append(_MASK if is_masked else _redact_word(word))
        elif follows_name and _may_be_secret(word):
            shown.append(_MASK)
        elif attached is not None:
            shown.append(attached + _MASK)
        else:
            shown.append(_redact_word(word))
        masks_next = is_option and (
            bool(re.search(_SECRET_NAME, word)) or _takes_secret(word, options)
        )
        follows_head = word.endswith(":") and bool(re.fullmatch(_HEAD, word))
        follows_name = _is_followed_by_secret(shown)
        if word in _SEPARATORS or word.endswith(";"):
            options = _NO_OPTIONS
        elif not previous_is_option:
            options = _options_after(word, options)
        # A shell's -c is followed by a program, other options by a name that is none.
        previous_is_option = is_option and word != "-c"
    return _redact_text(" ".join(shown))


def redact_line(line: str) -> str:
    """Redact a line of a log. One that has no secret keeps its spaces, another its
    indentation.
    """
    line = _redact_text(line)
    words = line.split()
    shown = redact(words)
    if shown == " ".join(words):
        return line
    return line[: len(line) - len(line.lstrip())] + shown


def without_credentials(text: str) -> str:
    """A sentence without the users and the passwords of addresses in it."""
    return re.sub(r"\S+", _hide_credentials, text) if "@" in text else text


def _hide_credentials(matched: re.Match[str]) -> str:
    word = matched[0]
    ends = [found.start() for found in re.finditer(_USER_END, word)]
    if not ends:
        return word
    begun = re.search(_CREDENTIALS, word[: ends[-1]])
    return f"{word[: begun.end(1)]}{_MASK}{word[ends[-1] :]}" if begun else word


def _is_named_option(shown: Sequence[str]) -> bool:
    """Whether the last word is an option that is secret by its own name."""
    return bool(shown) and bool(re.search(_SECRET_NAME, shown[-1]))


def _is_followed_by_secret(shown: Sequence[str]) -> bool:
    """Whether the last two words announce a secret: ``PASSWORD =`` or ``set PASSWORD``."""
    first, second = ["", *shown[-2:]][-2:]
    if second in _SIGNS:
        name = first
    elif first == _SET and re.match(_NAME_OF_PARTS, second):
        name = second
    else:
        return False
    return bool(re.fullmatch(_NAME, name) and re.search(_SECRET_END, name))


def _may_be_secret(word: str) -> bool:
    """Whether a word is a value: neither a call, nor a text in quotes, which is masked whole."""
    return word not in _NO_SECRETS and "(" not in word and not re.match(_QUOTED, word)


def _options_after(word: str, options: _SecretOptions) -> _SecretOptions:
    """The secret options of the program that a word names, else of the one before it."""
    if word == _LOGIN:
        return _PASSWORD
    return _OPTIONS_OF_PROGRAMS.get(word.rpartition("/")[2], options)


def _takes_secret(word: str, options: _SecretOptions) -> bool:
    """Whether the next word is the secret; single letters may be joined: ``curl -su``."""
    if word in options.names:
        return True
    if not options.needs_colon or word.startswith("--"):
        return False
    return any(word.endswith(name[1:]) for name in options.names if not name.startswith("--"))


def _attached(word: str, options: _SecretOptions) -> str | None:
    """The option of a word that also has its secret, such as ``-p`` of ``-pX``."""
    if not options.is_joined:
        return None
    for name in options.names:
        beginning = f"{name}=" if name.startswith("--") else name
        value = word.removeprefix(beginning)
        if value in ("", word):
            continue
        if not options.needs_colon or ":" in value:
            return beginning
    return None


def _redact_word(word: str) -> str:
    named = None
    if "=" in word or ":" in word:
        named = re.fullmatch(_NAMED_VALUE, word)
    if named and re.search(_SECRET_NAME, named[1][:-1]):
        is_masked = named[2].strip("\"',;)]}") == _MASK
        return word if is_masked else named[1] + _MASK
    words = word.split()
    if words[1:]:
        return redact(words)
    word = word.strip()
    if "@" in word:
        word = re.sub(_USER_IN_ADDRESS, f"{_MASK}@", word)
        word = re.sub(_USER_BEFORE_PORT, f"{_MASK}@", word)
    return _redact_opaque_tokens(word)


def _redact_text(text: str) -> str:
    """Mask secrets that are named within a text: of JSON, of the queries of addresses, and of a
    program.
    """
    if ":" in text and ("'" in text or '"' in text):
        text = re.sub(_MEMBER, _redact_member, text)
    if "=" in text:
        text = re.sub(_PARAMETER, _redact_parameter, text)
        text = re.sub(_ASSIGNED, _redact_assigned, text)
        text = re.sub(_ARGUMENT, _redact_parameter, text)
    return text


def _redact_member(member: re.Match[str]) -> str:
    quote, name, colon, value, inner_quote = member.groups()
    if not re.search(_SECRET_NAME, name) or value in _NO_SECRETS:
        return member[0]
    if value.startswith("["):
        return f"{quote}{name}{quote}{colon}[{_MASK}]"
    end = inner_quote or (value[0] if value[0] in "\"'" else "")
    return f"{quote}{name}{quote}{colon}{end}{_MASK}{end}"


def _redact_assigned(assigned: re.Match[str]) -> str:
    name, sign, value = assigned.groups()
    if not re.search(_SECRET_NAME, name):
        return assigned[0]
    return f"{name}{sign}{value[0]}{_MASK}{value[0]}"


def _redact_parameter(parameter: re.Match[str]) -> str:
    is_secret = bool(re.search(_SECRET_NAME, parameter[2]))
    if not is_secret or parameter[3] in _NO_SECRETS:
        return parameter[0]
    return parameter[1] + _MASK


def _redact_opaque_tokens(text: str) -> str:
    """Mask each token that is followed by, or has, a digit and a letter."""
    if len(text) < _MIN_TOKEN_CHARS:
        return text
    digit = re.match(_LAST_DIGIT, text)
    letter = re.match(_LAST_LETTER, text)
    if not digit or not letter:
        return text
    end = min(digit.end(), letter.end())
    return re.sub(_OPAQUE_TOKEN, lambda token: _MASK if token.start() < end else token[0], text)
