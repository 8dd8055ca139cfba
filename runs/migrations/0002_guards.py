"""Guards that hold whoever writes: history is immutable, terminal states are final, positions never go back.

They are the backstop behind the conditions that every statement carries. A trigger's WHEN is evaluated without calling
its function, but it is parsed anew by every statement (a tenth of a step commit's time on the server); so each guard
names the columns it is about, and a statement that does not assign them pays nothing.
"""

from __future__ import annotations

from django.db import migrations

IMMUTABLE = ("runs_checkpoint", "runs_event", "runs_audit_entry")
TERMINAL = "('succeeded', 'failed', 'cancelled', 'timed_out', 'exhausted')"
REOPENABLE = "('failed', 'timed_out', 'exhausted')"

FUNCTIONS = """
CREATE FUNCTION runs_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- Retention sets this inside its own transaction, after it has recorded what goes and why.
    IF current_setting('durableops.retention', true) = 'on' AND TG_OP = 'DELETE' THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION '% rows are immutable: % is refused.', TG_TABLE_NAME, TG_OP
        USING ERRCODE = 'restrict_violation', CONSTRAINT = TG_TABLE_NAME || '_immutable';
END $$;

CREATE FUNCTION runs_refuse_move() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'run % may not go from % (fence %, checkpoint %) to % (fence %, checkpoint %): %.',
        OLD.id, OLD.state, OLD.fence, OLD.head_seq, NEW.state, NEW.fence, NEW.head_seq, TG_ARGV[0]
        USING ERRCODE = 'restrict_violation', CONSTRAINT = TG_NAME;
END $$;

CREATE FUNCTION runs_refuse_outcome() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'effect % is % already: its outcome, key and slot are final.', OLD.id, OLD.state
        USING ERRCODE = 'restrict_violation', CONSTRAINT = TG_NAME;
END $$;
"""

RUN_GUARDS = f"""
CREATE TRIGGER run_terminal_is_final BEFORE UPDATE OF state ON runs_run FOR EACH ROW
    WHEN (OLD.state IN {TERMINAL} AND NEW.state <> OLD.state
          AND NOT (OLD.state IN {REOPENABLE} AND NEW.state = 'queued'))
    EXECUTE FUNCTION runs_refuse_move('a finished run stays finished');
CREATE TRIGGER run_fence_never_falls BEFORE UPDATE OF fence ON runs_run FOR EACH ROW
    WHEN (NEW.fence < OLD.fence) EXECUTE FUNCTION runs_refuse_move('a fence only grows');
CREATE TRIGGER run_claim_raises_fence BEFORE UPDATE OF state ON runs_run FOR EACH ROW
    WHEN (NEW.state = 'running' AND OLD.state <> 'running' AND NEW.fence <= OLD.fence)
    EXECUTE FUNCTION runs_refuse_move('each claim raises the fence');
CREATE TRIGGER run_head_never_falls BEFORE UPDATE OF head_seq ON runs_run FOR EACH ROW
    WHEN (NEW.head_seq < OLD.head_seq) EXECUTE FUNCTION runs_refuse_move('checkpoint numbers only grow');
CREATE TRIGGER run_cursor_never_falls BEFORE UPDATE OF cursor ON runs_run FOR EACH ROW
    WHEN (NEW.lineage = OLD.lineage AND NEW.step_id = OLD.step_id AND NEW.head_seq = OLD.head_seq + 1
          AND jsonb_typeof(NEW.cursor) = 'number' AND jsonb_typeof(OLD.cursor) = 'number' AND NEW.cursor < OLD.cursor)
    EXECUTE FUNCTION runs_refuse_move('cursors only grow within a lineage');
CREATE TRIGGER effect_outcome_is_final BEFORE UPDATE ON runs_effect FOR EACH ROW
    WHEN (NEW.slot <> OLD.slot OR NEW.key <> OLD.key OR NEW.request_hash <> OLD.request_hash
          OR (OLD.state IN ('succeeded', 'refused') AND NEW.state <> OLD.state))
    EXECUTE FUNCTION runs_refuse_outcome();
"""

HISTORY_GUARDS = "\n".join(
    f"CREATE TRIGGER {table}_immutable BEFORE UPDATE OR DELETE ON {table} FOR EACH ROW EXECUTE FUNCTION runs_refuse_change();"
    for table in IMMUTABLE
)

# Room on each page, so that a step commit rewrites its run in place without touching an index.
STORAGE = """
ALTER TABLE runs_run SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE runs_worker SET (fillfactor = 10, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_scale_factor = 0);
CREATE SEQUENCE runs_worker_number AS integer OWNED BY runs_worker.number;
"""

# A 100 kB result is stored six times as fast as with the default; not every server is built with it, so it is asked.
COMPRESSION = """
DO $$ BEGIN
    IF (SELECT 'lz4' = ANY(enumvals) FROM pg_settings WHERE name = 'default_toast_compression') THEN
        ALTER TABLE runs_checkpoint ALTER COLUMN state SET COMPRESSION lz4, ALTER COLUMN output SET COMPRESSION lz4;
        ALTER TABLE runs_effect ALTER COLUMN result SET COMPRESSION lz4;
        ALTER TABLE runs_decision ALTER COLUMN result SET COMPRESSION lz4;
    END IF;
END $$;
"""

UNDO = "\n".join(
    [
        "DROP SEQUENCE runs_worker_number;",
        "ALTER TABLE runs_run RESET (fillfactor, autovacuum_vacuum_scale_factor, autovacuum_vacuum_cost_delay);",
        "ALTER TABLE runs_worker RESET (fillfactor, autovacuum_vacuum_threshold, autovacuum_vacuum_scale_factor);",
        "DROP FUNCTION runs_refuse_change() CASCADE;",
        "DROP FUNCTION runs_refuse_move() CASCADE;",
        "DROP FUNCTION runs_refuse_outcome() CASCADE;",
    ]
)


class Migration(migrations.Migration):
    dependencies = [("runs", "0001_record")]

    operations = [migrations.RunSQL(FUNCTIONS + RUN_GUARDS + HISTORY_GUARDS + STORAGE + COMPRESSION, UNDO)]
