"""An S3-compatible server for tests; credentials reach the backend through the environment only."""

from __future__ import annotations

import functools
import itertools
import os
import threading
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


@contextmanager
def bucket() -> Iterator[str]:
    """A server with one new bucket; servers of one process share what they hold."""
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
    try:
        yield name
    finally:
        server.stop()
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value
