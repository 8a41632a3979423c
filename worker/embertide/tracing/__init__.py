"""From a trained module to a folder that workers read: trace, lower, write, prove.

``forward`` runs on a small random graph on the user's machine. What it does is recorded
(`tape`), said as steps (`lower`), written as text and numbers (`embertide.models.folder`), read
back, and held against the module's own result (`proof`). Workers read the folder alone.
"""
