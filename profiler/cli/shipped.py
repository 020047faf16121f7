"""Folders of the repository outside the package that the wheel ships as ``profiler/shipped/NAME``."""

from pathlib import Path

from profiler.errors import TaskProfilerError

_IN_REPOSITORY = {"forwarder": "lambda/forwarder", "kibana": "kibana"}


def shipped_folder(name: str, *, what: str) -> Path:
    """Find the folder ``name`` in an installation or in the repository.

    Args:
        name: ``forwarder``, the forwarder's package, or ``kibana``.
        what: Subject and verb of the error sentence.

    Raises:
        TaskProfilerError: if the installation lacks the folder.
    """
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "shipped" / name, package.parent / _IN_REPOSITORY[name]):
        if folder.is_dir():
            return folder
    raise TaskProfilerError(f"{what} missing from this installation: install the package again.")
