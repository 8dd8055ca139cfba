"""The base class of a run's state; which field types it may have is decided in `schema`."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict


class SecretMark:
    """Marks a field whose value is stored encrypted and never shown."""


Secret = Annotated[str, SecretMark()]
"""A text that is encrypted wherever the state is stored: `api_token: Secret`. Only for a state's own fields."""


class State(BaseModel):
    """The minimal facts a run needs to go on, as JSON between steps.

    Subclass it and annotate fields; `State(**input)` is also the run's input, so fields
    without a default are what a start must give. Unknown fields are refused, assignments are
    validated, NaN and infinities are refused, bytes are stored as base64. What comes back
    after a restart equals what was committed, or the step fails before it is committed.

    Fields may be: None, bool, int, float, str, bytes, Decimal, datetime, date, time,
    timedelta, UUID, enums and literals, other State classes, and lists, tuples, sets,
    frozensets, dictionaries and unions of these. `Any` holds plain JSON. A text declared as
    `durableops.Secret` is stored encrypted and masked wherever a state is shown.
    """

    model_config = ConfigDict(
        extra="forbid",
        validate_assignment=True,
        validate_default=True,
        allow_inf_nan=False,
        ser_json_bytes="base64",
        val_json_bytes="base64",
    )

    def check_start(self) -> None:
        """Override it to look, once and before a run is made, at what the input only names: a file, an account.

        Raise `InputRefused` with a sentence for whoever starts it; then nothing is written. It must change nothing.
        """

    schema_version: ClassVar[int] = 1
    """Raise it when the meaning of a field changes; older runs then need a migration."""
