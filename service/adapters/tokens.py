"""Ids and secrets."""

from __future__ import annotations

import secrets
import uuid

import uuid6


class RandomTokens:
    def new_id(self) -> str:
        """A UUIDv7: sorts by time. `uuid6` makes those of one process grow even within a millisecond."""
        return str(uuid.UUID(int=uuid6.uuid7().int))

    def secret(self) -> str:
        """256 random bits, URL-safe."""
        return secrets.token_urlsafe(32)
