"""Calling a module's ``forward`` on a random graph: as it is, or recorded.

- `prepare`: a copy of the user's module that can be called on any graph.
- `subject`: the module and how it is called; `passed`: what its arguments get.
- `module_calls`: what is called in place of convolutions, norms and other modules; `known`,
  `replacements`, `library_functions`, `relations`.
- `hints`: what an error of the module's own may come from.
"""
