"""Finds what an interpreter runs: its script or module, never arguments or text, which can
contain secrets.
"""

import re
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet

from msgspec import Struct

from profiler.readers.linux.interpreters import JAVA, SHELLS, program_without_version

_NAME = re.compile(r"\w[\w.+-]{0,63}")
_SUFFIX = re.compile(r"\.(?:py|pyc|pyz|js|cjs|mjs|ts|mts|pl|php|phar|rb|R|r|sh|bash|jar)$")
_ASSIGNMENT = re.compile(r"\w+\+?=.*", re.DOTALL)
_SEPARATORS = ";&|()"
# Words of a shell that are not programs. After the second group, a program follows.
_BUILTINS = {
    *(
        "cd",
        "export",
        "set",
        "shopt",
        "source",
        ".",
        "trap",
        "ulimit",
        "umask",
        "unset",
        ":",
        "alias",
        "[",
        "[[",
    ),
    *(
        "for",
        "case",
        "exit",
        "return",
        "wait",
        "read",
        "eval",
        "shift",
        "break",
        "continue",
        "declare",
        "local",
    ),
}
_PREFIXES = {
    "exec",
    "command",
    "time",
    "if",
    "while",
    "until",
    "then",
    "do",
    "else",
    "elif",
    "{",
    "}",
    "!",
}


class _InterpreterOptions(Struct, frozen=True, kw_only=True):
    """The options of an interpreter. The search for the script ends at any other one.

    ``flags`` have no value; what follows an option of ``attached`` in the word is its value; the
    value of one of ``values`` may also be the next word. ``inline`` is program text, ``modules`` is
    followed by a module, and ``scripts`` by the script. ``has_shell_text``: after -c, the first
    word that is not an option is the program text.
    """

    flags: str = ""
    attached: str = ""
    values: str = ""
    inline: str = ""
    modules: str = ""
    scripts: str = ""
    long: AbstractSet[str] = frozenset()
    long_values: AbstractSet[str] = frozenset()
    long_inline: AbstractSet[str] = frozenset()
    has_shell_text: bool = False


class _CodeToRun(Struct, frozen=True):
    """The code that an interpreter runs: the text of a program, or the name of a script or a
    module.
    """

    name: str
    is_text: bool = False
    is_module: bool = False


_UNKNOWN = _CodeToRun("")  # after an unknown option


_PYTHON = _InterpreterOptions(
    flags="bBdEhiIOPqRsSuvVx",
    values="WX",
    inline="c",
    modules="m",
    long_values={"--check-hash-based-pycs"},
)
_SHELL = _InterpreterOptions(
    flags="abcefhiklmnprtuvxBCEHPTD",
    values="oO",
    long={
        "--login",
        "--norc",
        "--noprofile",
        "--posix",
        "--restricted",
        "--verbose",
        "--noediting",
    },
    long_values={"--rcfile", "--init-file"},
    has_shell_text=True,
)
_NODE = _InterpreterOptions(
    flags="ci",
    values="rC",
    inline="ep",
    long={
        *(
            "--enable-source-maps",
            "--expose-gc",
            "--expose_gc",
            "--inspect",
            "--inspect-brk",
            "--no-deprecation",
        ),
        *(
            "--no-warnings",
            "--preserve-symlinks",
            "--throw-deprecation",
            "--trace-deprecation",
            "--trace-warnings",
        ),
        *(
            "--experimental-strip-types",
            "--experimental-vm-modules",
            "--abort-on-uncaught-exception",
        ),
    },
    long_values={
        "--require",
        "--import",
        "--loader",
        "--experimental-loader",
        "--conditions",
        "--env-file",
    },
    long_inline={"--eval", "--print"},
)
_PERL = _InterpreterOptions(
    flags="acfhnpsStTuUvwWX", attached="0CDdFilmMxV", values="I", inline="eE"
)
_RUBY = _InterpreterOptions(
    flags="aclnpsSvwydhU",
    attached="0FiKTWx",
    values="CEIrX",
    inline="e",
    long={"--verbose", "--debug", "--jit", "--yjit", "--yydebug"},
    long_values={
        "--enable",
        "--disable",
        "--encoding",
        "--external-encoding",
        "--internal-encoding",
        "--require",
    },
)
_PHP = _InterpreterOptions(flags="aCHilmnqsvw", values="cdgztS", inline="rBRE", scripts="fF")
_R = _InterpreterOptions(
    inline="eg",
    scripts="f",
    long={
        *(
            "--vanilla",
            "--slave",
            "--quiet",
            "--silent",
            "--no-echo",
            "--no-save",
            "--no-restore",
            "--no-environ",
        ),
        *(
            "--no-site-file",
            "--no-init-file",
            "--no-restore-data",
            "--no-restore-history",
            "--verbose",
        ),
    },
)
_INTERPRETERS = {
    **dict.fromkeys(SHELLS, _SHELL),
    **dict.fromkeys(("python", "pypy"), _PYTHON),
    **dict.fromkeys(("node", "nodejs"), _NODE),
    **dict.fromkeys(("Rscript", "R"), _R),
    "perl": _PERL,
    "ruby": _RUBY,
    "php": _PHP,
}
_JAVA_VALUES = frozenset(
    (
        "-cp",
        "-classpath",
        "--class-path",
        "-p",
        "--module-path",
        "--add-modules",
        "--add-opens",
        "--add-exports",
    )
)
_JAVA_FLAGS = (
    "-D",
    "-X",
    "-ea",
    "-da",
    "-esa",
    "-dsa",
    "-server",
    "-client",
    "-verbose",
    "-javaagent:",
    "-agent",
)


