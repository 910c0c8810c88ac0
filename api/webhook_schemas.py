"""The shapes of webhooks."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, ConfigDict, Field

from api.schemas import Shape
from service.domain.webhook import URL_LIMIT


class WebhookRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    url: str = Field(min_length=1, max_length=URL_LIMIT, description="a public http or https address")


class Webhook(Shape):
    id: str
    url: str
    created_at: datetime
    delivered: int = Field(description="messages that it took")
    failed: int = Field(description="messages that were given up after half a day")
    last_error: str = Field(description="why the latest try failed; empty where it did not")
    last_at: datetime | None


class NewWebhook(Webhook):
    secret: str = Field(description="what messages are signed with; this is the only answer that holds it")


class Webhooks(Shape):
    items: list[Webhook]
