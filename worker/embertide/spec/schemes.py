"""Where objects can be: one entry for every kind of store, by the scheme of its URIs.

A backend is an entry here and the module that it names, which has ``open_store``. What a manifest
may say, what the API server accepts, what is opened and what is asked of a location elsewhere
follow from the entry. Imports no store.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*):")


@dataclass(frozen=True)
class Scheme:
    """One kind of store.

    Attributes:
        start: how each of its URIs begins, such as ``s3://``.
        authority: pattern of what follows, up to a slash or the end; "" for anything.
        example: a URI as messages show it.
        must: what is wrong with a URI that does not fit.
        module: imported when a URI of it is first opened. Its ``open_store(settings, on_retry,
            on_upload)`` returns a :class:`embertide.io.storage.protocol.Storage`.
        local: objects are files of this machine: they can be mapped and reached by every process
            of it, and reading takes no requests.
        aliases: other names that tools write into tables for the same store.
    """

    name: str
    start: str
    authority: str
    example: str
    must: str
    module: str
    local: bool = False
    aliases: tuple[str, ...] = field(default=())

    @property
    def pattern(self) -> str:
        """What a URI of it matches from its start on, in RE2 and in Python."""
        return f"{self.start}{self.authority}(/|$)" if self.authority else self.start

    def rule(self, value: str) -> str:
        """In CEL: whether a value is a URI of it."""
        if not self.authority:
            return f"{value}.startsWith('{self.start}')"
        return f"{value}.matches(r'^{self.pattern}')"


FILE = Scheme(
    name="file",
    start="file:///",
    authority="",
    example="file:///absolute/path",
    must="a file URI has three slashes: file:///absolute/path",
    module="embertide.io.storage.local",
    local=True,
)
"""What a path without a scheme is, too."""

S3 = Scheme(
    name="s3",
    start="s3://",
    # Wider than AWS allows for new buckets, for old buckets and other stores.
    authority="[A-Za-z0-9][A-Za-z0-9._-]{0,254}",
    example="s3://bucket/path",
    must="must be s3://bucket/path with a valid bucket name",
    module="embertide.io.storage.s3",
    aliases=("s3a", "s3n"),
)

SCHEMES = {scheme.name: scheme for scheme in (FILE, S3)}


def scheme_name(uri: str) -> str | None:
    """The name before the colon; None for a path."""
    match = _SCHEME.match(uri)
    return None if match is None else match.group(1)


def scheme_of(uri: str) -> Scheme | None:
    """The scheme of a location; None for one that is not known, and for a relative path."""
    name = scheme_name(uri)
    if name is None:
        return FILE if uri.startswith("/") else None
    return SCHEMES.get(name)


def is_local(uri: str) -> bool:
    """Whether a location is in files of this machine; False for an unknown scheme."""
    scheme = scheme_of(uri)
    return scheme is not None and scheme.local


def without_alias(name: str) -> str:
    """The name under which a scheme is known here, such as ``s3`` for ``s3a``."""
    names = (scheme.name for scheme in SCHEMES.values() if name in scheme.aliases)
    return next(names, name)


def named_in(text: str) -> list[Scheme]:
    """The schemes of which a text has URIs."""
    return [scheme for scheme in SCHEMES.values() if scheme.start in text]


def check_uri(text: str) -> None:
    """Check a location with a scheme.

    Raises:
        ValueError: the scheme is unknown, or the rest is not as its URIs are.
    """
    scheme = scheme_of(text)
    if scheme is None:
        name = scheme_name(text)
        raise ValueError(f"is {text!r}; {name}:// is not supported, use {uri_forms()}")
    if not re.match(scheme.pattern, text):
        raise ValueError(f"is {text!r}; {scheme.must}")


def examples(last: str = " or ") -> str:
    """A URI of every scheme, stores first, for messages."""
    ordered = sorted(SCHEMES.values(), key=lambda scheme: scheme.local)
    return last.join(scheme.example for scheme in ordered)


def uri_forms() -> str:
    """All forms that a location can have, for messages."""
    return f"{examples(', ')} or /absolute/path"


def uri_rule(value: str) -> str:
    """In CEL: whether a value is an absolute path or a URI of any scheme."""
    rules = (scheme.rule(value) for scheme in SCHEMES.values())
    return " || ".join((f"{value}.startsWith('/')", *rules))


def any_pattern() -> str:
    """What a URI of any scheme matches from its start on."""
    return "|".join(scheme.pattern for scheme in SCHEMES.values())
