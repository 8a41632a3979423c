"""Why an earlier run's rows are not used after all."""

from __future__ import annotations

from embertide.graph.exchange import Exchange


class Doubt(Exception):
    """An earlier run's rows cannot be used, or may not be right; the message says why.

    Raised on all ranks alike.
    """


def agree(exchange: Exchange, why: str) -> None:
    """Go on where no rank has a reason not to. Collective: every rank must call.

    Raises:
        Doubt: any rank has.
    """
    reasons = [reason for reason in exchange.all_objects(why) if reason]
    if reasons:
        raise Doubt(reasons[0])
