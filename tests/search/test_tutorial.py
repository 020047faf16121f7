"""From an empty virtual environment to the first document in Elasticsearch: an account of 101 nightly tasks."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import profiler
from tests.aws import FakeAws, fake_aws
from tests.integration.conftest import aws_cli  # noqa: F401  pytest finds the fixture by this name
from tests.search.server import SearchServer
from tests.search.test_forwarder import search
from tests.tutorial import FAMILY, TutorialReader, answers, build_wheel, register_families

# moto's server warns of its own gaps.
pytestmark = [pytest.mark.search, pytest.mark.timeout(900), pytest.mark.filterwarnings("ignore")]
FAMILIES = 101  # one more than AWS lists on a page


@pytest.fixture
def aws() -> Iterator[FakeAws]:
    with fake_aws() as played:
        yield played


def test_an_account_of_more_families_than_a_page_reports_after_four_commands(
    aws: FakeAws,
    aws_cli: Path,  # noqa: F811  the fixture
    tmp_path: Path,
    elasticsearch7: SearchServer,
) -> None:
    register_families(aws, FAMILIES)
    reader = TutorialReader(
        aws,
        aws_cli,
        tmp_path,
        build_wheel(tmp_path / "wheel"),
        search_url=elasticsearch7.url,
        after_run=f"{sys.executable} -m tests.search.deployed_forwarder",
    )
    try:
        done = reader.type()
        assert done.returncode == 0, done.stdout + done.stderr
        install, _image, stack, monitors, check, run, _clean = answers(done.stdout)
        assert f"3 monitors  not done  0 of {FAMILIES} schedules and rules start" in install
        assert stack.splitlines()[-1].endswith(f"is deployed: version {profiler.__version__}.")
        assert monitors.count("registered ") == FAMILIES
        assert check.count(" current ") == FAMILIES
        assert run.startswith(f"● {FAMILY}:2 succeeded")
        (hit,) = search(elasticsearch7)["hits"]["hits"]
        assert hit["_source"]["task"]["family"] == FAMILY
    finally:
        elasticsearch7.remove_ours()
