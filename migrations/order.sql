-- Puts the recorded times of the migrations into the order of their names, by which node-pg-migrate goes. Versions before 3.0.0
-- recorded them in the time zone of their session, which may have changed, and in which an hour occurs twice when daylight saving
-- time ends. "inventory migrate" runs this before the migrations, because node-pg-migrate checks the order first.
DO $$ BEGIN
  IF (SELECT array_agg(name ORDER BY run_on, id) <> array_agg(name ORDER BY name COLLATE "C") FROM pgmigrations) THEN
    UPDATE pgmigrations SET run_on = ordered.run_on FROM (
      SELECT id, min(run_on) OVER newer - row_number() OVER newer * interval '1 microsecond' AS run_on FROM pgmigrations
      WINDOW newer AS (ORDER BY name COLLATE "C" DESC)
    ) AS ordered
    WHERE pgmigrations.id = ordered.id;
  END IF;
END $$;
