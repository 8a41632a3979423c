"""The proof that a program gives what its module gives.

- `proof`: compares both on all random graphs; `agreement`: when they agree.
- `difference`: where they differ, for the message.
- `kept_state`: what ``forward`` keeps from call to call.
"""
