"""One seam for everything durable, and the small mechanisms of durable things, each once for the whole house.

    storage = open_storage("shop")                  # a folder
    storage = open_storage("s3://bucket/shop")      # credentials come from the environment
    storage.put_if_absent("pages/0-1.parquet", data)
    stored = storage.get_with_token("MASTER")
    storage.compare_and_swap("MASTER", stored.token, new_value)

Data that lies at a URL is read by ranges, and written whole, by `object_file`, files by a path or a URL alike by
`file_access`. See `seam.py` for what every backend promises, and for what is closed by its block (`Closeable`).
Backends are local files, S3-compatible object stores and memory. Beside it stand files and folders that appear whole
(`durable_file`), a lock on one machine (`file_lock`), trying again (`retry`), waits that an interrupt leaves whole
(`threads`), what was used last (`Recent`) and records as JSON (`json_codec`).
"""

from strandline.storage.durable_file import building, flush, put_in_place, replacing, write_flushed
from strandline.storage.file_access import (
    absolute,
    check_mark,
    copy_file,
    file_exists,
    file_size,
    files_below,
    open_version,
    read_file,
    remove_files,
    remove_folder,
    stat_mark,
    write_file,
)
from strandline.storage.file_lock import has_ended, locked
from strandline.storage.json_codec import JsonRecord, JsonRow, text_form
from strandline.storage.local import LocalStorage
from strandline.storage.local_time import unix_time, with_zone
from strandline.storage.memory import MemoryStorage, OverlayStorage, Recent
from strandline.storage.object_file import ObjectVersion, is_object_url, list_objects, object_version
from strandline.storage.object_store import ObjectStorage
from strandline.storage.retry import completed, put_new, put_over, retried, swap_if_first
from strandline.storage.seam import Closeable, Storage, Stored, Token, auditing, checked_name, is_stored, something_in
from strandline.storage.threads import (
    Mutex,
    Wakeup,
    Workers,
    cached_property,
    handed_over,
    import_whole,
    interrupts_later,
    together,
)
from strandline.storage.url import open_storage
