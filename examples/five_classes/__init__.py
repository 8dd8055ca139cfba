"""Tools of all five safety classes, called while everything breaks: what each class promises, as a drill."""

from __future__ import annotations
