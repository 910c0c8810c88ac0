"""A model built without its memory: what its constructor computes is written down, and done again value by value.

While a `Recording` is on, factories give tensors without storage. Every operation that creates or changes one is kept
with the random state that it began from, so `values` gives the bits that the ordinary build would have given, whatever
order they are asked for in. The operations also run for real, each result kept until a few newer ones have come: random
numbers are drawn as ever, and a constructor may look at values.
"""

from __future__ import annotations

import heapq
import math
import mmap
from collections import OrderedDict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

# Real results kept while recording: an initialiser that rejects samples works on this many tensors at once.
RECENT = 5
RECENT_BYTES = 2**24
_CPU, _META = torch.device("cpu"), torch.device("meta")
_IS_META, _DEVICE = torch.Tensor.is_meta.__get__, torch.Tensor.device.__get__  # type: ignore[attr-defined]
# In-place operations after which nothing of what was there before is left, if they cover the whole storage.
_OVERWRITES = {"copy_", "fill_", "zero_", "normal_", "uniform_", "exponential_", "random_", "log_normal_", "cauchy_"}


_EMPTY = {f"aten::{name}" for name in ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")}


class Unrecordable(RuntimeError):
    """The constructor did what cannot be done again value by value; build the model whole."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tensor lies: a numbered storage and the view of it."""

    storage: int
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype


@dataclass(slots=True, kw_only=True)
class _Operation:
    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    reads: frozenset[int]
    writes: frozenset[int]
    made: tuple[Place | None, ...] = ()
    overwrites: bool = False
    generator: torch.Generator | None = None
    state: Tensor | None = None


@dataclass(slots=True)
class _Real:
    """Storages with memory."""

    sizes: dict[int, int]
    storages: OrderedDict[int, torch.UntypedStorage] = field(default_factory=OrderedDict)

    def at(self, place: Place) -> Tensor:
        if place.storage not in self.storages:
            self.storages[place.storage] = _memory(self.sizes[place.storage])
        return torch.empty(0, dtype=place.dtype).set_(
            self.storages[place.storage], place.offset, place.size, place.stride
        )

    def run(self, operation: _Operation) -> Any:
        """Do it; what it makes gets the layout that was recorded."""
        if operation.func._schema.name in _EMPTY:
            return [self.at(place) for place in operation.made if place is not None]
        args, kwargs = pytree.tree_map_only(Place, self.at, (operation.args, operation.kwargs))
        result = operation.func(*args, **kwargs)
        for place, made in zip(operation.made, pytree.tree_leaves(result), strict=False):
            if place is not None:
                self.adopt(place, made)
        return result

    def adopt(self, place: Place, made: Tensor) -> None:
        storage = made.untyped_storage()
        alike = (made.storage_offset(), made.stride(), storage.nbytes()) == (0, place.stride, self.sizes[place.storage])
        if alike and place.offset == 0:
            self.storages[place.storage] = storage
        else:
            self.at(place).copy_(made)


class Recording(TorchDispatchMode):
    """On as a context manager while a model is built; afterwards `place_of` and `values`."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._operations: list[_Operation] = []
        self._writers: dict[int, list[int]] = {}
        self._numbers: dict[int, int] = {}
        # Kept alive, so that no address is used twice.
        self._storages: list[torch.UntypedStorage] = []
        self._sizes: dict[int, int] = {}
        self._recent = _Real(self._sizes)
        self._disguise = _Disguise()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Otherwise the first operation imports the compiler: seconds, and 80 MB."""
        return False

    def __enter__(self) -> Recording:
        super().__enter__()  # type: ignore[no-untyped-call]
        self._disguise.__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        self._disguise.__exit__(*error)  # type: ignore[no-untyped-call]
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self._recent.storages.clear()

    def place_of(self, tensor: Tensor) -> Place:
        number = self._numbers.get(tensor.untyped_storage()._cdata)
        if number is None:
            raise Unrecordable(f"a tensor of shape {tuple(tensor.shape)} came from where no operation is seen")
        return Place(number, int(tensor.storage_offset()), tuple(tensor.shape), tensor.stride(), tensor.dtype)

    @torch.no_grad()
    def values(self, place: Place) -> Tensor:
        """What the ordinary build would have there; fresh memory, random state left alone."""
        real = _Real(self._sizes)
        history = [self._operations[index] for index in self._history(place.storage)]
        before = [(each.generator, each.generator.get_state()) for each in history if each.generator is not None]
        try:
            for operation in history:
                if operation.generator is not None and operation.state is not None:
                    operation.generator.set_state(operation.state)
                real.run(operation)
        finally:
            for generator, state in before:
                generator.set_state(state)
        return real.at(place)

    def close(self, known: Collection[int]) -> None:
        """Raises Unrecordable where a tensor without memory is left beside the storages that are `known`."""
        left = [number for number, storage in enumerate(self._storages) if number not in known and _is_shared(storage)]
        if left:
            raise Unrecordable(f"{len(left)} tensors are kept outside the modules")

    # ---- while building ------------------------------------------------------------------------------------------

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        with torch._C.DisableTorchFunction():
            return self._seen(func, args, kwargs or {})

    def _seen(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        if tensors and not any(tensor.is_meta for tensor in tensors):
            return func(*args, **kwargs)
        if not tensors and not _makes_on_cpu(func, kwargs):
            return func(*args, **kwargs)
        into_memory = any(not tensor.is_meta for tensor in _written(func, args, kwargs))
        if into_memory or not _gives_tensors(func):
            return func(*self._filled(args), **self._filled(kwargs))
        try:
            return self._record(func, args, kwargs)
        except NotImplementedError:
            # The shape of the result depends on values.
            if _written(func, args, kwargs):
                raise
            return func(*self._filled(args), **self._filled(kwargs))

    def _record(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        writes = frozenset(self.place_of(tensor).storage for tensor in _written(func, args, kwargs))
        placed_args, placed_kwargs = self._placed((args, kwargs))
        leaves = pytree.tree_leaves((placed_args, placed_kwargs))
        reads = frozenset(leaf.storage for leaf in leaves if isinstance(leaf, Place))
        overwrites = _overwrites(func, placed_args, self._sizes)
        operation = _Operation(
            func=func,
            args=placed_args,
            kwargs={**placed_kwargs, "device": _CPU} if "device" in kwargs else placed_kwargs,
            reads=reads - writes if overwrites else reads,
            writes=writes,
            overwrites=overwrites,
        )
        if torch.Tag.nondeterministic_seeded in func.tags:
            return self._drawn(operation, args, kwargs)
        device = {"device": _META} if "device" in kwargs or not reads else {}
        result = func(*_hollow(args), **(_hollow(kwargs) | device))
        operation.made = self._made(result)
        if writes or any(operation.made):
            self._keep(operation)
            self._follow(operation)
        return result

    def _drawn(self, operation: _Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Random numbers are drawn now, as the ordinary build draws them."""
        operation.generator = kwargs.get("generator") or torch.default_generator
        for number in operation.reads - self._recent.storages.keys():
            self._refresh(number)
        operation.state = operation.generator.get_state()
        leaves, shape = pytree.tree_flatten(self._recent.run(operation))
        result = args[0] if args else None
        if not operation.writes:
            hollow = [torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=_META) for t in leaves]
            operation.made = self._made(hollow)
            for place, made in zip(operation.made, leaves, strict=True):
                if place is not None:
                    self._recent.adopt(place, made)
            result = pytree.tree_unflatten(hollow, shape)
        self._keep(operation)
        self._trim(operation)
        return result

    def _follow(self, operation: _Operation) -> None:
        """Do for real what can be done with what is there; what would be stale goes."""
        if operation.reads <= self._recent.storages.keys():
            self._recent.run(operation)
            self._trim(operation)
            return
        for number in operation.writes:
            self._recent.storages.pop(number, None)

    def _trim(self, operation: _Operation) -> None:
        touched = operation.reads | operation.writes | {place.storage for place in operation.made if place}
        recent = self._recent.storages
        for number in [number for number in recent if not _is_shared(self._storages[number])]:
            del recent[number]
        for number in touched & recent.keys():
            recent.move_to_end(number)
        room_bytes = max(RECENT_BYTES, RECENT * max((self._sizes[number] for number in touched), default=0))
        while sum(self._sizes[number] for number in recent) > room_bytes:
            recent.popitem(last=False)

    def _refresh(self, number: int) -> None:
        size = self._sizes[number]
        values = self.values(Place(number, 0, (size,), (1,), torch.uint8))
        self._recent.storages[number] = values.untyped_storage()

    def _filled(self, values: Any) -> Any:
        """With memory, for an operation whose result is a number or a tensor that has memory."""

        def real(tensor: Tensor) -> Tensor:
            if not tensor.is_meta:
                return tensor
            place = self.place_of(tensor)
            if place.storage not in self._recent.storages:
                self._refresh(place.storage)
            return self._recent.at(place)

        return pytree.tree_map_only(Tensor, real, values)

    def _placed(self, values: Any) -> Any:
        """Tensors that have memory are constants: copied, since their owner may change them."""
        return pytree.tree_map_only(Tensor, lambda t: self.place_of(t) if t.is_meta else t.detach().clone(), values)

    def _made(self, result: Any) -> tuple[Place | None, ...]:
        """The places of new storages among the results."""
        places: list[Place | None] = []
        for leaf in pytree.tree_leaves(result):
            storage = leaf.untyped_storage() if isinstance(leaf, Tensor) else None
            if storage is None or storage._cdata in self._numbers:
                places.append(None)
                continue
            number = self._numbers[storage._cdata] = len(self._storages)
            self._storages.append(storage)
            self._sizes[number] = storage.nbytes()
            places.append(self.place_of(leaf))
        return tuple(places)

    def _keep(self, operation: _Operation) -> None:
        for number in operation.writes | {place.storage for place in operation.made if place}:
            self._writers.setdefault(number, []).append(len(self._operations))
        self._operations.append(operation)

    def _history(self, storage: int) -> Sequence[int]:
        """The operations that decide a storage's content, in order: back to the last that left nothing of before."""
        found: set[int] = set()
        awaited: list[int] = []
        self._look_back(storage, len(self._operations), found, awaited)
        while awaited:
            index = -heapq.heappop(awaited)
            for read in self._operations[index].reads:
                self._look_back(read, index, found, awaited)
        return sorted(found)

    def _look_back(self, storage: int, before: int, found: set[int], awaited: list[int]) -> None:
        for index in reversed(self._writers.get(storage, ())):
            if index >= before:
                continue
            if index not in found:
                found.add(index)
                heapq.heappush(awaited, -index)
            if self._operations[index].overwrites:
                return


class _Disguise(TorchFunctionMode):
    """Constructors ask where a tensor is, and skip what they would do to one without memory."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func == _IS_META:
            return False
        if func is torch.Tensor.__setitem__ and isinstance(args[2], float | int):
            # A number becomes a tensor where no operation is seen, and on the meta device it is lost.
            args = (*args[:2], torch.tensor(args[2], dtype=args[0].dtype))
        result = func(*args, **(kwargs or {}))
        return _CPU if func == _DEVICE and result == _META else result


def _written(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Tensor]:
    """The tensors that the operation changes."""
    changed = []
    for position, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[position] if position < len(args) else kwargs.get(argument.name)
            changed += [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, Tensor)]
    return changed


def _overwrites(func: Any, args: Sequence[Any], sizes: dict[int, int]) -> bool:
    place = args[0] if args else None
    if not isinstance(place, Place) or func._schema.name.removeprefix("aten::") not in _OVERWRITES:
        return False
    return math.prod(place.size) * place.dtype.itemsize == sizes[place.storage]


def _gives_tensors(func: Any) -> bool:
    return any("Tensor" in str(each.type) for each in func._schema.returns)


def _makes_on_cpu(func: Any, kwargs: dict[str, Any]) -> bool:
    has_device = any(argument.name == "device" for argument in func._schema.arguments)
    return has_device and kwargs.get("device") in (None, _CPU)


def _memory(size_bytes: int) -> torch.UntypedStorage:
    """The system's own, given back when it is dropped: the allocator would keep most of what comes and goes here."""
    buffer = mmap.mmap(-1, max(size_bytes, 1))
    return torch.frombuffer(buffer, dtype=torch.uint8, count=size_bytes or 1).untyped_storage()


def _is_shared(storage: torch.UntypedStorage) -> bool:
    """Whether anyone beside the recording refers to it."""
    return bool(torch._C._storage_Use_Count(storage._cdata) > 1)


def _hollow(values: Any) -> Any:
    return pytree.tree_map_only(Tensor, lambda tensor: tensor if tensor.is_meta else tensor.to(_META), values)
