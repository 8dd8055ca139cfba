"""Budgets of tenants for a day and a month, and the blocks of them that workers have."""

from __future__ import annotations

import django.db.models.deletion
import django.db.models.expressions
from django.db import migrations, models

# However a block comes, changes or goes, what it takes of its limit is told, and the limit's check refuses too much.
KEPT = """
CREATE FUNCTION runs_keep_blocked() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE runs_tenant_spending
    SET blocked = blocked + CASE WHEN TG_OP = 'DELETE' THEN -OLD.amount WHEN TG_OP = 'INSERT' THEN NEW.amount
        ELSE NEW.amount - OLD.amount END
    WHERE id = CASE WHEN TG_OP = 'DELETE' THEN OLD.spending_id ELSE NEW.spending_id END;
    RETURN NULL;
END $$;
CREATE TRIGGER block_counts_as_blocked AFTER INSERT OR DELETE OR UPDATE OF amount ON runs_budget_block
    FOR EACH ROW EXECUTE FUNCTION runs_keep_blocked();
"""
UNKEPT = "DROP FUNCTION runs_keep_blocked() CASCADE;"


class Migration(migrations.Migration):
    dependencies = [
        ("runs", "0026_made_plans"),
    ]

    operations = [
        migrations.CreateModel(
            name="BudgetBlock",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("amount", models.DecimalField(decimal_places=6, max_digits=20)),
                ("spent", models.DecimalField(db_default=0, decimal_places=6, default=0, max_digits=20)),
            ],
            options={
                "db_table": "runs_budget_block",
            },
        ),
        migrations.CreateModel(
            name="TenantSpending",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("period", models.CharField(max_length=5)),
                ("unit", models.CharField(max_length=15)),
                ("currency", models.CharField(blank=True, default="", max_length=3)),
                ("starts_at", models.DateTimeField()),
                ("ends_at", models.DateTimeField()),
                ("most", models.DecimalField(decimal_places=6, max_digits=20)),
                ("more", models.DecimalField(db_default=0, decimal_places=6, default=0, max_digits=20)),
                ("is_extended", models.BooleanField(db_default=False, default=False)),
                ("spent", models.DecimalField(db_default=0, decimal_places=6, default=0, max_digits=20)),
                ("blocked", models.DecimalField(db_default=0, decimal_places=6, default=0, max_digits=20)),
                ("over", models.DecimalField(db_default=0, decimal_places=6, default=0, max_digits=20)),
            ],
            options={
                "db_table": "runs_tenant_spending",
            },
        ),
        migrations.AddField(
            model_name="quotapolicy",
            name="budget_policy",
            field=models.CharField(db_default="exhaust", default="exhaust", max_length=7),
        ),
        migrations.AddField(
            model_name="quotapolicy",
            name="budgets",
            field=models.JSONField(db_default=models.Value({}, models.JSONField()), default=dict),
        ),
        migrations.AddField(
            model_name="quotapolicy",
            name="time_zone",
            field=models.CharField(db_default="UTC", default="UTC", max_length=64),
        ),
        migrations.AlterField(
            model_name="reservation",
            name="budget",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="reservations",
                to="runs.runbudget",
            ),
        ),
        migrations.AddConstraint(
            model_name="quotapolicy",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("budget_policy__in", ["ask", "cancel", "exhaust", "extend", "fail"]),
                    models.Q(("time_zone", ""), _negated=True),
                ),
                name="quota_policy_budgets_sane",
            ),
        ),
        migrations.AddField(
            model_name="budgetblock",
            name="worker",
            field=models.ForeignKey(
                db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name="+", to="runs.worker"
            ),
        ),
        migrations.AddField(
            model_name="reservation",
            name="block",
            field=models.ForeignKey(
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="reservations",
                to="runs.budgetblock",
            ),
        ),
        migrations.AddConstraint(
            model_name="reservation",
            constraint=models.UniqueConstraint(fields=("block", "token"), name="reservation_once_per_block"),
        ),
        migrations.AddConstraint(
            model_name="reservation",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("block__isnull", False), ("budget", None)),
                    models.Q(("block", None), ("budget__isnull", False)),
                    _connector="OR",
                ),
                name="reservation_of_budget_or_block",
            ),
        ),
        migrations.AddField(
            model_name="tenantspending",
            name="tenant",
            field=models.ForeignKey(
                db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name="+", to="runs.tenant"
            ),
        ),
        migrations.AddField(
            model_name="budgetblock",
            name="spending",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="blocks",
                to="runs.tenantspending",
            ),
        ),
        migrations.AddConstraint(
            model_name="tenantspending",
            constraint=models.UniqueConstraint(
                fields=("tenant", "period", "unit", "starts_at"), name="spending_period_unique"
            ),
        ),
        migrations.AddConstraint(
            model_name="tenantspending",
            constraint=models.CheckConstraint(
                condition=models.Q(("period__in", ["day", "month"])), name="spending_period_known"
            ),
        ),
        migrations.AddConstraint(
            model_name="tenantspending",
            constraint=models.CheckConstraint(
                condition=models.Q(("unit__in", ["calls", "compute_seconds", "money", "steps", "tokens"])),
                name="spending_unit_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="tenantspending",
            constraint=models.CheckConstraint(
                condition=models.Q(("ends_at__gt", models.F("starts_at"))), name="spending_period_forward"
            ),
        ),
        migrations.AddConstraint(
            model_name="tenantspending",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "most__gte",
                        django.db.models.expressions.CombinedExpression(models.F("spent"), "+", models.F("blocked")),
                    )
                ),
                name="spending_within_limit",
            ),
        ),
        migrations.AddConstraint(
            model_name="tenantspending",
            constraint=models.CheckConstraint(
                condition=models.Q(("blocked__gte", 0), ("more__gte", 0), ("over__gte", 0), ("spent__gte", 0)),
                name="spending_amounts_sane",
            ),
        ),
        migrations.AddIndex(
            model_name="budgetblock",
            index=models.Index(fields=["worker"], name="block_of_worker"),
        ),
        migrations.AddConstraint(
            model_name="budgetblock",
            constraint=models.UniqueConstraint(fields=("spending", "worker"), name="block_once_per_worker"),
        ),
        migrations.AddConstraint(
            model_name="budgetblock",
            constraint=models.CheckConstraint(
                condition=models.Q(("amount__gte", models.F("spent")), ("spent__gte", 0)), name="block_within_amount"
            ),
        ),
        migrations.RunSQL(KEPT, UNKEPT),
    ]
