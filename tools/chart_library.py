"""Write the chart library of the HTML report: the basic bundle of plotly.js from the npm
registry.

    python tools/chart_library.py

The bundle has the lines that the report draws, in a quarter of the size of the complete bundle. Its
licence is MIT; its first lines contain the notice. The hash below makes every download the same
file. The only change is a pair of parentheses around the library's function: without them, V8
parses it twice, which is a quarter of its start.
"""

import hashlib
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

PACKAGE = "plotly.js-basic-dist-min"
VERSION = "4.1.1"
SHA256 = "6798c7b4ded0e7dbf580d084b277880c6e858ec6dd5ddf77ee5a9ac5172deecd"
_FUNCTION_START = b"this, () => {"
_FUNCTION_END = b"return Plotly;\n}));"
BUNDLE = (
    Path(__file__).resolve().parent.parent
    / "profiler"
    / "report_page"
    / "assets"
    / "plotly-basic.min.js"
)


def main() -> None:
    """Download the package by npm and write the file."""
    with tempfile.TemporaryDirectory(prefix="npm-") as folder:
        command = ("npm", "pack", f"{PACKAGE}@{VERSION}", "--pack-destination", folder)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        (archive,) = Path(folder).glob("*.tgz")
        with tarfile.open(archive) as packed:
            member = packed.extractfile(f"package/{BUNDLE.name}")
            published = b"" if member is None else member.read()
    data = published.replace(_FUNCTION_START, b"this, (() => {").replace(
        _FUNCTION_END, b"return Plotly;\n})));"
    )
    if hashlib.sha256(data).hexdigest() != SHA256:
        sys.exit(
            f"{PACKAGE} {VERSION} is not the file that this script expects: {BUNDLE} was not "
            "changed."
        )
    BUNDLE.write_bytes(data)
    print(f"{BUNDLE}: {len(data)} bytes")


if __name__ == "__main__":
    main()
