"""A small nightly batch: generates orders, aggregates them in SQLite, and compresses the result.

Like a real batch it has a phase that fills memory, one that uses CPU, and one that writes to disk.
It needs only the standard library, and generates the same rows in each run.

    python examples/nightly_etl.py --rows 1000000
"""

import argparse
import gzip
import json
import random
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

_SEED = 20261120
_DEFAULT_ROWS = 1_500_000
_REGIONS = ("eu-central", "eu-west", "us-east", "us-west", "ap-south")
_PRODUCTS = 5_000
_CUSTOMERS = 80_000
_DAYS = 365
_RESULT = "orders.jsonl.gz"
_DAILY_QUERY = """
    SELECT region, day, COUNT(*), COUNT(DISTINCT customer), SUM(cents), MAX(cents)
    FROM orders GROUP BY region, day ORDER BY region, day
"""
_BEST_PRODUCTS_QUERY = """
    SELECT product, SUM(cents * quantity) AS revenue
    FROM orders GROUP BY product ORDER BY revenue DESC, product LIMIT 100
"""

Order = tuple[str, int, int, int, int, int]


def main() -> None:
    """Run the batch in a temporary folder."""
    arguments = _arguments()
    rows: int = arguments.rows
    target: Path | None = arguments.target
    started_at = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="nightly-etl-") as folder:
        _log(started_at, f"extracting {rows:,} orders")
        orders = list(_generate_orders(rows))
        _log(started_at, "loading them into SQLite")
        database = _load(orders, Path(folder, "orders.sqlite"))
        _log(started_at, "aggregating")
        results = _aggregate(database)
        _log(started_at, "compressing")
        size, compressed = _compress(orders, results, Path(folder))
        _log(
            started_at,
            f"done: {len(results['days'])} days and regions, {size:,} bytes became {compressed:,}",
        )
        if target is not None:
            if not target.is_dir():
                raise SystemExit(f"the target {target} is no folder")
            shutil.copy(Path(folder, _RESULT), target)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Generate, aggregate and compress orders.")
    parser.add_argument(
        "--rows",
        type=_row_count,
        default=_DEFAULT_ROWS,
        help="orders to generate (default: %(default)s)",
    )
    parser.add_argument(
        "--target", type=Path, help="a folder for the compressed file (default: none)"
    )
    return parser.parse_args()


def _row_count(text: str) -> int:
    rows = int(text)
    if rows < 1:
        raise argparse.ArgumentTypeError("at least one row is needed")
    return rows


def _log(started_at: float, message: str) -> None:
    print(f"[{time.monotonic() - started_at:6.2f} s] {message}", flush=True)


def _generate_orders(rows: int) -> Iterator[Order]:
    rng = random.Random(_SEED)
    for _ in range(rows):
        number = rng.getrandbits(60)
        yield (
            _REGIONS[number % len(_REGIONS)],
            (number >> 3) % _DAYS,
            (number >> 12) % _CUSTOMERS,
            (number >> 29) % _PRODUCTS,
            99 + (number >> 42) % 20_000,
            1 + (number >> 57) % 5,
        )


def _load(orders: list[Order], file: Path) -> sqlite3.Connection:
    database = sqlite3.connect(file)
    database.execute(
        "CREATE TABLE orders (region TEXT, day INTEGER, customer INTEGER, product INTEGER, cents "
        "INTEGER, quantity INTEGER)"
    )
    with database:
        database.executemany("INSERT INTO orders VALUES (?, ?, ?, ?, ?, ?)", orders)
        database.execute("CREATE INDEX by_day ON orders (region, day)")
    return database


def _aggregate(database: sqlite3.Connection) -> dict[str, list[tuple[object, ...]]]:
    try:
        return {
            "days": database.execute(_DAILY_QUERY).fetchall(),
            "best products": database.execute(_BEST_PRODUCTS_QUERY).fetchall(),
        }
    finally:
        database.close()


def _compress(
    orders: list[Order], results: dict[str, list[tuple[object, ...]]], folder: Path
) -> tuple[int, int]:
    """Write results and orders as text, then compress the file. Returns both sizes in bytes."""
    plain_file, compressed_file = folder / "orders.jsonl", folder / _RESULT
    with plain_file.open("w") as lines:
        lines.write(json.dumps(results) + "\n")
        lines.writelines(f"{json.dumps(order)}\n" for order in orders)
    with (
        plain_file.open("rb") as source,
        gzip.open(compressed_file, "wb", compresslevel=6) as target,
    ):
        shutil.copyfileobj(source, target, 1024 * 1024)
    return plain_file.stat().st_size, compressed_file.stat().st_size


if __name__ == "__main__":
    main()
