"""The local history of runs, in an SQLite database."""
