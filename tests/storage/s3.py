"""An S3-compatible server for tests; credentials reach the backend through the environment only."""

from __future__ import annotations

import functools
import itertools
import os
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_NUMBERS = itertools.count(1)
_PUTS = threading.Lock()


@functools.cache
def _compare_and_swap_at_once() -> None:
    """Moto looks at the entity tag and then stores, on many threads; S3 does both at once."""
    from moto.s3.responses import S3Response

    put = S3Response.put_object

    def put_alone(self: Any) -> Any:
        with _PUTS:
            return put(self)

    S3Response.put_object = put_alone


class Overloaded:
    """An S3 that is slow, and that answers every fourth request by 503, half of these after it has done them.

    A request for `/-/trouble?on` or `?off` begins or ends that, and tells how many were refused so far.
    """

    def __init__(self, app: Any) -> None:
        self._app = app
        self._numbers = itertools.count()
        self.refused = 0
        self.on = True

    def __call__(self, environ: dict[str, Any], start: Any) -> Any:
        if environ["PATH_INFO"] == "/-/trouble":
            self.on = environ["QUERY_STRING"] == "on"
            start("200 OK", [])
            return [str(self.refused).encode()]
        if not self.on:
            return self._app(environ, start)
        number = next(self._numbers)
        time.sleep(0.005)
        if number % 4:
            return self._app(environ, start)
        if number % 8:
            b"".join(self._app(environ, lambda *_: None))
        self.refused += 1
        start("503 Slow Down", [("Content-Type", "application/xml")])
        return [b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"]


@contextmanager
def bucket(overloaded: list[Overloaded] | None = None) -> Iterator[str]:
    """A server with one new bucket; servers of one process share what they hold. A list gets the trouble it makes."""
    from moto.server import ThreadedMotoServer

    _compare_and_swap_at_once()
    name = f"strand-{next(_NUMBERS)}"
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    settings = {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT": f"http://{host}:{port}",
        "AWS_ALLOW_HTTP": "true",
    }
    before = {key: os.environ.get(key) for key in settings}
    os.environ.update(settings)
    urllib.request.urlopen(urllib.request.Request(f"http://{host}:{port}/{name}", method="PUT")).close()
    if overloaded is not None and server._server is not None:
        overloaded.append(Overloaded(server._server.app))
        server._server.app = overloaded[0]
    try:
        yield name
    finally:
        server.stop()
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value
