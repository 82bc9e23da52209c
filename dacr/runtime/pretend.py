"""A pretend GPU: tensors that claim to live on ``gpu:0`` and hold CPU values.

For machines without a GPU. The real code runs on it, backward and optimiser included, and two kinds
of mistakes show that a CPU would hide: operations that mix devices raise ``MixedDevices``, and what
would make the host wait for a GPU is counted while ``counting_waits`` is active. Values are those
of the CPU, to the bit.

It is torch's ``PrivateUse1`` device with a backend in Python. A tensor of it is a wrapper around a
CPU tensor; every operation is unwrapped, looked at, computed on the CPU and wrapped again.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Self

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

CPU = torch.device("cpu")
NAME = "gpu"
PACKAGE = str(Path(__file__).parents[1])
aten = torch.ops.aten

WAITS_INSIDE = {
    aten.nonzero,
    aten.masked_select,
    aten.unique_dim,
    aten._unique2,
    aten.unique_consecutive,
    aten.bincount,
    aten.repeat_interleave,
    aten._linalg_svd,
    aten._linalg_eigh,
    aten.linalg_qr,
    aten.equal,
    aten.is_nonzero,
}
"""Their CUDA versions ask the device for a size or for an error code before they return."""
COPIES = {aten._to_copy, aten.copy_, aten.set_, aten.detach, aten.lift_fresh, aten._fused_sgd_}
"""Operations that may see both devices."""
INDEXING = {aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_, aten._unsafe_index}


class MixedDevices(RuntimeError):
    """An operation on tensors of the CPU and of the pretend GPU, which CUDA would refuse."""


class _Backend(ModuleType):
    """What torch asks of a backend module."""

    def __init__(self) -> None:
        super().__init__("torch.gpu")

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return True

    def current_device(self) -> int:
        return 0

    def device_count(self) -> int:
        return 1

    def _is_in_bad_fork(self) -> bool:
        return False

    def manual_seed_all(self, seed: int) -> None:
        """There is no generator on the device: all draws come from the CPU."""

    def get_rng_state(self, device: object = None) -> Tensor:
        return torch.empty(0, dtype=torch.uint8)

    def set_rng_state(self, state: Tensor, device: object = None) -> None:
        """Nothing to set."""


@cache
def pretend_device() -> torch.device:
    """``gpu:0``, which torch knows from the first call on.

    Call it before anything is differentiated: autograd counts devices when it first runs.
    """
    _setup_privateuseone_for_python_backend(NAME, _Backend())
    _LIBRARIES.extend(_autocast_rules())
    return torch.device(f"{NAME}:0")


_LIBRARIES: list[torch.library.Library] = []
"""torch forgets the rules when what holds them is collected."""


def _autocast_rules() -> list[torch.library.Library]:
    """Under autocast, convolutions run in the lower precision, as on CUDA; the rest as it comes."""
    key = "AutocastPrivateUse1"
    rest = torch.library.Library("_", "IMPL", key)
    rest.fallback(torch.library.fallthrough_kernel)
    convolutions = torch.library.Library("aten", "IMPL", key)
    without = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))

    def conv2d(images: Tensor, weight: Tensor, *rest: Any, **named: Any) -> Tensor:
        dtype = torch.get_autocast_dtype(NAME)
        with torch._C._ExcludeDispatchKeyGuard(without):
            return torch.conv2d(images.to(dtype), weight.to(dtype), *rest, **named)

    convolutions.impl("conv2d", conv2d)
    return [rest, convolutions]


class PretendTensor(torch.Tensor):
    """A tensor on ``gpu:0`` with its values in ``held``, on the CPU."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> Self:
        return torch.Tensor._make_wrapper_subclass(
            cls,
            held.size(),
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=pretend_device(),
            requires_grad=False,
        )

    def __init__(self, held: Tensor) -> None:
        self.held = held

    @property
    def data(self) -> Tensor:
        return torch.Tensor.data.__get__(self)  # type: ignore[attr-defined, no-any-return]

    @data.setter
    def data(self, other: Tensor) -> None:
        """``module.to(…)`` moves a parameter so: the values must come along."""
        assert isinstance(other, PretendTensor)
        torch.Tensor.data.__set__(self, other)  # type: ignore[attr-defined]
        self.held = other.held

    def tolist(self) -> Any:
        _note("a list is read")
        return self.held.tolist()

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"PretendTensor({self.held!r})"

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return _run(function, args, kwargs or {})


class PretendGpu(TorchDispatchMode):
    """``with PretendGpu():`` makes ``pretend_device()`` usable."""

    def __enter__(self) -> Self:
        pretend_device()
        self._lifts_only_cpu = torch._C._only_lift_cpu_tensors()
        torch._C._set_only_lift_cpu_tensors(True)
        self._pin_memory = torch.Tensor.pin_memory
        torch.Tensor.pin_memory = lambda tensor, *_: tensor  # type: ignore[method-assign]
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        torch._C._set_only_lift_cpu_tensors(self._lifts_only_cpu)
        torch.Tensor.pin_memory = self._pin_memory  # type: ignore[method-assign]
        super().__exit__(*error)

    def __torch_dispatch__(
        self, function: Any, types: object, args: Any = (), kwargs: Any = None
    ) -> Any:
        return _run(function, args, kwargs or {})


# -- what would make the host wait --------------------------------------------------------------

Waits = Counter[tuple[str, str]]
"""How often the host would wait, by reason and by the line of this package."""
_counters: list[Waits] = []


