"""Settings of one process, from ELASTANE_* and the command line; parsed once and passed down."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import Field, IPvAnyNetwork, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from service.domain.cluster import SlotKind


class Settings(BaseSettings):
    """`ELASTANE_HOME`, `ELASTANE_PORT` and so on. In the control plane only this file reads the environment:
    a process that it starts inherits all of it, and a cluster's token is where Ray keeps it."""

    model_config = SettingsConfigDict(env_prefix="ELASTANE_", frozen=True, extra="ignore")

    home: Path = Field(default_factory=lambda: Path.home() / ".elastane")
    # What relative paths of a spec start from, where the workers are on this machine.
    folder: Path = Field(default_factory=Path.cwd)
    host: str = "127.0.0.1"
    port: int = Field(8000, ge=0, le=65535)
    # None: SQLite in the home. postgresql://user:password@host/database for a server.
    database_url: str | None = None
    # None: a local Ray of the service's own. ray://... is not needed: controllers run inside the cluster.
    ray_address: str | None = None
    # Slots that the cluster's autoscaler may reach, and their kind: an empty pool shows neither. None: there is none.
    max_slots: int | None = Field(None, ge=1)
    slot_kind: SlotKind | None = None
    # A node that takes longer than this to come is not counted on for a while.
    launch_patience_s: float = Field(900.0, gt=0)
    # Where workers of a cluster reach this service; loopback is right for the embedded Ray only.
    public_url: str | None = None
    # Worker slots of the embedded Ray; None: one per GPU, else 4.
    slots: int | None = Field(None, ge=1, le=1024)
    checkpoint_uri: str | None = None
    # On the machines of the workers: a file for each secret that specs may name. None: `secrets` in the home.
    secrets_folder: Path | None = None
    insecure: bool = False
    # Calls of one API key, or of one address where none is asked for; loopback without keys is not counted.
    rate_per_minute: int = Field(6000, ge=1)
    rate_burst: int = Field(1000, ge=1)
    # Networks beyond the public addresses that webhooks may reach: ["10.0.0.0/8"].
    webhook_networks: tuple[IPvAnyNetwork, ...] = ()
    # Base address of an OTLP collector over HTTP (http://127.0.0.1:4318) that traces of requests are sent to.
    traces_to: str | None = None
    tick_s: float = Field(1.0, gt=0, le=60)
    leave_timeout_s: float = Field(18.0, ge=0, le=600)
    orphan_timeout_s: float = Field(600.0, gt=0)
    # The embedded Ray ends by itself when no service has been there for so long.
    ray_orphan_timeout_s: float = Field(900.0, gt=0)
    retained_notices: int = Field(20_000, ge=100)
    # Of each job, until it is so many days past its end: then lines and log files go, and charts keep 2,000 points.
    retained_days: float = Field(90.0, gt=0)
    retained_log_lines: int = Field(100_000, ge=100)
    retained_events: int = Field(10_000, ge=100)
    retained_samples: int = Field(50_000, ge=100)  # of each series; thinned beyond that, extremes stay

    @field_validator("home", "folder", "secrets_folder")
    @classmethod
    def _absolute(cls, folder: Path | None) -> Path | None:
        return None if folder is None else folder.expanduser().absolute()

    @property
    def embedded(self) -> bool:
        """Whether the service brings its own Ray."""
        return self.ray_address is None

    @property
    def sqlite_path(self) -> Path:
        return self.home / "elastane.db"

    @property
    def resolved_database_url(self) -> str:
        return self.database_url or f"sqlite:///{self.sqlite_path}"

    @property
    def checkpoints(self) -> str:
        return self.checkpoint_uri or str(self.home / "checkpoints")

    @property
    def secrets(self) -> Path:
        return self.secrets_folder or self.home / "secrets"

    @property
    def service_url(self) -> str:
        """Where controllers send their heartbeats."""
        host = "127.0.0.1" if self.host in ("0.0.0.0", "::", "localhost") else self.host
        return self.public_url or f"http://{f'[{host}]' if ':' in host else host}:{self.port}"


# Code of a user's may print all that it finds in its environment, and whoever may read a job reads that.
_NOT_INHERITED = {"ELASTANE_DATABASE_URL", "ELASTANE_API_KEY"}


def inherited_environment() -> dict[str, str]:
    """What a process that this one starts inherits, to be added to."""
    return {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}


def ray_token() -> str | None:
    """The token of a cluster that asks for one, where Ray itself looks for it."""
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
    if token := os.environ.get("RAY_AUTH_TOKEN"):
        return token
    return path.read_text().strip() if path.is_file() else None
