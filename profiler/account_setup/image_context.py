"""The build context of the monitor's image, made from an installed wheel or from a clone of the repository."""

import shutil
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZIP_DEFLATED, ZipFile

from profiler.core.errors import TaskProfilerError
from profiler.core.files import package_data_folder
from profiler.core.version import __version__

DOCKERFILE = Path("taskdef", "Dockerfile")
_PACKAGE = Path(__file__).resolve().parents[1]
_DISTRIBUTION = "task-profiler"
_METADATA = ("METADATA", "WHEEL", "entry_points.txt")
_LEFT_OUT = "html_report/assets/plotly-cartesian.min.js"  # as in a clone's .dockerignore


@contextmanager
def build_context() -> Iterator[Path]:
    """Yield the folder that Docker builds from. An installation's is temporary. Raises TaskProfilerError."""
    clone = clone_folder()
    if clone is not None:  # its .dockerignore selects the files
        yield clone
        return
    with TemporaryDirectory(prefix="task-profiler-image-") as name:
        folder = Path(name)
        shutil.copytree(_image_folder(), folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        _pack_wheel(folder)
        yield folder


def clone_folder() -> Path | None:
    """The repository's clone that the code is in; None: an installation."""
    source = _image_folder()
    return source.parent if source.name == DOCKERFILE.parent.name else None


def _image_folder() -> Path:
    return package_data_folder("image", what="The image's Dockerfile is")


def _pack_wheel(folder: Path) -> None:
    """Pack the installed package as a wheel again, so that the image runs the code of this installation."""
    try:
        installed = distribution(_DISTRIBUTION)
    except PackageNotFoundError as error:
        raise TaskProfilerError("The installed package has no metadata: install the package again by pip.") from error
    name = f"task_profiler-{__version__}"
    files = {path.relative_to(_PACKAGE.parent).as_posix(): path.read_bytes() for path in _package_files()}
    files |= {f"{name}.dist-info/{one}": (installed.read_text(one) or "").encode() for one in _METADATA}
    record = f"{name}.dist-info/RECORD"
    rows = [f"{path},sha256={_digest(data)},{len(data)}\n" for path, data in files.items()]
    files[record] = "".join([*rows, f"{record},,\n"]).encode()
    with ZipFile(folder / f"{name}-py3-none-any.whl", "w", ZIP_DEFLATED) as wheel:
        for path, data in files.items():
            wheel.writestr(path, data)


def _package_files() -> Iterator[Path]:
    for path in sorted(_PACKAGE.rglob("*")):
        relative = path.relative_to(_PACKAGE)
        if path.is_file() and "__pycache__" not in relative.parts and relative.as_posix() != _LEFT_OUT:
            yield path


def _digest(data: bytes) -> str:
    return urlsafe_b64encode(sha256(data).digest()).decode().rstrip("=")
