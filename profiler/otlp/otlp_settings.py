"""Where and how signals are exported, from environment variables.

The forwarder reads ``OTLP_ENDPOINT``, ``OTLP_HEADERS``, …; ``run`` reads the variables of
OpenTelemetry, such as ``OTEL_EXPORTER_OTLP_ENDPOINT``, which differ in the prefix alone.
https://opentelemetry.io/docs/specs/otel/protocol/exporter/
"""

import re
from collections.abc import Mapping
from typing import TypeVar
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from profiler.core.errors import UsageError
from profiler.core.optional_math import known_members
from profiler.core.text import listed
from profiler.otlp.otlp_encoding import SIGNALS, Protocol, Signal

_Choice = TypeVar("_Choice")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\xa0-\xff]*")
_PROTOCOLS: Mapping[str, Protocol] = {"http/protobuf": "http/protobuf", "http/json": "http/json"}
_COMPRESSIONS = {"gzip": True, "none": False}
_DEFAULT_PROTOCOL: Protocol = "http/protobuf"
_AWS_SERVICES: Mapping[Signal, str] = {"traces": "xray", "logs": "logs", "metrics": "monitoring"}
# A host of CloudWatch or of its VPC endpoint: the part before the service, the service, the Region,
# the rest.
_AWS_HOST = re.compile(
    r"(?P<before>(?:[a-z0-9-]+\.)*)(?P<service>xray|logs|monitoring)\.(?P<region>[a-z0-9-]+)"
    r"(?P<after>(?:\.vpce)?\.(?:amazonaws\.[a-z.]+|api\.aws)(?::\d+)?)",
    re.ASCII,
)


class AwsService(Struct, frozen=True, kw_only=True):
    """The service and the Region that a request is signed for."""

    name: str
    region: str


class ExportTarget(Struct, frozen=True, kw_only=True):
    """Where one signal is exported to. ``setting`` is the variable with the address."""

    url: str
    setting: str
    headers: tuple[tuple[str, str], ...] = ()
    protocol: Protocol = _DEFAULT_PROTOCOL
    is_compressed: bool = True
    aws: AwsService | None = None

    def __repr__(self) -> str:
        """The setting alone: the address and the headers may contain secrets."""
        return f"Target({self.setting})"


Targets = Mapping[Signal, ExportTarget]


def is_configured(environment: Mapping[str, str], prefix: str = "OTLP") -> bool:
    """Whether any address is set."""
    names = (f"{prefix}_ENDPOINT", *(f"{prefix}_{signal.upper()}_ENDPOINT" for signal in SIGNALS))
    return any(environment.get(name, "").strip() for name in names)


def read_targets(
    environment: Mapping[str, str],
    *,
    prefix: str = "OTLP",
    default_endpoint: str | None = None,  # the address if none is set
    signs_for_aws: bool = False,
) -> Targets:
    """Read the targets of the signals with an address.

    Raises UsageError, which names the variable, never its value.
    """
    reader = _VariableReader(environment, prefix)
    default = None
    if not is_configured(environment, prefix):
        default = default_endpoint
    targets = {
        signal: reader.target(signal, default, signs_for_aws=signs_for_aws) for signal in SIGNALS
    }
    return known_members(targets)


def parse_headers(text: str, setting: str) -> tuple[tuple[str, str], ...]:
    """Parse ``name=value,name=value`` with percent-encoded values.

    Raises UsageError, without a value.
    """
    headers: list[tuple[str, str]] = []
    for item in text.split(","):
        name, equals, value = (part.strip() for part in item.partition("="))
        if not item.strip():
            continue
        decoded = unquote(value).strip()
        if not equals or not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(decoded):
            raise UsageError(
                f"{setting} is not a list of headers: write name=value,name=value, with "
                "percent-encoded values."
            )
        headers.append((name, decoded))
    return tuple(headers)


def check_is_of_all_signals(url: str, setting: str) -> None:
    """Raise UsageError for the address of one signal, to which nothing could be sent."""
    for signal in SIGNALS:
        ending = f"/v1/{signal}"
        if urlsplit(url).path.rstrip("/").endswith(ending):
            raise UsageError(f"{setting} ends in {ending}, which is added to it: leave that out.")


class _VariableReader(Struct):
    """Reads variables; a variable of one signal takes precedence over the variable of all
    signals.
    """

    _environment: Mapping[str, str]
    _prefix: str

    def target(
        self, signal: Signal, default: str | None, *, signs_for_aws: bool
    ) -> ExportTarget | None:
        """Where a signal goes, and how; None without an address. Raises UsageError."""
        url, setting = self._signal_value(signal, "ENDPOINT")
        url = url or default or ""
        is_own = setting != f"{self._prefix}_ENDPOINT"
        if not url:
            return None
        _check_address_form(url, setting)
        if not is_own:
            check_is_of_all_signals(url, setting)
            parts = urlsplit(url)
            url = parts._replace(path=f"{parts.path.rstrip('/')}/v1/{signal}").geturl()
        aws = None
        if signs_for_aws:
            url, aws = _aws_address(signal, url, setting, is_own=is_own)
        headers_text, headers_setting = self._signal_value(signal, "HEADERS")
        return ExportTarget(
            url=url,
            setting=setting,
            headers=parse_headers(headers_text, headers_setting),
            protocol=self._read_choice(signal, "PROTOCOL", _PROTOCOLS, _DEFAULT_PROTOCOL),
            is_compressed=self._read_choice(signal, "COMPRESSION", _COMPRESSIONS, "gzip"),
            aws=aws,
        )

    def _signal_value(self, signal: Signal, name: str) -> tuple[str, str]:
        """The value and the name of the variable that it is from."""
        own = f"{self._prefix}_{signal.upper()}_{name}"
        common = f"{self._prefix}_{name}"
        used = own if self._environment.get(own, "").strip() else common
        return self._environment.get(used, "").strip(), used

    def _read_choice(
        self, signal: Signal, name: str, choices: Mapping[str, _Choice], default: str
    ) -> _Choice:
        value, setting = self._signal_value(signal, name)
        if (value or default).lower() not in choices:
            raise UsageError(f"{setting} must be {listed(choices, 'or')}.")
        return choices[(value or default).lower()]


def _check_address_form(url: str, setting: str) -> None:
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_usable = False
    if not is_usable or not url.isascii() or not url.isprintable() or " " in url:
        raise UsageError(f"{setting} must be an address that begins with https:// or http://.")
    if "@" in parts.netloc:
        raise UsageError(f"{setting} contains a user: put credentials into the headers.")


def _aws_address(signal: Signal, url: str, setting: str, *, is_own: bool) -> tuple[str, AwsService]:
    """The address at CloudWatch, which has a host for each signal, and the service and Region of
    the signature.
    """
    parts = urlsplit(url)
    match = _AWS_HOST.fullmatch(parts.netloc.lower())
    if not match:
        raise UsageError(
            f"{setting} is not an address of CloudWatch, which OTLP_AWS_AUTH signs for: write, "
            "for example, https://xray.REGION.amazonaws.com."
        )
    # The name of a VPC endpoint belongs to one service.
    if is_own or match["before"]:
        service = match["service"]
    else:
        service = _AWS_SERVICES[signal]
    host = f"{match['before']}{service}.{match['region']}{match['after']}"
    return parts._replace(netloc=host).geturl(), AwsService(name=service, region=match["region"])
