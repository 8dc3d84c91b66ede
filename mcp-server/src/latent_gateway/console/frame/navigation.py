"""The console's sections, and the tabs of a container."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from latent_core.domain.token import Scope
from latent_gateway.auth.principal import Principal
from latent_gateway.console.frame.rights import ContainerRights


@dataclass(frozen=True, slots=True)
class Section:
    """An entry of a navigation."""

    key: str
    """What a page names as its place (``here`` or ``tab``)."""
    label: str
    path: str


CONTAINERS: Final = Section("containers", "Containers", "/")
SEARCH: Final = Section("search", "Search", "/console/search")
ASK: Final = Section("ask", "Ask", "/console/ask")
AGENTS: Final = Section("agents", "Agents", "/console/agents")
JOBS: Final = Section("jobs", "Jobs", "/console/jobs")
API: Final = Section("api", "API", "/console/api")
OPERATIONS: Final = Section("operations", "Operations", "/console/operations")


def sections(principal: Principal, *, asks: bool = False) -> tuple[Section, ...]:
    """Only those that this token can open. ``asks``: language models are configured, so that questions may be asked."""
    found = [CONTAINERS] if Scope.READ in principal.scopes else []
    if Scope.READ in principal.scopes:
        found += [SEARCH, ASK] if asks else [SEARCH]
    found += [AGENTS, JOBS]
    if Scope.ADMIN in principal.scopes:
        found.append(OPERATIONS)
    return (*found, API)


def tabs(container_id: str, rights: ContainerRights) -> tuple[Section, ...]:
    """Of a container's pages."""
    base = f"/console/containers/{container_id}"
    found = [Section("documents", "Documents", base)] if rights.read else []
    if rights.write:
        found.append(Section("add", "Add", f"{base}/add"))
    if rights.read:
        found.append(Section("quality", "Quality", f"{base}/quality"))
    if rights.own:
        found.append(Section("queries", "Queries", f"{base}/queries"))
    if rights.read:
        found.append(Section("agents", "Agents", f"{base}/agents"))
    if rights.own:
        found.append(Section("processing", "Processing", f"{base}/processing"))
        found.append(Section("refresh", "Refresh", f"{base}/refresh"))
    if rights.read or rights.own:
        found.append(Section("settings", "Settings", f"{base}/settings"))
    return tuple(found)
