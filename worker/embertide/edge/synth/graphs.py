"""Edges of random graphs, a chunk at a time, from counters rather than from a running state.

Chunk c of a stream is drawn by a Philox generator keyed by (seed, stream, c): any chunk can
be made alone, and memory does not depend on the graph. RMAT (Chakrabarti et al. 2004, with
Graph500's parameters and scrambled labels) walks the levels of its quadtree four at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from embertide.edge.synth.options import SynthOptions

Int64s = npt.NDArray[np.int64]
EdgeMaker = Callable[[int, int], tuple[Int64s, Int64s]]
"""(chunk, edges) -> (sources, destinations)."""

EDGES, WEIGHTS, FEATURES, LABELS, EDGE_FEATURES = range(5)
"""The independent random streams of one seed."""

_LEVELS = 4
"""Levels drawn at once: 4**4 outcomes fit one byte."""


def generator(seed: int, stream: int, chunk: int) -> np.random.Generator:
    """The generator of one chunk of one stream."""
    key = np.random.SeedSequence(seed, spawn_key=(stream, chunk))
    return np.random.Generator(np.random.Philox(key))


def edge_maker(options: SynthOptions, destinations: int | None = None) -> EdgeMaker:
    """What draws a chunk of edges of the graph that ``options`` describe.

    Args:
        destinations: how many nodes there are that edges may lead to, where these are others than
            the sources.
    """
    destinations = options.nodes if destinations is None else destinations
    if options.kind == "rmat":
        return Rmat.of(options, destinations)
    return Uniform(options.seed, options.nodes, destinations)


@dataclass(frozen=True)
class Uniform:
    """Both ends drawn evenly and independently."""

    seed: int
    sources: int
    destinations: int

    def __call__(self, chunk: int, edges: int) -> tuple[Int64s, Int64s]:
        """Draw ``edges`` edges."""
        rng = generator(self.seed, EDGES, chunk)
        return rng.integers(0, self.sources, edges), rng.integers(0, self.destinations, edges)


@dataclass(frozen=True)
class Choice:
    """Walker's alias method over the 4**levels quadrants that ``levels`` levels lead to.

    An outcome holds the source's bits above the destination's. 32 random bits choose: the low
    ones a slot, the high ones between the slot's own outcome and its alias.
    """

    levels: int
    keep: npt.NDArray[np.uint32]
    alias: npt.NDArray[np.uint8]

    @classmethod
    def of(cls, quadrants: npt.NDArray[np.float64], levels: int) -> Choice:
        """Build the table for ``levels`` independent draws of a quadrant [2, 2]."""
        probabilities: npt.NDArray[np.floating[Any]] = np.ones((1, 1))
        for _ in range(levels):
            probabilities = np.kron(probabilities, quadrants)
        keep, alias = _alias_table(probabilities.astype(np.float64).ravel())
        return cls(levels, keep, alias)

    def draw(self, rng: np.random.Generator, count: int) -> npt.NDArray[np.uint8]:
        """``count`` outcomes."""
        bits = 2 * self.levels
        random = rng.integers(0, 1 << 32, count, dtype=np.uint32)
        slot = (random & np.uint32((1 << bits) - 1)).astype(np.uint8)
        random >>= np.uint32(bits)
        return np.where(random < self.keep[slot], slot, self.alias[slot])


def _alias_table(
    probabilities: npt.NDArray[np.float64],
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint8]]:
    """Vose's construction; ``keep`` is scaled to the random bits that remain beside the slot."""
    slots = len(probabilities)
    left = probabilities * slots
    keep, alias = np.ones(slots), np.arange(slots)
    small = [i for i in range(slots) if left[i] < 1]
    large = [i for i in range(slots) if left[i] >= 1]
    while small and large:
        i, j = small.pop(), large[-1]
        keep[i], alias[i] = left[i], j
        left[j] -= 1 - left[i]
        if left[j] < 1:
            small.append(large.pop())
    return np.round(keep * ((1 << 32) / slots)).astype(np.uint32), alias.astype(np.uint8)


@dataclass(frozen=True)
class Rmat:
    """RMAT over 2**scale labels, scrambled unless raw ones are wanted, scaled down to the nodes."""

    seed: int
    sources: int
    destinations: int
    scale: int
    permute: bool
    choices: tuple[Choice, ...]

    @classmethod
    def of(cls, options: SynthOptions, destinations: int) -> Rmat:
        """Prepare the choices: four levels at a time, then those that remain."""
        quadrants = np.array([[options.a, options.b], [options.c, options.d]])
        scale = (max(options.nodes, destinations) - 1).bit_length()
        whole, rest = divmod(scale, _LEVELS)
        choices = (Choice.of(quadrants, _LEVELS),) * whole
        if rest:
            choices += (Choice.of(quadrants, rest),)
        return cls(options.seed, options.nodes, destinations, scale, options.permute, choices)

    def __call__(self, chunk: int, edges: int) -> tuple[Int64s, Int64s]:
        """Draw ``edges`` edges."""
        rng = generator(self.seed, EDGES, chunk)
        source = np.zeros(edges, np.int64)
        destination = np.zeros(edges, np.int64)
        for choice in self.choices:
            outcome = choice.draw(rng, edges)
            source <<= choice.levels
            source |= outcome >> choice.levels
            destination <<= choice.levels
            destination |= outcome & ((1 << choice.levels) - 1)
        return self._label(source, self.sources), self._label(destination, self.destinations)

    def _label(self, raw: Int64s, nodes: int) -> Int64s:
        label = scramble(raw, self.scale, self.seed) if self.permute else raw
        if nodes == 1 << self.scale:
            return label
        # Some labels fall together, which keeps the degrees' skew.
        return (label * nodes) >> self.scale


def scramble(values: Int64s, bits: int, seed: int) -> Int64s:
    """A bijection of [0, 2**bits) in arithmetic, so that hubs lie anywhere and need no table.

    Rounds of an odd multiplication (mixes upwards) and a shifted xor (mixes downwards), where
    Graph500 reverses bits. Returns a new array.
    """
    if bits == 0:
        return values.copy()
    mask = np.int64((1 << bits) - 1)
    keys = generator(seed, LABELS, 0).integers(0, 1 << 31, 6)
    mixed = values.copy()
    for odd, add in keys.reshape(3, 2):
        mixed += add
        mixed &= mask
        mixed *= odd | 1
        mixed &= mask
        mixed ^= mixed >> np.int64((bits + 1) // 2)
    return mixed
