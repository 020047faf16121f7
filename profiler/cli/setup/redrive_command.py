"""``task-profiler setup redrive``: sends the events that failed to the forwarder's functions again."""

import click

from profiler.cli.options import aws_options
from profiler.cli.printing import warn
from profiler.cli.setup.stack_command import DEFAULT_STACK, stack_name
from profiler.cli.wiring.aws_options import open_clients
from profiler.core.clock import SystemClock
from profiler.core.timestamps import NS_PER_MS
from profiler.record.units import format_count

_FUNCTIONS = ("ForwardLogs", "TaskStopped")
_PERMISSIONS = (
    "sqs:ReceiveMessage, DeleteMessage and ChangeMessageVisibility, lambda:InvokeFunction, kinesis:GetShardIterator "
    "and GetRecords"
)


@click.command("redrive", epilog="Example: task-profiler setup redrive --region eu-west-1")
@click.option(
    "--name",
    default=DEFAULT_STACK,
    show_default=True,
    metavar="STACK",
    callback=stack_name,
    help="Stack of the queues.",
)
@aws_options
def redrive_(*, name: str, region: str | None, profile: str | None) -> int:
    """Send failed events to the forwarder's functions again.

    They are in the dead-letter queues of its stack. Repeating the command does no harm.
    """
    from profiler.account_setup.dead_letters import redrive  # slow to import, as the next ones
    from profiler.aws_account.aws_errors import aws_errors
    from profiler.aws_account.deployed_forwarder import DeployedStack

    open_client, clock = open_clients(region, profile), SystemClock()
    outputs = DeployedStack(name, open_client, clock).stack().outputs
    code = 0
    if not any(f"{title}DeadLetterQueueUrl" in outputs for title in _FUNCTIONS):
        click.echo(f"The stack {name} has no dead-letter queue: nothing to send.")
    for title in _FUNCTIONS:
        queue, function = (outputs.get(f"{title}{output}") for output in ("DeadLetterQueueUrl", "FunctionName"))
        if queue is None or function is None:
            continue
        with aws_errors(f"The events for {function} were not all sent, and the rest is in the queue", _PERMISSIONS):
            sqs, functions, kinesis = (open_client(service) for service in ("sqs", "lambda", "kinesis"))
            sent, reasons = redrive(sqs, functions, kinesis, queue, function, now_ms=clock.wall_ns() / NS_PER_MS)
        click.echo(f"Sent {format_count(sent, 'event')} to {function} again.")
        for sentence in reasons:
            warn(f"{sentence} It is still in the queue.")
            code = 1
    return code
