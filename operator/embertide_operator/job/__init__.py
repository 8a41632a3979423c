"""One job: what a pass observes of it, and the status and Events that it writes.

observe     the job, its children, its pods, the latest answer of rank 0
failures    the first failure of an attempt, with disruptions and sidecars
status      the next status while it is drawn up; conditions, Events
ownership   to which operator a job belongs
"""
