"""Which other service registers the task definitions of a family, with the evidence for it.

A revision that somebody else registers in such a family is never started: what changes a family
leaves it alone. A family is never the service's because of its name: anybody may give the same one.
"""

from collections.abc import Iterable
from typing import Final, Literal

from msgspec import Struct

from profiler.core.commands_to_copy import command_line
from profiler.core.ecs_terms import is_of_aws_batch
from profiler.record.record_model import Record

AWS_BATCH: Final = "AWS Batch"
SEQERA: Final = "Seqera"
# The role's session, which registers the definitions of AWS Batch. A user may choose the role.
_BATCH_SESSION = "/aws-batch"
_BATCH_TAG = "aws:batch:"
_SEQERA_CLUSTER = "seqera-sched-"


class FamilyOwner(Struct, frozen=True, kw_only=True):
    """The service, how that is known, and the cluster in which it starts the family's tasks."""

    service: Literal["AWS Batch", "Seqera"]
    evidence: str
    cluster: str | None = None


def owner_of_definition(
    registered_by: str | None, tag_keys: Iterable[str] = ()
) -> FamilyOwner | None:
    """The owner by ECS's answer: who registered the definition, and the keys of its tags."""
    if registered_by is not None and registered_by.endswith(_BATCH_SESSION):
        role = registered_by.removesuffix(_BATCH_SESSION).rpartition("/")[2]
        return FamilyOwner(service=AWS_BATCH, evidence=f"its role {role} registered it")
    for key in tag_keys:
        if key.startswith(_BATCH_TAG):
            return FamilyOwner(service=AWS_BATCH, evidence=f"it has the tag {key}")
    return None


def owner_of_cluster(cluster: str | None) -> FamilyOwner | None:
    """The owner of a family whose tasks, but none of a service, run in this cluster."""
    evidence = f"its tasks run in the cluster {cluster}"
    if is_of_aws_batch(cluster):
        return FamilyOwner(service=AWS_BATCH, evidence=evidence, cluster=cluster)
    if cluster is not None and cluster.startswith(_SEQERA_CLUSTER):
        return FamilyOwner(service=SEQERA, evidence=evidence, cluster=cluster)
    return None


def owner_of_run(record: Record) -> FamilyOwner | None:
    """The owner by a run. The variables of a task in another cluster are anybody's."""
    job_id = record.batch.job_id
    if job_id is not None and record.cluster is None:
        return FamilyOwner(service=AWS_BATCH, evidence=f"a run is the job {job_id}")
    return owner_of_cluster(record.cluster)


def sentence_on_owner(owner: FamilyOwner, part: Literal["monitor", "size"]) -> str:
    """Why the family is left alone, and what gives its runs a monitor, or another size."""
    start = f"{owner.service} owns it ({owner.evidence}), and starts no revision of yours: "
    return f"{start}{_remedy_text(owner, part)}."


def _remedy_text(owner: FamilyOwner, part: Literal["monitor", "size"]) -> str:
    if owner.service == SEQERA:
        source = f"insights:{owner.cluster}"
        if part == "monitor":
            return f"{command_line('history', source=source)} shows its runs"
        sizes = command_line("recommend", source=source)
        return f"{sizes} says the sizes, which the pipeline sets"
    if part == "monitor":
        return (
            "put task-profiler run into the file of the job definition, or monitor EC2 instances "
            f"with {command_line('setup', 'batch-instances')} (docs/aws-batch.md)"
        )
    resize = command_line("taskdef", "resize", "--job-definition", "NAME")
    return f"the job definition has its size, which {resize} changes"
