"""Caches of computed values: all caches of this kind in a process together hold a bounded number of bytes.

Data of a protected table has separate bounds: its columns as arrays (``engine.arrays``), its exact tables
(``vault.mechanisms``) and, during the evaluation of a release, its marginals (``evaluate.released``).

A limit on the number of entries would not bound their size, and some callers are analysts.  So each entry is weighed
when it is stored.  Entries without recent use make room, in any cache.

No result depends on a cache: a dropped entry is computed again, to the same value.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Hashable
from enum import Enum
from functools import wraps
from types import FunctionType, ModuleType
from typing import Any, Generic, ParamSpec, TypeVar, cast

MOST_BYTES = 64 << 20
LARGEST_BYTES = MOST_BYTES >> 3  # largest entry; larger ones are not stored
_ENTRY = 400  # bytes of an entry next to its key and value
_FLAT = frozenset((str, bytes, int, float, bool, type(None)))
_LASTING = (type, Enum, FunctionType, ModuleType)  # objects that live as long as the process

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
P = ParamSpec("P")


class Shared:
    """An object that many entries refer to, such as a domain: it is weighed once, as long as an entry is stored."""

    __slots__ = ()

    @property
    def held_bytes(self) -> int:
        """The approximate size in bytes."""
        raise NotImplementedError


class _Entry:
    """A cached value, its weight in bytes, and whether it was ``used`` since room was last made."""

    __slots__ = ("key", "shared", "used", "value", "weight", "within")

    def __init__(self, within: dict[Any, _Entry], key: Any, value: Any, weight: int) -> None:  # noqa: ANN401
        self.within, self.key, self.value, self.weight = within, key, value, weight
        self.shared: tuple[Shared, ...] = ()
        self.used = False


class _Entries:
    """The entries of all caches of this process, oldest first."""

    def __init__(self) -> None:
        self.held = 0
        self.lock = threading.RLock()  # dropping an object may trigger a look-up
        self._entries: deque[_Entry] = deque()
        self._referring: dict[int, int] = {}  # entries that refer to a shared object, by its id

    def add(self, entry: _Entry) -> None:
        """Store an entry.  Drop others in turn, except entries that were used since their last turn."""
        with self.lock:
            earlier = entry.within.get(entry.key)
            if earlier is not None:
                earlier.used = False  # it was not used since its last turn
            entry.within[entry.key] = entry
            self._entries.append(entry)
            self.held += entry.weight
            for each in entry.shared:
                known = self._referring.get(id(each), 0)
                self._referring[id(each)] = known + 1
                self.held += 0 if known else each.held_bytes
            while self.held > MOST_BYTES:
                oldest = self._entries.popleft()
                if oldest.used:
                    oldest.used = False
                    self._entries.append(oldest)
                else:
                    self._drop(oldest)

    def _drop(self, entry: _Entry) -> None:
        if entry.within.get(entry.key) is entry:  # and no later value
            del entry.within[entry.key]
        self.held -= entry.weight
        for each in entry.shared:
            self._referring[id(each)] -= 1
            if not self._referring[id(each)]:
                del self._referring[id(each)]
                self.held -= each.held_bytes


_ALL_ENTRIES = _Entries()


def _unlock() -> None:
    _ALL_ENTRIES.lock = threading.RLock()  # another thread of the parent may have held it


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_unlock)


def held_bytes() -> int:
    """Return the bytes that all instances of :class:`BoundedCache` hold together, at most ``MOST_BYTES``."""
    return _ALL_ENTRIES.held


class BoundedCache(Generic[K, V]):
    """A mapping that drops old values when room is needed.

    Args:
        weight: bytes of every entry, or a function of the key and the value, without shared objects.  None: everything
            that they refer to is weighed, which takes a tenth of a millisecond.
    """

    def __init__(self, weight: int | Callable[[K, V], int] | None = None) -> None:
        self._weight = weight
        self._entries: dict[K, _Entry] = {}

    def get(self, key: K, default: V) -> V:
        """Return the cached value for a key."""
        value = self._entries.get(key)
        if value is None:
            return default
        value.used = True
        return cast(V, value.value)

    def put(self, key: K, value: V) -> None:
        """Store a value, unless it is very large."""
        entry = _Entry(self._entries, key, value, _ENTRY)
        if self._weight is None:
            own, entry.shared = weigh((key, value))
        else:
            own = self._weight if isinstance(self._weight, int) else self._weight(key, value)
            entry.shared = tuple(each for each in key if isinstance(each, Shared)) if isinstance(key, tuple) else ()
        entry.weight += own
        if own <= LARGEST_BYTES:
            _ALL_ENTRIES.add(entry)


def cached(weight: int | Callable[..., int] | None = None) -> Callable[[Callable[P, V]], Callable[P, V]]:
    """Cache the results of a function by its arguments, all of which must be hashable.

    Args:
        weight: as for a :class:`BoundedCache`, with the tuple of arguments as the key.

    >>> @cached(weight=100)
    ... def half(number: int) -> int:
    ...     print("computed")
    ...     return number // 2
    >>> half(8), half(8)
    computed
    (4, 4)
    """

    def remembering(function: Callable[P, V]) -> Callable[P, V]:
        cache: BoundedCache[Any, Any] = BoundedCache(weight)
        nothing = object()

        @wraps(function)
        def remembered(*args: P.args, **kwargs: P.kwargs) -> V:
            key = (*args, *sorted(kwargs.items())) if kwargs else args
            value = cache.get(key, nothing)
            if value is nothing:
                value = function(*args, **kwargs)
                cache.put(key, value)
            return cast(V, value)

        return remembered

    return remembering


def weigh(thing: object) -> tuple[int, tuple[Shared, ...]]:
    """Return the approximate bytes of an object with all that it refers to, and the shared objects among these.

    >>> weigh(("a" * 1000, ["b" * 1000]))[0] // 1000
    2
    """
    waiting, seen, shared, weight = [thing], set[int](), list[Shared](), 0
    while waiting:
        one = waiting.pop()
        kind = type(one)
        if kind in _FLAT:
            weight += sys.getsizeof(one)
            continue
        if id(one) in seen or isinstance(one, _LASTING):
            continue
        seen.add(id(one))
        if isinstance(one, Shared):
            shared.append(one)
            continue
        weight += sys.getsizeof(one) + (0 if getattr(one, "base", None) is None else getattr(one, "nbytes", 0))
        if isinstance(one, tuple | list | set | frozenset):
            waiting += one
        elif isinstance(one, dict):
            waiting += one.keys()
            waiting += one.values()
        else:
            waiting += getattr(one, "__dict__", {}).values()
            waiting += [getattr(one, name, None) for name in getattr(kind, "__slots__", ())]
    return weight, tuple(shared)
