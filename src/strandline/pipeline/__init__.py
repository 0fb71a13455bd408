"""The declared nightly job: sources to tables to views to replicas to dumps; see docs/pipeline.md.

To read the source: `settings` (what a file says), `taking` (a step up to its commit), `journal` (why it happens once),
`finishing` (the rest of it), `pipeline` (the recipe of a run).
"""

from strandline.pipeline.detection import RunMeans
from strandline.pipeline.pipeline import Pipeline, Ran, stopping, watch
from strandline.pipeline.settings import duration, read_settings

__all__ = ["Pipeline", "Ran", "RunMeans", "duration", "read_settings", "stopping", "watch"]
