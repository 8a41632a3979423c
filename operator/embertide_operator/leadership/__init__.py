"""Which replica works, by one Lease, and which operator has a job, by heartbeats.

election    which candidate leads: a pure state machine
lease       the thread that runs it against the Lease
heartbeats  of all operators in the namespaces with jobs, which decide who has a job
"""
