"""Writes pickles as Python 2 did, byte for byte: the format of CIFAR's published batches."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray


def _string(value: bytes) -> bytes:
    if len(value) < 256:
        return b"U" + bytes([len(value)]) + value
    return b"T" + struct.pack("<i", len(value)) + value


def _array(array: NDArray[Any]) -> bytes:
    kind = array.dtype.str[1:].encode()
    order = array.dtype.str[:1].encode()
    dtype = b"cnumpy\ndtype\n" + _string(kind) + b"K\x00K\x01\x87R"
    dtype += b"(K\x03" + _string(order) + b"NNN" + b"J\xff\xff\xff\xff" * 2 + b"K\x00tb"
    empty = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + _string(b"b")
    shape = b"(" + b"".join(value(size) for size in array.shape) + b"t"
    raw = _string(array.tobytes(order="A"))
    fortran = b"\x88" if array.flags.f_contiguous and array.ndim > 1 else b"\x89"
    return empty + b"\x87R(K\x01" + shape + dtype + fortran + raw + b"tb"


def value(item: Any) -> bytes:
    """The opcodes of one value."""
    match item:
        case dict():
            pairs = b"".join(value(key) + value(content) for key, content in item.items())
            return b"}(" + pairs + b"u"
        case list():
            return b"](" + b"".join(map(value, item)) + b"e"
        case int():
            return b"J" + struct.pack("<i", item)
        case str():
            return _string(item.encode("latin1"))
        case np.ndarray():
            return _array(item)
    raise TypeError(type(item))


def dumps(item: Any) -> bytes:
    return b"\x80\x02" + value(item) + b"."
