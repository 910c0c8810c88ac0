"""Secrets in what leaves a worker: each value, in the forms in which programs print it, becomes a mask.

It hides what is printed by accident; code that means to tell (letter by letter, encoded) is not stopped by it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, TextIO
from urllib.parse import quote

from workers.worker.messages import Report

MASK = "***"
# Of a value that was cut off: fewer characters give nothing away, and would be found in innocent words.
SHORTEST = 8
# Fields of reports in which somebody's own words may be.
WORDS = {"text", "reason", "error"}


class Redactor:
    """Any thread may clean; `hide` belongs to the thread that resolves secrets, before code of the user's runs."""

    def __init__(self) -> None:
        self._forms: tuple[str, ...] = ()

    def hide(self, secret: str) -> None:
        """A secret of several lines is printed line by line: each is one."""
        values = {secret, *(line for line in secret.splitlines() if len(line.strip()) >= SHORTEST)}
        forms = {form for value in values for form in _forms(value)}
        self._forms = tuple(sorted({*self._forms, *forms}, key=len, reverse=True))

    def clean(self, text: str) -> str:
        """Also where the text ends inside a secret, because somebody cut it."""
        for form in self._forms:
            text = text.replace(form, MASK)
        for form in self._forms:
            if form[:SHORTEST] not in text[-len(form) :]:
                continue
            for length in range(min(len(form) - 1, len(text)), SHORTEST - 1, -1):
                if text.endswith(form[:length]):
                    return text[:-length] + MASK
        return text

    def cleaned(self, report: Report) -> Report:
        """The report with what it says in words cleaned; names and addresses, which the controller goes by, stay."""
        if not self._forms:
            return report
        said = {field.name for field in fields(report)} & WORDS
        changed: dict[str, Any] = {name: self.clean(getattr(report, name)) for name in said}
        return replace(report, **changed)


class CleanStream:
    """A text stream of whole lines, those of a progress bar too: cleaned, they go where they went before; as they are,
    and with text in them, to `tell`."""

    def __init__(self, beyond: TextIO, redactor: Redactor, *, tell: Callable[[str], None] | None = None) -> None:
        self._beyond = beyond
        self._redactor = redactor
        self._tell = tell
        self._partial = ""

    def write(self, text: str) -> int:
        *lines, self._partial = re.split(r"(?<=[\r\n])", self._partial + text)
        for line in lines:
            self._pass_on(line)
        return len(text)

    def finish(self) -> None:
        """What stands without a line's end: nothing more comes."""
        rest, self._partial = self._partial, ""
        self._pass_on(rest)

    def _pass_on(self, line: str) -> None:
        said = line.rstrip("\r\n")
        self._beyond.write(self._redactor.clean(said) + line[len(said) :])
        if self._tell is not None and said.strip():
            self._tell(said)

    def __getattr__(self, name: str) -> object:
        return getattr(self._beyond, name)


def _forms(value: str) -> set[str]:
    """As it is, in a literal of Python's or JSON's, in a URL."""
    as_json = (json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1])
    return {value, repr(value)[1:-1], *as_json, quote(value, safe="")}
