"""The dashboard of one job: its attempt, its communication groups, its memory, its last run."""

from __future__ import annotations

from grafana_foundation_sdk.models.common import BigValueTextMode
from grafana_foundation_sdk.models.dashboard import Dashboard

from tools.dashboards.grafana import (
    ORANGE,
    Query,
    bars,
    graph,
    levels,
    now,
    stat,
    timeline,
)
from tools.dashboards.job_exchange import add_exchange, add_groups
from tools.dashboards.job_push import add_push
from tools.dashboards.job_queries import JOB, last, over_time, rate, run_total
from tools.dashboards.job_resources import (
    add_changes,
    add_last_run,
    add_memory,
    add_reused,
    add_storage,
)
from tools.dashboards.layout import Board, choice, link

UID = "embertide-job"


def job() -> Dashboard:
    """The whole dashboard."""
    chosen = 'job_namespace="$namespace"'
    board = Board(
        UID,
        "Embertide / Job",
        "One EmbeddingJob: stages, communication groups on the P x M grid, memory, object store.",
        [
            choice("namespace", "Namespace", "label_values(embertide_job_info, job_namespace)"),
            choice("job", "Job", f"label_values(embertide_job_info{{{chosen}}}, job_name)"),
            choice(
                "attempt",
                "Attempt",
                f"label_values(embertide_worker_info{{{JOB}}}, attempt)",
                newest=True,
            ),
        ],
        [link("Embertide / Fleet", "embertide-fleet")],
    )
    _overview(board)
    _stages(board)
    add_groups(board)
    add_exchange(board)
    add_memory(board)
    add_storage(board)
    add_last_run(board)
    add_reused(board)
    add_changes(board)
    add_push(board)
    return board.build()


def _overview(board: Board) -> None:
    board.section("Overview")
    for panel in (
        stat(
            "Phase",
            "Phase of the job, as kubectl get ej shows it.",
            "none",
            now(f"max by (phase) (embertide_job_phase{{{JOB}}}) == 1", "{{phase}}"),
            text_mode=BigValueTextMode.NAME,
        ),
        stat(
            "Progress",
            "Share of the current attempt that is done.",
            "percentunit",
            now(f"max(embertide_job_progress_ratio{{{JOB}}})", "progress"),
            decimals=0,
        ),
        stat(
            "Workers ready",
            "Workers of the current attempt that are ready; none once they are stopped.",
            "none",
            now(f'max(embertide_job_workers{{{JOB}, state="ready"}})', "ready"),
        ),
        stat(
            "Failed attempts",
            "Failed attempts that count against spec.backoffLimit.",
            "none",
            now(f"max(embertide_job_failures{{{JOB}}})", "failures"),
            thresholds=levels((1, ORANGE)),
        ),
        stat(
            "Nodes",
            "Nodes of the whole graph.",
            "short",
            now(f"max({run_total('nodes')} or {last('embertide_graph_nodes')})", "nodes"),
        ),
        stat(
            "Edges",
            "Edges of the whole graph.",
            "short",
            now(f"max({run_total('edges')} or {last('embertide_graph_edges')})", "edges"),
        ),
    ):
        board.add(panel, 4, 4)


def _stages(board: Board) -> None:
    board.section("Stages")
    board.add(
        timeline(
            "Stages over time",
            "In which stages workers are; a stage is marked while at least one worker is in it.",
            Query(f"max by (stage) ({over_time('embertide_stage_current')})", "{{stage}}"),
        ),
        12,
    )
    board.add(
        bars(
            "Time in each stage",
            "Seconds of the worker that was longest in a stage.",
            "s",
            now(
                f"sort_desc(max by (stage) ({run_total('stage_seconds')}) "
                f"or max by (stage) ({last('embertide_stage_seconds_total')}))",
                "{{stage}}",
            ),
        ),
        6,
    )
    board.add(
        graph(
            "Progress of workers",
            "Share of the run that the first and the last worker have done.",
            "percentunit",
            Query(f"max({over_time('embertide_progress_ratio')})", "first"),
            Query(f"min({over_time('embertide_progress_ratio')})", "last"),
            minimum=0,
            maximum=1,
        ),
        6,
    )
    for title, what, metric, unit in (
        ("Edges", "Edges read (ingest) and aggregated (infer)", "edges", "ops"),
        ("Rows", "Rows loaded, computed and written", "rows", "ops"),
    ):
        query = Query(
            f"sum by (stage) ({rate(f'embertide_processed_{metric}_total')})", "{{stage}}"
        )
        text = (
            f"{what}, per second, by all workers together; of a worker that was scraped once, its "
            "average since it began."
        )
        board.add(graph(f"{title} per second", text, unit, query, minimum=0), 12, 7)
