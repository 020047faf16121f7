"""The interpreters: programs that run a script, a module or text.

What they run is found by :mod:`profiler.readers.linux.script_names`, which other programs do
without.
"""

JAVA = "java"
SHELLS = ("ash", "bash", "dash", "ksh", "sh", "zsh")
INTERPRETERS = frozenset(
    (
        *SHELLS,
        "python",
        "pypy",
        "node",
        "nodejs",
        "Rscript",
        "R",
        "perl",
        "ruby",
        "php",
        JAVA,
    )
)


def program_without_version(name: str) -> str:
    """The name of a program without its version: ``python`` for ``python3.11``."""
    return name.rstrip("0123456789.")


def is_interpreter(name: str) -> bool:
    """Whether a program of this name may run a script."""
    return name in INTERPRETERS or program_without_version(name) in INTERPRETERS
