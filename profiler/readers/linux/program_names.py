"""The name of the program that a process runs.

The kernel's name of a process (``comm``) is that of its main thread: the file that it executed, cut
to 15 bytes, until the program gives the thread another name, as Node.js 22 (``MainThread``) and
PyTorch (``pt_main_thread``) do.
"""

import os
import re

from profiler.readers.linux import proc
from profiler.readers.linux.interpreters import is_interpreter

_MAX_COMM_BYTES = 15
_DELETED = " (deleted)"
# What else a process calls itself can be any text.
_FILE_NAME = r"\w[\w.+-]{0,63}"
# By this, a program executes itself again, as Chromium and Docker do.
_ITSELF = re.compile(r"/proc/(?:self|\d+)/exe")
# The script of ``#!/usr/bin/python3 -I`` follows the interpreter and its one option.
_MAX_SCRIPT_PLACE = 2


def read_name_with_script(process_folder: str, comm: str) -> str:
    """The name of a process with the base name of its script."""
    name = read_program_name(process_folder, comm)
    if not is_interpreter(name):
        return name
    from profiler.readers.linux.script_names import name_with_script  # only for interpreters

    return name_with_script(name, proc.read_arguments(process_folder))


def read_program_name(process_folder: str, comm: str) -> str:
    """The base name of the file that a process executes; ``comm`` if nothing shows another one.

    A link to a program (``python3``), an applet (``gzip`` of BusyBox) and a script (``dbt``) keep
    the name by which they were started, also where a title begins with it.
    """
    executable = _read_executable(process_folder)
    if len(_encoded_name(comm)) < _MAX_COMM_BYTES and comm and executable.startswith(comm):
        return comm
    words = proc.read_command_line(process_folder)
    titles = [word.partition(" ")[0] for word in words[:1]]  # of "redis-server *:6379"
    for word in (*words[: _MAX_SCRIPT_PLACE + 1], *titles):
        name = _base_name(word)
        if comm and _truncated_comm(name) == comm and not _ITSELF.fullmatch(word):
            return name if re.fullmatch(_FILE_NAME, name) else comm
    first = _base_name(words[0]) if words else ""
    is_own = executable.startswith(first) or not executable
    if first and is_own and re.fullmatch(_FILE_NAME, first):
        return first
    return executable or comm


def read_live_name(pid: int, started_ticks: int) -> str | None:
    """The name of a process as :func:`read_name_with_script` has it; None if it has ended or ends
    at the moment.
    """
    stat = proc.read_stat(f"/proc/{pid}")
    if stat.started_ticks != started_ticks or stat.is_exiting:
        return None
    return read_name_with_script(f"/proc/{pid}", stat.name)


def _read_executable(process_folder: str) -> str:
    """The base name of the executable file; empty if it has none that says something: of another
    user, after the end, and in memory.
    """
    try:
        path = os.readlink(f"{process_folder}/exe")  # noqa: PTH115  called for each new process
    except OSError:
        return ""
    name = _base_name(path.removesuffix(_DELETED))
    return name if re.fullmatch(_FILE_NAME, name) else ""


def _base_name(path: str) -> str:
    """The last part of a path, without the hyphen of a login shell."""
    return path.rpartition("/")[2].removeprefix("-")


def _truncated_comm(name: str) -> str:
    """A name as the kernel keeps it."""
    return _encoded_name(name)[:_MAX_COMM_BYTES].decode(errors="replace")


def _encoded_name(name: str) -> bytes:
    return name.encode(errors="surrogateescape")
