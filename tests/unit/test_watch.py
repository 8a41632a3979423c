"""The cache's watches against an API server and a network that do everything wrong."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from embertide_operator.api.store import Store
from embertide_operator.api.watch import Watch
from tests.support.api_server import ApiServer, api_server
from tests.support.patience import WAIT_SECONDS
from tests.support.tcp_proxy import TcpProxy, tcp_proxy

LABEL = "embertide.dev/job"


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with api_server() as found:
        yield found


def pod(name: str, **more: Any) -> dict[str, Any]:
    return {"metadata": {"namespace": "shop", "name": name, "labels": {LABEL: "a"}}, **more}


class Following:
    """A store that one watch fills, through a proxy."""

    def __init__(self, server: ApiServer, proxy: TcpProxy | None = None, seconds: int = 60) -> None:
        self.changes: list[tuple[str | None, str | None]] = []
        self.store = Store("Pod", self._changed)
        self.store.add_scope("")
        self.failures: list[str] = []
        api = server.api(proxy.port if proxy else None)
        self.watch = Watch(api, self.store, "", LABEL, seconds, self.failures.append)
        self.watch.start()

    def _changed(self, kind: str, before: Any, after: Any) -> None:
        names = [item and item["metadata"]["name"] for item in (before, after)]
        self.changes.append((names[0], names[1]))

    def names(self) -> list[str]:
        return sorted(item["metadata"]["name"] for item in self.store.all())

    def has(self, *names: str) -> Callable[[], bool]:
        return lambda: self.store.synced and self.names() == sorted(names)


def wait_for(condition: Callable[[], Any], seconds: float = WAIT_SECONDS) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.005)


@pytest.fixture
def following(server: ApiServer) -> Iterator[Callable[..., Following]]:
    made: list[Following] = []

    def make(*arguments: Any, **options: Any) -> Following:
        made.append(Following(server, *arguments, **options))
        return made[-1]

    yield make
    for item in made:
        item.watch.stop()


def test_it_lists_then_follows_what_the_server_selects(
    server: ApiServer, following: Callable[..., Following]
) -> None:
    server.put("pods", pod("first"))
    server.put("pods", {"metadata": {"namespace": "shop", "name": "foreign"}})
    seen = following()
    wait_for(seen.has("first"))
    server.put("pods", pod("second"))
    server.put("pods", pod("first", status={"phase": "Running"}))
    wait_for(seen.has("first", "second"))
    wait_for(lambda: (seen.store.get("shop", "first") or {}).get("status"))
    server.remove("pods", "shop", "second")
    wait_for(seen.has("first"))
    assert seen.changes == [
        (None, "first"), (None, "second"), ("first", "first"), ("second", None),
    ]  # fmt: skip
    assert server.requests["list", "pods"] == 1


def test_a_list_takes_away_what_vanished_meanwhile(
    server: ApiServer, following: Callable[..., Following]
) -> None:
    server.put("pods", pod("first"))
    server.put("pods", pod("second"))
    seen = following(seconds=1)
    wait_for(seen.has("first", "second"))
    server.remove("pods", "shop", "second", silently=True)
    server.forget_history()
    wait_for(seen.has("first"))
    assert server.requests["list", "pods"] == 2


def test_truncated_lists_only_cost_time(
    server: ApiServer, following: Callable[..., Following]
) -> None:
    server.put("pods", pod("first"))
    server.truncate_lists = 2
    seen = following()
    wait_for(seen.has("first"))
    assert seen.failures == ["Pod", "Pod"]


@pytest.mark.parametrize("code", [403, 500, 503])
def test_refused_watches_are_made_anew(
    server: ApiServer, following: Callable[..., Following], code: int
) -> None:
    server.refuse["watch", "pods"] = code
    seen = following()
    wait_for(lambda: seen.failures)
    server.put("pods", pod("late"))
    server.refuse.clear()
    wait_for(seen.has("late"))


@pytest.mark.parametrize("fault", ["cut", "reset"])
def test_a_connection_that_ends_is_made_anew_and_nothing_is_missed(
    server: ApiServer,
    following: Callable[..., Following],
    fault: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # However often it is refused until we let it in again.
    monkeypatch.setattr("embertide_operator.api.watch._RELIST_AFTER", 1000)
    with tcp_proxy("127.0.0.1", server.port) as proxy:
        seen = following(proxy)
        wait_for(lambda: server.requests["watch", "pods"] == 1)
        proxy.refuse = True
        getattr(proxy, fault)()
        server.put("pods", pod("meanwhile"))
        wait_for(lambda: seen.failures)
        proxy.refuse = False
        wait_for(seen.has("meanwhile"))
    assert server.requests["list", "pods"] == 1, "it went on from the last version"


def test_an_event_that_is_cut_in_the_middle_is_not_taken(
    server: ApiServer, following: Callable[..., Following]
) -> None:
    with tcp_proxy("127.0.0.1", server.port) as proxy:
        seen = following(proxy)
        wait_for(lambda: server.requests["watch", "pods"] == 1)
        time.sleep(0.05)  # the head of the answer is through
        proxy.cut_after = 60
        server.put("pods", pod("cut"))
        wait_for(seen.has("cut"))
        assert seen.failures == ["Pod"]


def test_a_connection_that_died_silently_is_given_up(
    server: ApiServer, following: Callable[..., Following], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a node's crash or a firewall's timeout: no end, no reset, nothing comes."""
    monkeypatch.setattr("embertide_operator.api.transport._WATCH_MARGIN_SECONDS", 0.2)
    with tcp_proxy("127.0.0.1", server.port) as proxy:
        seen = following(proxy, seconds=1)
        wait_for(lambda: server.requests["watch", "pods"] == 1)
        proxy.silent = True
        server.put("pods", pod("unheard"))
        wait_for(lambda: seen.failures)
        assert seen.store.silence(0.0) > 1
        proxy.silent = False
        proxy.cut()
        wait_for(seen.has("unheard"))


