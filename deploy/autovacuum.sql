-- Tables that retention empties. PostgreSQL cleans a table up once a fifth of it is dead; of these that would be millions
-- of rows at a time. With this it begins earlier, does less each time, and what became free is written to again.
-- psql "$DATABASE_OWNER_URL" -f deploy/autovacuum.sql; may be repeated. Measured by `manage.py bench retention`.
DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY[
        'runs_run', 'runs_checkpoint', 'runs_effect', 'runs_event', 'runs_log_line', 'runs_receipt', 'runs_decision',
        'runs_prompt', 'runs_wait', 'runs_artifact', 'runs_outbox_body', 'runs_outbox_message', 'runs_inbound_event'
    ] LOOP
        EXECUTE format('ALTER TABLE %I SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,'
            ' autovacuum_analyze_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.05,'
            ' autovacuum_vacuum_cost_delay = 1)', name);
    END LOOP;
END $$;