@contextmanager
def counting_waits() -> Iterator[Waits]:
    waits: Waits = Counter()
    _counters.append(waits)
    try:
        yield waits
    finally:
        _counters.remove(waits)


def _note(reason: str) -> None:
    if not _counters:
        return
    for waits in _counters:
        waits[reason, _caller()] += 1


def _caller() -> str:
    """The innermost line of this package outside this module."""
    for frame in reversed(traceback.extract_stack()):
        if frame.filename.startswith(PACKAGE) and frame.filename != __file__:
            return f"{Path(frame.filename).relative_to(PACKAGE)}:{frame.lineno}"
    return "elsewhere"


# -- running an operation -----------------------------------------------------------------------


def _run(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Look at an operation as CUDA would, and compute it on the CPU."""
    tensors = list(_tensors((args, *kwargs.values())))
    pretended = [tensor for tensor in tensors if isinstance(tensor, PretendTensor)]
    device = kwargs.get("device")
    on_gpu = bool(pretended) if device is None else torch.device(device).type == NAME
    _check(function, args, kwargs, tensors, on_gpu)
    plain = {name: _each(_held, value) for name, value in kwargs.items()}
    if device is not None:
        plain["device"] = CPU
    if "pin_memory" in plain:
        plain["pin_memory"] = False
    result = function(*_each(_held, args), **plain)
    packet = function.overloadpacket
    if packet is aten._local_scalar_dense or not on_gpu:
        return result
    if packet is aten._fused_sgd_:
        return None
    return _given_back(function, args, kwargs, _each(_wrapped, result))


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    """Operators take tensors and lists of tensors: no need for torch's slower general trees."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def _each(change: Callable[[Any], Any], value: Any) -> Any:
    """The same lists and tuples with every leaf changed."""
    if isinstance(value, list | tuple):
        return type(value)([_each(change, own) for own in value])
    return change(value)


def _wrapped(leaf: Any) -> Any:
    return PretendTensor(leaf) if _is_plain(leaf) else leaf


def _held(leaf: Any) -> Any:
    return leaf.held if isinstance(leaf, PretendTensor) else leaf


def _is_plain(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and not isinstance(leaf, PretendTensor)


def _check(
    function: Any, args: Any, kwargs: dict[str, Any], tensors: list[Tensor], on_gpu: bool
) -> None:
    packet = function.overloadpacket
    pretended = any(isinstance(tensor, PretendTensor) for tensor in tensors)
    if packet is aten._to_copy and kwargs.get("device") is not None:
        _check_copy(isinstance(args[0], PretendTensor), on_gpu, kwargs.get("non_blocking", False))
    elif packet is aten.copy_:
        target, source = (isinstance(tensor, PretendTensor) for tensor in args[:2])
        blocking = args[2] if len(args) > 2 else kwargs.get("non_blocking", False)
        _check_copy(source, target, blocking)
    elif packet is aten._local_scalar_dense and pretended:
        _note("a number is read")
    elif packet in INDEXING and pretended:
        _check_indexing(function, args)
    elif pretended and packet not in COPIES:
        _refuse_mixed(function, tensors)
    if packet in WAITS_INSIDE and pretended:
        _note(f"{packet} waits inside")


def _check_copy(from_gpu: bool, to_gpu: bool, non_blocking: bool) -> None:
    if from_gpu and not to_gpu:
        _note("a tensor is copied to the host")
    elif to_gpu and not from_gpu and not non_blocking:
        _note("a tensor is copied to the device and waited for")


def _check_indexing(function: Any, args: Any) -> None:
    target, indices = args[0], [index for index in args[1] if index is not None]
    if not isinstance(target, PretendTensor):
        raise MixedDevices(f"{function}: an index on the GPU for a CPU tensor at {_caller()}")
    if any(_is_plain(index) and index.dim() for index in indices):
        _note("an index comes from the CPU")
    writes = function.overloadpacket is not aten.index and len(args) > 2
    if any(index.dtype in (torch.bool, torch.uint8) for index in indices):
        fills = writes and args[2].numel() == 1 and len(indices) == 1
        if not fills:  # then it is a masked_fill
            _note("a boolean index has to be counted")
    if writes and _is_plain(args[2]) and args[2].dim():
        raise MixedDevices(f"{function}: CPU values into a GPU tensor at {_caller()}")


def _refuse_mixed(function: Any, tensors: list[Tensor]) -> None:
    """CUDA takes numbers from the CPU, but no tensor that has a dimension."""
    shapes = [tuple(tensor.shape) for tensor in tensors if _is_plain(tensor) and tensor.dim()]
    if shapes:
        raise MixedDevices(f"{function}: {shapes} on the CPU beside GPU tensors at {_caller()}")


def _given_back(function: Any, args: Any, kwargs: dict[str, Any], result: Any) -> Any:
    """In-place and out variants return the argument that they wrote to, not another wrapper."""
    schema = function._schema
    results = result if isinstance(result, tuple | list) else (result,)
    if len(schema.returns) != len(results):
        return result
    given = [
        _written(schema, returned.alias_info, args, kwargs, value)
        for returned, value in zip(schema.returns, results, strict=True)
    ]
    return type(result)(given) if isinstance(result, tuple | list) else given[0]


def _written(schema: Any, alias: Any, args: Any, kwargs: dict[str, Any], value: Any) -> Any:
    if alias is None or not alias.is_write:
        return value
    for number, argument in enumerate(schema.arguments):
        own = argument.alias_info
        if own is not None and own.is_write and own.before_set == alias.before_set:
            return args[number] if number < len(args) else kwargs[argument.name]
    return value
