"""The messages with which runtimes say that they could not get more memory."""

import re
from collections.abc import Iterable

# A runtime has limits of its own, below that of the container: a heap size, RLIMIT_AS, a cgroup inside. No meter sees
# them, so only the program's own words are evidence.
_MESSAGES = re.compile(
    r"\bMemoryError\b"  # Python
    r"|\bjava\.lang\.OutOfMemoryError\b"
    r"|\bJavaScript heap out of memory\b"  # Node.js
    r"|\bstd::bad_alloc\b"  # C++
    r"|\bSystem\.OutOfMemoryException\b"  # .NET
    r"|\bNoMemoryError\b"  # Ruby
    r"|\bruntime: out of memory\b"  # Go
    r"|\bmemory allocation of \d+ bytes failed\b"  # Rust
    r"|\bAllowed memory size of \d+ bytes exhausted\b"  # PHP
    r"|\bcannot allocate vector of size\b"  # R
    r"|\bCannot allocate memory\b"  # ENOMEM
)


def out_of_memory_message(lines: Iterable[str]) -> str | None:
    """The last line in which a runtime says that it ran out of memory; None without one."""
    messages = [text.strip() for text in lines if _MESSAGES.search(text)]
    return messages[-1] if messages else None
