"""tools/release.py: checksums, and what a failure prints. `make release-check` runs it all."""

import subprocess
from pathlib import Path

import pytest

from tools.release import CHECKSUMS, ReleaseError, run, write_checksums


def test_sha256sum_accepts_the_checksums(tmp_path: Path) -> None:
    (tmp_path / "b.zip").write_bytes(b"b")
    (tmp_path / "a.whl").write_bytes(b"a")
    assert [line.split()[1] for line in write_checksums(tmp_path).splitlines()] == ["a.whl", "b.zip"]
    check = ["sha256sum", "--check", "--strict", CHECKSUMS]
    assert subprocess.run(check, cwd=tmp_path, capture_output=True, check=False).returncode == 0
    (tmp_path / "a.whl").write_bytes(b"changed")
    assert subprocess.run(check, cwd=tmp_path, capture_output=True, check=False).returncode == 1


def test_a_failed_command_is_named_with_its_output(tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match=r"^sh -c echo no; exit 3 failed in .*:\nno\n$"):
        run("sh", "-c", "echo no; exit 3", folder=tmp_path)
