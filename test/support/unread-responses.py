"""Opens connections that send requests and read nothing of the responses: PORT COUNT SECONDS PER_SECOND.

The receive buffer and the segments are as small as possible, so that the system takes little of a response. Prints "open" once
COUNT connections have sent their requests, then opens PER_SECOND further ones each second.
"""

import errno
import socket
import sys
import time

port, count, seconds, per_second = (int(argument) for argument in sys.argv[1:])
requests = b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * 6
connections = []


def connect():
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 1400)
    connection.settimeout(10)
    try:
        connection.connect(("127.0.0.1", port))
        connection.sendall(requests)
    except OSError as error:
        if error.errno == errno.EMFILE:
            raise
    connections.append(connection)


for _ in range(count):
    connect()
print("open", flush=True)
end = time.monotonic() + seconds
while time.monotonic() < end:
    connect()
    time.sleep(1 / per_second)
