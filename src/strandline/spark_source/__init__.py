"""What Spark users see: `spark.read.format("strandline")`, `df.write.format("strandline")`, `"strandline.diff"`."""

from strandline.spark_source.register import register
