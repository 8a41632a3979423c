"""The decision about one job: pure functions of what was observed and the time.

reconcile   starts here: the state table, and the order of the questions
advance     a running attempt, with planning, tracking and deadlines
waiting     inputs that are not ready; published: a version is there
pushing     a published version into an index, with push_ends
obstacles   what keeps pods from starting, with refusals and quota_advice
decision    the result: next status, objects to apply and to delete
"""
