"""What a wrong model.yaml of several node types, or wrong weights for it, say."""

from __future__ import annotations

import pytest
import torch

from tests.unit.test_models_errors import refusal, row

SAGE = {
    f"convs.0.convs.<{relation}>.{name}": torch.ones(shape)
    for relation, source, target in (
        ("user___buys___item", 7, 5),
        ("item___bought_by___user", 5, 7),
    )
    for name, shape in (
        ("lin_l.weight", (4, source)),
        ("lin_l.bias", (4,)),
        ("lin_r.weight", (4, target)),
    )
}
BOTH = "relations: [user:buys:item, item:bought_by:user]\n"


def described(layers: str, more: str = BOTH, library: str = "pyg") -> str:
    return f"library: {library}\n{more}layers: [{layers}]"


@pytest.mark.parametrize(
    ("yaml", "says"),
    [
        (
            described("{conv: hetero, convs: {user:buy:item: {conv: sage}}}"),
            "layers[0].convs.user:buy:item: is no relation of user:buys:item, item:bought_by:user"
            " (did you mean user:buys:item?)",
        ),
        (
            described("{conv: hetero, convs: {buys: {conv: sage}}}"),
            "layers[0].convs.buys: is 'buys'; must be source type, edge type and destination type",
        ),
        (
            described("{conv: hetero}"),
            "layers[0].convs: is required: relation -> its convolution; or each, for all",
        ),
        (
            described("{conv: hetero, each: {conv: sage}}", ""),
            "relations: is required by layers[0] (hetero)",
        ),
        (
            described("{conv: hetero, each: {conv: gcn}}"),
            "layers[0].each.conv: gcn needs both ends of one node type, unlike user:buys:item",
        ),
        (
            described("{conv: hetero, each: {conv: gat}}"),
            "layers[0].each.add_self_loops: must be false: user:buys:item leads from one",
        ),
        (
            described("{conv: hetero, each: {conv: sage, heads: 2}}"),
            "layers[0].each.heads: unknown field",
        ),
        (
            described("{conv: hetero, each: {conv: sage, skip: true}}"),
            "layers[0].each.skip: follows all relations' results",
        ),
        (
            described("{conv: hetero, each: {conv: linear, prefix: lin}}"),
            "layers[0].each.conv: is 'linear'; for pyg Embertide supports agnn, appnp",
        ),
        (
            described("{conv: hetero, aggregate: stack, each: {conv: gcn}}", library="dgl"),
            "what follows takes one row of numbers for each node",
        ),
        (
            described("{conv: RelGraphConv}", library="dgl"),
            "layers[0].conv: is 'RelGraphConv'; for dgl Embertide supports agnn, appnp",
        ),
        (described("{conv: RelGraphConv}", library="dgl"), "(did you mean 'rgcn'?)"),
        (
            described("{conv: hgt, metadata: x}"),
            "layers[0].metadata: is written as relations: [user:buys:item, ...], beside layers",
        ),
        (described("{conv: rgcn, num_relations: 2}"), "layers[0].num_relations: is read from the"),
        (
            described("{conv: sage}"),
            "layers[0].conv: sage is of one relation; in a model of several node types or relations"
            " it stands in {conv: hetero, each: {conv: sage}}",
        ),
        (
            described("{conv: hetero, each: {conv: sage}, layer_norm: true}"),
            "layers[0].layer_norm.prefix: is required in a model of several node types",
        ),
        (
            described(
                "{conv: hetero, convs: {user:buys:item: {conv: gat, add_self_loops: false}}},"
                " {conv: hetero, each: {conv: sage}}"
            ),
            "layers[1]: reads node type 'user' for user:buys:item, but there is no tensor of it"
            " here",
        ),
        (
            described("{conv: hetero, each: {conv: sage}}", f"{BOTH}outputs: [tag]\n"),
            "outputs: has 'tag', which is no node type of user, item",
        ),
        (
            described("{conv: hetero, each: {conv: sage}}", f"{BOTH}types: [user]\n"),
            "types: lacks 'item', a node type of user:buys:item",
        ),
        (
            described(
                "{conv: hetero, convs: {user:buys:item: {conv: sage}}}", f"{BOTH}outputs: [user]\n"
            ),
            "outputs: has 'user', but the last layer makes no tensor of it",
        ),
        (
            described("{conv: hetero, each: {conv: sage}}", f"{BOTH}input_width: 5\n"),
            "input_width: must be a mapping: node type -> columns",
        ),
        ("library: pyg\noutputs: [user]\nlayers: [{conv: sage}]", "outputs: is of models with"),
        (
            "library: pyg\nlayers: [{conv: sage}, {conv: linear, prefix: lin, types: [user]}]",
            "layers[1].types: is of models with several node types",
        ),
    ],
)
def test_descriptions_that_do_not_fit_themselves(yaml: str, says: str) -> None:
    assert says in refusal(yaml, SAGE)


