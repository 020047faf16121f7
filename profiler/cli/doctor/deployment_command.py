"""``task-profiler doctor --deployed``: diagnoses a forwarder, and the cluster behind it."""

import os
from collections.abc import Iterator, Mapping

from profiler.aws_account.deployed_forwarder import DeployedStack
from profiler.cli.wiring.aws_options import AwsOptions, open_clients
from profiler.core.clock import Clock
from profiler.doctor.findings import Finding
from profiler.doctor.forwarder_checks import stack_findings
from profiler.doctor.search_cluster_checks import dashboard_findings, template_findings
from profiler.search_setup.template_install import DEFAULT_PREFIX, prefixed_name, setup_files


def findings_of_deployment(
    stack: str, aws: AwsOptions, cluster: Mapping[str, str | None], clock: Clock
) -> Iterator[Finding]:
    """The findings about the stack, and about the cluster and the dashboards' server that the options name."""
    yield from stack_findings(DeployedStack(stack, open_clients(aws.region, aws.profile), clock))
    url, ui_url = cluster["url"], cluster["ui_url"]
    if url is None and ui_url is None:
        return
    from profiler.search_setup.dashboard_import import dashboard_objects, read_version  # requests
    from profiler.search_setup.search_servers import ClusterServer, DashboardsServer, open_session
    from profiler.search_setup.version_fit import fit_objects

    prefix = cluster["prefix"] or DEFAULT_PREFIX
    session = open_session(cluster["api_key"], cluster["user"], os.environ, cluster["ca_file"])
    if url is not None:
        names = [prefixed_name(name, prefix) for name in setup_files().templates]
        yield from template_findings(ClusterServer(url, session), names)
    if ui_url is not None:
        ui = DashboardsServer(ui_url, session)
        version = read_version(ui)
        yield from dashboard_findings(ui, fit_objects(dashboard_objects(version.flavour, prefix), version))
