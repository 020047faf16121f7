"""The two ends of a pseudoterminal: what its programs write, as those of ``script``, ``expect`` and
``tmux``, the process reads that made it, and the other way round.
"""

from profiler.readers.linux import proc

# The node that makes pseudoterminals, of which each end that it has opened has a number.
_MULTIPLEXERS = frozenset(("/dev/ptmx", "/dev/pts/ptmx"))
_MADE = "pseudoterminal:["
_TERMINAL = "/dev/pts/"


def with_terminal_number(link: str, process_folder: str, descriptor: int) -> str:
    """The link of a descriptor in ``/proc/PID/fd``; of the end that made a pseudoterminal, one with
    its number.
    """
    if link not in _MULTIPLEXERS:
        return link
    information = proc.read_or_none(f"{process_folder}/fdinfo/{descriptor}") or b""
    number = proc.number_after(information, b"tty-index:")
    return link if number is None else f"{_MADE}{number}]"


def link_of_other_end(link: str) -> str | None:
    """The link of the other end of a pseudoterminal; None for anything else."""
    if link.startswith(_MADE):
        return f"{_TERMINAL}{link[len(_MADE) : -1]}"
    if link.startswith(_TERMINAL):
        return f"{_MADE}{link[len(_TERMINAL) :]}]"
    return None
