"""The operator's settings and its log, without a cluster."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from typing import Any

import pytest

from embertide_operator.config.settings import Settings
from embertide_operator.runtime import logs
from tests.support.paths import ROOT


def read(**variables: str) -> Settings:
    return Settings.from_environment({f"EMBERTIDE_{k.upper()}": v for k, v in variables.items()})


def test_settings_come_from_the_environment() -> None:
    settings = read(namespaces="shop,search", backoff_seconds="2.5", log_format="json")
    assert settings.namespaces == ("shop", "search")
    assert (settings.backoff_seconds, settings.log_format, settings.port) == (2.5, "json", 8080)
    assert Settings.from_environment({"OTHER": "x"}) == Settings()


def test_none_and_twice() -> None:
    settings = read(namespaces="", worker_user="")
    assert (settings.namespaces, settings.worker_user) == ((), None)
    assert read(namespaces="shop,shop").namespaces == ("shop",)


@pytest.mark.parametrize(
    ("variable", "value", "allowed"),
    [
        ("port", "http", "a port, 1 to 65535"),
        ("port", "0", "a port"),
        ("backoff_seconds", "abc", "a number of seconds above 0"),
        ("backoff_seconds", "-1", "a number of seconds above 0"),
        ("resync_seconds", "0", "a number of seconds above 0"),
        ("stale_seconds", "nan", "a number of seconds above 0"),
        ("namespaces", "a b", "names of namespaces"),
        ("namespaces", "a,,b", "names of namespaces"),
        ("namespaces", "-a", "names of namespaces"),
        ("worker_user", "0", "a user id from 1, or empty"),
        ("disruption_limit", "0", "a number from 1"),
        ("disruption_limit", "many", "a number from 1"),
        ("pull_policy", "Sometimes", "one of Always, IfNotPresent, Never"),
        ("operator_class", "GPU", "lower-case letters, digits and '-'"),
        ("lease_seconds", "1.5", "a whole number of seconds above 0"),
        ("log_level", "loud", "one of debug, info, warning, error"),
        ("log_format", "xml", "one of text, json"),
        ("network_policy", "yes", "one of true, false"),
        ("pod_groups", "kueue", "volcano, coscheduling or empty"),
        ("gpu_node_labels", "gpu,,big", "keys of labels with commas between them"),
        ("gpu_node_labels", "/gpu", "keys of labels"),
    ],
)
def test_a_value_that_is_not_allowed_is_named(variable: str, value: str, allowed: str) -> None:
    name = f"EMBERTIDE_{variable.upper()}"
    with pytest.raises(ValueError, match=f"^{name} is '{value}'; must be {allowed}"):
        read(**{variable: value})


def test_stale_before_the_next_resync_would_restart_a_healthy_operator() -> None:
    with pytest.raises(ValueError, match=r"STALE_SECONDS \(20\) must be more than .* \(30\)"):
        read(resync_seconds="30", stale_seconds="20")


def test_a_lease_outlasts_the_leader_that_cannot_renew_it() -> None:
    with pytest.raises(ValueError, match=r"LEASE_SECONDS \(10\) must be more than .* \(10\)"):
        read(lease_seconds="10")
    with pytest.raises(ValueError, match=r"RENEW_SECONDS \(2\) must be more than .* \(2\)"):
        read(renew_seconds="2")


def test_an_operator_is_called_by_its_namespace_and_name() -> None:
    assert read(own_namespace="tools", own_name="embertide-operator").identity == (
        "tools/embertide-operator"
    )
    assert read(own_namespace="tools").identity == ""


def test_the_process_ends_with_2_and_says_which_variable_is_wrong() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "embertide_operator"],
        env=os.environ | {"EMBERTIDE_BACKOFF_SECONDS": "abc"},
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert ended.returncode == 2
    assert "EMBERTIDE_BACKOFF_SECONDS is 'abc'" in ended.stderr


@pytest.fixture
def root_logger() -> Any:
    """The root logger as it was, afterwards; pytest's handlers are there meanwhile."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield root
    logging.captureWarnings(False)
    root.handlers[:] = handlers
    root.setLevel(level)


def test_json_logs_are_one_object_a_line(root_logger: logging.Logger) -> None:
    logs.configure(read(log_format="json", log_level="warning"))
    formatter = root_logger.handlers[-1].formatter
    assert formatter is not None
    record = logging.LogRecord("embertide", logging.ERROR, "x.py", 1, "%s/%s: no", ("a", "b"), None)
    line = formatter.format(record)
    assert "\n" not in line
    told = json.loads(line)
    assert (told["message"], told["severity"]) == ("a/b: no", "error")
    assert told["timestamp"]
    assert root_logger.level == logging.WARNING


def test_text_logs_have_level_and_message(root_logger: logging.Logger) -> None:
    logs.configure(read())
    formatter = root_logger.handlers[-1].formatter
    assert formatter is not None
    record = logging.LogRecord("embertide", logging.INFO, "x.py", 1, "hello", (), None)
    assert formatter.format(record).endswith(" [INFO    ] hello")
    assert logging.getLogger("kopf").level == logging.WARNING


def test_debug_lets_the_libraries_speak(root_logger: logging.Logger) -> None:
    logs.configure(read(log_level="debug"))
    assert logging.getLogger("kopf").level == logging.DEBUG
    logs.configure(Settings())
