"""Opens connections that send what is on standard input, and read nothing: PORT ADDRESSES.

ADDRESSES are those from which it connects, each with a number of connections: 127.0.0.2=6001,127.0.0.3=1000. The receive buffer
and the segments are as small as possible, so that the system takes little of a response. Prints "open" once all connections are
open, then opens fifty further ones from the first address each second, until it is terminated or two minutes have passed.
"""

import socket
import sys
import time

port, addresses = sys.argv[1:]
data = sys.stdin.buffer.read()
connections = []


def connect(address):
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 1400)
    # Linux then chooses a port that is free for this address.
    connection.setsockopt(socket.SOL_IP, 24, 1)
    connection.bind((address, 0))
    connection.settimeout(10)
    try:
        connection.connect(("127.0.0.1", int(port)))
        connection.sendall(data)
    except (ConnectionError, TimeoutError):
        pass
    connections.append(connection)


shares = [share.split("=") for share in addresses.split(",")]
for address, count in shares:
    for _ in range(int(count)):
        connect(address)
print("open", flush=True)
for _ in range(6000):
    connect(shares[0][0])
    time.sleep(0.02)
