"""From a path or a URL to a storage. Credentials come from the environment and are never stored."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from strandline.errors import InputError
from strandline.storage.local import LocalStorage
from strandline.storage.object_file import S3, bucket_store, shown
from strandline.storage.object_store import ObjectStorage
from strandline.storage.seam import Storage


def open_storage(where: str | os.PathLike[str]) -> Storage:
    """The storage at a folder, a `file://` URL or an `s3://bucket/prefix` URL."""
    url = os.fspath(where)
    parts = urlsplit(url)
    if "://" not in url:
        return _local(url)
    if parts.scheme == "file":
        return _local(parts.path)
    if parts.scheme in S3:
        if parts.username or parts.password:
            raise InputError(
                "a URL must not hold credentials",
                doing=f"opening {shown(url)}",
                hint="Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment",
            )
        prefix = parts.path.strip("/") or None
        return ObjectStorage(bucket_store(f"{parts.scheme}://{parts.netloc}", prefix), url.rstrip("/"))
    raise InputError(
        f"{parts.scheme}:// is not known",
        doing=f"opening {shown(url)}",
        hint="Use a folder or an s3://bucket/prefix URL",
    )


def _local(path: str) -> LocalStorage:
    if os.path.exists(path) and not os.path.isdir(path):
        raise InputError(
            f"{path} is a file",
            doing=f"opening {path}",
            hint="Give a folder: a store is one, and so is a target for dumps",
        )
    return LocalStorage(path)
