"""An HTTP server on all addresses, IPv4's and IPv6's, of worker and operator alike.

A cluster may have either family, or both. A socket of IPv6 serves both, unless the system keeps
them apart; a machine without IPv6 has none, and gets a socket of IPv4.
"""

from __future__ import annotations

import socket
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class DualStackServer(ThreadingHTTPServer):
    """Serves each client in a thread that ends with the process.

    Raises:
        OSError: when it is made, where the port is taken.
    """

    daemon_threads = True

    def __init__(self, port: int, handler: type[BaseHTTPRequestHandler]) -> None:
        both = socket.has_dualstack_ipv6()
        self.address_family = socket.AF_INET6 if both else socket.AF_INET
        super().__init__(("::" if both else "0.0.0.0", port), handler)

    def server_bind(self) -> None:
        """Take clients of both families, whatever the system's default is."""
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()
