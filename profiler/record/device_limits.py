"""The largest values of any GPU: those of a broken driver, or of a forged line, are above."""

from typing import Final

MAX_WATTS: Final = 5_000
MAX_MHZ: Final = 10_000
MAX_CELSIUS: Final = 199
MAX_MEMORY_BYTES = 1 << 45  # 32 TiB
