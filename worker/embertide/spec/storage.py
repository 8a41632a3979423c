"""``spec.storage``: how to access S3, in one store or several. Credentials are never part of it."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from embertide.spec.base import Problem, SpecModel, raise_problems
from embertide.spec.cel import Rule
from embertide.spec.schemes import S3

_MOST_STORES = 16
_OF_KMS = "keyId and bucketKey need algorithm: aws:kms or aws:kms:dsse"
_UNIQUE = "prefixes must be unique"
_ANONYMOUS = "must not be set beside anonymous: true, which signs no request"


class Encryption(SpecModel):
    """Server-side encryption of what is written."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.algorithm != 'AES256' || (!has(self.keyId) && !has(self.bucketKey))",
            _OF_KMS,
        ),
    )

    algorithm: Literal["AES256", "aws:kms", "aws:kms:dsse"] = Field(
        description="The header x-amz-server-side-encryption: AES256 (SSE-S3), aws:kms (SSE-KMS) "
        "or aws:kms:dsse (two layers of it)."
    )
    key_id: str | None = Field(
        default=None,
        min_length=1,
        max_length=2048,
        description="Key of KMS: its id, ARN or alias. If unset, the account's default key.",
    )
    bucket_key: bool | None = Field(
        default=None,
        description="Whether objects share a key of the bucket, which saves requests to KMS. If "
        "unset, the bucket decides.",
    )

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.algorithm == "AES256" and (self.key_id, self.bucket_key) != (None, None):
            field = "keyId" if self.key_id is not None else "bucketKey"
            raise_problems([((field,), f"is set beside AES256; {_OF_KMS}")])
        return self


class Store(SpecModel):
    """How to access one store."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.anonymous) || !self.anonymous || !has(self.credentialsSecret)",
            _ANONYMOUS,
            ".credentialsSecret",
        ),
        Rule(
            "!has(self.anonymous) || !self.anonymous || !has(self.profile)", _ANONYMOUS, ".profile"
        ),
    )

    endpoint_url: str | None = Field(
        default=None,
        pattern=r"^https?://[^/\s]+",
        description="Endpoint URL of an S3-compatible store, such as https://minio.example:9000.",
    )
    region: str | None = Field(default=None, min_length=1, description="Region of the buckets.")
    path_style: bool | None = Field(
        default=None,
        description="true for path-style addressing: the bucket is part of the path, not of the "
        "host name. If unset, true when endpointUrl is set.",
    )
    credentials_secret: str | None = Field(
        default=None,
        min_length=1,
        max_length=253,
        pattern=r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$",
        description="Secret in the job's namespace with AWS_ACCESS_KEY_ID and "
        "AWS_SECRET_ACCESS_KEY; it may change while the job runs. If unset, and outside "
        "Kubernetes, the standard AWS credential chain is used.",
    )
    profile: str | None = Field(
        default=None,
        min_length=1,
        max_length=253,
        description="Profile of the AWS configuration files with the credentials outside "
        "Kubernetes, in place of the environment's. Ignored in pods.",
    )
    anonymous: bool = Field(
        default=False,
        description="true signs no request, for public buckets that are read without credentials.",
    )
    requester_pays: bool = Field(
        default=False,
        description="true agrees to pay for the requests to buckets whose requesters pay.",
    )
    encryption: Encryption | None = Field(
        default=None,
        description="Server-side encryption that is asked for with each write. If unset, the "
        "bucket decides. Objects that are read need nothing but the right to use the key.",
    )
    checksums: Literal["whenRequired", "always"] = Field(
        default="whenRequired",
        description="always sends a CRC32 with each write, for buckets that demand checksums, such "
        "as those with Object Lock; whenRequired where S3 itself demands it, since many stores "
        "refuse others. Published parts are read back in any case.",
    )
    max_attempts: int = Field(
        default=5,
        ge=1,
        description="Maximum number of attempts for a request, including the first.",
    )
    connect_timeout_seconds: float = Field(
        default=5.0, gt=0, description="Timeout for opening a connection, in seconds."
    )

    @model_validator(mode="after")
    def _check_identity(self) -> Self:
        problems: list[Problem] = []
        if self.anonymous and self.credentials_secret is not None:
            problems.append((("credentialsSecret",), _ANONYMOUS))
        if self.anonymous and self.profile is not None:
            problems.append((("profile",), _ANONYMOUS))
        raise_problems(problems)
        return self


class NamedStore(Store):
    """How to access another store, for what lies below a prefix."""

    prefix: str = Field(
        max_length=2048,
        pattern=rf"^{S3.start}{S3.authority}(/\S*)?$",
        description="Bucket, or prefix within it, of which all this holds, such as s3://public/.",
    )


class StorageSettings(Store):
    """How to access S3. Credentials are never part of a manifest."""

    rules: ClassVar[tuple[Rule, ...]] = (
        *Store.rules,
        Rule(
            "!has(self.stores) || self.stores.all(a, self.stores.exists_one(b, "
            "a.prefix == b.prefix))",
            _UNIQUE,
            ".stores",
        ),
    )

    stores: list[NamedStore] = Field(
        default_factory=list,
        max_length=_MOST_STORES,
        description="Stores that inputs, model or output lie in besides. What is below the prefix "
        "of one, the longest that fits, is accessed as it says; nothing is taken over from the "
        "fields above.",
    )

    @model_validator(mode="after")
    def _check_prefixes(self) -> Self:
        prefixes = [store.prefix for store in self.stores]
        raise_problems(
            [
                (
                    ("stores", at, "prefix"),
                    f"is {prefix!r}, the same as stores[{prefixes.index(prefix)}].prefix;"
                    f" {_UNIQUE}",
                )
                for at, prefix in enumerate(prefixes)
                if prefixes.index(prefix) < at
            ]
        )
        return self

    def of(self, uri: str) -> Store:
        """The store that a URI is in: the one with the longest prefix, else these settings."""
        fitting = [store for store in self.stores if _is_below(uri, store.prefix)]
        return max(fitting, key=lambda store: len(store.prefix.rstrip("/")), default=self)

    @property
    def secrets(self) -> list[str]:
        """Names of the Secrets of the stores besides, each once."""
        names = (store.credentials_secret for store in self.stores)
        return sorted({name for name in names if name is not None})


def _is_below(uri: str, prefix: str) -> bool:
    folder = prefix.rstrip("/")
    return uri == folder or uri.startswith(f"{folder}/")
