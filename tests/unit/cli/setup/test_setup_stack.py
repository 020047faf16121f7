"""``setup stack``: its search cluster, and secrets from the command line, a file or standard
input.
"""

import io
import sys
from pathlib import Path

import click
import pytest
import requests

from profiler.aws_account.setup.forwarder_deployment import DeploymentRequest
from profiler.cli.setup.deployment_output import ForwarderCluster
from profiler.cli.setup.setup_commands import stack
from profiler.core.errors import TaskProfilerError
from tests.setup_cluster import Cluster


def test_a_template_that_the_cluster_rejects_ends_the_deployment(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The first report would make an index with other field types."""
    with Cluster() as cluster:
        search = ForwarderCluster(cluster.url, requests.Session())
        cluster.rejects_with = 400
        with pytest.raises(
            TaskProfilerError,
            match=r"index template task-\w+ was rejected \(HTTP 400: same priority\)",
        ):
            search.install_templates("task", "month")
        cluster.rejects_with = 403
        search.install_templates("task", "month")
    assert (
        "The index templates are not installed; run task-profiler kibana import"
        in capsys.readouterr().err
    )


def test_one_that_does_not_answer_is_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    search = ForwarderCluster("http://127.0.0.1:9", requests.Session())
    assert search.engine is None
    for prefix, options in (("task", ""), ("jobs", " --prefix jobs")):
        search.install_templates(prefix, "month")
        out, said = capsys.readouterr()
        assert out == ""
        assert (
            f"run task-profiler kibana import --elasticsearch http://127.0.0.1:9{options} where "
            "the cluster can be reached"
        ) in said
        assert said.count("\n") == 1


def test_a_secret_may_come_from_a_file_or_from_standard_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of Windows is read without its byte order mark."""
    requests: list[DeploymentRequest] = []
    monkeypatch.setattr(
        "profiler.cli.setup.deployment_output.deploy_forwarder",
        lambda *given, **_: requests.append(given[0]),
    )
    (tmp_path / "webhook").write_text("https://hooks.slack.com/a\n")
    (tmp_path / "user").write_bytes(b"\xef\xbb\xbfbob:a b\r\n")
    monkeypatch.setattr(sys, "stdin", io.StringIO("a=b\n"))
    words = [
        "--slack-failure-webhook",
        f"@{tmp_path}/webhook",
        "--user",
        f"@{tmp_path}/user",
        "--otlp-headers",
        "@-",
    ]
    stack.main(words, standalone_mode=False)
    stack.main(["--api-key", "key"], standalone_mode=False)
    assert [request.secrets for request in requests] == [
        {
            "SlackSecretId": {"slack_failure_webhook_url": "https://hooks.slack.com/a"},
            "ElasticsearchSecretId": {"username": "bob", "password": "a b"},
            "OtlpSecretId": {"otlp_headers": "a=b"},
        },
        {"ElasticsearchSecretId": {"api_key": "key"}},
    ]


@pytest.mark.parametrize("content", [b"\xff", b" \r\n", None])
def test_a_secret_that_cannot_be_read_is_not_in_the_error(
    tmp_path: Path, content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / "hunter2").write_bytes(content)
    with pytest.raises(click.BadParameter, match="is empty or cannot be read: check it") as error:
        stack.main(["--user", f"@{tmp_path}/hunter2"], standalone_mode=False)
    assert "hunter2" not in error.value.format_message()
