"""The configurations of the documentation, by which Prometheus finds tasks."""

import json
import re
import subprocess
from pathlib import Path

from tests.prometheus.conftest import Started, program
from tools.waiting import wait_until

PAGE = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
CONFIGURATIONS = re.findall(r"^```yaml\n(scrape_configs:\n.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def without_aws(configuration: str, file: Path) -> str:
    """Targets from a file: Prometheus before 3.8 does not know ``aws_sd_configs``, and there is no AWS here."""
    discovery = re.compile(r"( +)aws_sd_configs:\n(?:\1  .*\n)+")
    return discovery.sub(rf"\1file_sd_configs: [{{files: [{file}]}}]\n", configuration)


def test_promtool_takes_the_configurations(tmp_path: Path) -> None:
    assert len(CONFIGURATIONS) == 2
    for configuration in CONFIGURATIONS:
        file = tmp_path / "prometheus.yml"
        file.write_text(without_aws(configuration, tmp_path / "targets.json"))
        subprocess.run([program("promtool"), "check", "config", "--syntax-only", file], check=True)


def test_a_tasks_tag_says_that_it_is_scraped_and_where(prometheus: Started, tmp_path: Path) -> None:
    (configuration,) = (one for one in CONFIGURATIONS if "aws_sd_configs" in one)
    file = tmp_path / "targets.json"
    tags = {"10.0.3.17": {"PrometheusPort": "8000"}, "10.0.4.9": {"PrometheusPort": "9000"}, "10.0.4.10": {}}
    found = [
        {
            "targets": [f"{address}:80"],
            "labels": {
                "__meta_ecs_ip_address": address,
                **{f"__meta_ecs_tag_task_{name}": value for name, value in pairs.items()},
            },
        }
        for address, pairs in tags.items()
    ]
    file.write_text(json.dumps(found))
    server = prometheus(without_aws(configuration, file))
    targets = wait_until(lambda: server.ask("targets", state="active")["activeTargets"], 60, "the targets")
    assert {target["labels"]["instance"] for target in targets} == {"10.0.3.17:8000", "10.0.4.9:9000"}
