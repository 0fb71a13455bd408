"""An S3-compatible server for tests; credentials reach the backend through the environment only."""

from __future__ import annotations

import itertools
import os
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

_NUMBERS = itertools.count(1)


@contextmanager
def bucket() -> Iterator[str]:
    """A server with one new bucket; servers of one process share what they hold."""
    from moto.server import ThreadedMotoServer

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
