"""Write the chart library of the HTML report: the cartesian bundle of plotly.js, unchanged, from the npm registry.

    python tools/chart_library.py

The bundle has the chart types that the report uses, in a third of the size of the complete bundle. Its licence is MIT;
its first lines contain the notice. The hash below makes every download the same file.
"""

import hashlib
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

PACKAGE, VERSION = "plotly.js-cartesian-dist-min", "4.1.1"
SHA256 = "79542150855a52c567260e3137095dbe2b744e6d702a5cabe67da246942fba7a"
BUNDLE = Path(__file__).resolve().parent.parent / "profiler" / "html_report" / "assets" / "plotly-cartesian.min.js"


def main() -> None:
    """Download the package by npm and write the file."""
    with tempfile.TemporaryDirectory(prefix="npm-") as folder:
        command = ("npm", "pack", f"{PACKAGE}@{VERSION}", "--pack-destination", folder)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        (archive,) = Path(folder).glob("*.tgz")
        with tarfile.open(archive) as packed:
            member = packed.extractfile(f"package/{BUNDLE.name}")
            data = b"" if member is None else member.read()
    if hashlib.sha256(data).hexdigest() != SHA256:
        sys.exit(f"{PACKAGE} {VERSION} is not the file that this script expects: {BUNDLE} was not changed.")
    BUNDLE.write_bytes(data)
    print(f"{BUNDLE}: {len(data)} bytes")


if __name__ == "__main__":
    main()
