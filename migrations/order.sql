-- Puts the recorded times of the migrations into the order of their names, and into the past: node-pg-migrate goes by the times, and
-- checks their order before it runs a migration, so "inventory migrate" runs this first. Versions before 3.0.0 recorded them in the
-- time zone of their session, which may have changed, and in which an hour occurs twice when daylight saving time ends.
DO $$ BEGIN
  IF (
    SELECT max(run_on) > now() AT TIME ZONE 'UTC' OR array_agg(name ORDER BY run_on, id) <> array_agg(name ORDER BY name COLLATE "C")
    FROM pgmigrations
  ) THEN
    UPDATE pgmigrations SET run_on = ordered.run_on FROM (
      SELECT id, least(min(run_on) OVER newer, now() AT TIME ZONE 'UTC') - row_number() OVER newer * interval '1 microsecond' AS run_on
      FROM pgmigrations WINDOW newer AS (ORDER BY name COLLATE "C" DESC)
    ) AS ordered
    WHERE pgmigrations.id = ordered.id;
  END IF;
END $$;
