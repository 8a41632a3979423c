"""When a request to S3 is sent again, how long after, and how that is reported.

botocore retries lost connections and failing servers within a second, which no restart of a store
fits in, but waits seconds for one that asks for fewer requests. Here all of them are given the same
time: pauses that double from half a second on.
"""

from __future__ import annotations

import random
from typing import Any

from botocore import exceptions as boto

from embertide.io.storage.protocol import OnRetry
from embertide.io.storage.s3_errors import CONNECTION_LOST, reason_of

PASSING = (429, 500, 502, 503, 504)
"""HTTP statuses of servers that are busy, starting, or not reached by their gateway."""
_LONGEST_PAUSE_SECONDS = 20


def pause_seconds(attempt: int) -> float:
    """How long to wait after an attempt that failed, from 1; with jitter, on average 0.75 s."""
    longest = min(2.0 ** (attempt - 1), _LONGEST_PAUSE_SECONDS)
    return longest * random.uniform(0.5, 1.0)


class Retries:
    """Decides on retries, as a handler of botocore's event ``needs-retry``, before its own.

    Args:
        endpoint: its URL, for the sentence.
        max_attempts: including the first.
        on_retry: called with a sentence before each pause; may be called from several threads.
    """

    def __init__(self, endpoint: str, max_attempts: int, on_retry: OnRetry) -> None:
        self._endpoint, self._max_attempts, self._on_retry = endpoint, max_attempts, on_retry

    def decide(
        self, attempts: int, response: Any, caught_exception: Exception | None, **_: Any
    ) -> float | None:
        """The pause in seconds; None leaves it to botocore, which knows errors in 200 answers."""
        why = _passing_error(response, caught_exception)
        return None if why is None else self.pause(attempts, why)

    def pause(self, attempt: int, why: str) -> float | None:
        """The pause after an attempt, which is reported; None after the last one."""
        if attempt >= self._max_attempts:
            return None
        self._on_retry(
            f"{self._endpoint} does not answer ({why}), attempt {attempt + 1} of"
            f" {self._max_attempts}"
        )
        return pause_seconds(attempt)


def _passing_error(response: Any, error: Exception | None) -> str | None:
    """What failed, where a later attempt may succeed."""
    if error is not None:
        # TLS fails the same way every time.
        passing = isinstance(error, CONNECTION_LOST) and not isinstance(error, boto.SSLError)
        return reason_of(error) if passing else None
    status = response[0].status_code
    return f"HTTP status {status}" if status in PASSING else None
