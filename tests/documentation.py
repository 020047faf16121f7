"""What stands in the documentation's blocks of code, and which commands a shell would start for
them.

The shell is bash itself, so quotes, variables, pipes and here-documents mean what they mean to a
reader. Of programs it finds only those that read and write texts; every other command is written
down instead of being run, and answers with a line that an AWS id could be.
"""

import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec import Struct

from tools.waiting import LIMIT_SECONDS

ROOT = Path(__file__).parent.parent
ANSWER = "arn:aws:any:us-west-2:111122223333:answer"

_BLOCK = re.compile(
    r"^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL
)
_PROMPT = re.compile(r"^\$ (.*(?:(?<=\\)\n.*)*)", re.MULTILINE)
_SYNOPSIS = re.compile(r"\[-|\]…")  # brackets around an option: for readers, not for a shell
_OMISSION = re.compile(r"\n *…\n")
_TEXT_PROGRAMS = ("cat", "cp", "cut", "date", "grep", "head", "mkdir", "sed", "sort", "tr")
_READERS_VARIABLES = {  # pages whose commands use variables that readers set
    "docs/forwarder.md",
    "docs/gpu.md",
    "docs/metrics.md",
    "docs/right-size.md",
    "docs/run.md",
    "examples/gpu_burn/README.md",
}
_PREAMBLE = """
command_not_found_handle() {
  printf '%s\\0' "$@" $'\\036' >>"$RECORD"  # one write, without a newline: those of a pipe record themselves at once
  printf '%s\\n' "$ANSWER"
}
"""


class Block(Struct, frozen=True):
    language: str
    text: str


def pages() -> list[Path]:
    """All pages, relative to the project. The changelog is no page: it tells what was."""
    found = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")]
    return sorted(path.relative_to(ROOT) for path in found if path.name != "CHANGELOG.md")


def blocks(page: Path, *languages: str, before: str = "") -> list[Block]:
    """The page's blocks in one of these languages, without the indentation of their list.

    ``before`` is the heading at which to end.
    """
    found = []
    text = (ROOT / page).read_text()
    end = text.index(f"\n{before}\n") if before else len(text)
    for match in _BLOCK.finditer(text, 0, end):
        if match["language"] in languages:
            indent = len(match["indent"])
            text = "".join(
                line[indent:] if line.strip() else line
                for line in match["text"].splitlines(keepends=True)
            )
            found.append(Block(match["language"], text))
    return found


def scripts(page: Path, before: str = "") -> list[str]:
    """What a reader pastes into a shell, block by block: all of ``sh``, of ``console`` what
    follows a prompt.
    """
    found = []
    for block in blocks(page, "sh", "console", before=before):
        text = block.text if block.language == "sh" else "\n".join(_PROMPT.findall(block.text))
        if not _SYNOPSIS.search(text):
            found.append(re.sub(r"(?<!\. )\.venv/bin/", "", text))
    return found


def is_shortened(text: str, whole: str) -> bool:
    """Whether the text is the whole, except for what a line with an ellipsis replaces."""
    parts = [re.escape(part) for part in _OMISSION.split(f"\n{text}")]
    return re.fullmatch(r"\n(?:.*\n)+?".join(parts), f"\n{whole}") is not None


def synopses(page: Path) -> list[str]:
    return [block.text for block in blocks(page, "sh") if _SYNOPSIS.search(block.text)]


def commands_of(program: str, page: Path, folder: Path | None = None) -> list[list[str]]:
    """The arguments of each time that the page's scripts start the program, in one shell, in
    ``folder``, else in a folder of their own, once for all programs and tests.

    Each page must set the variables that it uses, unless it is one of ``_READERS_VARIABLES``.
    Raises AssertionError where it does not, or where the shell refuses something.
    """
    commands = _commands(page) if folder is None else _commands_in(folder, page)
    return [words[1:] for words in commands if Path(words[0]).name == program]


@cache
def _commands(page: Path) -> list[list[str]]:
    with TemporaryDirectory() as folder:
        return _commands_in(Path(folder), page)


def _commands_in(folder: Path, page: Path) -> list[list[str]]:
    programs = folder / "programs"
    programs.mkdir()
    for name in _TEXT_PROGRAMS:
        (programs / name).symlink_to(str(shutil.which(name)))
    for name in ("taskdef", "examples", "lambda"):
        shutil.copytree(ROOT / name, folder / name)
    (folder / ".venv" / "bin").mkdir(parents=True)
    (folder / ".venv" / "bin" / "activate").touch()
    record = folder / "record"
    record.touch()
    is_complete = str(page) not in _READERS_VARIABLES
    texts = "\n".join(scripts(page))
    script = f"{_PREAMBLE}set -u\n{texts}"
    known = {} if is_complete else dict.fromkeys(re.findall(r"\$([A-Z_]+)", texts), ANSWER)
    done = subprocess.run(
        [str(shutil.which("bash")), "-c", script],
        cwd=folder,
        env={
            **known,
            "PATH": str(programs),
            "HOME": str(folder),
            "RECORD": str(record),
            "ANSWER": ANSWER,
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert "unbound variable" not in done.stderr, done.stderr
    assert "syntax error" not in done.stderr, done.stderr
    assert not is_complete or done.returncode == 0, done.stderr
    # A command is its words and a record separator, each ended by NUL.
    return [words.split("\0") for words in record.read_text().split("\0\x1e\0") if words]
