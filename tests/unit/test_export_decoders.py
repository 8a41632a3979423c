"""Decoders of pairs become lines over the rows of both nodes, written beside the program."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from embertide.errors import ModelError
from embertide.tracing.export import export_module
from tests.support.exact import assert_exact
from tests.support.export_decoders import DECODERS, OUT, WIDTH, Edges, Net, Predictor
from tests.support.models import read_again, shake
from tests.support.pyg import pyg

Z = torch.randn(9, OUT, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
PAIRS = torch.tensor([[0, 3, 3, 8, 1], [1, 3, 0, 2, 1]])


def lines_give(done: Any) -> torch.Tensor:
    """The scores of some pairs by the decoder that was written and read back."""
    program = read_again(done)
    assert program.decoder is not None
    return program.decoder.score(Z[PAIRS[0]].float(), Z[PAIRS[1]].float())


@pytest.mark.parametrize("name", DECODERS)
def test_decoders_are_recorded(name: str) -> None:
    net = shake(Net())
    decoder = getattr(net, name)
    own = decoder.forward if isinstance(decoder, Predictor) else decoder
    found = lines_give(export_module(net, decoder=name))
    with torch.no_grad():
        net.double()
        if name in ("rows", "predictor"):
            expected = own(Z[PAIRS[0]], Z[PAIRS[1]])
        else:
            expected = own(Z, Z, PAIRS) if name == "dist_mult" else own(Z, PAIRS)
    assert_exact(found, expected.reshape(len(found), -1))


def test_a_decoder_of_its_own_module() -> None:
    net, predictor = shake(Net()), shake(Predictor())
    found = lines_give(export_module(net, decoder=predictor))
    with torch.no_grad():
        assert_exact(found, predictor.double()(Z[PAIRS[0]], Z[PAIRS[1]]))


def test_a_decoder_with_hooks() -> None:
    net, predictor = shake(Net()), shake(Predictor())
    predictor.register_forward_hook(lambda _m, _args, out: out * 2)
    found = lines_give(export_module(net, decoder=predictor))
    with torch.no_grad():
        assert_exact(found, predictor.double()(Z[PAIRS[0]], Z[PAIRS[1]]))


def test_the_decoder_of_an_autoencoder() -> None:
    gae = shake(pyg.GAE(pyg.GCNConv(WIDTH, OUT)))
    found = lines_give(export_module(gae, decoder="decode"))
    assert_exact(found, gae.decode(Z, PAIRS)[:, None])


@pytest.mark.dgl
def test_a_decoder_on_dgls_graph() -> None:
    found = lines_give(export_module(shake(Net()), decoder=Edges()))
    assert_exact(found, (Z[PAIRS[0]] * Z[PAIRS[1]]).sum(-1)[:, None])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("all_nodes", r"export_decoders.py:\d+: the decoder computes something for all nodes"),
        ("no_pairs", "it must give one tensor with a row for each pair"),
        ("alone", r"the decoder takes z; a decoder takes \(z, edge_index\)"),
        ("absent", "Net has no method or module absent, which --decoder names"),
    ],
)
def test_what_is_no_decoder(name: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        export_module(shake(Net()), decoder=name)
