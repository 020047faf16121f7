"""Which job of AWS Batch a run is an attempt of: from Batch's variables in a container's
environment.
"""

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from profiler.core.optional_math import known_members
from profiler.core.text import on_one_line
from profiler.record.model_base import Model, absent_if_empty

if TYPE_CHECKING:
    from profiler.core.json_fields import Json

# Batch sets them. An environment variable that a user gives to a job cannot begin so.
VARIABLE_PREFIX = "AWS_BATCH_"
# In AWS Batch, a job's name, a queue's and a definition's are shorter.
MAX_NAME_CHARS = 256
# A child of an array has ``:INDEX``, a node of a multi-node job ``#NODE``.
_JOB_ID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?:[:#][0-9]{1,6})?"
_NUMBER = r"[0-9]{1,6}"
_TEXTS = {
    f"{VARIABLE_PREFIX}JQ_NAME": "queue",
    f"{VARIABLE_PREFIX}CE_NAME": "compute_environment",
}
_NUMBERS = {
    f"{VARIABLE_PREFIX}JOB_ATTEMPT": "attempt",
    f"{VARIABLE_PREFIX}JOB_ARRAY_INDEX": "array_index",
    f"{VARIABLE_PREFIX}JOB_NODE_INDEX": "node_index",
}


# The members of a job that are no texts.
WHOLE_NUMBERS = frozenset(
    {"job_definition_revision", "attempt", "allowed_attempts", "array_index", "node_index"}
)


class BatchJob(Model, frozen=True, kw_only=True):
    """The job of AWS Batch that the run is an attempt of; ``attempt`` counts from 1, up to
    ``allowedAttempts``.

    The ``jobId`` of a child of an array ends with ``:INDEX``. A container's environment names
    neither the job nor its definition, nor how many attempts are allowed: Batch's event does.
    """

    job_id: str | None = None
    job_name: str | None = None
    job_definition: str | None = None
    job_definition_revision: int | None = None
    queue: str | None = None
    compute_environment: str | None = None
    attempt: int | None = None
    allowed_attempts: int | None = None
    array_index: int | None = None
    node_index: int | None = None


# What a run that is no attempt of a job says of its job.
NO_JOB: Final = BatchJob()


def is_job_id(word: str) -> bool:
    """Whether the word is the id of a job, of a child of an array, or of a node."""
    return bool(re.fullmatch(_JOB_ID, word))


def may_begin_job_id(word: str) -> bool:
    """Whether ids of jobs can begin so."""
    return bool(re.fullmatch("[0-9a-f]{1,8}(?:-[0-9a-f-]*(?:[:#][0-9]*)?)?", word))


def is_part_of_job(job: BatchJob, job_id: str) -> bool:
    """Whether the job has this id, or is a child or a node of the job with this id."""
    return job.job_id is not None and job_id in (job.job_id, parent_id(job.job_id))


def job_text(job: BatchJob) -> str:
    """The job, its attempt and its queue: ``orders 4109…:17, attempt 2 of 3, queue nightly``."""
    names = [name for name in (job.job_name, job.job_id) if name]
    texts = [" ".join(names)] if names else []
    if job.attempt is not None:
        allowed = job.allowed_attempts
        of_allowed = "" if allowed is None or allowed < job.attempt else f" of {allowed}"
        texts.append(f"attempt {job.attempt}{of_allowed}")
    if job.queue is not None:
        texts.append(f"queue {job.queue}")
    return ", ".join(texts)


def parent_id(job_id: str) -> str:
    """The id of the array or of the multi-node job that the job is a part of, else its own."""
    return re.split("[:#]", job_id, maxsplit=1)[0]


def resource_name(arn: str) -> str:
    """The name of a queue, a job definition or a compute environment: of its ARN, or as it is."""
    return arn.rpartition("/")[2]


def job_of_variables(variables: Mapping[str, str]) -> BatchJob:
    """The job of a container with these environment variables; none without an id of a job."""
    job_id = variables.get(f"{VARIABLE_PREFIX}JOB_ID", "").strip()
    if not job_id or not is_job_id(job_id):
        return NO_JOB
    texts = {
        name: resource_name(on_one_line(variables.get(variable, "")).strip())[:MAX_NAME_CHARS]
        for variable, name in _TEXTS.items()
    }
    numbers = {
        name: int(variables[variable])
        for variable, name in _NUMBERS.items()
        if re.fullmatch(_NUMBER, variables.get(variable, ""), re.ASCII)
    }
    known: dict[str, Any] = {name: value for name, value in texts.items() if value}
    return BatchJob(job_id=job_id, **known | numbers)


def job_of_overrides(overrides: "Iterable[Mapping[str, Json]]") -> BatchJob:
    """The job of a task that was started with these overrides of its containers.

    Batch's variables are among the user's, whose values may be secrets: no other name is looked at.
    """
    from profiler.core.json_fields import mappings_in_list, text_or_none  # not for `run`

    for container in overrides:
        variables: dict[str, str] = {}
        for variable in mappings_in_list(container.get("environment")):
            name = text_or_none(variable.get("name")) or ""
            if name.startswith(VARIABLE_PREFIX):
                variables[name] = text_or_none(variable.get("value")) or ""
        job = job_of_variables(variables)
        if job is not NO_JOB:
            return job
    return NO_JOB


def known_job_fields(job: BatchJob) -> dict[str, str | int]:
    """The known values by their names in a search document: ``job_id`` and so on."""
    values = {name: getattr(job, name) for name in job.__struct_fields__}
    return known_members(values)


def batch_job_of_document(fields: "Json") -> BatchJob:
    """The job in the ``batch`` of a search document, or none. A value of another type
    counts as absent.
    """
    from profiler.core.json_fields import (  # not for `run`
        count_or_none,
        mapping_or_empty,
        text_or_none,
    )

    read = mapping_or_empty(fields)
    values: dict[str, Any] = {
        name: count_or_none(read.get(name))
        if name in WHOLE_NUMBERS
        else text_or_none(read.get(name))
        for name in BatchJob.__struct_fields__
    }
    return absent_if_empty(BatchJob(**values), NO_JOB)
