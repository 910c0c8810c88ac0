"""Samples out of a long line of tokens."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from workers.data.errors import DataError


class TokenWindows:
    """A map-style dataset: window i is tokens `i*seq_len .. (i+1)*seq_len` inclusive, as int64 [seq_len + 1].

    Windows overlap by the one token that is a target here and an input there, so every token is predicted once.
    `vocab` is how many tokens the model knows; a larger id is refused here, where the file can still be named.
    """

    def __init__(self, tokens: npt.NDArray[np.integer], *, seq_len: int, source: str, vocab: int | None = None) -> None:
        self._tokens = tokens
        self._seq_len = seq_len
        self._source = source
        self._vocab = vocab
        if len(self) < 1:
            raise DataError(
                field="data",
                value=source,
                problem=f"{len(tokens)} tokens are less than one sample of seq_len + 1 = {seq_len + 1}",
                fix="give more data or a smaller training.seq_len",
            )

    def __len__(self) -> int:
        return max(0, len(self._tokens) - 1) // self._seq_len

    def __getitem__(self, index: int) -> Tensor:
        if not 0 <= index < len(self):
            raise IndexError(f"sample {index} is not in 0..{len(self) - 1}")
        first = index * self._seq_len
        window = self._tokens[first : first + self._seq_len + 1].astype(np.int64)
        if self._vocab is not None:
            self._check(window, first, self._vocab)
        return torch.from_numpy(window)

    def _check(self, window: npt.NDArray[np.int64], first: int, vocab: int) -> None:
        unknown = (window < 0) | (window >= vocab)
        if unknown.any():
            place = int(unknown.argmax())
            raise DataError(
                field="data",
                value=self._source,
                problem=f"token {window[place]} at {first + place} is not in the model's vocabulary 0..{vocab - 1}",
                fix="use a model with a larger vocab, or check the file's dtype",
            )
