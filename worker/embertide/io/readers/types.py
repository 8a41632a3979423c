"""Which arrow types may hold what, whatever tool wrote them.

Warehouses and libraries write the same number as an integer, a decimal or a float, and the same
text as a string, as bytes without a type or as a dictionary of either.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

_TEXTS = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
)
_BYTES = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
    pa.types.is_fixed_size_binary,
)


def value_type(held: Any) -> Any:
    """The type of the values themselves: of a dictionary's, and of what an extension stores."""
    while True:
        if isinstance(held, pa.BaseExtensionType):
            held = held.storage_type
        elif pa.types.is_dictionary(held):
            held = held.value_type
        else:
            return held


def plain(array: Any) -> Any:
    """An array of the same values of :func:`value_type`; copied only where that differs."""
    while True:
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        elif isinstance(array, pa.DictionaryArray):
            array = array.dictionary_decode()
        else:
            return array


def holds_integers(held: Any) -> bool:
    """Whether values of a type may be integers: some decimals and floats are."""
    held = value_type(held)
    types = pa.types
    return bool(types.is_integer(held) or types.is_decimal(held) or types.is_floating(held))


def holds_bytes(held: Any) -> bool:
    """Whether values of a type are bytes of an unknown meaning."""
    return any(is_kind(value_type(held)) for is_kind in _BYTES)


def holds_text(held: Any) -> bool:
    """Whether values of a type may be text: some bytes are."""
    return any(is_kind(value_type(held)) for is_kind in _TEXTS) or holds_bytes(held)


def holds_numbers(held: Any) -> bool:
    """Whether values of a type are numbers."""
    held = value_type(held)
    return holds_integers(held) or bool(pa.types.is_boolean(held))


SPARK_VECTOR = ["type", "size", "indices", "values"]
"""Fields of a vector of Spark ML."""


def holds_vectors(held: Any) -> bool:
    """Whether values of a type may be vectors; see ``vector_types`` for what they look like."""
    held = value_type(held)
    is_text = holds_text(held) and not pa.types.is_fixed_size_binary(held)
    return is_text or is_spark_vector(held) or _is_list_of_numbers(inner(held))


def is_list(held: Any) -> bool:
    """Whether values of a type are lists, of equal length or not."""
    types = pa.types
    return bool(types.is_list(held) or types.is_large_list(held) or types.is_fixed_size_list(held))


def is_spark_vector(held: Any) -> bool:
    """Whether values of a type are vectors of Spark ML."""
    return bool(pa.types.is_struct(held)) and [field.name for field in held] == SPARK_VECTOR


def inner(held: Any) -> Any:
    """A type without the groups of a single field around it."""
    while pa.types.is_struct(held) and held.num_fields == 1:
        held = held.field(0).type
    return held


def _is_list_of_numbers(held: Any) -> bool:
    return is_list(held) and holds_numbers(inner(held.value_type))
