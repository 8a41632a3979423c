"""What pods report to the operator: texts that fit where Kubernetes puts them."""

from __future__ import annotations

import json

import pytest

from embertide.spec.reports import Ending, OutputReport

OUTPUT = OutputReport(
    version="20261121T041922Z-3fa9c1",
    uri="s3://shop/embeddings/versions/20261121T041922Z-3fa9c1",
    rows=10,
    dim=4,
    manifest_digest="0" * 64,
    job_uid="9c2f",
    attempt=2,
)


def test_an_output_names_its_job_and_attempt() -> None:
    told = json.loads(OUTPUT.to_text())
    assert (told["jobUid"], told["attempt"]) == ("9c2f", 2)
    assert OutputReport.parse(OUTPUT.to_text()) == OUTPUT


def test_an_output_of_an_earlier_release_has_no_job() -> None:
    told = json.loads(OUTPUT.to_text())
    del told["jobUid"], told["attempt"]
    found = OutputReport.parse(json.dumps(told))
    assert found == OUTPUT.model_copy(update={"job_uid": "", "attempt": 0})


@pytest.mark.parametrize("letter", ["x", "é", "𝕏"])
def test_an_output_fits_into_a_termination_message(letter: str) -> None:
    """The longest URI that a manifest may have, with the version below it."""
    uri = "s3://shop/" + letter * 2038 + "/versions/" + OUTPUT.version
    report = OUTPUT.model_copy(update={"uri": uri, "job_uid": "u" * 36})
    text = report.to_text()
    assert len(text.encode()) <= 4000
    found = OutputReport.parse(text)
    assert found is not None
    kept = uri if len(uri.encode()) < 3000 else ""
    assert found == report.model_copy(update={"uri": kept})


def test_an_output_is_no_ending_and_the_other_way_round() -> None:
    ending = Ending(reason="Input", message="bad", exit_code=3)
    assert Ending.parse(OUTPUT.to_text()) is None
    assert OutputReport.parse(ending.to_text()) is None
