"""The declared nightly job: sources to tables to views to replicas to dumps; see docs/pipeline.md.

To read the source: `settings` (what a file says), `taking` (a step up to its commit), `journal` (why it happens once),
`finishing` (the rest of it), `pipeline` (the recipe of a run).
"""

from strandline.pipeline.detecting import Means
from strandline.pipeline.pipeline import Pipeline, Ran
from strandline.pipeline.toml_file import duration, read_settings

__all__ = ["Means", "Pipeline", "Ran", "duration", "read_settings"]
