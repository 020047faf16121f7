"""Clients of container engines: a daemon of others does their work, outside of their run."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from profiler.record.record_model import Record

# Podman's containers are its own descendants, which belong to its run.
_CLIENTS = frozenset(
    {"docker", "docker-compose", "nerdctl", "finch", "ctr", "crictl", "podman-remote"}
)
_DAEMONS = frozenset({"dockerd", "containerd"})


def container_client(record: "Record") -> str:
    """The client among the run's largest processes that had a daemon of others do its work; "" if
    there is none. A daemon that belongs to the run does it within the run.
    """
    programs = [process.name.split(" ")[-1] for process in record.processes]
    if not _DAEMONS.isdisjoint(programs):
        return ""
    return next((program for program in programs if program in _CLIENTS), "")


def container_client_text(record: "Record") -> str:
    """What the numbers of a run with such a client leave out; "" without one."""
    client = container_client(record)
    return client and f"{client} has its containers run by a daemon: these numbers leave them out."
