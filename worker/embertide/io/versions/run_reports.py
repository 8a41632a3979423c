"""What a run did, kept beside its version's manifest: as data, and as the page drawn from it.

A version is complete and read without them. They go when the version goes, like all that lies under
its prefix.
"""

from __future__ import annotations

import json
from typing import Any

from embertide.errors import ObjectMissing, OutputError
from embertide.facts.telemetry.report import RunReport
from embertide.facts.telemetry.strict_json import json_text
from embertide.io.storage.protocol import Storage
from embertide.spec.version_names import REPORT_DATA, REPORT_PAGE, version_uri


def write_report(storage: Storage, output_uri: str, report: RunReport, page: str) -> None:
    """Keep a run's report and its page; one process of the run calls, once it has published.

    Raises:
        StorageError, OutputError: the store refused or failed.
    """
    uri = version_uri(output_uri, report.version)
    data = json_text(report.to_json(), indent=1).encode() + b"\n"
    storage.write(f"{uri}/{REPORT_DATA}", data)
    storage.write(f"{uri}/{REPORT_PAGE}", page.encode())


def read_report(storage: Storage, output_uri: str, version: str) -> RunReport:
    """What the run that published a complete version did.

    Raises:
        ObjectMissing: the version has no report.
        OutputError: the report is damaged.
    """
    uri = f"{version_uri(output_uri, version)}/{REPORT_DATA}"
    try:
        data: dict[str, Any] = json.loads(storage.read(uri))
        return RunReport.from_json(data)
    except ObjectMissing:
        raise ObjectMissing(
            f"{version} of {output_uri} has no report: there is no {uri}. Releases before reports"
            " wrote none, nor do runs that could not write it; runs from now on do"
        ) from None
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise OutputError(
            f"{uri} is damaged, or of another release ({error!r}); the embeddings are not"
            " concerned, and embertide versions says what else is published"
        ) from error