EACH = described("{conv: hetero, each: {conv: sage}}")


def test_a_relation_without_a_module_is_one_row() -> None:
    left = {name: tensor for name, tensor in SAGE.items() if "buys" not in name}
    message = refusal(EACH, left)
    assert row(message, "convs.0.convs.<user___buys___item>") == (
        "convs.0.convs.<user___buys___item> | a module | (layer 0, hetero, sage of user:buys:item)"
        " | missing"
    )
    assert message.count("missing") == 1


def test_a_module_of_no_relation_is_named() -> None:
    one = described("{conv: hetero, convs: {user:buys:item: {conv: sage}}}")
    message = refusal(one, SAGE)
    assert "nothing | [4, 5]" in row(
        message, "convs.0.convs.<item___bought_by___user>.lin_l.weight"
    )
    assert "convs.0.convs.<item___bought_by___user> is the module of a relation" in message


def test_a_weight_of_another_shape_is_named_with_its_relation() -> None:
    wrong = SAGE | {"convs.0.convs.<user___buys___item>.lin_r.weight": torch.ones(4, 6, 2)}
    message = refusal(EACH, wrong)
    assert row(message, "convs.0.convs.<user___buys___item>.lin_r.weight") == (
        "convs.0.convs.<user___buys___item>.lin_r.weight | [4, 5] | (layer 0, hetero, sage of"
        " user:buys:item) | [4, 6, 2]"
    )


def test_relations_that_are_summed_have_equal_widths() -> None:
    more = "convs.0.convs.<tag___of___item>"
    other = SAGE | {
        f"{more}.lin_l.weight": torch.ones(3, 2),
        f"{more}.lin_l.bias": torch.ones(3),
        f"{more}.lin_r.weight": torch.ones(3, 5),
    }
    yaml = EACH.replace(BOTH, "relations: [user:buys:item, item:bought_by:user, tag:of:item]\n")
    message = refusal(yaml, other)
    assert row(message, "(sum)") == (
        "(sum) | results of equal widths for item | (layer 0, hetero) | 4, 3"
    )


def test_a_layer_whose_input_is_narrower_names_both_numbers() -> None:
    second = {
        name.replace("convs.0", "convs.1", 1): tensor.clone() for name, tensor in SAGE.items()
    }
    yaml = described("{conv: hetero, each: {conv: sage}}, {conv: hetero, each: {conv: sage}}")
    message = refusal(yaml, SAGE | second)
    assert "[out, 4] | (layer 1, hetero, sage of user:buys:item) | [4, 7]" in row(
        message, "convs.1.convs.<user___buys___item>.lin_l.weight"
    )


def test_features_that_nothing_tells_the_width_of() -> None:
    yaml = "library: dgl\nlayers: [{conv: hetero, convs: {a:r:b: {conv: appnp, k: 2, alpha: 0.1}}}]"
    assert "appnp needs both ends of one node type" in refusal(yaml, {})
    yaml = yaml.replace("a:r:b", "a:r:a")
    assert row(refusal(yaml, {}), "input_width.a").endswith("| missing")
