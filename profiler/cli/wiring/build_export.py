"""Exports a local run by OpenTelemetry's protocol. This module is imported when the command has ended."""

import random
from collections.abc import Mapping

from profiler.core.clock import Clock
from profiler.local_run.prepared_run import is_asked_to_stop
from profiler.otlp.http_transport import HttpTransport
from profiler.otlp.otlp_encoding import Message, Signal
from profiler.otlp.otlp_export import OtlpExporter, export_in_time
from profiler.otlp.otlp_settings import Targets
from profiler.otlp.run_signals import ExportedRun, signals_of
from profiler.otlp.standard_variables import (
    CERTIFICATE_SETTING,
    certificate_file,
    max_export_seconds,
    standard_targets,
    user_attributes,
)
from profiler.record.record_model import Record


def export_run(record: Record, environment: Mapping[str, str], clock: Clock) -> str | None:
    """Export the run as the variables of OpenTelemetry say; returns sentences about what was not exported."""

    def prepare() -> tuple[Targets, Mapping[Signal, Message]]:
        run = ExportedRun(
            record=record,
            context=environment,
            resource=user_attributes(environment),
            part=record.started_at or "",  # in ECS, all commands of a task have its id
            observed_ns=clock.wall_ns(),
        )
        return standard_targets(environment), signals_of(run)

    transport = HttpTransport(certificate_file(environment), ca_setting=CERTIFICATE_SETTING)
    exporter = OtlpExporter(transport, clock, jitter=random.random)
    return export_in_time(prepare, exporter, max_export_seconds(environment), is_asked_to_stop)
