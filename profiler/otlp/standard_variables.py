"""The variables of OpenTelemetry that ``run --otlp`` reads besides those of :mod:`profiler.otlp.otlp_settings`.

https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/
"""

from collections.abc import Mapping
from urllib.parse import unquote

from profiler.core.errors import UsageError
from profiler.otlp.otlp_export import MAX_SECONDS
from profiler.otlp.otlp_settings import Targets, read_targets

_PREFIX = "OTEL_EXPORTER_OTLP"
CERTIFICATE_SETTING = f"{_PREFIX}_CERTIFICATE"
_DEFAULT_ENDPOINT = "http://localhost:4318"
_MS_PER_SECOND = 1000


def standard_targets(environment: Mapping[str, str]) -> Targets:
    """Where the signals are exported to; not those whose exporter is ``none``. Raises UsageError."""
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
    """The time for the whole export: the variable, in milliseconds, if that is valid and less than our limit."""
    text = environment.get(f"{_PREFIX}_TIMEOUT", "").strip()
    milliseconds = int(text) if text.isascii() and text.isdigit() else 0
    return min(milliseconds / _MS_PER_SECOND or MAX_SECONDS, MAX_SECONDS)


def certificate_file(environment: Mapping[str, str]) -> str | None:
    """The file of the certificates that the server is verified with; None: those of the system."""
    return environment.get(CERTIFICATE_SETTING, "").strip() or None


def user_attributes(environment: Mapping[str, str]) -> Mapping[str, str]:
    """The attributes of the resource that the user has set. A part that is not ``name=value`` is ignored."""
    found = {}
    for part in environment.get("OTEL_RESOURCE_ATTRIBUTES", "").split(","):
        name, _, value = (unquote(text.strip()) for text in part.partition("="))
        if name and value:
            found[name] = value
    service = environment.get("OTEL_SERVICE_NAME", "").strip()
    return {**found, "service.name": service} if service else found
