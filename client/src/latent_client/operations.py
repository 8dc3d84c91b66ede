"""Calls for operators: the state of the installation, its settings, providers, and tests of models."""

from __future__ import annotations

from typing import Final

from latent_client.transport import ClientCalls
from latent_core.wire.operations import (
    ModelTestAnswer,
    ProviderList,
    ProviderView,
    SettingList,
    StatusAnswer,
)

MODEL_TEST_SECONDS: Final = 660.0


class OperationCalls(ClientCalls):
    """For tokens of the whole installation with scope admin."""

    async def status(self) -> StatusAnswer:
        """Services, queue, workers, disk and scheduled backups."""
        return await self._transport.ask(StatusAnswer, "GET", "/v1/admin/status")

    async def settings(self) -> SettingList:
        """The gateway's settings in force, each with its source; secrets are masked."""
        return await self._transport.ask(SettingList, "GET", "/v1/admin/settings")

    async def providers(self) -> list[ProviderView]:
        """The servers of models that the gateway knows."""
        answer = await self._transport.ask(ProviderList, "GET", "/v1/admin/providers")
        return answer.providers

    async def test_model(self, model: str, *, language_model: bool = False) -> ModelTestAnswer:
        """Measure a model from the gateway. Raises ``Conflict`` while another one is measured there."""
        body = {"model": model, "language_model": language_model}
        return await self._transport.ask(
            ModelTestAnswer,
            "POST",
            "/v1/admin/model-test",
            json=body,
            read_seconds=MODEL_TEST_SECONDS,
        )
