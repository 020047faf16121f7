"""What the lint says."""

from typing import Any, NamedTuple

Json = dict[str, Any]


class Finding(NamedTuple):
    """A rule that is broken, and a sentence of what and where."""

    rule: str
    text: str


def name_of(one: Json) -> str:
    """How sentences call a saved object."""
    return f"{one['type']} {one['attributes'].get('title', one['id'])!r}"