def test_an_error_of_our_own_does_not_end_it(
    server: ApiServer, following: Callable[..., Following]
) -> None:
    seen = following()
    wait_for(lambda: server.requests["watch", "pods"] == 1)
    real, failed = seen.store.on_change, []

    def fail_once(*arguments: Any) -> None:
        if not failed:
            failed.append(1)
            raise KeyError("metadata")
        real(*arguments)

    seen.store.on_change = fail_once
    server.put("pods", pod("first"))
    wait_for(lambda: server.requests["list", "pods"] == 2)
    server.put("pods", pod("second"))
    wait_for(seen.has("first", "second"))


class TestStore:
    """Versions decide, whatever came first."""

    @pytest.fixture
    def store(self) -> Store:
        found = Store("Pod", lambda *_: None)
        found.add_scope("")
        found.replace("", [], "100")
        return found

    @staticmethod
    def at(version: int, name: str = "a") -> dict[str, Any]:
        item = pod(name)
        item["metadata"]["resourceVersion"] = str(version)
        return item

    def version(self, store: Store) -> int | None:
        found = store.get("shop", "a")
        return int(found["metadata"]["resourceVersion"]) if found else None

    def test_an_own_write_is_seen_before_its_event_and_stays_beyond_older_ones(
        self, store: Store
    ) -> None:
        store.written(self.at(120))
        store.event("", "MODIFIED", self.at(110))
        assert self.version(store) == 120

    def test_an_own_write_that_the_watch_has_told_and_taken_away_stays_away(
        self, store: Store
    ) -> None:
        store.event("", "ADDED", self.at(110))
        store.event("", "DELETED", self.at(130))
        store.written(self.at(120))
        assert self.version(store) is None

    def test_a_list_keeps_what_was_written_after_it(self, store: Store) -> None:
        store.written(self.at(120))
        store.replace("", [], "110")
        assert self.version(store) == 120
        store.replace("", [], "130")
        assert self.version(store) is None

    def test_storage_that_was_restored_from_a_backup_is_believed(self, store: Store) -> None:
        store.event("", "ADDED", self.at(110))
        store.replace("", [self.at(50)], "60")
        assert self.version(store) == 50

    def test_objects_are_found_by_their_job(self, store: Store) -> None:
        for name in ("b", "a"):
            store.event("", "ADDED", self.at(110, name))
        assert [item["metadata"]["name"] for item in store.of_job("shop", "a")] == ["a", "b"]
        moved = self.at(120)
        moved["metadata"]["labels"] = {LABEL: "other"}
        store.event("", "MODIFIED", moved)
        assert [item["metadata"]["name"] for item in store.of_job("shop", "a")] == ["b"]

    def test_what_nobody_reads_is_not_kept(self, store: Store) -> None:
        item = self.at(110)
        item["metadata"]["managedFields"] = [{"manager": "kubectl"}]
        store.event("", "ADDED", item)
        assert "managedFields" not in (store.get("shop", "a") or {})["metadata"]
