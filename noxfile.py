"""Runs the tests on every supported Python that this machine has, and the checks.

nox --list                                       the sessions
nox -s tests-3.13 -- tests/unit/record/test_record_model.py   arguments after -- go to pytest

The Makefile runs the same commands with one Python, in .venv.
"""

import nox

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
IN_PARALLEL = ("--numprocesses", "2", "--dist", "loadfile")

nox.needs_version = ">=2025.10.14"  # the first with download_python
nox.options.sessions = ("tests", "lint", "types")  # `coverage` runs the tests once more
nox.options.reuse_venv = "yes"
# A session whose interpreter is missing is skipped with a message.
nox.options.download_python = "never"
nox.options.error_on_missing_interpreters = False


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """Run the tests that need only Python: unit, contract, integration, faults."""
    _install(session)
    session.run("pytest", *(session.posargs or IN_PARALLEL))


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and format with ruff."""
    _install(session)
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")


@nox.session
def types(session: nox.Session) -> None:
    """Check the types of code and tests with mypy."""
    _install(session)
    session.run("mypy")


@nox.session
def coverage(session: nox.Session) -> None:
    """Run the tests with branch coverage and check the floors in pyproject.toml."""
    _install(session)
    session.run("pytest", *IN_PARALLEL, "--cov", "--cov-report=term")
    session.run("python", "-m", "tools.coverage_floors")


def _install(session: nox.Session) -> None:
    session.install("--quiet", "--editable", ".[dev]")
