"""Every table of the record, one module for each thing it is about."""

from __future__ import annotations

from runs.models.access import ApiToken, Membership, Tenant
from runs.models.approval import Approval
from runs.models.artifact import Artifact, LooseFile
from runs.models.audit import AuditEntry
from runs.models.budget import BudgetBlock, Reservation, RunBudget, TenantSpending
from runs.models.bulk import Bulk, BulkItem
from runs.models.checkpoint import Checkpoint
from runs.models.compensation import Compensation, CompensationOrder
from runs.models.doubt import Doubt, System
from runs.models.drill import DrillReport
from runs.models.effect import Decision, IdempotencyRecord
from runs.models.gate import Gate
from runs.models.history import LogLine, Receipt, RunEvent
from runs.models.lineage import Lineage
from runs.models.made_plan import MadePlan
from runs.models.outbox import OutboxBody, OutboxDestination, OutboxLane, OutboxMessage
from runs.models.plan import PlanSource, WorkflowPlan
from runs.models.policy import PauseSwitch
from runs.models.prompt import Prompt
from runs.models.quota import QuotaPolicy, Slot
from runs.models.retention import (
    ClassSize,
    Cleanup,
    Erasure,
    LegalHold,
    Relook,
    RetentionLane,
    RetentionPreview,
    RetentionRule,
    RunSummary,
)
from runs.models.review import Review
from runs.models.run import Run
from runs.models.wait import InboundEvent, Wait
from runs.models.webhook import WebhookEndpoint
from runs.models.worker import Worker

__all__ = [
    "ApiToken",
    "Approval",
    "Artifact",
    "AuditEntry",
    "BudgetBlock",
    "Bulk",
    "BulkItem",
    "Checkpoint",
    "ClassSize",
    "Cleanup",
    "Compensation",
    "CompensationOrder",
    "Decision",
    "Doubt",
    "DrillReport",
    "Erasure",
    "Gate",
    "IdempotencyRecord",
    "InboundEvent",
    "LegalHold",
    "Lineage",
    "LogLine",
    "LooseFile",
    "MadePlan",
    "Membership",
    "OutboxBody",
    "OutboxDestination",
    "OutboxLane",
    "OutboxMessage",
    "PauseSwitch",
    "PlanSource",
    "Prompt",
    "QuotaPolicy",
    "Receipt",
    "Relook",
    "Reservation",
    "RetentionLane",
    "RetentionPreview",
    "RetentionRule",
    "Review",
    "Run",
    "RunBudget",
    "RunEvent",
    "RunSummary",
    "Slot",
    "System",
    "Tenant",
    "TenantSpending",
    "Wait",
    "WebhookEndpoint",
    "Worker",
    "WorkflowPlan",
]
