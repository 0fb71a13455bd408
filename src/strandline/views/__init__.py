"""Remote views by difference tables (Chao, Diehr & Saharia 1996).

View, Copy                     a view, and a copy of it, as users hold them
create_view, open_view         by name; list_views, drop_view
copies, open_copy              the copies of a store
define, Definition             what a view is: select, project, inner joins
"""

from strandline.views.catalog import (
    AUTO,
    KEEP,
    MAINTAIN,
    CopyRecord,
    ViewPosition,
    ViewRecord,
    copy_records,
    has,
    put,
    remove,
)
from strandline.views.change_feed import ChangeFeed, FeedOffset, FirstSplit, followers, forget, inserts
from strandline.views.change_sources import ChangeSource, PinnedChangeSource, SegmentChangeSource, changes_since
from strandline.views.cost import Choice, choose, messages
from strandline.views.definition import Shape, ViewDefinition, define
from strandline.views.delta_query import TwoStates, delta_rows
from strandline.views.difference_table import all_segments, end, try_entering
from strandline.views.eager import derive
from strandline.views.join import JoinRunner
from strandline.views.known_views import KnownViews, ViewHost
from strandline.views.maintenance import (
    CHANGED,
    ENTERING,
    ROW_BYTES,
    USUAL,
    Seen,
    keep,
    load,
    prices,
    retune,
    with_seen,
)
from strandline.views.range_modifications import RangeStatement
from strandline.views.regeneration import in_spark_sql, on_spark, regenerate
from strandline.views.relevance import Why, why
from strandline.views.retention import collapse_unused, duration, expire, release
from strandline.views.store_state import StoreState
from strandline.views.subscription import Subscription, subscribe

__all__ = [
    "AUTO",
    "CHANGED",
    "ENTERING",
    "KEEP",
    "MAINTAIN",
    "ROW_BYTES",
    "USUAL",
    "ChangeFeed",
    "ChangeSource",
    "Choice",
    "CopyRecord",
    "FeedOffset",
    "FirstSplit",
    "JoinRunner",
    "KnownViews",
    "PinnedChangeSource",
    "RangeStatement",
    "Seen",
    "SegmentChangeSource",
    "Shape",
    "StoreState",
    "Subscription",
    "TwoStates",
    "ViewDefinition",
    "ViewHost",
    "ViewPosition",
    "ViewRecord",
    "Why",
    "all_segments",
    "changes_since",
    "choose",
    "collapse_unused",
    "copy_records",
    "define",
    "delta_rows",
    "derive",
    "duration",
    "end",
    "expire",
    "followers",
    "forget",
    "has",
    "in_spark_sql",
    "inserts",
    "keep",
    "load",
    "messages",
    "on_spark",
    "prices",
    "put",
    "regenerate",
    "release",
    "remove",
    "retune",
    "subscribe",
    "try_entering",
    "why",
    "with_seen",
]
