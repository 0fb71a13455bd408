"""What Spark users see: `spark.read.format("strandline")`, `df.write.format("strandline")`, `"strandline.diff"`."""
