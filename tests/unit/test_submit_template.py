"""From a template and a firing to a job: its name, its labels, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import yaml

from embertide.errors import ClusterError, ManifestError
from embertide.spec import load_manifest, naming
from embertide.submit.firing import Firing, own_job, time_of_job
from embertide.submit.template import job_at, job_of, to_object
from tests.support.manifests import put

FIRING = Firing.at(
    datetime(2026, 11, 22, 2, 0, tzinfo=UTC), ZoneInfo("Europe/Berlin"), automatic=True
)


def submitted(data: dict[str, Any], path: Path, firing: Firing = FIRING) -> dict[str, Any]:
    """What would be created."""
    (path / "job.yaml").write_text(yaml.safe_dump(data))
    return to_object(job_of(path / "job.yaml", firing), "shop")


def problems(data: dict[str, Any], path: Path) -> dict[str, str]:
    with pytest.raises(ManifestError) as caught:
        submitted(data, path)
    return dict(caught.value.problems)


def test_filled_named_and_labelled(example: dict[str, Any], tmp_path: Path) -> None:
    data = put(example, "spec.input.edges.0.uri", "s3://shop/edges/dt={date-1d}/")
    data = put(data, "spec.output.uri", "s3://shop/{date:%Y}/out")
    data["metadata"] |= {"labels": {"team": "search"}, "annotations": {"data": "of {date}"}}
    found = submitted(data, tmp_path)
    assert found["metadata"] == {
        "name": "products-20261122-0200",
        "namespace": "shop",
        "labels": {"team": "search", "embertide.dev/schedule": "products"},
        "annotations": {
            "data": "of 2026-11-22",
            "embertide.dev/scheduled-time": "2026-11-22T02:00:00Z",
        },
    }
    assert found["spec"]["input"]["edges"][0]["uri"] == "s3://shop/edges/dt=2026-11-21/"
    assert found["spec"]["output"]["uri"] == "s3://shop/2026/out"
    # Only what was written: the API server adds the defaults of its release.
    assert found["spec"].keys() == data["spec"].keys()
    assert load_manifest(yaml.safe_dump(found)).metadata.name == "products-20261122-0200"


def test_a_job_for_this_machine_keeps_its_name_and_paths(
    example: dict[str, Any], tmp_path: Path
) -> None:
    data = put(example, "spec.input.edges.0.uri", "edges/")
    window = {"last": "2d", "of": "dt=%Y-%m-%d"}
    data = put(data, "spec.input.edges.0.window", window)
    data = put(data, "spec.output.uri", "out/{date-1d}")
    data["metadata"]["name"] = "x" * naming.MAX_NAME
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(data))
    job = job_at(tmp_path / "job.yaml", Firing.of_text("2026-11-22T00:30", "Europe/Berlin"))
    assert job.metadata.name == data["metadata"]["name"]
    assert not job.metadata.labels
    assert job.spec.output.uri == f"file://{tmp_path}/out/2026-11-21"
    edges = job.spec.input.edges[0]
    assert (edges.uri, edges.window and edges.window.until) == (
        f"file://{tmp_path}/edges/",
        "2026-11-22",
    )
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(put(data, "spec.output.uri", "out/{dat}")))
    with pytest.raises(ManifestError, match=r"unknown placeholder \{dat\}, did you mean \{date\}"):
        job_at(tmp_path / "job.yaml", FIRING)


def test_the_same_minute_has_the_same_name_and_every_other_another() -> None:
    """Also in the night in which an hour comes twice, whatever the zone."""
    zone = ZoneInfo("Europe/Berlin")
    minutes = [datetime(2026, 10, 25, hour, 30, tzinfo=UTC) for hour in (0, 1)]
    firings = [Firing.at(minute, zone) for minute in minutes]
    assert [f"{firing.time:%H:%M}" for firing in firings] == ["02:30", "02:30"]
    names = [naming.scheduled_name("x", firing.time) for firing in firings]
    assert names == ["x-20261025-0030", "x-20261025-0130"]
    late = Firing.at(minutes[0].replace(second=59, microsecond=999), ZoneInfo("UTC"))
    assert naming.scheduled_name("x", late.time) == names[0]


def test_the_longest_name_fits(example: dict[str, Any], tmp_path: Path) -> None:
    longest = "a" * naming.MAX_SCHEDULE_NAME
    found = submitted(put(example, "metadata.name", longest), tmp_path)
    assert len(found["metadata"]["name"]) == naming.MAX_NAME
    too_long = problems(put(example, "metadata.name", longest + "a"), tmp_path)
    assert "has 39 characters; a schedule's can have 38" in too_long["metadata.name"]


def test_unknown_placeholders_name_field_and_line(example: dict[str, Any], tmp_path: Path) -> None:
    data = put(example, "spec.input.edges.0.uri", "s3://shop/{day}/")
    data = put(data, "spec.output.uri", "s3://shop/{date:%Q}/")
    found = problems(data, tmp_path)
    assert found.keys() == {"spec.input.edges[0].uri", "spec.output.uri"}
    text = (tmp_path / "job.yaml").read_text().splitlines()
    for path, message in found.items():
        line = text[int(message.rpartition("(line ")[2].rstrip(")")) - 1]
        assert line.strip(" -").startswith("uri: s3://shop/{"), path


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("metadata.name", "products-{date}", "must have no placeholder"),
        ("spec.ttlSecondsAfterFinished", 60, "must be at least 3600 in a schedule"),
        ("spec.output.uri", "out/{date}", "a relative path"),
        ("spec.backoffLimit", -1, "must be at least 0"),
        ("spec.modle", {}, "did you mean 'model'?"),
    ],
)
def test_refused(
    example: dict[str, Any], tmp_path: Path, path: str, value: Any, message: str
) -> None:
    with pytest.raises(ManifestError) as caught:
        submitted(put(example, path, value), tmp_path)
    assert message in str(caught.value)


def test_a_job_by_hand_may_vanish_at_once(example: dict[str, Any], tmp_path: Path) -> None:
    by_hand = Firing.at(FIRING.time, ZoneInfo("UTC"))
    found = submitted(put(example, "spec.ttlSecondsAfterFinished", 0), tmp_path, by_hand)
    assert found["spec"]["ttlSecondsAfterFinished"] == 0


def test_all_problems_at_once(example: dict[str, Any], tmp_path: Path) -> None:
    data = put(put(example, "spec.model.uri", "s3://{x}"), "spec.backoffLimit", "many")
    assert problems(data, tmp_path).keys() >= {"spec.model.uri", "spec.backoffLimit"}


def test_pods_braces_are_left_alone(example: dict[str, Any], tmp_path: Path) -> None:
    template = {"spec": {"containers": [{"name": "worker", "args": ['{"a": {date}}']}]}}
    found = submitted(put(example, "spec.workers.podTemplate", template), tmp_path)
    assert found["spec"]["workers"]["podTemplate"] == template


def test_placeholders_that_yaml_does_not_see(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("spec: {uri: s3://shop/{date}/}\n")
    with pytest.raises(ManifestError, match="needs quotes around the text"):
        job_of(tmp_path / "job.yaml", FIRING)


def kubernetes_job(**annotations: str) -> dict[str, Any]:
    meta = {"name": "products-29", "creationTimestamp": "2026-11-22T03:17:42Z"}
    return {"metadata": meta | {"annotations": annotations}}


def test_the_time_of_a_cron_job_is_the_scheduled_one() -> None:
    scheduled = {"batch.kubernetes.io/cronjob-scheduled-timestamp": "2026-11-22T03:00:00+01:00"}
    assert time_of_job(kubernetes_job(**scheduled)) == datetime(2026, 11, 22, 2, tzinfo=UTC)


def test_the_time_of_a_job_made_by_hand_is_when_it_was_created() -> None:
    by_hand = {"cronjob.kubernetes.io/instantiate": "manual"}
    assert time_of_job(kubernetes_job(**by_hand)) == datetime(2026, 11, 22, 3, 17, 42, tzinfo=UTC)


def test_an_annotation_that_is_no_time() -> None:
    broken = {"batch.kubernetes.io/cronjob-scheduled-timestamp": "soon"}
    with pytest.raises(ClusterError, match=r"products-29: annotation .* is 'soon'"):
        time_of_job(kubernetes_job(**broken))


def test_elsewhere_the_time_has_to_be_given() -> None:
    assert own_job({"EMBERTIDE_SUBMIT_JOB": "products-29"}) == "products-29"
    with pytest.raises(ValueError, match=r"give --at TIME.*set EMBERTIDE_SUBMIT_JOB from"):
        own_job({"EMBERTIDE_SUBMIT_JOB": ""})


def test_a_window_ends_on_the_day_of_the_firing_unless_it_says_otherwise(
    example: dict[str, Any], tmp_path: Path
) -> None:
    window = {"last": "7d", "of": "dt=%Y-%m-%d"}
    edges = "spec.input.edges.0"
    data = put(put(example, f"{edges}.uri", "s3://shop/edges/"), f"{edges}.window", window)
    features = "spec.input.nodes.0.features.window"
    data = put(data, features, window | {"until": "{date-1d}", "missingDays": "allow"})
    given = submitted(data, tmp_path)["spec"]["input"]
    assert given["edges"][0]["window"] == window | {"until": "2026-11-22"}
    assert given["nodes"][0]["features"]["window"]["until"] == "2026-11-21"
    # 23:30 of the day before in UTC is that night in Berlin.
    late = Firing.at(datetime(2026, 11, 21, 23, 30, tzinfo=UTC), ZoneInfo("Europe/Berlin"))
    assert submitted(data, tmp_path, late)["spec"]["input"]["edges"][0]["window"]["until"] == (
        "2026-11-22"
    )
