"""Whether Container Insights is on for clusters: then past runs have numbers before anything is deployed."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from shlex import quote

from profiler.aws_account.aws_errors import OpenClient, aws_errors
from profiler.core.errors import TaskProfilerError

_MAX_CLUSTERS = 100  # per call
_ON = frozenset({"enabled", "enhanced"})
# The list prices of us-east-1, 2026: https://aws.amazon.com/cloudwatch/pricing/
_PRICE = (
    "about 3 USD a month for each task family that runs all day (10 metrics at 0.30 USD, charged by the hour), and "
    "0.50 USD per GB of events"
)


def container_insights_sentences(open_client: OpenClient, clusters: Sequence[str]) -> Iterator[str]:
    """The next steps for clusters with Container Insights on or off; none without permission to read the setting."""
    found: dict[bool, list[str]] = {True: [], False: []}
    with suppress(TaskProfilerError), aws_errors("Container Insights"):
        described = open_client("ecs").describe_clusters(clusters=clusters[:_MAX_CLUSTERS], include=["SETTINGS"])
        for cluster in described["clusters"]:
            values = {one.get("name"): one.get("value") for one in cluster.get("settings", ())}
            found[values.get("containerInsights") in _ON].append(quote(cluster["clusterName"]))
    on, off = found[True], found[False]
    if on:
        options = " ".join(f"--container-insights {name}" for name in on)
        yield f"Container Insights is on: task-profiler recommend {options} answers now."
    if off:
        yield (
            f"Container Insights is off for {', '.join(off)}. With it, sizes need no monitor, but short peaks are not "
            f"seen. Turning it on (aws ecs update-cluster-settings --cluster {off[0]} --settings "
            f"name=containerInsights,value=enabled) costs {_PRICE}."
        )
