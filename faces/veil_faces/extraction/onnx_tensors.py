"""A check that an ONNX file holds all its weights: only then its SHA-256 stands for the network.

A tensor may name another file (`external_data`), or with some versions of onnxruntime an address in memory, and is loaded from
there. So the few messages that lead to tensors are walked here (onnx.proto), before anything is given to onnxruntime.
A file of its own: it parses bytes of strangers, with nothing of faces in it.
"""

from __future__ import annotations

from collections.abc import Iterator

# Fields that hold messages, with their kind, by kind of the outer message. Other fields hold no tensors.
WITHIN: dict[str, dict[int, str]] = {
    "ModelProto": {7: "GraphProto", 20: "TrainingInfoProto", 25: "FunctionProto"},
    "TrainingInfoProto": {1: "GraphProto", 2: "GraphProto"},
    "FunctionProto": {7: "NodeProto", 11: "AttributeProto"},
    "GraphProto": {1: "NodeProto", 5: "TensorProto", 15: "SparseTensorProto"},
    "NodeProto": {5: "AttributeProto"},
    "AttributeProto": {
        **{5: "TensorProto", 6: "GraphProto", 10: "TensorProto"},
        **{11: "GraphProto", 22: "SparseTensorProto", 23: "SparseTensorProto"},
    },
    "SparseTensorProto": {1: "TensorProto", 2: "TensorProto"},
    "TensorProto": {},
}
EXTERNAL_DATA, DATA_LOCATION = 13, 14  # of TensorProto
VARINT, EIGHT_BYTES, SIZED, FOUR_BYTES = 0, 1, 2, 5  # how a field is written


def has_external_tensors(model: bytes) -> bool:
    """Whether a tensor of the model lies outside of its bytes. Raises ValueError if they are no protocol buffer."""
    waiting = [("ModelProto", memoryview(model))]
    while waiting:
        kind, message = waiting.pop()
        for number, value in _fields(message):
            if kind == "TensorProto" and (number == EXTERNAL_DATA or (number == DATA_LOCATION and value != 0)):
                return True
            if number in WITHIN[kind] and isinstance(value, memoryview):
                waiting.append((WITHIN[kind][number], value))
    return False


def _fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Numbers and values of a message's fields. Raises ValueError for bytes that are no protocol buffer."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, way = key >> 3, key & 7
        if way == VARINT:
            value, at = _varint(message, at)
            yield number, value
            continue
        if way == SIZED:
            size, at = _varint(message, at)
        elif way in (EIGHT_BYTES, FOUR_BYTES):
            size = 8 if way == EIGHT_BYTES else 4
        else:
            raise ValueError("not a protocol buffer, or of an unknown kind")
        if size > len(message) - at:
            raise ValueError("truncated")
        yield number, message[at : at + size]
        at += size


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    """The variable-length integer at byte `at`, and the position behind it. Raises ValueError if it is cut short."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            raise ValueError("truncated")
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
    raise ValueError("not a protocol buffer")
