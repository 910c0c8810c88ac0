"""Settings: from the environment, once, and what follows from them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from service.settings import Settings, inherited_environment, ray_token


def test_settings_come_from_the_environment_and_from_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELASTANE_HOME", "~/somewhere")
    monkeypatch.setenv("ELASTANE_PORT", "9000")
    settings = Settings(host="127.0.0.1")
    assert settings.home == Path.home() / "somewhere"
    assert settings.service_url == "http://127.0.0.1:9000"
    assert Settings(port=9001).port == 9001


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("0.0.0.0", "http://127.0.0.1:8000"),
        ("::", "http://127.0.0.1:8000"),
        ("localhost", "http://127.0.0.1:8000"),
        ("::1", "http://[::1]:8000"),
        ("10.0.0.5", "http://10.0.0.5:8000"),
    ],
)
def test_controllers_are_told_an_address_that_they_can_reach(host: str, url: str) -> None:
    assert Settings(host=host).service_url == url
    assert Settings(host=host, public_url="https://e.example").service_url == "https://e.example"


def test_without_a_database_url_the_home_has_a_file() -> None:
    assert Settings(home=Path("/h")).resolved_database_url == "sqlite:////h/elastane.db"
    assert Settings(database_url="postgresql://x").resolved_database_url == "postgresql://x"


@pytest.mark.parametrize("fields", [{"port": 70000}, {"slots": 0}, {"tick_s": 0}, {"slots": 10**6}])
def test_impossible_settings_are_refused(fields: dict[str, int]) -> None:
    with pytest.raises(ValidationError):
        Settings.model_validate(fields)


def test_what_is_started_inherits_all_but_the_services_own_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ELASTANE_DATABASE_URL", "ELASTANE_API_KEY", "ELASTANE_HOME"):
        monkeypatch.setenv(name, "of-a-test")
    assert [name for name, value in inherited_environment().items() if value == "of-a-test"] == ["ELASTANE_HOME"]


def test_secrets_are_in_the_home_unless_another_folder_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings(home=Path("/h")).secrets == Path("/h/secrets")
    monkeypatch.setenv("ELASTANE_SECRETS_FOLDER", "/run/secrets")
    assert Settings(home=Path("/h")).secrets == Path("/run/secrets")


def test_a_cluster_s_token_is_found_where_ray_looks_for_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))
    assert ray_token() is None
    (tmp_path / "token").write_text("abc\n")
    assert ray_token() == "abc"
    monkeypatch.setenv("RAY_AUTH_TOKEN", "direct")
    assert ray_token() == "direct"
