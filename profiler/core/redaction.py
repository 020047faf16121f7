"""Masks what looks like a secret in a command line."""

import re
from collections.abc import Sequence

_MASK = "…"
# In names of options and variables. "key" alone would also match --key-column.
_SECRET_NAME = re.compile(
    r"pass(?:word|wd|phrase)?$|pwd|secret|token|api[-_]?key|access[-_]?key|private[-_]?key"
    r"|credential|auth|signature",
    re.IGNORECASE,
)
_NAMED_VALUE = re.compile(r"(-{0,2}[\w.-]+[=:])(.+)", re.DOTALL)
_OPTION = re.compile(r"-{1,2}[\w.-]+")
_USER_IN_ADDRESS = re.compile(r"(?<=\w://)[^/@\s]+@")
# Keys and tokens: long words of letters and digits that are neither a path nor a sentence.
_OPAQUE_TOKEN = re.compile(r"[A-Za-z0-9+_=-]{24,}")
_LAST_DIGIT = re.compile(r"\S*\d")
_LAST_LETTER = re.compile(r"\S*[A-Za-z]")


def redact(words: Sequence[str]) -> str:
    """Join a command line, also a shell's text, and mask named secrets, users in addresses, and
    long opaque words.
    """
    shown: list[str] = []
    masks_next = False
    for word in words:
        is_option = _OPTION.fullmatch(word) is not None
        shown.append(_MASK if masks_next and not is_option else _redact_word(word))
        masks_next = is_option and _SECRET_NAME.search(word) is not None
    return " ".join(shown)


def _redact_word(word: str) -> str:
    named = _NAMED_VALUE.fullmatch(word)
    if named is not None and _SECRET_NAME.search(named[1][:-1]):
        return named[1] + _MASK
    words = word.split()
    if words[1:]:
        return redact(words)
    return _redact_opaque_tokens(_USER_IN_ADDRESS.sub(f"{_MASK}@", word.strip()))


def _redact_opaque_tokens(text: str) -> str:
    """Mask each token that is followed by, or has, a digit and a letter."""
    digit = _LAST_DIGIT.match(text)
    letter = _LAST_LETTER.match(text)
    if digit is None or letter is None:
        return text
    end = min(digit.end(), letter.end())
    return _OPAQUE_TOKEN.sub(lambda token: _MASK if token.start() < end else token[0], text)
