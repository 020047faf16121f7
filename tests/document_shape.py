"""The shape of a JSON document: its members and the types of their values."""

from typing import Any


def shape(value: Any) -> Any:
    """Return the document with each value's type in its place; a list has the members of all its elements."""
    if isinstance(value, dict):
        return {name: shape(one) for name, one in sorted(value.items())}
    if isinstance(value, list):
        return [_joined([shape(one) for one in value])] if value else []
    return "number" if type(value) in {int, float} else type(value).__name__


def _joined(shapes: list[Any]) -> Any:
    if all(isinstance(one, dict) for one in shapes):
        return {name: member for one in shapes for name, member in one.items()}
    return shapes[-1]
