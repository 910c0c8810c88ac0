"""What cannot be compiled says so; that compiled units train as others do is a claim."""

from __future__ import annotations

import pytest
import torch
import torch._inductor.config
from torch import nn

from workers.models.compiled import compile_forwards
from workers.user_code import SpecError


def test_where_there_is_no_compiler_the_field_and_the_reason_are_named() -> None:
    model = nn.Sequential(nn.Linear(3, 5), nn.GELU())
    compile_forwards([model])
    broken = {"cpp.cxx": ("no-such-compiler",), "fx_graph_cache": False, "compile_threads": 1}
    with torch._inductor.config.patch(broken), pytest.raises(SpecError, match=r"compile = True: torch\.compile cannot"):
        model(torch.ones(2, 3))
