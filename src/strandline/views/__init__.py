"""Remote views by difference tables (Chao, Diehr & Saharia 1996).

define, ViewDefinition         what a view is: select, project and join over relations and operators
read_views, KnownViews         what a store says of its views at one state
refresh_context                what a refresh of a copy reads, and its difference
"""

from strandline.views.catalog import (
    AUTO,
    DEFERRED,
    KEEP,
    MAINTAIN,
    POLICIES,
    STRICT,
    ContentChecksum,
    ViewCopyRecord,
    ViewPosition,
    ViewRecord,
    has,
    put,
    remove,
)
from strandline.views.change_feed import ChangeFeed, FeedOffset, FirstSplit, changes_of_view, followers, forget, inserts
from strandline.views.cost import Choice, messages
from strandline.views.definition import Shape, ViewDefinition, define, instant_at, outline
from strandline.views.delta_query import TwoStates
from strandline.views.dependencies import check_dependents, relations_named
from strandline.views.difference_table import end, try_entering
from strandline.views.eager import derive
from strandline.views.join import JoinRunner
from strandline.views.known_views import KnownViews, Lag, ViewHost, read_views, state_now
from strandline.views.maintenance import (
    CHANGED,
    MAINTENANCE_COSTS,
    ROW_BYTES,
    USUAL,
    Seen,
    choose,
    keep,
    load,
    prices,
    retune,
    with_seen,
)
from strandline.views.pins import pins_of
from strandline.views.range_modifications import RangeStatement
from strandline.views.refresh import NetDifference, RefreshContext, refresh_context
from strandline.views.regeneration import in_spark_sql, on_spark, regenerate
from strandline.views.relevance import Why, why
from strandline.views.retention import collapse_unused, duration, expire, release
from strandline.views.store_state import StoreState
from strandline.views.subscription import Subscription, subscribe

__all__ = [
    "AUTO",
    "CHANGED",
    "DEFERRED",
    "KEEP",
    "MAINTAIN",
    "MAINTENANCE_COSTS",
    "POLICIES",
    "ROW_BYTES",
    "STRICT",
    "USUAL",
    "ChangeFeed",
    "Choice",
    "ContentChecksum",
    "FeedOffset",
    "FirstSplit",
    "JoinRunner",
    "KnownViews",
    "Lag",
    "NetDifference",
    "RangeStatement",
    "RefreshContext",
    "Seen",
    "Shape",
    "StoreState",
    "Subscription",
    "TwoStates",
    "ViewCopyRecord",
    "ViewDefinition",
    "ViewHost",
    "ViewPosition",
    "ViewRecord",
    "Why",
    "changes_of_view",
    "check_dependents",
    "choose",
    "collapse_unused",
    "define",
    "derive",
    "duration",
    "end",
    "expire",
    "followers",
    "forget",
    "has",
    "in_spark_sql",
    "inserts",
    "instant_at",
    "keep",
    "load",
    "messages",
    "on_spark",
    "outline",
    "pins_of",
    "prices",
    "put",
    "read_views",
    "refresh_context",
    "regenerate",
    "relations_named",
    "release",
    "remove",
    "retune",
    "state_now",
    "subscribe",
    "try_entering",
    "why",
    "with_seen",
]
