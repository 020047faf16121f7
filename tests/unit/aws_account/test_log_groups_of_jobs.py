"""What is said of the log group of AWS Batch where no job has logged."""

from profiler.aws_account.clusters_and_log_groups import missing_log_group_error
from profiler.core.ecs_terms import BATCH_LOG_GROUP
from tools.moto_server import fake_aws


def test_a_missing_log_group_of_jobs_leads_to_the_jobs_own() -> None:
    with fake_aws() as aws:
        sentence = str(missing_log_group_error(aws.client, BATCH_LOG_GROUP))
        other = str(missing_log_group_error(aws.client, "/ecs/none"))
    assert "so no job has logged there: check --region and --profile" in sentence
    assert "task-profiler doctor JOB-ID." in sentence
    assert "doctor" not in other
