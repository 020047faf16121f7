"""Finds the script that an interpreter runs, because ``python3`` does not say which program a process is.

Only the base name of the script is used. Arguments and program text (``python3 -c``) can contain secrets.
"""

import re
from collections.abc import Sequence

_SHELLS = "ash|bash|dash|ksh|sh|zsh"
# Newer versions of Node.js name their main thread.
_INTERPRETER = re.compile(rf"(?:{_SHELLS}|(?:python|pypy|perl|php|ruby)[\d.]*|node|nodejs|Rscript|MainThread)")
_SHELL = re.compile(_SHELLS)
_OPTION = re.compile(r"-[A-Za-z]+|--[a-z-]+(?:=.*)?", re.DOTALL)
# The next word is program text, a module or a file that is not the script. A group of short options may end so: -uc.
_TAKES_VALUE = re.compile(r"-[cem].*|-[A-Za-z]*[cemprCDEFIMSWX]|--(?:eval|import|loader|print|require)", re.DOTALL)
_SHELL_TAKES_VALUE = re.compile(r"-[A-Za-z]*[coO].*|--(?:init-file|rcfile)", re.DOTALL)
_SCRIPT = re.compile(r"[\w][\w.+-]{0,63}\.(?:py|pyc|pyz|js|cjs|mjs|ts|mts|pl|php|phar|rb|R|r|sh|bash)")


def is_interpreter(name: str) -> bool:
    """Whether a process with this name in ``/proc/PID/stat`` may run a script."""
    return _INTERPRETER.fullmatch(name) is not None


def name_with_script(name: str, arguments: Sequence[str]) -> str:
    """The name of a process, with the base name of its script if it is an interpreter: ``python3 export.py``.

    The script is the first word that is not an option. A word without a script's suffix is not a script, and neither is
    a word that may belong to an option.
    """
    if not is_interpreter(name):
        return name
    takes_value = _SHELL_TAKES_VALUE if _SHELL.fullmatch(name) else _TAKES_VALUE
    for word in arguments:
        if takes_value.fullmatch(word):
            return name
        if not _OPTION.fullmatch(word):
            script = word.rpartition("/")[2]
            return f"{name} {script}" if _SCRIPT.fullmatch(script) else name
    return name
