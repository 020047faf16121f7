"""Text that came from elsewhere, made harmless for a terminal."""


def printable(text: str) -> str:
    r"""Control characters, and those that turn the direction of writing, as ``\x1b`` and the like."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
