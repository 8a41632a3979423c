"""How messages travel between two workers; chosen per peer, once, when an exchange begins.

``network.py`` goes through torch.distributed's process group: gloo's sockets, or NCCL.
``direct.py`` serves two workers of one host: the receiver reads the sender's memory.
``meeting.py`` finds the peers with which the latter works. Messages of a pair arrive in the order
in which they were posted, so none carries a tag of its own.
"""
