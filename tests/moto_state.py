"""The state of moto at a moment, which a test goes back to instead of building it again."""

from copy import deepcopy
from typing import Any

from moto.core.base_backend import BackendDict


class KeptState:
    """What all services in use have when this is made."""

    def __init__(self) -> None:
        self._services = list[Any](BackendDict._instances)  # type: ignore[misc]  # of all services
        # One copy, because services share objects.
        self._kept = deepcopy([_accounts(service) for service in self._services])

    def restore(self) -> None:
        """Begin again with a copy of it. The services that were used since then become empty."""
        BackendDict.reset()
        for service, accounts in zip(self._services, deepcopy(self._kept), strict=True):
            for account, regions in accounts.items():
                service[account].update(regions)


def _accounts(service: Any) -> dict[str, dict[str, Any]]:
    return {account: dict(regions) for account, regions in service.items()}
