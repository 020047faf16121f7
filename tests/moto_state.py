"""The state of moto at a moment, which a test goes back to instead of building it again."""

from copy import deepcopy
from copyreg import dispatch_table
from threading import RLock
from typing import Any
from unittest.mock import patch

from moto.core.base_backend import BackendDict


class KeptState:
    """What all services in use have when this is made."""

    def __init__(self) -> None:
        self._services = list[Any](BackendDict._instances)  # type: ignore[misc]  # of all services
        # One copy, because services share objects.
        self._kept = _copied([_accounts(service) for service in self._services])

    def restore(self) -> None:
        """Begin again with a copy of it. The services that were used since then become empty."""
        BackendDict.reset()
        for service, accounts in zip(self._services, _copied(self._kept), strict=True):
            for account, regions in accounts.items():
                service[account].update(regions)


def _accounts(service: Any) -> dict[str, dict[str, Any]]:
    return {account: dict(regions) for account, regions in service.items()}


def _copied(state: list[Any]) -> list[Any]:
    """A copy with new locks, because a lock cannot be copied."""
    with patch.dict(dispatch_table, {type(RLock()): lambda _lock: (RLock, ())}):
        return deepcopy(state)
