"""The names of AWS Batch's jobs without what changes from job to job.

Engines put an id, the number of a run or a sample into the name of each job. Jobs of the same work
have the same name without these.
"""

import re
from collections.abc import Iterable
from typing import Final

_PARENTHESES: Final = r"\([^()]*\)|\[[^\[\]]*\]"
_UUID: Final = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_NUMBER: Final = r"[0-9]+"
# Such as 20261101T020000Z.
_TIME: Final = r"[0-9]{6,}T[0-9]{2,}Z?"
_HASH: Final = r"(?=[a-f]*[0-9])[0-9a-f]{7,}|(?=[A-F]*[0-9])[0-9A-F]{7,}"
# Such as the id of a workflow: digits between letters, capitals and small letters, in one word.
_ID: Final = (
    r"(?=[A-Za-z]*[0-9][0-9A-Za-z]*[A-Za-z])(?=[0-9a-z]*[A-Z])(?=[0-9A-Z]*[a-z])[0-9A-Za-z]{12,}"
)
_SEPARATOR: Final = r"[^A-Za-z0-9()\[\]]"
# What changes, with the separators before it.
_CHANGING: Final = re.compile(
    rf"{_SEPARATOR}*(?:{_PARENTHESES}"
    rf"|(?<![A-Za-z0-9])(?:{_UUID}|{_TIME}|{_HASH}|{_ID}|{_NUMBER})(?![A-Za-z0-9]))"
    rf"|{_NUMBER}(?![A-Za-z0-9])"
)
_WHOLE_CHANGING: Final = re.compile(rf"{_PARENTHESES}|{_UUID}|{_TIME}|{_HASH}|{_ID}|{_NUMBER}")
_WORDS: Final = re.compile(rf"{_PARENTHESES}|{_UUID}|[A-Za-z0-9]+")
_BETWEEN: Final = "-_.:/ #"


def name_without_changes(name: str) -> str:
    """The name without uuids, hashes, numbers and what stands in parentheses; the name itself if
    nothing is left.
    """
    return _CHANGING.sub("", name).strip(_BETWEEN) or name


def common_name(names: Iterable[str]) -> str | None:
    """What to call jobs whose names without changes are the same: without the words whose numbers
    differ, and with those that all of them have. None without a name.
    """
    different = list(dict.fromkeys(names))
    if not different:
        return None
    shortest = name_without_changes(different[0])
    words_of_names = [_unchanging_words(name) for name in different]
    if len({len(words) for words in words_of_names}) > 1:
        return shortest
    kept: list[str] = []
    for (separator, word), *others in zip(*words_of_names, strict=True):
        if all(word == other for _, other in others):
            kept.append((separator if kept else "") + word)
    return "".join(kept) or shortest


def _unchanging_words(name: str) -> list[tuple[str, str]]:
    """The words, each with the separator before it, without those that change as a whole."""
    words = []
    end = 0
    for found in _WORDS.finditer(name):
        separator = name[end : found.start()]
        end = found.end()
        if not _WHOLE_CHANGING.fullmatch(found[0]):
            words.append((separator, found[0]))
    return words
