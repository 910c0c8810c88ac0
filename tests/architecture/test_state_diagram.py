"""The documented diagram is drawn from the table, so the two cannot part."""

from __future__ import annotations

from service.domain.job import mermaid
from tests.architecture.source_tree import ROOT


def test_the_diagram_in_the_architecture_is_the_table() -> None:
    """To renew it: python -c "from service.domain.job import mermaid; print(mermaid())"."""
    assert f"```mermaid\n{mermaid()}\n```" in (ROOT / "ARCHITECTURE.md").read_text()
