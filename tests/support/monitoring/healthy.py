"""The series of a healthy cluster in promtool's notation, from which every fault differs.

One sample a minute: ``0+60x120`` starts at 0 and grows by 60 a sample, 120 times. The clock starts
at 0, so timestamps are small numbers.
"""

from __future__ import annotations

Series = dict[str, str]

JOB = 'job_namespace="shop", job_name="products"'
ACCEPTED = f'{JOB}, condition="Accepted"'
_RUN = f'{JOB}, attempt="1"'
OUTPUT = 'job_namespace="shop", output="s3://shop/products"'
OPERATOR = 'namespace="embertide", pod="operator-1"'
SHARED = 'axis="graph", primitive="spmm", layer="1"'
PLACES = ((0, 0), (0, 1), (1, 0), (1, 1))


def worker(rank: int) -> str:
    """The labels of a worker of the job."""
    graph, feature = PLACES[rank]
    return f'{_RUN}, rank="{rank}", graph_rank="{graph}", feature_rank="{feature}"'


def _of_worker(rank: int) -> Series:
    who = worker(rank)
    return {
        f"embertide_worker_info{{{who}}}": "1x120",
        f'embertide_processed_edges_total{{{who}, stage="infer"}}': "0+1000x120",
        f'embertide_processed_rows_total{{{who}, stage="infer"}}': "0+100x120",
        f"embertide_exchange_sent_bytes_total{{{who}, {SHARED}}}": "0+1000x120",
        f"embertide_exchange_wait_seconds_sum{{{who}, {SHARED}}}": "0+6x120",
        f"embertide_memory_resident_bytes{{{who}}}": "600x120",
        f"embertide_memory_container_bytes{{{who}}}": "700x120",
        f"embertide_memory_limit_bytes{{{who}}}": "1000x120",
        f"embertide_storage_read_bytes_total{{{who}}}": "0+10x120",
        f"embertide_storage_written_bytes_total{{{who}}}": "0+10x120",
        f'embertide_storage_requests_total{{{who}, operation="GetObject"}}': "0+60x120",
        f'embertide_storage_retries_total{{{who}, operation="GetObject"}}': "0x120",
        f'embertide_storage_errors_total{{{who}, operation="GetObject"}}': "0x120",
    }


def healthy() -> Series:
    """A job of four workers that runs, its output published at time 0, and the operator."""
    series = {
        f'embertide_operator_info{{{OPERATOR}, version="1"}}': "1x120",
        f"embertide_operator_leader{{{OPERATOR}}}": "1x120",
        f"embertide_operator_last_resync_timestamp_seconds{{{OPERATOR}}}": "0+60x120",
        f"embertide_operator_queue_lateness_seconds{{{OPERATOR}}}": "0x120",
        f'embertide_operator_reconciles_total{{{OPERATOR}, outcome="ok"}}': "0+30x120",
        f'embertide_operator_reconciles_total{{{OPERATOR}, outcome="conflict"}}': "0+1x120",
        f'embertide_operator_api_requests_total{{{OPERATOR}, verb="get", code="200"}}': "0+60x120",
        f'embertide_job_info{{{OUTPUT}, job_name="products"}}': "1x120",
        f'embertide_job_phase{{{JOB}, phase="Running"}}': "1x120",
        f'embertide_job_condition{{{ACCEPTED}, reason="Valid"}}': "1x120",
        f"embertide_job_progress_ratio{{{JOB}}}": "0+0.005x120",
        f"embertide_job_failures{{{JOB}}}": "0x120",
        f'embertide_job_workers{{{JOB}, state="ready"}}': "4x120",
        f"embertide_output_first_job_timestamp_seconds{{{OUTPUT}}}": "0x120",
        f"embertide_output_last_success_timestamp_seconds{{{OUTPUT}}}": "0x120",
        f"embertide_output_freshness_objective_seconds{{{OUTPUT}}}": "86400x120",
    }
    for rank in range(len(PLACES)):
        series |= _of_worker(rank)
    return series
