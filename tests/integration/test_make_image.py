"""``make image``: what it tells Docker, and what it says without one. Nothing is built here."""

import os
import re
import subprocess
from pathlib import Path

import pytest

import profiler
from tools.waiting import LIMIT_SECONDS

ROOT = Path(profiler.__file__).parent.parent


def make(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MAKE", "MFLAGS", "PIP_"))
    }
    command = ["make", "--no-print-directory", *arguments]
    return subprocess.run(
        command,
        cwd=ROOT,
        env=inherited | environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )


def builds(*arguments: str, **environment: str) -> list[list[str]]:
    """The words of the ``docker build`` commands that would be run."""
    shown = make("--dry-run", "image", *arguments, **environment).stdout.replace("\\\n", " ")
    return [
        line.split() for line in shown.splitlines() if re.match(r"docker (buildx )?build ", line)
    ]


def test_the_image_is_named_after_the_version() -> None:
    """The image is named after the version and what is given reaches docker without a secret."""
    (words,) = builds()
    assert words[words.index("--tag") + 1] == f"'task-profiler:{profiler.__version__}'"
    assert f"VERSION='{profiler.__version__}'" in words
    assert words[-1] == "."
    (words,) = builds(
        "EXTRAS=", "IMAGE=mine:1", PIP_INDEX_URL="https://user:password@example.com/simple"
    )
    assert words[words.index("--tag") + 1] == "'mine:1'"
    assert {"EXTRAS", "PIP_INDEX_URL"} <= set(words)
    assert not [word for word in words if "password" in word or word == "BASE_IMAGE"]


def test_several_platforms_are_built_by_buildx_and_pushed_on_request() -> None:
    (built,) = builds("PLATFORMS=linux/amd64,linux/arm64")
    assert built[:5] == ["docker", "buildx", "build", "--platform", "'linux/amd64,linux/arm64'"]
    assert not {"--push", "--load"} & set(built)  # Docker's own store of images cannot load several
    (pushed,) = builds("PLATFORMS=linux/amd64,linux/arm64", "PUSH=1")
    assert "--push" in pushed
    (loaded,) = builds("PLATFORMS=linux/arm64")
    assert "--load" in loaded


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ("PLATFORMS=linux/amd64,linux/arm64", "TARGET=neuron"),
            "TARGET=neuron takes no PLATFORMS",
        ),
        ((), "No Docker daemon answers: install Docker, start it, and run make image again\n"),
        (
            ("TARGET=toaster",),
            (
                "There is no image called 'toaster': run make image with TARGET=monitor or "
                "TARGET=neuron"
            ),
        ),
    ],
)
def test_what_cannot_be_built_is_refused_in_one_sentence(
    words: tuple[str, ...], sentence: str
) -> None:
    done = make("image", *words, DOCKER_HOST="unix:///nowhere/docker.sock")
    assert done.returncode != 0
    assert done.stderr.startswith(sentence)
    assert [line for line in done.stderr.splitlines()[1:] if not line.startswith("make: ***")] == []
