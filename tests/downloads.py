"""Fetch what the tests of real containers and search servers need, before they ask for it.

python -m tests.downloads
"""

from tests.e2e.images import NATIVE, default_cache, root_file_system
from tools.search_engines import VERSION_7, VERSION_8, fetch_elasticsearch, fetch_opensearch


def main() -> None:
    root_file_system(default_cache(), NATIVE)
    for version in (VERSION_7, VERSION_8):
        fetch_elasticsearch(version)
    fetch_opensearch()


if __name__ == "__main__":
    main()
