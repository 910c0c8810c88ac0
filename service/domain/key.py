"""API keys: 256 random bits with a prefix, stored as their SHA-256; scopes say what a key may do."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

PREFIX = "ek_"


class Scope(StrEnum):
    """Each includes the ones before it."""

    READ = "read"
    SUBMIT = "submit"
    ADMIN = "admin"


_IMPLIED = {
    Scope.READ: frozenset({Scope.READ}),
    Scope.SUBMIT: frozenset({Scope.READ, Scope.SUBMIT}),
    Scope.ADMIN: frozenset(Scope),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A key without its secret; `hint` is the first characters, enough to tell keys apart. quota_slots: as many as the
    jobs that it submitted may hold together; None: no bound of its own."""

    id: str
    name: str
    hint: str
    scopes: tuple[Scope, ...]
    created_at: datetime
    quota_slots: int | None = None
    last_used_at: datetime | None = None
    revoked_at: datetime | None = None

    def allows(self, scope: Scope) -> bool:
        return self.revoked_at is None and any(scope in _IMPLIED[own] for own in self.scopes)


def secret_hash(secret: str) -> str:
    """SHA-256, hex: the secret has 256 random bits, so a slow hash would add nothing."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def parse_scopes(names: Iterable[str]) -> tuple[Scope, ...]:
    """Known scopes in order, each once; ValueError names an unknown one."""
    return tuple(sorted({Scope(name) for name in names}, key=list(Scope).index))


def quotas_of(keys: Iterable[ApiKey]) -> Mapping[str, int]:
    """Key -> slots, of those that have a quota; the jobs of a revoked key still count against it."""
    return {key.id: key.quota_slots for key in keys if key.quota_slots is not None}
