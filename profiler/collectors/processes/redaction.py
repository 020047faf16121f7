"""Command lines without what looks like a secret."""

import re
from collections.abc import Sequence

_MASK = "…"
_SEPARATOR = "[=:]"
# In names of options and variables. "key" alone would also match --key-column.
_SECRET_NAME = re.compile(
    r"pass(?:word|wd|phrase)?$|pwd|secret|token|api[-_]?key|access[-_]?key|private[-_]?key|credential|auth|signature",
    re.IGNORECASE,
)
_NAMED_VALUE = re.compile(rf"(-{{0,2}}[\w.-]+{_SEPARATOR})(.+)", re.DOTALL)
_OPTION = re.compile(r"-{1,2}[\w.-]+")
_USER_IN_ADDRESS = re.compile(r"(\w+://)[^/@\s]+@")
# Keys and tokens: long words of letters and digits that are neither a path nor a sentence.
_OPAQUE_TOKEN = re.compile(r"(?=[^\s]*\d)(?=[^\s]*[A-Za-z])[A-Za-z0-9+_=-]{24,}")


def redact(words: Sequence[str]) -> str:
    """Join a command line and mask what looks like a secret.

    Masked are the values of options and variables whose name suggests a secret, users and passwords in addresses, and
    long opaque words.
    """
    shown: list[str] = []
    masks_next = False
    for word in words:
        shown.append(_MASK if masks_next and not _OPTION.fullmatch(word) else _redact_word(word))
        masks_next = _OPTION.fullmatch(word) is not None and _is_secret_name(word)
    return " ".join(shown)


def _redact_word(word: str) -> str:
    named = _NAMED_VALUE.fullmatch(word)
    if named is not None and _is_secret_name(named[1][:-1]):
        return named[1] + _MASK
    return _OPAQUE_TOKEN.sub(_MASK, _USER_IN_ADDRESS.sub(rf"\1{_MASK}@", word))


def _is_secret_name(name: str) -> bool:
    return _SECRET_NAME.search(name) is not None
