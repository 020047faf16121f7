"""What ``doctor`` reads of AWS Batch for a job and its queue.

Each thing that Batch or EC2 may not be asked is a sentence; the others are read all the same.
"""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from msgspec import Struct

from profiler.aws_account.aws_errors import OpenClient, aws_errors
from profiler.aws_account.registered_definitions import read_items
from profiler.core.bounded_batches import batches
from profiler.core.errors import TaskProfilerError
from profiler.core.optional_math import known_values
from profiler.record.batch_job_detail import (
    NO_ARRAY,
    PENDING,
    RUNNABLE,
    JobDetail,
    parse_array,
    parse_job,
)

# Of the jobs of a queue with one status.
MAX_LISTED = 1_000
_PER_CALL = 100


class BatchAccountReader(Struct):
    """Reads of the account. What it refuses is a sentence of ``problems``."""

    open_client: OpenClient
    problems: list[str] = []
    # By the queue or the array, and the status.
    listed: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    arrays_of: dict[str, list[JobDetail]] = {}  # by the queue

    def read_jobs(self, ids: Sequence[str]) -> list[JobDetail]:
        """The jobs of these ids that Batch still knows."""
        jobs: list[JobDetail] = []
        for chunk in batches(list(ids), _PER_CALL):
            answer = self._read_answer(
                "Jobs could not be read", "batch:DescribeJobs", "describe_jobs", jobs=chunk
            )
            jobs += known_values(map(parse_job, answer.get("jobs", ())))
        return jobs

    def read_described(self, operation: str, names: Sequence[str]) -> list[Mapping[str, Any]]:
        """The queues or environments with these names or ARNs."""
        title, member = {
            "describe_job_queues": ("Job queues", "jobQueues"),
            "describe_compute_environments": ("Compute environments", "computeEnvironments"),
        }[operation]
        permission = f"batch:Describe{title.title().replace(' ', '')}"
        answer = self._read_answer(
            f"{title} could not be read", permission, operation, **{member: list(names)}
        )
        return list(answer.get(member, ()))

    def read_unended_arrays(self, queue: str) -> list[JobDetail]:
        """The first arrays of a queue that have not ended: their children are not listed."""
        if queue not in self.arrays_of:
            pending = self.read_job_summaries(queue, PENDING, MAX_LISTED)
            ids = [summary["jobId"] for summary in pending if parse_array(summary) is not NO_ARRAY]
            self.arrays_of[queue] = self.read_jobs(ids[:_PER_CALL])
        return self.arrays_of[queue]

    def read_waiting_child(self, array: JobDetail) -> JobDetail | None:
        """The first child of an array that is RUNNABLE."""
        runnable = self.read_job_summaries(array.id, RUNNABLE, 1, place="arrayJobId")
        return next(iter(self.read_jobs([summary["jobId"] for summary in runnable])), None)

    def read_job_summaries(
        self, of: str, status: str, most: int, *, place: str = "jobQueue"
    ) -> list[Mapping[str, Any]]:
        """The jobs of a queue or an array with this status, the first of them. A status is listed
        once.
        """
        if (of, status) in self.listed:
            return self.listed[of, status]
        listed = self.listed[of, status] = []
        try:
            with aws_errors("The jobs of the queue could not be listed", "batch:ListJobs"):
                jobs = read_items(
                    self.open_client("batch"),
                    "list_jobs",
                    "jobSummaryList",
                    **{place: of, "jobStatus": status},
                )
                listed.extend(islice(jobs, most))  # what was listed before an error stays
        except TaskProfilerError as error:
            self.problems.append(str(error))
        return listed

    def read_first_runnable_arns(self, queue: str) -> list[str] | None:
        """The ARNs of the first RUNNABLE jobs; None: they are not known."""
        answer = self._read_answer(
            "The place in the queue is not known",
            "batch:GetJobQueueSnapshot",
            "get_job_queue_snapshot",
            jobQueue=queue,
        )
        front = answer.get("frontOfQueue")
        return None if front is None else [job.get("jobArn", "") for job in front.get("jobs", ())]

    def read_available_amount(self, resource: str) -> int | None:
        """How much of a consumable resource is left."""
        answer = self._read_answer(
            "A consumable resource could not be read",
            "batch:DescribeConsumableResource",
            "describe_consumable_resource",
            consumableResource=resource,
        )
        left: int | None = answer.get("availableQuantity")
        return left

    def read_definitions(self, **which: object) -> list[Mapping[str, Any]]:
        """Job definitions, by their names or ARNs."""
        answer = self._read_answer(
            "Job definitions could not be read",
            "batch:DescribeJobDefinitions",
            "describe_job_definitions",
            **which,
        )
        return list(answer.get("jobDefinitions", ()))

    def read_instance_types(self, names: Sequence[str]) -> list[Mapping[str, Any]]:
        """The types of these names, and of these families (``m5``)."""
        patterns = [name if "." in name else f"{name}.*" for name in names]
        try:
            with aws_errors("Instance types could not be read", "ec2:DescribeInstanceTypes"):
                return list(
                    read_items(
                        self.open_client("ec2"),
                        "describe_instance_types",
                        "InstanceTypes",
                        Filters=[{"Name": "instance-type", "Values": patterns}],
                    )
                )
        except TaskProfilerError as error:
            self.problems.append(str(error))
            return []

    def _read_answer(
        self, what: str, permission: str, operation: str, **arguments: object
    ) -> Mapping[str, Any]:
        """The answer of AWS Batch; empty if it refuses. ``what`` begins the sentence about that."""
        try:
            with aws_errors(what, permission):
                answer: Mapping[str, Any] = getattr(self.open_client("batch"), operation)(
                    **arguments
                )
                return answer
        except TaskProfilerError as error:
            self.problems.append(str(error))
            return {}
