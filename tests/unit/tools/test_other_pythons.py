"""The machine's other Pythons: one of each version from 3.11 on."""

from pathlib import Path

import pytest

from tools import other_pythons


def test_each_version_is_listed_once_and_broken_ones_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    on_path = tmp_path / "bin"
    versions = tmp_path / "versions"
    programs = {
        on_path / "python3.10": "echo 3 10",
        on_path / "python3.98": "echo 3 98",
        on_path / "python3.97": "exit 127",
        versions / "3.98.4" / "bin" / "python3": "echo 3 98",
        versions / "3.99.1" / "bin" / "python3": "echo 3 99",
        versions / "3.9.1" / "bin" / "python3": "echo 3 9",
    }
    for program, answer in programs.items():
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(f"#!/bin/sh\n{answer}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{on_path}:{tmp_path / 'nowhere'}:/usr/bin:/bin")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    other_pythons.main()
    listed = [line for line in capsys.readouterr().out.splitlines() if str(tmp_path) in line]
    assert listed == [
        f"3.98 {on_path}/python3.98",
        f"3.99 {versions}/3.99.1/bin/python3",
    ]
