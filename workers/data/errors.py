"""What can be wrong with a job's data."""

from __future__ import annotations

from workers.user_code import SpecError


class DataError(SpecError):
    """The data cannot be read, are too few, or hold a token that the model does not know."""
