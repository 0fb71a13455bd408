"""What Spark users see: `spark.read.format("strandline")`, `df.write.format("strandline")`, `"strandline.diff"`.

register(spark)   makes the data sources known to a session, classic or Connect
release()         lets go of the states that DataFrames of this process keep readable
"""

from strandline.sources.register import register, release

__all__ = ["register", "release"]
