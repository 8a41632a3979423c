"""A sum over edges with its tensors in host memory, beside the same with all on the GPU.

    python -m benchmarks.gpu_host --scale 22 --width 256 --panel 64

Panels are copied to the GPU and back beside the kernels, as layers do it where a GPU is smaller
than the graph's tensors. *link* is what copies alone take, both ways at a time: its share says how
far the sum is bound by the link; *sum* is the kernel with all on the GPU, as a share of what the
memory's bandwidth gives where each source row comes from memory. Results are compared before
anything is measured.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from benchmarks.dataset import rmat
from benchmarks.edges import sort_edges
from embertide.kernels.block import Block
from embertide.kernels.epilogue import NOTHING, Factors
from embertide.kernels.host_store import HostStore, HostTensor
from embertide.kernels.lanes import Lanes, lanes_of
from embertide.kernels.spmm import reduce_rows
from embertide.kernels.staging import Staging

Calls = dict[str, Callable[[], None]]


@dataclass(frozen=True)
class Sum:
    """A graph and its source rows, on a device and in host memory."""

    lanes: Lanes
    block: Block
    x: torch.Tensor
    out: torch.Tensor
    store: HostStore
    source: HostTensor
    result: HostTensor

    @classmethod
    def make(cls, device: torch.device, scale: int, width: int, panel: int) -> Sum:
        """RMAT of 2^scale nodes with 20 edges each, and random rows."""
        nodes, lanes = 1 << scale, lanes_of(device)
        csr = sort_edges(*rmat(scale, 20 << scale), 0, nodes, nodes)
        block = Block(None, csr.indptr, csr.cols).upload(Staging(device))
        x, store = torch.randn(nodes, width, device=device), HostStore(lanes)
        source, result = store.empty(nodes, width, panel), store.empty(nodes, width, panel)
        source.write_rows(0, x)
        source.wait()
        return cls(lanes, block, x, torch.empty_like(x), store, source, result)

    @property
    def device_bytes(self) -> int:
        """Of the four panels that the device has at a time."""
        return 4 * 4 * len(self.x) * self.source.panel

    def on_device(self) -> None:
        """All at once."""
        reduce_rows(self.out, self.block, self.x, Factors(), NOTHING)
        self.lanes.finish()

    def copy_on_device(self) -> None:
        """What the memory's bandwidth is measured by."""
        self.out.copy_(self.x)
        self.lanes.finish()

    def from_host(self) -> None:
        """Panel by panel."""
        self._panels(self._reduce)

    def link(self) -> None:
        """The same copies, without the sums."""
        self._panels(lambda part: part)

    def _panels(self, compute: Callable[[torch.Tensor], torch.Tensor]) -> None:
        width, panel = self.source.width, self.source.panel
        firsts = range(0, width, panel)
        reads = (
            partial(self.source.read_columns, first, min(first + panel, width)) for first in firsts
        )
        with self.store.mover() as mover:
            for first, part in zip(firsts, mover.ahead(reads), strict=True):
                mover.write(partial(self.result.write_columns, first), compute(part))

    def _reduce(self, part: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(part)
        reduce_rows(out, self.block, part, Factors(), NOTHING)
        return out

    def check(self) -> None:
        """The results agree."""
        self.on_device()
        self.from_host()
        rows = self.result.read_rows(0, len(self.x))
        if not torch.allclose(rows, self.out, rtol=1e-5, atol=1e-6 * float(self.out.abs().max())):
            sys.exit("gpu_host: the results differ")


def seconds(calls: Calls, rounds: int) -> dict[str, float]:
    """Median of each call, in turns, after one that does not count."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(rounds + 1):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            if number:
                taken[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in taken.items()}


def measured(work: Sum, rounds: int) -> dict[str, float]:
    """Seconds and shares."""
    took = seconds(
        {
            "copy": work.copy_on_device,
            "sum": work.on_device,
            "from host": work.from_host,
            "link": work.link,
        },
        rounds,
    )
    tensor = work.x.nbytes
    gathered = work.block.nnz * work.x.shape[1] * 4
    memory = 2 * tensor / took["copy"]
    return {
        "edges": work.block.nnz,
        "tensors_bytes": 2 * tensor,
        "device_bytes": work.device_bytes,
        **{f"{name.replace(' ', '_')}_seconds": value for name, value in took.items()},
        "from_host_by_sum": took["from host"] / took["sum"],
        "link_gb_s_each_way": tensor / took["link"] / 1e9,
        "link_share": took["link"] / took["from host"],
        "memory_gb_s": memory / 1e9,
        "sum_memory_share": gathered / took["sum"] / memory,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scale", type=int, default=22, help="2^SCALE nodes, 20 edges each")
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--panel", type=int, default=64, help="columns on the GPU at a time")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("benchmarks.gpu_host: torch finds no CUDA device")
    work = Sum.make(torch.device(options.device), options.scale, options.width, options.panel)
    work.check()
    where = torch.cuda.get_device_name() if options.device == "cuda" else "the CPU"
    print(f"{where}, torch {torch.__version__}", file=sys.stderr)
    print(json.dumps(measured(work, options.rounds)))


if __name__ == "__main__":
    main()
