"""Plain transfers, no inference: objects into memory, then as many bytes to one object.

Ranges are fetched, and parts sent, side by side by eight threads, of 8 MiB each; what is sent is
hashed beside. Nothing is decoded, checked or read back: what a link and this machine allow.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import boto3
import numpy as np
from botocore.config import Config

_PIECE_BYTES = 8 << 20
_THREADS = 8
Piece = tuple[str, int, int, int]
"""A key, the first byte and the one behind the last of a range, and where it goes."""

stages: dict[str, float] = {}


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Time a stage."""
    begin = time.perf_counter()
    yield
    stages[name] = time.perf_counter() - begin


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--endpoint", required=True)
parser.add_argument("--region", required=True)
parser.add_argument("--bucket", required=True)
parser.add_argument("--prefix", required=True, nargs="+", help="of what is read")
parser.add_argument("--bytes", type=int, required=True, help="to write")
parser.add_argument("--out", required=True, help="the key of what is written")
given = parser.parse_args()

config = Config(max_pool_connections=_THREADS, s3={"addressing_style": "path"})
client = boto3.client("s3", endpoint_url=given.endpoint, region_name=given.region, config=config)
room = np.empty(0, np.uint8)


def fetch(piece: Piece) -> None:
    """Put a range where it goes."""
    key, first, last, at = piece
    answer = client.get_object(Bucket=given.bucket, Key=key, Range=f"bytes={first}-{last - 1}")
    room[at : at + last - first] = np.frombuffer(answer["Body"].read(), np.uint8)


with stage("read"), ThreadPoolExecutor(_THREADS) as pool:
    pieces: list[Piece] = []
    size = 0
    for prefix in given.prefix:
        listed = client.list_objects_v2(Bucket=given.bucket, Prefix=prefix)
        for found in listed["Contents"]:
            for first in range(0, found["Size"], _PIECE_BYTES):
                last = min(first + _PIECE_BYTES, found["Size"])
                pieces.append((found["Key"], first, last, size + first))
            size += found["Size"]
    room = np.empty(size, np.uint8)
    list(pool.map(fetch, pieces))

data = np.resize(room, given.bytes).data
digest = hashlib.sha256()
to = {"Bucket": given.bucket, "Key": given.out}


def send(number: int) -> dict[str, Any]:
    """Send a part, numbered from 1."""
    body = bytes(data[(number - 1) * _PIECE_BYTES : number * _PIECE_BYTES])
    sent = client.upload_part(**to, UploadId=upload, PartNumber=number, Body=body)
    return {"PartNumber": number, "ETag": sent["ETag"]}


with stage("write"), ThreadPoolExecutor(_THREADS) as pool, ThreadPoolExecutor(1) as hashing:
    upload = client.create_multipart_upload(**to)["UploadId"]
    hashed = hashing.submit(digest.update, data)
    parts = list(pool.map(send, range(1, -(-len(data) // _PIECE_BYTES) + 1)))
    client.complete_multipart_upload(**to, UploadId=upload, MultipartUpload={"Parts": parts})
    hashed.result()

print(json.dumps({"stages": stages, "bytes": size, "sha256": digest.hexdigest()}))
