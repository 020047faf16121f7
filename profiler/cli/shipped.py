"""The folders that ship beside the package: in it when installed, next to it in the repository."""

from pathlib import Path

from profiler.errors import TaskProfilerError


def package_data_folder(name: str, *, what: str) -> Path:
    """The folder ``name``, which holds ``what``.

    Raises TaskProfilerError if the installation is without it.
    """
    package = Path(__file__).resolve().parent.parent
    for folder in (package / name, package.parent / name):
        if folder.is_dir():
            return folder
    raise TaskProfilerError(f"{what} missing from this installation: install the package again.")
