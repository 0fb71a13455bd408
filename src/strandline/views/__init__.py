"""Remote views by difference tables (Chao, Diehr & Saharia 1996).

define, ViewDefinition         what a view is: select, project and join over relations and operators
read_views, KnownViews         what a store says of its views at one state
refresh_context                what a refresh of a copy reads, and its difference
"""

from strandline.views.catalog import (
    AUTO,
    DEFERRED,
    EAGER,
    KEEP,
    MAINTAIN,
    POLICIES,
    STRICT,
    ContentChecksum,
    StoredRecord,
    ViewCopyRecord,
    ViewPosition,
    ViewRecord,
    has,
    put,
    record_rows,
    remove,
)
from strandline.views.change_feed import (
    ChangeFeed,
    FeedOffset,
    FirstSplit,
    changes_of_view,
    check_steady,
    followers,
    forget,
    inserts,
)
from strandline.views.definition import ViewDefinition, computed_whole, instant_at, outline
from strandline.views.delta_query import TwoStates
from strandline.views.dependencies import ViewDeriver, relations_named
from strandline.views.difference_table import end, try_entering
from strandline.views.join import JoinRunner
from strandline.views.known_views import KnownViews, Lag, ViewHost, read_views, state_now
from strandline.views.maintenance import (
    CHANGED,
    MAINTENANCE_COSTS,
    ROW_BYTES,
    USUAL,
    Choice,
    Seen,
    check_eager,
    check_policy,
    choose,
    keep,
    load,
    messages,
    prices,
    retune,
    why_not_eager,
    with_seen,
)
from strandline.views.operator_delta import work_of
from strandline.views.range_modifications import RangeStatement
from strandline.views.refresh import (
    NetDifference,
    RefreshContext,
    id_of_rows,
    refresh_context,
    stored_context,
)
from strandline.views.regeneration import in_spark_sql, on_spark, regenerate
from strandline.views.relevance import Why, why
from strandline.views.retention import (
    collapse_unused,
    drop_pins,
    duration,
    expire,
    pinned,
    pins_of,
    position_at,
    release,
)
from strandline.views.store_state import StoreState
from strandline.views.stored_rows import (
    difference_to,
    is_kept_at_commits,
    layout_of,
    rows_of_view,
)
from strandline.views.subscription import Subscription, subscribe
