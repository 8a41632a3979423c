"""Placeholders of a schedule's job: dates, offsets, formats, and what is refused."""

from __future__ import annotations

import re
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from embertide.submit.firing import Firing, parse_time, parse_zone
from embertide.submit.placeholders import fill
from tests.support.paths import ROOT


def at(text: str, zone: str = "UTC") -> datetime:
    return Firing.at(datetime.fromisoformat(text), ZoneInfo(zone)).time


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("s3://shop/dt={date}/", "s3://shop/dt=2026-11-22/"),
        ("{datetime}", "20261122T0305"),
        ("{date-1d}", "2026-11-21"),
        ("{date+10d}", "2026-12-02"),
        ("{date-1w}", "2026-11-15"),
        ("{date-4h}", "2026-11-21"),
        ("{datetime-4h}", "20261121T2305"),
        ("{date-1mo:%Y-%m}", "2026-10"),
        ("year={date:%Y}/month={date:%m}/{date-1d}", "year=2026/month=11/2026-11-21"),
        ("{datetime:%Y-%m-%dT%H:%M%z}", "2026-11-22T03:05+0000"),
        ("{{date}} {{", "{date} {"),
        ("no placeholder", "no placeholder"),
    ],
)
def test_filled(text: str, filled: str) -> None:
    assert fill(text, at("2026-11-22T03:05:59Z")) == filled


@pytest.mark.parametrize(
    ("time", "text", "filled"),
    [
        ("2026-03-31T03:00Z", "{date-1mo}", "2026-02-28"),
        ("2028-03-31T03:00Z", "{date-1mo}", "2028-02-29"),
        ("2026-01-31T03:00Z", "{date-1mo}", "2025-12-31"),
        ("2026-10-31T03:00Z", "{date+1mo}", "2026-11-30"),
        ("2026-01-15T03:00Z", "{date-13mo}", "2024-12-15"),
        ("2026-03-01T03:00Z", "{date-1d}", "2026-02-28"),
        ("2028-03-01T03:00Z", "{date-1d}", "2028-02-29"),
        ("2027-01-01T03:00Z", "{date-1d} {date:%G-W%V}", "2026-12-31 2026-W53"),
    ],
)
def test_ends_of_months_and_years(time: str, text: str, filled: str) -> None:
    assert fill(text, at(time)) == filled


def test_the_date_is_that_of_the_zone() -> None:
    """Shortly after midnight in Berlin it is yesterday in UTC and the day before in Honolulu."""
    text = "2026-11-21T23:30Z"
    assert fill("{date}", at(text)) == "2026-11-21"
    assert fill("{date}", at(text, "Europe/Berlin")) == "2026-11-22"
    assert fill("{date-1d}", at(text, "Europe/Berlin")) == "2026-11-21"
    assert fill("{date-12h}", at(text, "Pacific/Honolulu")) == "2026-11-21"


def test_a_day_is_one_of_the_calendar_when_clocks_change() -> None:
    """Summer time begins on 29 March and ends on 25 October 2026 in Berlin, at 01:00 UTC."""
    after = at("2026-03-29T22:30Z", "Europe/Berlin")  # 00:30 on the 30th, after a day of 23 hours
    assert fill("{date-1d} {datetime-1d}", after) == "2026-03-29 20260329T0030"
    assert fill("{date-24h} {datetime-24h}", after) == "2026-03-28 20260328T2330"
    autumn = at("2026-10-25T23:30Z", "Europe/Berlin")  # 00:30 on the 26th, after 25 hours
    assert fill("{datetime-1d}", autumn) == "20261025T0030"
    assert fill("{datetime-24h}", autumn) == "20261025T0130"


def test_a_time_that_summer_time_skips_becomes_an_hour_later() -> None:
    day_after = at("2026-03-30T00:30Z", "Europe/Berlin")  # 02:30; there was none on the 29th
    assert fill("{datetime-1d:%H:%M}", day_after) == "03:30"


def test_an_hour_that_comes_twice_is_told_apart_by_its_offset() -> None:
    texts = ("2026-10-25T00:30Z", "2026-10-25T01:30Z")
    filled = [fill("{datetime:%H%M%z}", at(text, "Europe/Berlin")) for text in texts]
    assert filled == ["0230+0200", "0230+0100"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dt={dat}/", "unknown placeholder {dat}, did you mean {date}?"),
        ("{ds}", "unknown placeholder {ds}; allowed: {date}, {datetime}"),
        ("{}", "unknown placeholder {}"),
        ("{date-1}", "unknown placeholder {date-1}"),
        ("{date-1y}", "unknown unit 'y'; allowed: h, d, w and mo"),
        ("{date:%Q}", "%Q in {date:%Q}; allowed: %Y"),
        ("{date:%}", "has % in {date:%}"),
        ("{date", "a single '{'; write {{ for a brace"),
        ("date}", "a single '}'; write }} for a brace"),
        ("{date-9999999d}", "{date-9999999d}, which leads out of the calendar"),
        ("{date-99999mo}", "which leads out of the calendar"),
    ],
)
def test_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match="has ") as caught:
        fill(text, at("2026-11-22T03:05Z"))
    assert message in str(caught.value)


def test_the_documentation_has_examples_that_hold() -> None:
    text = (ROOT / "docs/schedules.md").read_text()
    values = dict(re.findall(r"^\| `(\{date[^`]*)` \| `([^`]+)` \|$", text, re.MULTILINE))
    assert values == {name: fill(name, at("2026-11-22T03:00Z")) for name in values}
    assert values.keys() == {"{date}", "{datetime}"}
    table = text.partition("## Placeholders")[2].partition("All are about")[0]
    for name in re.findall(r"`(\{date[^`]*\})`", table):
        assert "{" not in fill(name, at("2026-11-22T03:00Z"))


def test_times_of_the_command_line() -> None:
    berlin = parse_zone("Europe/Berlin")
    assert parse_time("2026-11-22T03:00", berlin).isoformat() == "2026-11-22T03:00:00+01:00"
    assert parse_time("2026-07-22", berlin).isoformat() == "2026-07-22T00:00:00+02:00"
    assert parse_time("2026-11-22T03:00Z", berlin).isoformat() == "2026-11-22T03:00:00+00:00"
    with pytest.raises(ValueError, match="--at is '3 am'; must be now, or a time such as"):
        parse_time("3 am", berlin)
    for zone in ("Mars/Base", "../etc/passwd", "", "/etc/passwd", "Europe"):
        with pytest.raises(ValueError, match="--time-zone is "):
            parse_zone(zone)
