"""What is kept yields to the version on a disk that has no room for both."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.support import small_disk
from tests.support.synthetic import make_synthetic

pytestmark = [
    pytest.mark.distributed,
    pytest.mark.skipif(bool(small_disk.missing()), reason=small_disk.missing()),
]

_STORY = """
run() { "$python" -m embertide run "$@" -q 2>&1 | grep -o -E '^(Published|embertide: error.*)'; }
"$python" -m embertide plan $1/keep.yaml --json | grep -o 'nothing is kept.*version.s [^"]*'
# What killed attempts have left takes all that there is.
killed=$disk/out/_layers/0123456789abcdef0123456789abcdef/blocks/20261126T180000Z-000000
mkdir -p $killed
cat /dev/zero > $killed/x-000-00000-000000 2>/dev/null
for job in keep no; do run $1/$job.yaml --force; done
echo "kept: $(find $disk/out/_layers -type f 2>/dev/null | wc -l)"
"""


def test_kept_rows_yield_to_the_version(tmp_path: Path) -> None:
    made = make_synthetic(
        tmp_path / "job", "--nodes", "20000", "--edge-factor", "8", "--conv", "gcn", "--width",
        "32", "--hidden", "32", "--embedding", "16",
    )  # fmt: skip
    job, disk = yaml.safe_load(made.read_text()), tmp_path / "disk"
    job["spec"]["output"] = {"uri": (disk / "out").as_uri(), "keepVersions": 1}
    for name, refresh in (("keep", {"keep": True, "resume": "never"}), ("no", {"keep": False})):
        job["spec"]["refresh"] = refresh
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(job))
    out = small_disk.run_with_disk(disk, 6 << 20, _STORY, str(tmp_path)).splitlines()
    assert re.fullmatch(r"nothing is kept .* beside the version's 1\.4 MiB", out.pop(0)), out
    assert out == ["Published", "Published", "kept: 0"]
