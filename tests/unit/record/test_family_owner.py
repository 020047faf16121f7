"""Whose a family is: by what ECS or a run says, never by a name that anybody may give."""

from typing import Any, Literal, get_args

from profiler.record.batch_job import BatchJob
from profiler.record.family_owner import (
    AWS_BATCH,
    SEQERA,
    FamilyOwner,
    owner_of_cluster,
    owner_of_definition,
    owner_of_run,
    sentence_on_owner,
)
from tests.batch_jobs import CLUSTER, job_id
from tests.cases import each_case
from tests.runs import report
from tests.values import present

SEQERA_CLUSTER = "seqera-sched-eu-1"
BY_BATCH = "arn:aws:sts::111122223333:assumed-role/AWSServiceRoleForBatch/aws-batch"
BY_USER = "arn:aws:sts::111122223333:assumed-role/aws-batch/terraform"


@each_case(
    ("registered_by", "tag_keys", "evidence"),
    [
        (BY_BATCH, (), "its role AWSServiceRoleForBatch registered it"),
        (BY_USER, ("team", "aws:batch:job-definition"), "it has the tag aws:batch:job-definition"),
        (BY_USER, ("team", "aws:ecs:batch:", "batch:aws:batch:"), None),
        (None, (), None),
    ],
)
def test_a_definition_is_batchs_by_its_role_or_by_a_tag_of_batch(
    registered_by: str | None, tag_keys: tuple[str, ...], evidence: str | None
) -> None:
    owner = owner_of_definition(registered_by, tag_keys)
    assert (owner and owner.evidence) == evidence
    assert owner is None or (owner.service, owner.cluster) == (AWS_BATCH, None)


@each_case(
    ("cluster", "service"),
    [
        (CLUSTER, AWS_BATCH),
        ("ci_Batch_0a1b2c3d-1111-2222-3333-444455556666", AWS_BATCH),
        (SEQERA_CLUSTER, SEQERA),
        *((name, None) for name in ("jobs", "seqera", "my-seqera-sched-1", "Batch", "", None)),
    ],
)
def test_a_cluster_is_the_services_that_gives_its_name(
    cluster: str | None, service: str | None
) -> None:
    owner = owner_of_cluster(cluster)
    assert (owner and owner.service) == service
    if owner is not None:
        assert owner.cluster == cluster
        assert owner.evidence == f"its tasks run in the cluster {cluster}"


@each_case(
    ("run", "evidence"),
    [
        ({"cluster": None, "batch": BatchJob(job_id=job_id(1))}, f"a run is the job {job_id(1)}"),
        ({"cluster": CLUSTER}, f"its tasks run in the cluster {CLUSTER}"),
        ({"cluster": "jobs", "batch": BatchJob(job_id=job_id(1))}, None),
        ({"cluster": "jobs"}, None),
        ({"cluster": None}, None),
    ],
)
def test_a_run_in_another_cluster_says_nothing_by_its_variables(
    run: dict[str, Any], evidence: str | None
) -> None:
    """Anybody can set AWS_BATCH_JOB_ID, and take a family from the commands for good."""
    owner = owner_of_run(report(**run).record)
    assert (owner and owner.evidence) == evidence


SAID = {
    (AWS_BATCH, "monitor"): "put task-profiler run into the file of the job definition, or monitor "
    "EC2 instances with task-profiler setup batch-instances (docs/aws-batch.md)",
    (AWS_BATCH, "size"): "the job definition has its size, which task-profiler taskdef resize "
    "--job-definition NAME changes",
    (SEQERA, "monitor"): f"task-profiler history --from insights:{SEQERA_CLUSTER} shows its runs",
    (SEQERA, "size"): f"task-profiler recommend --from insights:{SEQERA_CLUSTER} says the sizes, "
    "which the pipeline sets",
}


@each_case("cluster", [CLUSTER, SEQERA_CLUSTER])
def test_the_sentence_says_what_helps_where_a_revision_would_never_start(cluster: str) -> None:
    owner: FamilyOwner = present(owner_of_cluster(cluster))
    parts: tuple[Literal["monitor", "size"], ...] = get_args(Literal["monitor", "size"])
    for part in parts:
        assert sentence_on_owner(owner, part) == (
            f"{owner.service} owns it (its tasks run in the cluster {cluster}), and starts no "
            f"revision of yours: {SAID[owner.service, part]}."
        )
