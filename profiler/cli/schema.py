"""``task-profiler schema``: the record's JSON Schema."""

import json

import click

from profiler.record.model import json_schema


@click.command("schema", epilog="Example: task-profiler schema > task-report.schema.json")
def command() -> None:
    """Print the JSON Schema of the record."""
    click.echo(json.dumps(json_schema(), indent=2))
