"""`elastane keys --local`: the keys straight in the service's database, for when no admin key is left."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self, TypeVar

from api import schemas
from api.client import Refused
from api.problems import problem_of
from service.domain.errors import ElastaneError
from service.keys import Keys
from service.settings import Settings
from service.wiring import keys_of

Json = dict[str, Any]
Answer = TypeVar("Answer")


class LocalKeys:
    """The calls of `ElastaneClient` about keys, with the same answers and refusals."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Each call closes what it opened."""

    def create_key(self, *, name: str, scopes: list[str], quota_slots: int | None = None) -> Json:
        made = self._run(lambda keys: keys.create(name, scopes, quota_slots=quota_slots))
        key = schemas.Key.model_validate(made.key)
        return schemas.NewKey(**key.model_dump(), key=made.secret).model_dump(mode="json")

    def keys(self) -> Json:
        found = self._run(lambda keys: keys.list())
        return {"items": [schemas.Key.model_validate(key).model_dump(mode="json") for key in found]}

    def limit_key(self, key_id: str, slots: int | None) -> Json:
        key = self._run(lambda keys: keys.limit(key_id, slots))
        return schemas.Key.model_validate(key).model_dump(mode="json")

    def revoke_key(self, key_id: str) -> None:
        self._run(lambda keys: keys.revoke(key_id))

    def _run(self, act: Callable[[Keys], Awaitable[Answer]]) -> Answer:
        async def acted() -> Answer:
            async with keys_of(self._settings) as keys:
                return await act(keys)

        try:
            return asyncio.run(acted())
        except ElastaneError as error:
            problem = problem_of(error)
            errors = [part.model_dump() for part in problem.errors]
            raise Refused(
                {"title": problem.title, "status": problem.status, "detail": problem.detail, "errors": errors}
            ) from None
