"""The notification of a job of AWS Batch: its end, or that it cannot start."""

from msgspec import Struct

from profiler.forwarder.ended_run import NO_RETRY, MemoryRetry
from profiler.record.batch_job_detail import SUCCEEDED, JobDetail
from profiler.record.job_outcome import (
    AttemptCosts,
    EndedChild,
    blocked_job_title,
    facts_sentence,
    job_fact_texts,
    job_title,
    remedy_for_job,
)


class JobNotice(Struct, frozen=True, kw_only=True):
    """A job that has ended, or the first of its queue, which ``is_blocked``.

    ``children`` are the failed ones of an array, None: they are not known. ``reduced_memory``: in
    words, if the memory of the killed job had been reduced.
    """

    job: JobDetail
    is_blocked: bool = False
    children: tuple[EndedChild, ...] | None = None
    costs: AttemptCosts = {}
    retry: MemoryRetry = NO_RETRY
    reduced_memory: str | None = None

    @property
    def is_success(self) -> bool:
        return self.job.status == SUCCEEDED and not self.is_blocked

    @property
    def is_blocked_or_unattempted(self) -> bool:
        return self.is_blocked or self.job.has_no_attempt

    @property
    def family(self) -> str:
        """The family of its runs: the name of its definition."""
        identity = self.job.batch_job_of_attempt()
        return identity.job_definition or identity.job_name or self.job.id

    @property
    def notification_key(self) -> str:
        """Stored: never change it."""
        kind = "blocked" if self.is_blocked else "ended"
        return f"{self.job.arn or self.job.id}#{kind}"

    @property
    def title(self) -> str:
        """What happened, in a few words: ``orders failed after 3 attempts``."""
        if self.is_blocked:
            return blocked_job_title(self.job, self.job.batch_job_of_attempt().queue)
        return job_title(self.job)

    @property
    def facts_and_advice_text(self) -> str:
        """What is known of it, and what to change; empty if that is nothing. The sentence about
        ``reduced_memory`` may follow.
        """
        if self.is_blocked:
            facts = [self.job.status_reason or "AWS gives no reason"]
        else:
            facts = job_fact_texts(self.job, self.children, self.costs)
        remedy = remedy_for_job(self.job) if self.is_blocked_or_unattempted else None
        sentences = (facts_sentence(facts), remedy, self.retry.sentence)
        return " ".join(filter(None, sentences))
