"""Masks what the other modules find, in linear time.

Each pattern is compiled at its first use, as all would take some milliseconds of a short run: most
texts need none, which a look at their characters shows.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from profiler.core.redaction.secret_stems import SIGNS_OF_HOOKS, STEMS

_MASK = "…"
# No text is shown in this length. What follows is looked at as far as a secret that begins before
# may reach, and is not shown: reading 2 MB of a command line would take seconds.
_MAX_SHOWN_CHARS = 65_536
_MAX_READ_CHARS = _MAX_SHOWN_CHARS + 4096
# In lower case: a text without all of them, without the stem of a secret's name, a program of the
# table and a long word needs no pattern.
_SIGNS = (
    *("@", "identified", "hooks.", "webhook", "setuser", ".logon", "/bot", "basic "),
    "params={{",
)
# The same of calls and of options that follow each other.
_SIGNS_OF_USERS = ("login", "connect(", "connection(", "pdo(", "mysqli", " -p ", "<<<", "sudo -s")
_MIN_TOKEN_CHARS = 24
# What a program's name announces are its arguments.
_WORDS_WITH_ARGUMENT = 2
# Where an address has a user and a password, with or without a scheme: up to the colon, in the text
# of a word before its last "@". An image has its digest after one, and the name of a session may be
# a mail address. The counts keep the time linear.
_CREDENTIALS = r"""(?<![^'"(=,])(?!arn:)((?:[A-Za-z][\w+.-]{0,20}://)?)[^/@:'"]{0,1000}:(?=.)"""
_USER_END = r"@(?!sha256:)"
_SIGNS_IN_ADDRESS = ("?", "#", *SIGNS_OF_HOOKS)


def redact(words: Sequence[str]) -> str:
    """Join a command line, also a shell's text, in one line, and mask named secrets, the secrets
    of programs' options, users in addresses, and long opaque words.
    """
    lines: list[str] = []
    ends: dict[int, int] = {}
    place = 0
    for word in words:
        line = _with_single_spaces(word)
        lines.append(line)
        if " " in line or "\n" in line:
            ends[place] = place + len(line)
        place += len(line) + 1
        if place > _MAX_READ_CHARS:  # nothing that follows is read
            break
    return _without_secrets(" ".join(lines), ends).replace("\n", " ")


def redact_line(line: str) -> str:
    """Redact a line of a log. It keeps its spaces."""
    return _without_secrets(line, {})


def without_credentials(text: str) -> str:
    """A sentence without the users and the passwords of addresses in it, the secrets of their
    queries, and those of webhooks.
    """
    if "@" in text:
        text = re.sub(r"\S+", _hide_credentials, text)
    if "://" in text and any(sign in text for sign in _SIGNS_IN_ADDRESS):
        text = re.sub(r"\S+", _hide_parameters, text)
    return text


def _hide_credentials(matched: re.Match[str]) -> str:
    word = matched[0]
    ends = [found.start() for found in re.finditer(_USER_END, word)]
    if not ends:
        return word
    begun = re.search(_CREDENTIALS, word[: ends[-1]])
    return f"{word[: begun.end(1)]}{_MASK}{word[ends[-1] :]}" if begun else word


def _hide_parameters(matched: re.Match[str]) -> str:
    word = matched[0]
    if "://" not in word:
        return word
    from profiler.core.redaction.secret_forms import secret_hooks  # rare
    from profiler.core.redaction.secret_settings import secret_settings

    return _mask_spans(word, (*secret_settings(word, {}), *secret_hooks(word)))


def _with_single_spaces(word: str) -> str:
    """A word whose spaces are one each, as are its line ends: they end a shell's command."""
    if word.isalnum():
        return word
    lines = (" ".join(line.split()) for line in word.splitlines())
    return "\n".join(filter(None, lines))


def _without_secrets(text: str, ends: Mapping[int, int]) -> str:
    """A text without its secrets. ``ends``: where words that have spaces begin and end."""
    is_cut = len(text) > _MAX_SHOWN_CHARS
    if is_cut:
        text = text[:_MAX_READ_CHARS]
    if not _may_have_secrets(text):
        secrets: Iterable[tuple[int, int]] = ()
    else:
        secrets = _secret_spans(text, ends)
    if is_cut:
        secrets = (*secrets, (_MAX_SHOWN_CHARS, len(text)))
    return _mask_spans(text, secrets)


def _mask_spans(text: str, secrets: Iterable[tuple[int, int]]) -> str:
    shown: list[str] = []
    place = 0
    for start, end in sorted(secrets):
        if end <= place:
            continue
        if start >= place:
            shown += (text[place:start], _MASK)
        place = end
    return "".join((*shown, text[place:]))


def _secret_spans(text: str, ends: Mapping[int, int]) -> Iterator[tuple[int, int]]:
    # Most texts do without them.
    from profiler.core.redaction.secret_arguments import secret_arguments
    from profiler.core.redaction.secret_forms import secret_forms
    from profiler.core.redaction.secret_settings import secret_settings

    yield from secret_arguments(text, ends)
    yield from secret_settings(text, ends)
    yield from secret_forms(text)


def _may_have_secrets(text: str) -> bool:
    """Whether a text has anything that a pattern is worth to be compiled for."""
    lower = text.lower()
    if any(sign in lower for sign in (*_SIGNS, *_SIGNS_OF_USERS, *STEMS)):
        return True
    words = text.replace(",", " ").replace("[", " ").split()
    if any(len(word) >= _MIN_TOKEN_CHARS for word in words):
        return True
    if len(words) < _WORDS_WITH_ARGUMENT:
        return False
    from profiler.core.redaction.secret_programs import PROGRAM_NAMES  # only for arguments

    return any(word.rpartition("/")[2].strip("\"'[](),`\\") in PROGRAM_NAMES for word in words)
