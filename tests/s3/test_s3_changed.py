"""Inputs that change while they are read: noticed and named, never half of them read."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from embertide.errors import InputChanged, StorageError
from embertide.io.readers.edges import read_edges, split_edges
from embertide.io.storage.protocol import Storage
from embertide.spec.edges import EdgeInput
from tests.support.s3.jobs import SmallS3Job
from tests.support.s3.proxy import Answer, Forward, Request, S3Proxy, with_headers
from tests.support.storage_contract import LARGE

pytestmark = pytest.mark.s3

KINDS = ("int64", "int64")


def parquet(rows: int, first: int = 0) -> bytes:
    held, ids = io.BytesIO(), np.arange(first, first + rows)
    pq.write_table(pa.table({"src": ids, "dst": ids[::-1]}), held, compression="none")
    return held.getvalue()


def edges_in(root: str) -> EdgeInput:
    return EdgeInput.model_validate({"uri": f"{root}/edges/", "format": "parquet"})


def test_an_object_that_is_gone(storage: Storage, root: str) -> None:
    storage.write(f"{root}/edges/a.parquet", parquet(1000))
    edges = edges_in(root)
    (split,) = split_edges(storage, edges)
    storage.delete([f"{root}/edges/a.parquet"])
    with pytest.raises(InputChanged, match=r"a\.parquet was removed after it was listed"):
        list(read_edges(storage, edges, KINDS, split))


def test_a_store_that_ignores_the_condition(proxied: Storage, proxy: S3Proxy, root: str) -> None:
    """It answers with the object as it is now, and its tag."""
    old, new = parquet(1000), parquet(1000, first=5000)
    assert len(old) == len(new)
    proxied.write(f"{root}/edges/a.parquet", old)
    edges = edges_in(root)
    (split,) = split_edges(proxied, edges)
    tag = proxied.write(f"{root}/edges/a.parquet", new).etag

    def ignore(request: Request, forward: Forward) -> Answer:
        answer = forward(request)
        if answer.status != 412:
            return answer
        first, last = map(int, request.headers["Range"].removeprefix("bytes=").split("-"))
        part = new[first : last + 1]
        return Answer(
            206,
            part,
            {
                "ETag": f'"{tag}"',
                "Content-Range": f"bytes {first}-{first + len(part) - 1}/{len(new)}",
                "Last-Modified": "Thu, 26 Nov 2026 10:00:00 GMT",
            },
        )

    proxy.rule = ignore
    with pytest.raises(InputChanged, match=r"a\.parquet changed after it was listed"):
        list(read_edges(proxied, edges, KINDS, split))


def test_an_answer_that_is_too_short(proxied: Storage, proxy: S3Proxy, root: str) -> None:
    """With a length that fits it: asked for again, and the store named if that is no better."""
    proxied.write(f"{root}/x", LARGE)
    shortened = 0

    def shorten(request: Request, forward: Forward) -> Answer:
        nonlocal shortened
        answer = forward(request)
        if request.method == "GET" and request.path.endswith("/x") and shortened < limit:
            shortened += 1
            return replace(answer, body=answer.body[: len(answer.body) // 2])
        return answer

    proxy.rule, limit = shorten, 1
    assert proxied.read(f"{root}/x") == LARGE
    shortened, limit = 0, 1000
    with pytest.raises(
        StorageError, match=f"{root}/x: the connection to {proxy.endpoint} was lost"
    ):
        proxied.read(f"{root}/x")


def test_an_object_that_shrank_under_its_tag(proxied: Storage, proxy: S3Proxy, root: str) -> None:
    proxied.write(f"{root}/x", LARGE)
    info = proxied.stat(f"{root}/x")
    assert info is not None

    def shrink(request: Request, forward: Forward) -> Answer:
        answer = forward(request)
        if request.method != "GET" or answer.status != 206:
            return answer
        where = {n.lower(): v for n, v in answer.headers.items()}["content-range"]
        return with_headers(answer, content_range=f"{where.rpartition('/')[0]}/{len(LARGE) - 1}")

    proxy.rule = shrink
    with (
        proxied.open(f"{root}/x", info) as file,
        pytest.raises(InputChanged, match="changed after"),
    ):
        file.read()


def test_a_store_that_ignores_ranges(proxied: Storage, proxy: S3Proxy, root: str) -> None:
    proxied.write(f"{root}/x", b"0123456789")

    def whole(request: Request, forward: Forward) -> Answer:
        answer = forward(request)
        if request.method != "GET" or answer.status != 206:
            return answer
        headers = {n: v for n, v in answer.headers.items() if n.lower() != "content-range"}
        return Answer(200, b"0123456789", headers)

    proxy.rule = whole
    assert proxied.read(f"{root}/x") == b"0123456789"
    with pytest.raises(StorageError, match="answers with the whole object where a range"):
        proxied.read_range(f"{root}/x", 3, 2)


# ---- whole runs


def ingests(proxy: S3Proxy, request: Request) -> bool:
    """Whether a worker reads edges, which comes after features: the output was probed before."""
    probed = any("/versions/" in earlier.path for earlier in proxy.seen)
    return probed and "/edges/" in request.path and request.method == "GET"


NOT_NOW = "newObjects: ignore"
# What comes while inputs are read, how the job is edited, and what is said where it is refused.
LATE = {
    "edges": ("{edges}late.parquet", (), ("/edges", "has 2 now, such as {late}", NOT_NOW)),
    "features": ("{features}late.parquet", (), ("/features", "has 2 now, such as {late}", NOT_NOW)),
    "a folder that fits": (
        "{place}/edges2/late.parquet",
        ("/edges/", "/edges*/"),
        ("{place}/edges2/ fits {place}/edges*/", NOT_NOW),
    ),
    "not included": (
        "{edges}late.json",
        ("    - uri:", '    - include: "*.parquet"\n      uri:'),
        (),
    ),
    "for the next run": ("{edges}late.parquet", ("  input:", f"  input:\n    {NOT_NOW}"), ()),
}


@pytest.mark.distributed
@pytest.mark.parametrize("name", LATE)
def test_an_object_that_comes_while_the_inputs_are_read(
    job: SmallS3Job, proxy: S3Proxy, name: str
) -> None:
    (edges,), (features,) = job.names("edges"), job.names("features")
    place, change, refusal = LATE[name]
    known = {"place": job.place}
    known |= {
        n: f"{uri.rpartition('/')[0]}/" for n, uri in (("edges", edges), ("features", features))
    }
    late = place.format(**known)

    def add(request: Request, forward: Forward) -> Answer:
        if ingests(proxy, request):
            job.storage.write(late, job.storage.read(features if name == "features" else edges))
        return forward(request)

    proxy.rule = add
    if change:
        job.edit(*change)
    done = job.run("--json")
    assert (done.code, len(job.versions)) == ((3, 0) if refusal else (0, 1)), done.err
    for words in refusal:
        assert words.format(**known, late=late) in done.events[-1]["message"]
    if name == "for the next run":
        (warning,) = [text for text in done.events[-1]["warnings"] if "late.parquet" in text]
        assert "the next run reads those" in warning


@pytest.mark.distributed
def test_an_object_that_is_replaced_once_it_was_read(job: SmallS3Job, proxy: S3Proxy) -> None:
    """Features are read before edges are."""
    (features,) = job.names("features")
    replaced = job.storage.read(features)

    def replace_features(request: Request, forward: Forward) -> Answer:
        if ingests(proxy, request):
            # Other bytes of the same size: ETags are digests of the contents.
            job.storage.write(features, replaced[:-5000] + bytes(5000))
        return forward(request)

    proxy.rule = replace_features
    done = job.run("-q")
    assert (done.code, job.versions) == (3, []), done.err
    assert f"{features} changed while the inputs were read" in done.message


@pytest.mark.distributed
def test_a_model_that_is_replaced_between_planning_and_reading(
    job: SmallS3Job, proxy: S3Proxy
) -> None:
    """Every second answer about its weights is that of another file; both are whole."""
    weights = next(uri for uri in job.names("model") if uri.endswith(".safetensors"))
    data = bytearray(job.storage.read(weights))
    data[-1] ^= 1
    count = 0

    def alternate(request: Request, forward: Forward) -> Answer:
        nonlocal count
        answer = forward(request)
        if not request.path.endswith(".safetensors") or request.method != "GET":
            return answer
        if len(answer.body) < len(data):
            return answer
        count += 1
        return replace(answer, body=bytes(data)) if count % 2 else answer

    proxy.rule = alternate
    done = job.run("--grid", "2x1", "-q")
    assert (done.code, job.versions) == (3, []), done.err
    assert "changed after the run was planned with it" in done.message


@pytest.mark.distributed
def test_where_nothing_has_changed_only_the_pointer_is_written(
    job: SmallS3Job, proxy: S3Proxy
) -> None:
    assert job.run("-q").code == 0
    proxy.seen.clear()
    done = job.run("--json")
    assert (done.code, done.events[-1]["confirmed"], len(job.versions)) == (0, True, 1), done.err
    written = [request.path for request in proxy.seen if request.method not in ("GET", "HEAD")]
    assert [path.rpartition("/")[2] for path in written] == ["LATEST"]
    read = [request.path for request in proxy.seen if request.method == "GET"]
    assert not [path for path in read if path.endswith((".safetensors", ".npy"))]
    weights = next(uri for uri in job.names("model") if uri.endswith(".safetensors"))
    job.storage.write(weights, job.storage.read(weights)[:-1] + b"\x01")
    assert job.run("-q").code == 0
    assert len(job.versions) == 2
