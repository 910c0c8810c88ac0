"""Element types under their three names: torch's, ours ("float32", as in TensorMeta) and the safetensors format's."""

from __future__ import annotations

import torch

_SAFETENSORS = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint64": "U64",
    "uint32": "U32",
    "uint16": "U16",
    "uint8": "U8",
    "bool": "BOOL",
    "complex64": "C64",
}
NAMES = frozenset(_SAFETENSORS)


def name_of(dtype: torch.dtype) -> str:
    """Raises ValueError for a type that no file of ours can hold."""
    name = str(dtype).removeprefix("torch.")
    if name not in NAMES:
        raise ValueError(f"tensors of {dtype} cannot be saved; there are {', '.join(sorted(NAMES))}")
    return name


def torch_dtype(name: str) -> torch.dtype:
    if name not in NAMES:
        raise ValueError(f"no element type {name!r}; there are {', '.join(sorted(NAMES))}")
    dtype: torch.dtype = getattr(torch, name)
    return dtype


def itemsize(name: str) -> int:
    return torch_dtype(name).itemsize


def safetensors_name(name: str) -> str:
    return _SAFETENSORS[name]
