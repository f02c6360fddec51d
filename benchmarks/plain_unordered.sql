-- The cheaper plain query that peers are often compared with: any 20 rows of a user, whichever the engine meets first,
-- instead of the first 20 queries by time, one row each. Nothing is ordered and nothing is made distinct, so it is not the
-- same table as a release's; it says how much of the cost is the order. `$log` is the file and `$out` the folder.
COPY (
  SELECT query, count(*) AS n
  FROM (SELECT query, row_number() OVER (PARTITION BY "user") AS place FROM '$log')
  WHERE place <= 20
  GROUP BY query
) TO '$out/queries.parquet' (COMPRESSION zstd);
