"""Sets the quantity of one pet and polls the list. Needs Python 3.9 or newer and nothing else.

    INVENTORY_URL=https://…/v1 INVENTORY_KEY=… python3 inventory.py PET_ID QUANTITY

QUANTITY is the new quantity, such as 5, or a change, such as +5 or -5.
"""

import http.client
import json
import os
import random
import re
import sys
import time
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

TRIES = 5
FIRST_PAUSE_SECONDS = 0.25
MAX_PAUSE_SECONDS = 60

# Statuses of the service, or of a proxy in front of it, after which a retry may succeed.
RETRIED_STATUSES = {429, 502, 503, 504}

# Codes that say that nothing was changed, so that a retry is always safe.
UNCHANGED_CODES = {"nothing_changed", "too_many_requests"}


class InventoryError(Exception):
    """An unexpected response.

    Branch on `code`; it is None if the response is not from the service. A 412 of an update has the entry's `etag`.
    """

    def __init__(self, status, code, message, etag=None):
        super().__init__(message if code is None else f"{code}: {message}")
        self.status = status
        self.code = code
        self.etag = etag


class Inventory:
    """Reuses one connection, so do not share it between threads."""

    def __init__(self, base, key, timeout_seconds=10):
        url = urlsplit(base)
        connect = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
        self._timeout_seconds = timeout_seconds
        self._connection = connect(url.netloc, timeout=timeout_seconds)
        self._path = url.path.rstrip("/")
        self._authorization = {"Authorization": f"Bearer {key}"}

    def items(self, etag=None):
        """The list and its entity tag; None in place of the list if it still has the tag `etag`."""
        response, items = self._send("GET", "/inventory", {} if etag is None else {"If-None-Match": etag})
        return items, response.headers["ETag"]

    def update(self, pet_id, quantity, if_match=None):
        """Sets the quantity and returns the entry.

        A retry is safe if you are the only writer of the entry. With a condition it is retried only if nothing was changed:
        a tag says what an entry is, not who made it so, and a retry could not tell its own first attempt from another writer.
        """
        headers = {"Content-Type": "application/json"}
        if if_match is not None:
            headers["If-Match"] = if_match
        body = json.dumps({"quantity": quantity})
        return self._send("PATCH", f"/inventory/{pet_id}", headers, body, repeatable=if_match is None)[1]

    def add(self, pet_id, difference):
        """Adds to the quantity by compare and set, and returns the entry: no other writer's update is lost."""
        item = next((item for item in self.items()[0] if item["petId"] == pet_id), None)
        if item is None:
            raise InventoryError(404, "not_found", f"No inventory entry exists for petId {pet_id}.")
        quantity, tag = item["quantity"], f'"{item["quantity"]}-{item["status"]}"'
        while True:
            try:
                return self.update(pet_id, quantity + difference, tag)
            except InventoryError as error:
                current = error.code == "precondition_failed" and re.search('"([0-9]+)-[a-z]+"', error.etag or "")
                if not current:
                    raise
                quantity, tag = int(current[1]), current[0]

    def _send(self, method, path, headers, body=None, repeatable=True):
        """Sends a request, and retries it after a timeout, a lost connection or one of the statuses above.

        Unless it is repeatable, it is retried only if nothing was changed.
        """
        for tried in range(1, TRIES + 1):
            # Jitter, so that clients that failed together do not retry together.
            pause = random.uniform(0, FIRST_PAUSE_SECONDS * 2 ** (tried - 1))
            try:
                response, content = self._try(method, path, headers, body)
            except (OSError, http.client.HTTPException) as error:
                self._connection.close()  # The next request opens a new one.
                if tried == TRIES or not repeatable:
                    reason = str(error) or type(error).__name__
                    outcome = "" if method == "GET" else ". It may have been applied"
                    raise ConnectionError(f"No response to {method} {path}: {reason}{outcome}") from error
            else:
                if response.status == 304:
                    return response, None
                if response.status == 200:
                    return response, parse(response, content)
                error = error_of(response, content)
                wait = retry_after_seconds(response)
                may_retry = response.status in RETRIED_STATUSES if repeatable else error.code in UNCHANGED_CODES
                if not may_retry or tried == TRIES or wait > MAX_PAUSE_SECONDS:
                    raise error
                pause += wait
            time.sleep(pause)

    def _try(self, method, path, headers, body):
        """Reads the whole body within the timeout; the connection's own timeout applies to each packet."""
        deadline = time.monotonic() + self._timeout_seconds
        self._connection.request(method, self._path + path, body, {**self._authorization, **headers})
        response = self._connection.getresponse()
        content = bytearray()
        while piece := response.read1():
            content += piece
            if time.monotonic() > deadline:
                raise TimeoutError("timed out")
        # At a lost connection, read1 raises an error only if the body is chunked. `length` is what Content-Length has left.
        if response.length:
            raise http.client.IncompleteRead(bytes(content), response.length)
        response.read()  # Nothing is left to read; this releases the connection.
        return response, bytes(content)


def parse(response, content):
    """The JSON of a response. Integers have any size in Python, so a 64-bit petId is exact."""
    try:
        return json.loads(content)
    except ValueError:
        kind = response.headers.get("Content-Type", "no content type")
        message = f"The response ({response.status}, {kind}) is not from the inventory service"
        raise InventoryError(response.status, None, message) from None


def error_of(response, content):
    """The error in a response; it may come from a proxy, in HTML."""
    try:
        error = parse(response, content)
        return InventoryError(response.status, error["code"], error["message"], response.headers["ETag"])
    except InventoryError as error:
        return error
    except (KeyError, TypeError):
        return InventoryError(response.status, None, f"The response ({response.status}) has no error in it")


def retry_after_seconds(response):
    """How long the server asks to wait. The header has seconds or a date."""
    value = response.headers.get("Retry-After", "").strip()
    if re.fullmatch("[0-9]+", value):
        return int(value)
    try:
        date = parsedate_to_datetime(value)
    except (TypeError, ValueError):
        return 0
    return max(0, (date - datetime.now(timezone.utc)).total_seconds())


def show(item):
    print(f"{item['petId']}: {item['quantity']} {item['status']}")


def main(pet_id, quantity):
    base = os.environ.get("INVENTORY_URL", "http://127.0.0.1:3000/v1")
    timeout_seconds = float(os.environ.get("INVENTORY_TIMEOUT_SECONDS", "10"))
    inventory = Inventory(base, os.environ.get("INVENTORY_KEY", ""), timeout_seconds)
    items, etag = inventory.items()
    for item in items:
        show(item)
    change = inventory.add if quantity[0] in "+-" else inventory.update
    show(change(int(pet_id), int(quantity)))
    for _ in range(2):
        items, etag = inventory.items(etag)
        print("unchanged" if items is None else "changed")


if __name__ == "__main__":
    if not re.fullmatch(r"-?[0-9]+ [+-]?[0-9]+", " ".join(sys.argv[1:])):
        print("usage: inventory.py PET_ID QUANTITY", file=sys.stderr)
        sys.exit(2)
    try:
        main(*sys.argv[1:])
    except (InventoryError, OSError) as error:
        sys.exit(str(error))
