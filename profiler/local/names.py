"""Names of commands as they are told: a word of a command line may be as long as the kernel allows, a line may not."""

from profiler.line import shortened

# That of a task definition's family.
LONGEST_NAME = 255


def short_name(name: str) -> str:
    """The name, or as much of it as a line has room for."""
    return shortened(name, LONGEST_NAME)
