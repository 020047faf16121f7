"""Build the files of a release into dist/release, and try the wheel in an empty environment.

Nothing is published.

    python -m tools.release [FOLDER]

FOLDER gets the wheel, the source distribution, the forwarder's zip, a CycloneDX list of components
(SBOM) for the package, the zip and the image, and SHA256SUMS. The interpreter that runs this module
needs hatchling and cyclonedx-bom. The wheel's dependencies come from pip's package index.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from profiler.aws_account.setup.forwarder_zip import build_zip, requirements_file

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "dist" / "release"
CHECKSUMS = "SHA256SUMS"
# Commands that must start from the installed wheel.
COMMANDS = (
    ("--version",),
    ("run", "--", "true"),
    ("history",),
    ("recommend", "--help"),
    ("setup", "stack", "--help"),
    ("schema",),
)
_IMAGE_REQUIREMENTS = tuple(
    ROOT / "taskdef" / "requirements" / name for name in ("core.txt", "gpu.txt", "stacks.txt")
)


class ReleaseError(Exception):
    """A file that cannot be built, or a command that fails from the wheel.

    The message contains its output.
    """


def main(arguments: Sequence[str]) -> None:
    """Build the files, try the wheel, and print the checksums.

    Raises:
        ReleaseError: A command failed.
    """
    out = Path(arguments[0]) if arguments else OUT
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    wheel = build(out)
    with tempfile.TemporaryDirectory(prefix="task-profiler-release-") as name:
        folder = Path(name)
        environment = folder / "environment"
        run_and_read(sys.executable, "-m", "venv", str(environment))
        for words in try_wheel(wheel, environment, folder):
            print(f"from the wheel: {words}")
        write_components(wheel, environment, out)
    print(write_checksums(out), end="")


def build(out: Path) -> Path:
    """Build the wheel, the source distribution and the forwarder's zip. Returns the wheel."""
    run_and_read(sys.executable, "-m", "hatchling", "build", "--directory", str(out))
    build_zip(out / "task-profiler-forwarder.zip")
    shutil.copy(ROOT / "lambda" / "template.yaml", out / "task-profiler-forwarder.yaml")
    (wheel,) = out.glob("*.whl")
    return wheel


def try_wheel(wheel: Path, environment: Path, folder: Path) -> Iterator[str]:
    """Install the wheel into the environment, and run COMMANDS in an empty folder.

    Yields each when it succeeded.
    """
    programs = environment / "bin"
    variables = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "TASK_PROFILER"))
    }
    variables |= {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "XDG_DATA_HOME": str(folder / "data"),
    }
    run_and_read(
        str(programs / "pip"),
        "install",
        "--quiet",
        str(wheel),
        folder=folder,
        environment=variables,
    )
    for words in COMMANDS:
        run_and_read(str(programs / "task-profiler"), *words, folder=folder, environment=variables)
        yield " ".join(("task-profiler", *words))


def write_components(wheel: Path, environment: Path, out: Path) -> None:
    """Write the lists of components of the environment with the wheel, of the zip and of the
    image.
    """
    tool = (sys.executable, "-m", "cyclonedx_py")
    form = ("--output-reproducible", "--output-format", "JSON")
    package = out / f"{wheel.name.split('-py3')[0]}.cdx.json"
    run_and_read(*tool, "environment", *form, "--output-file", str(package), str(environment))
    with tempfile.TemporaryDirectory(prefix="task-profiler-image-") as name:
        image = Path(name) / "image.txt"
        image.write_text("".join(path.read_text() for path in _IMAGE_REQUIREMENTS))
        for requirements, target in (
            (requirements_file(), "task-profiler-forwarder"),
            (image, "task-profiler-image"),
        ):
            run_and_read(
                *tool,
                "requirements",
                *form,
                "--output-file",
                str(out / f"{target}.cdx.json"),
                str(requirements),
            )


def write_checksums(out: Path) -> str:
    """Write SHA256SUMS in the format of sha256sum, and return its text."""
    files = sorted(path for path in out.iterdir() if path.is_file() and path.name != CHECKSUMS)
    text = "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files
    )
    (out / CHECKSUMS).write_text(text)
    return text


def run_and_read(
    *command: str, folder: Path = ROOT, environment: dict[str, str] | None = None
) -> str:
    """Run a command and return its standard output.

    Raises ReleaseError with all its output if it fails.
    """
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ReleaseError(f"{' '.join(command)} failed in {folder}:\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except ReleaseError as error:
        sys.exit(str(error))
