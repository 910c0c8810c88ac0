"""API keys: made, listed, revoked, checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from service.domain.errors import Forbidden, Problem, RequestRefused, Unauthenticated
from service.domain.key import PREFIX, ApiKey, Scope, parse_scopes, secret_hash
from service.ports import Clock, Database, Tokens

QUOTA_LIMIT = 1_000_000
_TOUCH_EVERY = timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewKey:
    """The only time the secret is seen."""

    key: ApiKey
    secret: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    database: Database
    clock: Clock
    tokens: Tokens
    _touched: dict[str, datetime] = field(default_factory=dict)

    async def create(self, name: str, scopes: Sequence[str], *, quota_slots: int | None = None) -> NewKey:
        """Raises RequestRefused for an unknown scope, a bad name or quota."""
        _check_quota(quota_slots)
        parsed = _scopes(scopes)
        if not (1 <= len(name) <= 100 and name.isprintable()):
            fix = "use 1 to 100 printable characters"
            raise RequestRefused([Problem(field="name", value=name[:50], problem="not a legal name", fix=fix)])
        secret = PREFIX + self.tokens.secret()
        key = ApiKey(
            id=self.tokens.new_id(),
            name=name,
            hint=secret[: len(PREFIX) + 6],
            scopes=parsed,
            created_at=self.clock.now(),
            quota_slots=quota_slots,
        )
        async with self.database.write() as work:
            await work.keys.add(key, secret_hash(secret))
            await work.commit()
        return NewKey(key=key, secret=secret)

    async def list(self) -> tuple[ApiKey, ...]:
        async with self.database.read() as work:
            return await work.keys.all()

    async def exist(self) -> bool:
        """Whether any key was ever created: then every call needs one. Revoking the last must not open the door."""
        return bool(await self.list())

    async def revoke(self, key_id: str) -> ApiKey:
        """Idempotent. Raises KeyNotFound."""
        async with self.database.write() as work:
            key = await work.keys.revoke(key_id, self.clock.now())
            await work.commit()
        return key

    async def limit(self, key_id: str, slots: int | None) -> ApiKey:
        """How many slots its jobs may hold together, from the next look of the reconciler on; None: no bound.
        Raises RequestRefused, KeyNotFound."""
        _check_quota(slots)
        async with self.database.write() as work:
            key = await work.keys.limit(key_id, slots)
            await work.commit()
        return key

    async def verify(self, secret: str | None, *, scope: Scope = Scope.READ) -> ApiKey:
        """The key behind a secret. Raises Unauthenticated, Forbidden.

        The look-up is by SHA-256 of 256 random bits: its timing tells nothing about another key's secret.
        """
        if secret is None or not secret.startswith(PREFIX) or len(secret) > 200:
            raise Unauthenticated()
        async with self.database.read() as work:
            key = await work.keys.by_hash(secret_hash(secret))
        if key is None or key.revoked_at is not None:
            raise Unauthenticated()
        if not key.allows(scope):
            raise Forbidden(needs=scope, has=[str(own) for own in key.scopes])
        await self._touch(key)
        return key

    async def _touch(self, key: ApiKey) -> None:
        """`last_used_at`, at most once a minute: a read must not cost a write."""
        now = self.clock.now()
        if now - self._touched.get(key.id, key.created_at - _TOUCH_EVERY) < _TOUCH_EVERY:
            return
        self._touched[key.id] = now
        async with self.database.write() as work:
            await work.keys.touch(key.id, now)
            await work.commit()


def _check_quota(slots: int | None) -> None:
    if slots is not None and not 0 <= slots <= QUOTA_LIMIT:
        fix = f"use 0 to {QUOTA_LIMIT}, or null for no bound"
        raise RequestRefused([Problem(field="quota_slots", value=slots, problem="out of range", fix=fix)])


def _scopes(names: Sequence[str]) -> tuple[Scope, ...]:
    try:
        parsed = parse_scopes(names)
    except ValueError:
        parsed = ()
    if not parsed:
        fix = f"use one or more of {', '.join(Scope)}"
        raise RequestRefused([Problem(field="scopes", value=list(names)[:10], problem="unknown or none", fix=fix)])
    return parsed
