"""A little nightly batch: makes orders, aggregates them in SQLite, compresses the result.

It stands for a real one: a phase that fills memory, one that keeps a processor busy, one that
writes to disk. Standard library only; the same rows every time.

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
_REPORT = """
    SELECT region, day, COUNT(*), COUNT(DISTINCT customer), SUM(cents), MAX(cents)
    FROM orders GROUP BY region, day ORDER BY region, day
"""
_BEST_PRODUCTS = """
    SELECT product, SUM(cents * quantity) AS revenue
    FROM orders GROUP BY product ORDER BY revenue DESC, product LIMIT 100
"""

Order = tuple[str, int, int, int, int, int]


def main() -> None:
    """Run the batch in a folder of its own, which is gone afterwards."""
    rows = _arguments().rows
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="nightly-etl-") as folder:
        _say(began, f"extracting {rows:,} orders")
        orders = list(_orders(rows))
        _say(began, "loading them into SQLite")
        database = _loaded(orders, Path(folder, "orders.sqlite"))
        _say(began, "aggregating")
        results = _aggregated(database)
        _say(began, "compressing")
        size, compressed = _compressed(orders, results, Path(folder))
        _say(began, f"done: {len(results['days'])} days and regions, {size:,} bytes became {compressed:,}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Make, aggregate and compress a day of orders.")
    parser.add_argument("--rows", type=_row_count, default=_DEFAULT_ROWS, help="how many orders (default: %(default)s)")
    return parser.parse_args()


def _row_count(text: str) -> int:
    rows = int(text)
    if rows < 1:
        raise argparse.ArgumentTypeError("at least one row is needed")
    return rows


def _say(began: float, what: str) -> None:
    print(f"[{time.monotonic() - began:6.2f} s] {what}", flush=True)


def _orders(rows: int) -> Iterator[Order]:
    source = random.Random(_SEED)
    for _ in range(rows):
        number = source.getrandbits(60)
        yield (
            _REGIONS[number % len(_REGIONS)],
            (number >> 3) % _DAYS,
            (number >> 12) % _CUSTOMERS,
            (number >> 29) % _PRODUCTS,
            99 + (number >> 42) % 20_000,
            1 + (number >> 57) % 5,
        )


def _loaded(orders: list[Order], file: Path) -> sqlite3.Connection:
    database = sqlite3.connect(file)
    database.execute(
        "CREATE TABLE orders"
        " (region TEXT, day INTEGER, customer INTEGER, product INTEGER, cents INTEGER, quantity INTEGER)"
    )
    with database:
        database.executemany("INSERT INTO orders VALUES (?, ?, ?, ?, ?, ?)", orders)
        database.execute("CREATE INDEX by_day ON orders (region, day)")
    return database


def _aggregated(database: sqlite3.Connection) -> dict[str, list[tuple[object, ...]]]:
    try:
        return {
            "days": database.execute(_REPORT).fetchall(),
            "best products": database.execute(_BEST_PRODUCTS).fetchall(),
        }
    finally:
        database.close()


def _compressed(orders: list[Order], results: dict[str, list[tuple[object, ...]]], folder: Path) -> tuple[int, int]:
    """Write results and orders as text, then compress the file; returns both sizes in bytes."""
    plain, packed = folder / "orders.jsonl", folder / "orders.jsonl.gz"
    with plain.open("w") as lines:
        lines.write(json.dumps(results) + "\n")
        lines.writelines(f"{json.dumps(order)}\n" for order in orders)
    with plain.open("rb") as source, gzip.open(packed, "wb", compresslevel=6) as target:
        shutil.copyfileobj(source, target, 1024 * 1024)
    return plain.stat().st_size, packed.stat().st_size


if __name__ == "__main__":
    main()
