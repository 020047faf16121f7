"""Names of commands as they are told: a word of a command line may be as long as the kernel allows, a line may not."""

# That of a task definition's family.
LONGEST_NAME = 255


def short_name(name: str) -> str:
    """The name; one that is too long loses its end."""
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"
