"""The shapes of the REST API for checkpoints."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from api.schemas import Shape


class Checkpoint(Shape):
    step: int
    uri: str
    size_bytes: int
    files: int
    duration_s: float
    attempt: int
    at: datetime
    pinned: bool = Field(description="retention leaves it alone")


class Checkpoints(Shape):
    items: list[Checkpoint]


class Verified(Shape):
    """Every byte was read: `problems` name the files that are not what was written."""

    step: int
    whole: bool
    problems: list[str]
    files: int | None = None
    size_bytes: int | None = None


class ExportRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    to: str = Field(
        min_length=2, max_length=1000, pattern=r"^/[^\x00]+$", description="an absolute path where workers run"
    )
    format: Literal["safetensors", "dcp"] = "safetensors"
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    average: bool = Field(default=False, description="the average of the weights (ema_decay); dcp has it beside them")


class Exported(Shape):
    step: int
    to: str
    format: str
    files: list[str]


class CheckpointRequest(Shape):
    id: str
    job_id: str
    at: datetime
