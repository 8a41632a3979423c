"""Modules over several node types and relations while they are recorded.

- `homogeneous`: nodes of all types in one tensor, edges of all relations in another.
- `numbered`, `numbered_attention`: modules that get types and relations as numbers.
- `hetero_convs`: convolutions over dicts by type; `whole`: calls that are recorded as one layer.
- `merged_softmax`: one softmax over the in-edges of several relations.
"""
