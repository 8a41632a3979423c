"""Good jobs and wrong ones at once: each ends as it should, and the user sees why."""

from __future__ import annotations

import pytest

from tests.support.cluster.fixture import KubernetesCluster
from tests.support.cluster.jobs import Inputs
from tests.support.cluster.trial import run_trial
from tests.support.cluster.wrong_jobs import WRONG

pytestmark = pytest.mark.cluster


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("good", "wrong"), [(6, len(WRONG)), pytest.param(134, 66, marks=pytest.mark.tier(3))]
)
def test_every_wrong_job_says_why_and_good_ones_are_published(
    cluster: KubernetesCluster,
    operator: str,
    tiny: Inputs,
    small: Inputs,
    big: Inputs,
    good: int,
    wrong: int,
) -> None:
    del operator  # brings the definition of the jobs
    trial = run_trial(cluster, (tiny, small, big), good, wrong)
    print(trial.table())
    assert trial.problems == []
    assert len(trial.ended) == good + wrong
