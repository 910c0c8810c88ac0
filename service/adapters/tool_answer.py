"""What a command of the data plane says: one JSON document, perhaps after lines of others."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from service.domain.errors import ToolUnavailable


def answer_in(output: str) -> Mapping[str, Any]:
    """The document that begins at the last line which begins one. Raises ToolUnavailable where there is none."""
    lines = output.splitlines(keepends=True)
    for index in reversed(range(len(lines))):
        if lines[index].startswith("{"):
            try:
                document, _ = json.JSONDecoder().raw_decode("".join(lines[index:]))
            except ValueError:
                continue
            if isinstance(document, dict):
                return document
    raise ToolUnavailable(f"it answered {output[-300:]!r}")
