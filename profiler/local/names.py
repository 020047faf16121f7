"""Names of commands as they are told: a word of a command line may be as long as the kernel allows, a line may not."""

from profiler.line import truncate_text

# That of a task definition's family.
MAX_NAME_CHARS = 255


def shorten_name(name: str) -> str:
    """The name, or as much of it as a line has room for."""
    return truncate_text(name, MAX_NAME_CHARS)
