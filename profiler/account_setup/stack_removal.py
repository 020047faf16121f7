"""What stays in the account after the forwarder's stack was deleted."""

from collections.abc import Iterable, Iterator

from profiler.account_setup.stack_changes import StackEvent
from profiler.aws_account.stack_state import StackState


def remains(state: StackState, kept: Iterable[StackEvent]) -> Iterator[str]:
    """What stays, each with the command that deletes it.

    Args:
        state: The stack before its deletion.
        kept: The events of the resources that the stack left.
    """
    where = f" --region {state.region}"
    for event in kept:
        delete = (
            f": aws sqs delete-queue --queue-url {event.physical_id}{where}" if event.type == "AWS::SQS::Queue" else ""
        )
        yield f"{event.resource} ({event.physical_id if not delete else 'its messages may exist nowhere else'}){delete}"
    bucket = state.parameters.get("CodeBucket")
    if bucket:
        yield f"code and templates: aws s3 rm --recursive s3://{bucket}/task-profiler/{where}"
    for name, value in state.parameters.items():
        if name.endswith("SecretId") and value:
            parameter = value.removeprefix("ssm:")
            command = f"secretsmanager delete-secret --secret-id {value}"
            if parameter != value:
                command = f"ssm delete-parameter --name {parameter}"
            yield f"the secret {value}: aws {command}{where}"
    if state.parameters.get("ElasticsearchUrl"):
        prefix = state.parameters.get("IndexPrefix", "task")
        yield f"indices, index templates and dashboards of {prefix} in {state.parameters['ElasticsearchUrl']}"
    yield "the log groups of the batches and their monitors, with the reports"
