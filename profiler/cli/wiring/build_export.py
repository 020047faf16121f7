"""Exports a local run by OpenTelemetry's protocol, after the command has ended."""

import random
from collections.abc import Mapping
from urllib.parse import unquote

from profiler.core.clock import Clock
from profiler.core.errors import UsageError
from profiler.local_run.prepared_run import is_asked_to_stop
from profiler.otlp.otlp_encoding import Message, Signal
from profiler.otlp.otlp_export import MAX_SECONDS, HttpTransport, OtlpExporter, export_in_time
from profiler.otlp.otlp_settings import Targets, read_targets
from profiler.otlp.run_signals import ExportedRun, signals_of
from profiler.record.record_model import Record

# https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/
_PREFIX = "OTEL_EXPORTER_OTLP"
CERTIFICATE_SETTING = f"{_PREFIX}_CERTIFICATE"
_DEFAULT_ENDPOINT = "http://localhost:4318"


def export_run(record: Record, environment: Mapping[str, str], clock: Clock) -> str | None:
    """Export the run with the settings of OpenTelemetry's variables; returns sentences about
    failures.
    """

    def prepare() -> tuple[Targets, Mapping[Signal, Message]]:
        run = ExportedRun(
            record=record,
            context=environment,
            resource=user_attributes(environment),
            part=record.started_at or "",  # in ECS, all commands of a task have its id
            observed_ns=clock.wall_ns(),
        )
        return targets_of_variables(environment), signals_of(run)

    certificates = environment.get(CERTIFICATE_SETTING, "").strip() or None  # None: the system's
    transport = HttpTransport(certificates, ca_setting=CERTIFICATE_SETTING)
    exporter = OtlpExporter(transport, clock, jitter=random.random)
    return export_in_time(prepare, exporter, max_export_seconds(environment), is_asked_to_stop)


def targets_of_variables(environment: Mapping[str, str]) -> Targets:
    """The targets of the signals, without signals whose exporter is ``none``. Raises UsageError."""
    try:
        targets = read_targets(environment, prefix=_PREFIX, default_endpoint=_DEFAULT_ENDPOINT)
    except UsageError as error:
        raise UsageError(f"The run was not exported: {error}") from error
    return {
        signal: target
        for signal, target in targets.items()
        if environment.get(f"OTEL_{signal.upper()}_EXPORTER", "").strip().lower() != "none"
    }


def max_export_seconds(environment: Mapping[str, str]) -> float:
    """The time for the whole export: the variable, in milliseconds, if that is valid and less
    than our limit.
    """
    text = environment.get(f"{_PREFIX}_TIMEOUT", "").strip()
    if not (text.isascii() and text.isdigit()):
        return MAX_SECONDS
    return min(int(text) / 1000 or MAX_SECONDS, MAX_SECONDS)


def user_attributes(environment: Mapping[str, str]) -> Mapping[str, str]:
    """The attributes of the resource that the user has set.

    A part that is not ``name=value`` is ignored.
    """
    attributes = {}
    for part in environment.get("OTEL_RESOURCE_ATTRIBUTES", "").split(","):
        name, _, value = (unquote(text.strip()) for text in part.partition("="))
        if name and value:
            attributes[name] = value
    service = environment.get("OTEL_SERVICE_NAME", "").strip()
    if service:
        attributes["service.name"] = service
    return attributes