def name_with_script(name: str, arguments: Sequence[str]) -> str:
    """The name of a process, with the script's file name or the module of an interpreter:
    ``python3 export.py``.
    """
    code = _find_code(name, arguments)
    if code is None or code.is_text:
        return name
    return f"{name} {code.name}"


def name_of_code(words: Sequence[str]) -> str | None:
    """A script without suffix, a module, or the program of ``sh -c``; None for no interpreter or
    unknown code.
    """
    program = words[0].rpartition("/")[2]
    code = _find_code(program, words[1:])
    if code is None or (code.is_text and program not in SHELLS):
        return None
    if not code.is_text:
        return code.name if code.is_module else _SUFFIX.sub("", code.name)
    first = _first_program(code.name)
    if not first:
        return None
    name = first[0].rpartition("/")[2]
    runs = name_of_code(first)
    if runs is None and _NAME.fullmatch(name):
        return name
    return runs


def _options_of(name: str) -> _InterpreterOptions | None:
    return _INTERPRETERS.get(name) or _INTERPRETERS.get(program_without_version(name))


def _find_code(name: str, arguments: Sequence[str]) -> _CodeToRun | None:
    code = None
    options = _options_of(name)
    if options is not None:
        code = _search_arguments(options, iter(arguments))
    elif program_without_version(name) == JAVA:
        code = _find_java_code(iter(arguments))
    if code is None or code.is_text:
        return code
    base = code.name
    if not code.is_module:
        base = base.rpartition("/")[2]
    if not _NAME.fullmatch(base):
        return None
    return _CodeToRun(base, is_module=code.is_module)


def _search_arguments(options: _InterpreterOptions, words: Iterator[str]) -> _CodeToRun | None:
    """The code that an interpreter runs, by its arguments."""
    is_text = False
    for word in words:
        if word == "--":
            return _CodeToRun(next(words, ""), is_text)
        is_option = word[0:1] == "-" or (options.has_shell_text and word[0:1] == "+")
        if len(word) <= 1 or not is_option:
            return _CodeToRun(word, is_text)
        read = _code_of_long_option if word.startswith("--") else _code_of_short_options
        code = read(options, word, words)
        if code is not None:
            return code
        is_text = is_text or (options.has_shell_text and "c" in word and word[1] != "-")
    return None


def _code_of_long_option(
    options: _InterpreterOptions, word: str, words: Iterator[str]
) -> _CodeToRun | None:
    """What the option makes the interpreter run; None if the search goes on."""
    option, has_value, value = word.partition("=")
    if option in options.long_inline:
        return _CodeToRun("", is_text=True)
    if options.scripts and option == "--file":
        if not has_value:
            value = next(words, "")
        return _CodeToRun(value)
    if option in options.long_values and not has_value:
        next(words, None)
    if has_value or option in options.long_values or option in options.long:
        return None
    return _UNKNOWN


def _code_of_short_options(
    options: _InterpreterOptions, word: str, words: Iterator[str]
) -> _CodeToRun | None:
    """The code that a word of letters names, read as by :func:`_code_of_long_option`."""
    for place, letter in enumerate(word[1:], start=2):
        rest = word[place:]
        if letter in options.attached:
            # Further letters may follow an option whose value are digits: ``perl -lane``.
            letters = ""
            if letter in "0l":
                letters = rest.lstrip("0123456789")
            return _code_of_short_options(options, f"-{letters}", words)
        if letter in options.inline:
            return _CodeToRun("", is_text=True)
        if letter in options.modules or letter in options.scripts:
            return _CodeToRun(rest or next(words, ""), is_module=letter in options.modules)
        if letter in options.values:
            # A shell takes the next word even in the middle of a group.
            if options.has_shell_text or not rest:
                next(words, None)
            if not options.has_shell_text:
                return None
        elif letter not in options.flags:
            return _UNKNOWN
    return None


def _find_java_code(words: Iterator[str]) -> _CodeToRun | None:
    for word in words:
        if word == "-jar":
            return _CodeToRun(next(words, ""))
        if word in ("-m", "--module"):
            return _CodeToRun(next(words, "").partition("/")[0], is_module=True)
        if word in _JAVA_VALUES:
            next(words, None)
        elif not word.startswith("-"):
            if word.startswith("@"):
                return None
            return _CodeToRun(word, is_module=True)
        elif not (word.startswith(_JAVA_FLAGS) or (word.startswith("--") and "=" in word)):
            return None
    return None


def _first_program(text: str) -> list[str]:
    """The words of the first program that a shell's text runs; none if the text is not
    understood.
    """
    program: list[str] = []
    is_file = False  # of a redirection
    for word in _shell_tokens(text):
        is_redirection = word.startswith(("<", ">", "&>"))
        if is_file:
            is_file = False
        elif is_redirection or (word and not word.strip(_SEPARATORS)):
            if program and program[0] not in _BUILTINS and not program[0].isdecimal():
                return program
            is_file = is_redirection
            program = []
        elif program or not (_ASSIGNMENT.fullmatch(word) or word in _PREFIXES):
            program.append(word)
    return []


def _shell_tokens(text: str) -> Iterator[str]:
    import shlex  # most commands are no text of a shell

    try:
        for line in text.replace("\\\n", " ").splitlines():
            yield from shlex.shlex(line, posix=True, punctuation_chars=True)
            yield ";"
    except ValueError:  # a quotation over several lines
        return
