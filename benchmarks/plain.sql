-- The plain, non-private query that a release is measured against, on the same engine and file: the same bound (one row
-- per user and query, the first 20 by time), the same counts, written to Parquet; no noise, no threshold. `$log` is the
-- file and `$out` the folder. The clicks are those of the most frequent queries, as many as the release beside it has
-- (the variable `released`; 1,300 without it).
COPY (
  SELECT query, count(*) AS n
  FROM (
    SELECT "user", query, row_number() OVER (PARTITION BY "user" ORDER BY first, query) AS place
    FROM (SELECT "user", query, min("time") AS first FROM '$log' GROUP BY ALL)
  )
  WHERE place <= 20
  GROUP BY query
) TO '$out/queries.parquet' (COMPRESSION zstd);

COPY (
  SELECT query, url, count(*) AS n
  FROM (
    SELECT "user", query, url, row_number() OVER (PARTITION BY "user" ORDER BY first, query, url) AS place
    FROM (
      SELECT "user", query, url, min("time") AS first
      FROM '$log'
      WHERE url IS NOT NULL
        AND query IN (
          SELECT query FROM '$out/queries.parquet' ORDER BY n DESC LIMIT coalesce(getvariable('released'), 1300)
        )
      GROUP BY ALL
    )
  )
  WHERE place <= 5
  GROUP BY query, url
) TO '$out/clicks.parquet' (COMPRESSION zstd);
