"""Secrets in command lines, log lines and sentences are masked.

What announces a secret: its name (``secret_names``, in the notations of ``secret_settings``), the
program whose argument it is (``secret_programs``, read by ``secret_arguments``), or its own form
(``secret_forms``). ``secret_values`` tells where a value ends, and whether it is one; ``masking``
asks them all.
"""

from profiler.core.redaction.masking import redact, redact_line, without_credentials

__all__ = ("redact", "redact_line", "without_credentials")
