MERGE INTO t AS target
USING (
  SELECT
    CAST(v.c1 AS BIGINT) AS "id"
  FROM (VALUES
    (1)) AS v(c1)
) AS source
ON target."id" = source."id"
WHEN MATCHED THEN DELETE;

MERGE INTO t AS target
USING (
  SELECT
    CAST(v.c1 AS BIGINT) AS "id",
    CAST(v.c2 AS TIMESTAMP_NS) AS "v"
  FROM (VALUES
    (2, '2023-11-14 22:13:20.000000001'),
    (3, '1970-01-01 00:00:00.000000002'),
    (4, NULL)) AS v(c1, c2)
) AS source
ON target."id" = source."id"
WHEN MATCHED THEN UPDATE SET
  "v" = source."v"
WHEN NOT MATCHED THEN INSERT ("id", "v") VALUES (source."id", source."v");

