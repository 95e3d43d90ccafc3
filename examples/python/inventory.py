"""Sets the stock of one pet and follows the list. Needs Python 3.9 or newer and nothing else.

    INVENTORY_URL=https://…/v1 INVENTORY_KEY=… python3 inventory.py PET_ID QUANTITY
"""

import http.client
import json
import os
import sys
import time
from urllib.parse import urlsplit

ATTEMPTS = 5

# What the service, or a proxy before it, says when it cannot answer now.
AGAIN = {502, 503, 504}


class InventoryError(Exception):
    """An answer with a status of 400 or more; `code` is what to branch on."""

    def __init__(self, code, message):
        super().__init__(f"{code}: {message}")
        self.code = code


class Inventory:
    """Keeps one connection; not to be shared between threads."""

    def __init__(self, base, key):
        url = urlsplit(base)
        connect = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
        self._connection = connect(url.netloc, timeout=10)
        self._path = url.path
        self._authorization = {"Authorization": f"Bearer {key}"}

    def items(self, etag=None):
        """The list and its entity tag; None in place of the list where it is still the one that `etag` names."""
        response, body = self._send("GET", "/inventory", {} if etag is None else {"If-None-Match": etag})
        return (None if response.status == 304 else json.loads(body)), response.headers["ETag"]

    def update(self, pet_id, quantity):
        """Sets the quantity and returns the entry."""
        body = json.dumps({"quantity": quantity})
        return json.loads(self._send("PATCH", f"/inventory/{pet_id}", {"Content-Type": "application/json"}, body)[1])

    def _send(self, method, path, headers, body=None):
        """Sends again where the service cannot answer now or nothing came back.

        That is safe for updates, too: they are absolute values.
        """
        for attempt in range(1, ATTEMPTS + 1):
            wait = attempt
            try:
                self._connection.request(method, self._path + path, body, {**self._authorization, **headers})
                response = self._connection.getresponse()
                content = response.read()
            except (OSError, http.client.HTTPException):
                self._connection.close()  # The next request opens a new one.
                if attempt == ATTEMPTS:
                    raise
            else:
                if response.status < 400:
                    return response, content
                if response.status not in AGAIN or attempt == ATTEMPTS:
                    error = json.loads(content)
                    raise InventoryError(error["code"], error["message"])
                wait = int(response.headers.get("Retry-After", 1))
            time.sleep(wait)


def show(item):
    # Integers have any size in Python, so a 64-bit petId is exact.
    print(f"{item['petId']}: {item['quantity']} {item['status']}")


def main(pet_id, quantity):
    base = os.environ.get("INVENTORY_URL", "http://127.0.0.1:3000/v1")
    inventory = Inventory(base, os.environ["INVENTORY_KEY"])
    items, etag = inventory.items()
    for item in items:
        show(item)
    show(inventory.update(int(pet_id), int(quantity)))
    for _ in range(2):
        items, etag = inventory.items(etag)
        print("unchanged" if items is None else "changed")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except (InventoryError, OSError) as error:
        sys.exit(str(error))
