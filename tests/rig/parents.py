"""A proxy behind ours, in its place on the way to the provider."""

import contextlib
import re
import socket
import threading


class Parent:
    """The proxy behind ours: whatever host is named, it connects to that port of loopback. It keeps what it was told."""

    def __init__(self):
        self.heads: list[str] = []
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self.serve, args=(self.server.accept()[0],), daemon=True).start()

    def serve(self, near):
        with near, contextlib.suppress(OSError):
            head = b""
            while b"\r\n\r\n" not in head and (data := near.recv(1)):
                head += data
            if not head:
                return
            self.heads.append(head.decode("latin-1"))
            _, target, _ = head.decode("latin-1").split(" ", 2)
            with socket.create_connection(("127.0.0.1", int(re.search(r":(\d+)(/|$)", target)[1]))) as far:
                if head.startswith(b"CONNECT"):
                    near.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                else:
                    far.sendall(head)
                back = threading.Thread(target=self.copy, args=(far, near), daemon=True)
                back.start()
                self.copy(near, far)
                back.join()

    def copy(self, source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
