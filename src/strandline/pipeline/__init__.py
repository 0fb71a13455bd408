"""The declared nightly job: sources to tables to views to replicas to dumps; see docs/pipeline.md.

To read the source: `pipeline` (the recipe of a run), `step` (a step up to its commit), `journal` (why it happens once),
`finish` (the rest of it), `detection` (what changed at a source), `settings` (the file).
"""

from strandline.pipeline.alarms import prometheus_text
from strandline.pipeline.detection import RunOptions
from strandline.pipeline.page import outcome
from strandline.pipeline.pipeline import Pipeline, RunResult, stop_on_signals, watch
from strandline.pipeline.settings import duration, read_settings
