"""How a sample is shown in a stream."""

from __future__ import annotations

import math
from typing import Any

from service.domain.text import rfc3339
from service.domain.wire import Sample


def sample_data(sample: Sample) -> dict[str, Any]:
    """JSON has no NaN: a value that is not finite is None, as in a series."""
    return {
        "name": sample.name,
        "rank": sample.rank,
        "step": sample.step,
        "generation": sample.generation,
        "value": sample.value if math.isfinite(sample.value) else None,
        "at": rfc3339(sample.at),
    }
